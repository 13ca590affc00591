"""Virtual time: what `advance` does at which instant, and what it leaves in Redis."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pyasynq import (
    App,
    PeriodicTaskManager,
    Queue,
    Scheduler,
    ServerConfig,
    Task,
    TypedCall,
    WorkerConfig,
)
from pyasynq._broker.groups import GroupLimits, check_groups
from pyasynq._broker.leases import RecoverTask, list_expired, recover
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq.config import SchedulerConfig
from pyasynq.errors import ConfigurationError, InvalidOptionError
from pyasynq.events import Outcome, SetsReclaimed, TaskPoisoned, TaskRecovered, TasksAggregated, TickFired
from pyasynq.periodic import PeriodicTaskConfig
from pyasynq.task import TaskState
from pyasynq.testing._time import age_keys
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan

MONDAY = datetime(2040, 1, 2, 8, tzinfo=UTC)


def after(hours: float = 0, **more: float) -> datetime:
    """Return a time after the beginning."""
    return MONDAY + timedelta(hours=hours, **more)


def test_time_is_frozen_until_it_is_moved() -> None:
    """A task for the next second stays where it is, whatever the real clock says."""
    app = make_app()

    @app.task("later")
    def later() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        later.options(process_in=1).enqueue_sync()
        time.sleep(0.01)
        assert 0 == len(kit.drain_sync())
        assert MONDAY == kit.now
        assert 1 == len(kit.advance_sync(seconds=1))
        assert after(seconds=1) == kit.now


@pytest.mark.parametrize("method", ["advance_sync", "pass_time"])
@pytest.mark.parametrize(
    "span", [{"days": 3_000_000}, {"days": 1e30}, {"seconds": float("nan")}, {"hours": "1"}]
)
def test_time_does_not_go_beyond_the_year_9999(method: str, span: dict[str, Any]) -> None:
    """The clock stays where it is. (D59)"""
    with sound_kit(make_app(), start=MONDAY) as kit:
        with pytest.raises(InvalidOptionError, match=r"9999|10000"):
            getattr(kit, method)(**span)
        assert MONDAY == kit.now
        assert 0 == len(kit.advance_sync(seconds=1))


def test_three_days_of_an_hourly_schedule_fire_72_times_in_order() -> None:
    """Each tick at its own instant, with the retries of an earlier one in between."""
    app = make_app()

    @app.cron("@every 1h")
    @app.task("tick", retry_delay=lambda *_: 600, max_retry=1)
    async def tick() -> None:
        if kit.now == after(2):
            raise ValueError("two")

    with sound_kit(app, start=MONDAY) as kit:
        report = kit.advance_sync(days=3, raises=False)

    ticks = [event.tick for event in report.events if isinstance(event, TickFired)]
    assert [after(hour) for hour in range(1, 73)] == ticks
    assert sorted([*ticks, after(2, minutes=10)]) == [attempt.at for attempt in report]
    assert [after(2, minutes=10)] == [attempt.at for attempt in report if attempt.retried]


def test_a_schedule_of_the_calendar_fires_when_its_zone_says_so() -> None:
    """Friday afternoon is seen on a Monday morning."""
    app = make_app(scheduler_config=SchedulerConfig(location="Europe/Berlin"))

    @app.cron("0 16 * * FRI")
    @app.task("weekend")
    def weekend() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        [attempt] = kit.advance_sync(days=7)
        assert datetime(2040, 1, 6, 15, tzinfo=UTC) == attempt.at
        assert after(24 * 7) == kit.now


def test_a_task_is_retried_until_it_is_archived() -> None:
    """Each attempt at the second that its delay names; the report tells all of it."""
    app = make_app()

    @app.task("flaky", max_retry=2, retry_delay=lambda retried, *_: 60 * 2**retried)
    def flaky() -> None:
        raise ConnectionError("down")

    with sound_kit(app, start=MONDAY) as kit:
        flaky.enqueue_sync()
        report = kit.advance_sync(hours=1, raises=False)
        [archived] = kit.inspector.list_tasks("default", TaskState.ARCHIVED)

    assert [MONDAY, after(minutes=1), after(minutes=3)] == [attempt.at for attempt in report]
    assert [Outcome.RETRIED, Outcome.RETRIED, Outcome.ARCHIVED] == [one.outcome for one in report]
    assert ["down"] * 3 == [str(error) for error in report.errors]
    assert after(minutes=3) == archived.in_state_since


def test_a_completed_task_goes_at_the_end_of_its_retention() -> None:
    """The task is still there one second before its retention ends."""
    app = make_app()

    @app.task("kept", retention=3600)
    def kept() -> str:
        return "done"

    with sound_kit(app) as kit:
        kept.enqueue_sync()
        kit.drain_sync()
        kit.advance_sync(seconds=3599)
        assert b'"done"' == kit.inspector.list_tasks("default", TaskState.COMPLETED)[0].result
        kit.advance_sync(seconds=1)
        assert [] == kit.inspector.list_tasks("default", TaskState.COMPLETED)


def test_a_lock_lapses_when_its_time_is_over() -> None:
    """It is a key of Redis with an end: the end comes nearer by as much as time passes."""
    app = make_app()

    @app.task("once", unique=3600)
    def once() -> None: ...

    with sound_kit(app) as kit:
        once.enqueue_sync()
        kit.pass_time(seconds=3599)
        assert not app.enqueue_many_sync([once.task()])[0]
        kit.pass_time(seconds=1)
        assert app.enqueue_many_sync([once.task()])[0]


def test_every_key_with_an_end_grows_older() -> None:
    """Also what no script of ours has written; keys without an end stay."""
    with sound_kit(make_app()) as kit, redis.Redis.from_url(kit.url) as client:
        keys = [f"pyasynq:testing:{number}" for number in range(2_000)]
        began = time.monotonic()
        many = client.pipeline(transaction=False)
        for number, key in enumerate(keys):
            many.set(key, "", ex=100 + number % 2)
        many.set("pyasynq:testing:forever", "")
        many.execute()
        kit.pass_time(seconds=60)
        for key in keys:
            many.ttl(key)
        # Keys grow older by real time as well, which is rounded off while it is less than a second.
        late = int(time.monotonic() - began)
        assert all(40 - late <= left <= 41 for left in many.execute())
        kit.pass_time(seconds=41)
        assert [b"pyasynq:testing:forever"] == list(client.scan_iter("pyasynq:testing:*"))
        client.delete("pyasynq:testing:forever")


def test_a_key_that_a_scan_names_twice_grows_older_once(redis_url: str, redis_client: redis.Redis) -> None:
    """Redis may do so while a database grows or shrinks."""
    redis_client.set("pyasynq:testing:a", "", ex=100)

    class Repeating(BlockingDriver):
        """Answers the first scan a second time."""

        scanned: Any = None

        def run(self, plan: Plan[Any]) -> Any:
            if self.scanned is not None:
                return b"0", self.scanned
            _, self.scanned = super().run(plan)
            return b"1", self.scanned

    with closing(Repeating(parse_redis_url(redis_url))) as driver:
        age_keys(driver, 60)
    assert redis_client.ttl("pyasynq:testing:a") > 30


def test_counters_of_a_day_last_ninety_days_whenever_that_day_is() -> None:
    """Redis keeps them until a time of the calendar, which is not that of the test."""
    app = make_app()

    @app.task("count")
    def count() -> None: ...

    with sound_kit(app, start=MONDAY) as kit, redis.Redis.from_url(kit.url) as client:
        count.enqueue_sync()
        kit.drain_sync()
        kit.pass_time(days=89, hours=23)
        assert 1 == client.exists("asynq:{default}:processed:2040-01-02")
        kit.pass_time(hours=1)
        assert 0 == client.exists("asynq:{default}:processed:2040-01-02")
        assert 1 == kit.inspector.queue_info("default").processed_total


def test_tasks_of_a_crashed_worker_come_back_when_their_lease_is_over() -> None:
    """Thirty seconds of lease, five of patience; the crash is counted."""
    app = make_app()

    @app.task("work")
    def work() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        handle = work.enqueue_sync()
        assert [handle.id] == kit.crash_worker()
        assert not kit.advance_sync(seconds=34)
        report = kit.advance_sync(seconds=1)

    assert [after(seconds=35)] == [attempt.at for attempt in report]
    [recovered] = [event for event in report.events if isinstance(event, TaskRecovered)]
    assert (handle.id, 1) == (recovered.task_id, recovered.crashes)


def test_a_task_that_kills_its_workers_is_archived() -> None:
    """At the third crash, as everywhere."""
    app = make_app()

    @app.task("poison")
    def poison() -> None: ...

    with sound_kit(app) as kit:
        poison.enqueue_sync()
        for _ in range(2):
            kit.crash_worker()
            kit.pass_time(seconds=35)
            # It is recovered and would be run at once: the next worker dies first.
            kit._driver.run(_recover(kit.clock.now()))
        kit.crash_worker()
        report = kit.advance_sync(minutes=1)
        assert TaskState.ARCHIVED == kit.inspector.list_tasks("default", TaskState.ARCHIVED)[0].state

    assert [3] == [event.crashes for event in report.events if isinstance(event, TaskPoisoned)]
    assert not report


def _recover(now: Instant) -> Plan[Any]:
    found = yield from list_expired("default", now=now)
    tasks = [RecoverTask(one.id, one.token, one.lease_score) for one in found]
    return (yield from recover("default", tasks, now=now))


def test_a_group_becomes_one_task_after_its_grace_period() -> None:
    """Counted from the last that joined; the aggregate runs at the same instant."""
    app = make_app()

    @app.task("digest")
    def digest(lines: int) -> None: ...

    @app.task("line", group="mail")
    def line(text: str) -> None: ...

    @app.aggregator("mail", grace_period=60)
    def join(group: str, tasks: Sequence[Task]) -> Task:
        return digest.task(lines=len(tasks))

    with sound_kit(app, start=MONDAY) as kit:
        line.enqueue_sync("one")
        assert not kit.advance_sync(seconds=40)
        line.enqueue_sync("two")
        kit.assert_enqueued(line, "two", state="aggregating", group="mail")
        assert not kit.advance_sync(seconds=59)
        report = kit.advance_sync(seconds=1)

    assert [({"lines": 2}, after(seconds=100))] == [(one.arguments, one.at) for one in report]
    assert [2] == [event.tasks for event in report.events if isinstance(event, TasksAggregated)]


def test_an_aggregator_of_a_typed_task_gets_the_calls_of_its_group() -> None:
    """Decoded, in the order in which they joined."""
    app = make_app()

    @app.task("digest")
    def digest(text: str) -> None: ...

    @app.task("line", group="mail")
    def line(text: str) -> None: ...

    @line.aggregator("mail", grace_period=60)
    async def join(group: str, calls: Sequence[TypedCall[[str], None]]) -> Task:
        return digest.task(" ".join(call.apply(str.upper) for call in calls))

    with sound_kit(app, start=MONDAY) as kit:
        line.enqueue_sync("one")
        kit.pass_time(seconds=1)
        line.enqueue_sync("two")
        report = kit.advance_sync(minutes=2)

    assert [{"text": "ONE TWO"}] == [one.arguments for one in report]


def test_an_aggregator_that_fails_is_seen_and_asked_again() -> None:
    """Its error is raised as that of a handler is, and its tasks are back in their group."""
    app = make_app()
    fails = [True]

    @app.task("line", group="mail")
    def line() -> None: ...

    @app.aggregator(grace_period=1)
    async def join(group: str, tasks: Sequence[Task]) -> Task:
        if fails.pop() if fails else False:
            raise LookupError("no template")
        return Task("digest")

    with sound_kit(app) as kit:
        line.enqueue_sync()
        with pytest.raises(LookupError, match="no template"):
            kit.advance_sync(seconds=1)
        kit.assert_enqueued(line, state="aggregating")
        report = kit.advance_sync(seconds=1, raises=False)
        assert ["digest"] == [attempt.type for attempt in report]


def test_an_aggregation_that_a_crash_broke_off_is_taken_back() -> None:
    """Two minutes later, as `asynq` does."""
    app = make_app()

    @app.task("line", group="mail")
    def line() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        line.enqueue_sync()
        kit.pass_time(seconds=1)
        checked = kit._driver.run(
            check_groups("default", [("mail", GroupLimits(1, 0, 0))], most_sets=1, now=kit.clock.now())
        )
        assert 1 == len(checked.sets)
        report = kit.advance_sync(minutes=3)
        assert [1] == [event.tasks for event in report.events if isinstance(event, SetsReclaimed)]
        kit.assert_enqueued(line, state="aggregating")


def test_a_pause_of_some_time_ends_by_itself() -> None:
    """The tasks that waited run in the second in which the pause ends."""
    app = make_app()

    @app.task("work")
    def work() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        work.enqueue_sync()
        kit.inspector.pause_queue("default", 90)
        assert {"default": 1} == kit.drain_sync().left
        [attempt] = kit.advance_sync(minutes=2)
        assert after(seconds=90) == attempt.at


def test_time_that_passes_without_a_worker_leaves_all_to_the_next_one() -> None:
    """Work that falls due waits; a schedule skips unfired ticks, unless told otherwise."""
    app = make_app()

    @app.cron("@every 1h", misfire="all")
    @app.task("all")
    def every() -> None: ...

    @app.cron("@every 1h")
    @app.task("skip")
    def skipped() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        kit.drain_sync()
        kit.pass_time(hours=5, minutes=30)
        report = kit.drain_sync()

    assert {"all": 5} == {name: len(report.of(name)) for name in ("all", "skip") if report.of(name)}
    assert {after(5, minutes=30)} == {attempt.at for attempt in report}


def test_without_the_scheduler_no_tick_is_fired() -> None:
    """For tests of what waits, in an app with many schedules."""
    app = make_app()

    @app.cron("@every 1h")
    @app.task("tick")
    def tick() -> None: ...

    with sound_kit(app, with_scheduler=False) as kit:
        assert not kit.advance_sync(days=1)


def test_a_periodic_task_manager_follows_its_provider() -> None:
    """It is asked every three minutes; what it returns is fired."""
    specs = {"a": "@every 1h"}
    asked = []

    def provider() -> list[PeriodicTaskConfig]:
        asked.append(kit.now)
        return [PeriodicTaskConfig(spec, Task(name)) for name, spec in specs.items()]

    with sound_kit(lambda _: None, start=MONDAY) as kit:
        kit.add_scheduler(PeriodicTaskManager(kit.url, provider, clock=kit.clock))
        assert ["a"] == [one.type for one in kit.advance_sync(hours=1)]
        specs["b"] = "@every 1h"
        report = kit.advance_sync(hours=2)

    assert [MONDAY, after(minutes=3), after(minutes=6)] == asked[:3]
    assert 2 == len(report.of("a"))
    assert [after(2, minutes=3)] == [one.at for one in report.of("b")]


def test_a_scheduler_of_another_clock_is_refused() -> None:
    """It would fire in real time."""
    with sound_kit(make_app()) as kit, pytest.raises(ConfigurationError, match=r"clock=kit\.clock"):
        kit.add_scheduler(Scheduler(kit.url))


def test_a_provider_that_raises_is_seen() -> None:
    """The first time, and any other time."""
    working = [True]

    def provider() -> list[PeriodicTaskConfig]:
        if not working:
            raise OSError("no database")
        return []

    with sound_kit(lambda _: None) as kit:
        kit.add_scheduler(PeriodicTaskManager(kit.url, provider, clock=kit.clock))
        kit.drain_sync()
        working.clear()
        with pytest.raises(OSError, match="no database"):
            kit.advance_sync(minutes=3)


@run_async
async def test_time_passes_in_coroutines_too() -> None:
    """In the test's own event loop, up to a time of the calendar."""
    app = make_app()

    @app.task("later")
    async def later() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        await later.options(process_at=after(5)).enqueue()
        assert not await kit.advance(timedelta(hours=4))
        [attempt] = await kit.advance_to(after(6))
        assert (after(5), after(6)) == (attempt.at, kit.now)


def test_a_server_configuration_counts() -> None:
    """Such as the rules of the worker about errors."""

    async def handler(task: Task) -> None:
        raise ValueError(task.type)

    config = ServerConfig(queues={"low": 1}, retry_delay=lambda *_: 7)
    with sound_kit(handler, config=config, start=MONDAY) as kit:
        kit.sync_client.enqueue("a", queue="low")
        kit.sync_client.enqueue("b")
        report = kit.advance_sync(seconds=10, raises=False)

    assert [MONDAY, after(seconds=7)] == [attempt.at for attempt in report]
    assert {"default": 1} == report.left


def test_the_worker_settings_of_the_app_count() -> None:
    """They are those of `pyasynq worker`: retry delay, failures, sizes of groups, and queues."""
    asked, sizes = [], []

    def is_failure(error: BaseException) -> bool:
        asked.append(type(error))
        return False

    def join(group: str, tasks: Sequence[Task]) -> Task:
        sizes.append((group, len(tasks)))
        return Task("whole")

    worker = WorkerConfig(
        retry_delay=7, is_failure=is_failure, group_aggregator=join, group_max_size=2, queues={"low": 1}
    )
    app = make_app(worker=worker)

    @app.task("failing", queue="low", max_retry=1)
    def failing() -> None:
        raise OSError

    @app.task("whole", queue="elsewhere")
    def whole() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        failing.enqueue_sync()
        failed = kit.advance_sync(seconds=20, raises=False)
        kit.inspector.delete_all("low", TaskState.RETRY)
        for _ in range(2):
            app.enqueue_sync("part", queue="low", group="g")
        whole.enqueue_sync()
        joined = kit.drain_sync()

    assert [MONDAY, after(seconds=7), after(seconds=14)] == [attempt.at for attempt in failed]
    assert [OSError] * 3 == asked
    assert [("g", 2)] == sizes
    assert ["whole"] == [attempt.type for attempt in joined]
    assert {"elsewhere": 1} == joined.left


def test_one_task_is_performed_under_settings_that_name_other_queues() -> None:
    """`publish_events` may name only queues that the worker serves."""
    app = make_app(worker=WorkerConfig(publish_events={"mail": True}))

    @app.task("mail", queue="mail")
    def mail() -> str:
        return "sent"

    @app.task("other")
    def other() -> str:
        return "done"

    with sound_kit(app) as kit:
        assert ["sent", "done"] == [kit.perform_sync(one).result for one in (mail, other)]


@pytest.mark.parametrize("queues", [{}, {"queues": {"sms": 5}}, {"queues": {"sms": Queue(priority=2)}}])
def test_a_server_configuration_keeps_the_limits_of_the_app(queues: dict[str, Any]) -> None:
    """It serves the queues of the app, unless it names others."""
    app = App("redis://production", queues={"sms": Queue(rate=1, period=60)})

    @app.task("send", queue="sms")
    def send() -> None: ...

    with sound_kit(app, config=ServerConfig(**queues, crash_limit=1), start=MONDAY) as kit:
        for _ in range(3):
            send.enqueue_sync()
        report = kit.advance_sync(minutes=2)

    assert [MONDAY, after(minutes=1), after(minutes=2)] == [attempt.at for attempt in report]


@pytest.mark.parametrize(
    ("duration", "units"),
    [
        (None, {}),
        (timedelta(seconds=1), {"seconds": 1}),
        (None, {"seconds": 0.5}),
        (timedelta(seconds=-1), {}),
        (5, {}),
    ],
)
def test_a_span_of_time_must_be_whole_seconds(duration: timedelta | None, units: dict[str, float]) -> None:
    """A span that is given twice, or not at all, is an error too; the clock has not moved."""
    with sound_kit(make_app(), start=MONDAY) as kit:
        with pytest.raises(InvalidOptionError):
            kit.advance_sync(duration, **units)  # type: ignore[arg-type]
        assert MONDAY == kit.now


@pytest.mark.parametrize("start", [datetime(2020, 1, 1, tzinfo=UTC), MONDAY.replace(tzinfo=None)])
def test_a_kit_does_not_begin_in_the_past(start: datetime) -> None:
    """Nor at a time without a zone."""
    with pytest.raises(InvalidOptionError, match="start="), sound_kit(make_app(), start=start):
        pass


def test_time_does_not_go_back() -> None:
    """The error says what time it is."""
    with (
        sound_kit(make_app(), start=MONDAY) as kit,
        pytest.raises(InvalidOptionError, match="2040-01-02 08:00"),
    ):
        kit.advance_to_sync(after(-1))


def test_a_rate_lets_tasks_through_one_by_one_in_virtual_time() -> None:
    """Ten at once, then fifty a second, each at its own instant; a drain takes what may run now alone."""

    def handler(task: Task) -> None: ...

    config = ServerConfig(queues={"default": Queue(rate=50, burst=10)})
    with sound_kit(handler, config=config, start=MONDAY) as kit:
        for _ in range(100):
            kit.sync_client.enqueue("work")
        report = kit.advance_sync(seconds=1)
        assert 60 == len(report)
        assert [0, 0, 20_000, 40_000, 60_000] == [attempt.at.microsecond for attempt in report[8:13]]
        assert {"default": 40} == report.left == kit.drain_sync().left
        assert 40 == len(kit.advance_sync(minutes=1))


@pytest.mark.parametrize("stored", [False, True])
def test_leases_of_a_dead_worker_count_against_a_limit_until_they_end(stored: bool) -> None:
    """Then the next task runs; the dead worker's own comes back five seconds later."""

    def handler(task: Task) -> None: ...

    config = ServerConfig(queues={"default": 1 if stored else Queue(max_run=1)})
    with sound_kit(handler, config=config, start=MONDAY) as kit:
        if stored:
            kit.inspector.set_queue_limits("default", max_run=1)
        for number in range(2):
            kit.sync_client.enqueue("work", f"{number}".encode())
        kit.crash_worker()
        assert not kit.drain_sync()
        report = kit.advance_sync(minutes=1)

    assert [(b"1", after(seconds=30)), (b"0", after(seconds=35))] == [(one.payload, one.at) for one in report]


def test_how_long_an_inspector_waits_is_real_time() -> None:
    """Virtual time is frozen while a test waits, so that a wait that counted it would have no end."""
    app = make_app()

    @app.task("slow")
    def slow() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        handle = slow.enqueue_sync()
        assert [] == list(kit.inspector.follow(seconds=0.05))
        assert [handle.id] == kit.crash_worker()
        assert ["requested"] == [one.status for one in kit.inspector.cancel(handle.id, wait=0.15)]
        assert MONDAY == kit.now
