"""Schedulers on a real server, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

import pytest

from pyasynq._background.node_services import NodeServices
from pyasynq._broker.schedules import list_enqueue_events, list_schedulers
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._scheduler.entry import entry_id
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import SchedulerConfig
from pyasynq.errors import (
    CronError,
    DuplicateTaskError,
    InvalidOptionError,
    PayloadTooLargeError,
    RedisUnavailableError,
    ScheduleNotFoundError,
    SchedulerStateError,
    TickTakenError,
    UnknownOptionError,
)
from pyasynq.events import (
    FutureTickIgnored,
    HookFailed,
    RedisWarning,
    RoundFailed,
    RoundFinished,
    SchedulerStateChanged,
    ShutdownHung,
    TickFailed,
    TickFired,
    TicksMissed,
)
from pyasynq.scheduler import Scheduler
from pyasynq.server import ServerState
from pyasynq.task import Task, TaskInfo, TaskState
from tests.factories import Tasks
from tests.fake_clock import FakeClock
from tests.run_async import run_async
from tests.waiting import set_to

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq.client import CallNext
    from tests.fix_drivers import OwnServer
    from tests.invariants import RedisClient

NOON = datetime(2033, 5, 18, 12, tzinfo=UTC)
EVERY = "@every 10s"


class Clock(FakeClock):
    """Redis' clock and this host's are one, and the test moves it."""

    def __init__(self) -> None:
        super().__init__(int(NOON.timestamp()))

    def redis_now(self) -> Instant | None:
        return self.now()


class Running:
    """A running scheduler whose rounds are waited for.

    `fired` are the ticks that it fired, in seconds after noon; `seen` are its other events.
    """

    def __init__(self, url: str, clock: Clock, config: SchedulerConfig | None = None, **rest: Any) -> None:
        self.clock = clock
        self.scheduler = Scheduler(url, config, clock=clock, **rest)
        self.fired: list[float] = []
        self.seen: list[Any] = []
        self._rounds: dict[tuple[str, str], asyncio.Event] = {}
        """By service and node."""
        events = self.scheduler.events
        events.subscribe(TickFired, lambda event: self.fired.append((event.tick - NOON).total_seconds()))
        for kind in (
            TickFailed,
            TicksMissed,
            FutureTickIgnored,
            HookFailed,
            RoundFailed,
            RedisWarning,
            ShutdownHung,
        ):
            events.subscribe(kind, self.seen.append)
        events.subscribe(RoundFinished, self._ended)
        events.subscribe(RoundFailed, self._ended)

    def _ended(self, event: RoundFinished | RoundFailed) -> None:
        self._rounds.pop((event.service, event.node), asyncio.Event()).set()

    async def round(self, service: Any) -> None:
        """Wake a service, and wait until it rests after two rounds, of which one began after this."""
        await self._two_rounds(service)
        if isinstance(service, NodeServices):
            for one in list(service._members.values()):
                await self._two_rounds(one)

    async def _two_rounds(self, service: Any) -> None:
        key = service.name, service.node
        for _ in range(2):
            ended = self._rounds.setdefault(key, asyncio.Event())
            service.wake()
            await ended.wait()
        # Woken during a round it has one more, and what that learns must not surprise the test.
        while service._rest.is_woken:
            await self._rounds.setdefault(key, asyncio.Event()).wait()

    async def register(self, *args: Any, **options: Any) -> str:
        """Register an entry, and see to it that its ticks count from now."""
        entry = self.scheduler.register(*args, **options)
        await self.round(self.scheduler._ticker)
        return entry

    async def move(self, seconds: float) -> list[float]:
        """Let time pass; return the ticks that were fired since the last call."""
        self.clock.move(seconds)
        await self.round(self.scheduler._ticker)
        fired, self.fired[:] = list(self.fired), []
        return fired

    async def beat(self) -> None:
        """Have a heartbeat."""
        await self.round(self.scheduler._heartbeat)

    async def __aenter__(self) -> Self:
        await self.scheduler.start()
        await self.beat()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.scheduler.shutdown()


def ask(url: str, plan: Plan[Any]) -> Any:
    """Perform a plan."""
    driver = BlockingDriver(parse_redis_url(url))
    try:
        return driver.run(plan)
    finally:
        driver.close()


def pending(client: RedisClient, queue: str = "default") -> list[str]:
    """Return the ids that wait, in order; those of ticks without their entry."""
    ids = [task_id.decode() for task_id in reversed(client.lrange(f"asynq:{{{queue}}}:pending", 0, -1))]
    return [task_id.rpartition(":")[2] for task_id in ids]


def seconds(*ticks: int) -> list[str]:
    """Return what ends the ids of the tasks of ticks."""
    return [str(int(NOON.timestamp()) + tick) for tick in ticks]


@pytest.fixture
def clock() -> Clock:
    """Noon."""
    return Clock()


@run_async
async def test_a_task_is_enqueued_at_every_tick(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """With the options of the registration, of which those of the call win."""
    async with Running(redis_url, clock) as one:
        task = Task("report", b"{}", queue="low", max_retry=1)
        entry = await one.register(EVERY, task, max_retry=2)
        assert [] == await one.move(9)
        assert [10] == await one.move(1)
        assert [] == await one.move(1)
        assert [20] == await one.move(9)
    assert seconds(10, 20) == pending(redis_client, "low")
    task_id = f"{entry}:{seconds(10)[0]}"
    message = decode_task_message(redis_client.hget(f"asynq:{{low}}:t:{task_id}", "msg"))
    assert ("report", b"{}", 2, task_id) == (message.type, message.payload, message.retry, message.id)


@run_async
async def test_h18_several_schedulers_fire_each_tick_once(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Also one that starts later, and one that comes after the first is gone."""
    async with Running(redis_url, clock) as first:
        await first.register(EVERY, "t")
        assert [10] == await first.move(10)
        clock.move(3)
        async with Running(redis_url, clock) as second:
            await second.register(EVERY, "t")
            clock.move(7)
            both = await asyncio.gather(first.move(0), second.move(0))
            assert [20] == both[0] + both[1]
            await first.scheduler.shutdown()
            assert [30] == await second.move(10)
    assert seconds(10, 20, 30) == pending(redis_client)


@run_async
async def test_h18_a_tick_is_not_fired_again_after_its_task_is_done(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """A scheduler whose clock is behind comes late."""
    behind = Clock()
    async with Running(redis_url, clock) as one, Running(redis_url, behind) as other:
        for running in (one, other):
            await running.register(EVERY, "t", misfire="all")
        assert [10] == await one.move(10)
        redis_client.delete("asynq:{default}:pending", *redis_client.keys("asynq:{default}:t:*"))
        assert [] == await other.move(10)
        assert [] == other.seen
    assert [] == pending(redis_client)


@pytest.mark.parametrize(("misfire", "expected"), [("skip", []), ("once", [300]), ("all", [200, 300])])
def test_h18_missed_ticks_are_made_up_for_as_asked(
    redis_url: str, redis_client: RedisClient, clock: Clock, misfire: Any, expected: list[int]
) -> None:
    """It starts at the stored tick, no matter which scheduler fired it."""
    every = "@every 100s"

    async def test() -> None:
        async with Running(redis_url, clock) as one:
            await one.register(every, "t", misfire=misfire)
            await one.move(100)
        clock.move(261)
        later = Running(redis_url, clock)
        entry = later.scheduler.register(every, "t", misfire=misfire)
        async with later:
            await later.move(0)
            missed = [] if expected else [TicksMissed(entry, every, "t", NOON + timedelta(seconds=300))]
            assert missed == later.seen
            assert [400] == await later.move(39)
        assert seconds(100, *expected, 400) == pending(redis_client)

    asyncio.run(test())


@run_async
async def test_a_restart_of_a_second_leaves_no_tick_out(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Though missed ticks are skipped: this one is not late enough. (D29)"""
    async with Running(redis_url, clock) as one:
        await one.register(EVERY, "t")
        assert [10] == await one.move(10)
        clock.move(9.5)
    clock.move(1)
    async with Running(redis_url, clock) as later:
        await later.register(EVERY, "t")
        assert [20] == await later.move(0)
        assert [] == later.seen
    assert seconds(10, 20) == pending(redis_client)


@run_async
async def test_a_last_tick_in_the_future_is_reported_and_silences_nothing(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """A clock of Redis that was wrong once would keep the entry from being fired for years. (D12)"""
    entry = Scheduler(redis_url).register(EVERY, "t")
    redis_client.hset("asynq:{default}:x:ticks", entry, seconds(10**8)[0])
    async with Running(redis_url, clock) as one, Running(redis_url, clock) as other:
        await one.register(EVERY, "t")
        await other.register(EVERY, "t")
        # A heartbeat that is under way may wake the other ticker first: either of them fires a tick.
        assert [10] == await one.move(10) + await other.move(0)
        assert [20] == await other.move(10) + await one.move(0)
        assert [FutureTickIgnored(entry, EVERY, "t", NOON + timedelta(seconds=10**8))] == one.seen
    assert seconds(10, 20) == pending(redis_client)


@run_async
async def test_h18_ids_are_the_same_after_a_restart(redis_url: str, clock: Clock) -> None:
    """So the history goes on; equal registrations have ids of their own."""
    first, second = (Scheduler(redis_url, clock=clock) for _ in range(2))
    ids = [[one.register(EVERY, Task("t")), one.register(EVERY, "t")] for one in (first, second)]
    assert ids[0] == ids[1]
    assert [entry_id(EVERY, Task("t"), 0), entry_id(EVERY, Task("t"), 1)] == ids[0]
    assert ids[0] == list(first.entries)


@run_async
async def test_the_enqueues_of_an_entry_are_remembered(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Also after the scheduler is closed, for ninety days after the tick that is to follow."""
    async with Running(redis_url, clock) as one:
        entry = await one.register(EVERY, "t")
        await one.move(10)
        await one.move(10.5)
    events = ask(redis_url, list_enqueue_events(entry, 0, 9))
    expected = [f"{entry}:{second}" for second in seconds(20, 10)]
    assert expected == [event.task_id for event in events]
    assert NOON + timedelta(seconds=20.5) == events[0].enqueue_time
    assert set_to(90 * 86_400 + 10) == redis_client.ttl(f"asynq:scheduler_history:{entry}")


@run_async
async def test_w27_entries_are_shown_from_the_start(redis_url: str, clock: Clock) -> None:
    """With the next tick and the previous one; and no more after the shutdown."""
    async with Running(redis_url, clock, SchedulerConfig(heartbeat_interval=5)) as one:
        first = await one.register(EVERY, "t", queue="low")
        await one.register("0 13 * * *", "u", b"p")
        await one.beat()
        [(scheduler_id, entries)] = ask(redis_url, list_schedulers(clock.now()))
        assert (one.scheduler.id, 2) == (scheduler_id, len(entries))
        assert (first, EVERY, "t", ('Queue("low")',)) == (
            entries[0].id,
            entries[0].spec,
            entries[0].task_type,
            entries[0].enqueue_options,
        )
        assert (None, NOON + timedelta(seconds=10)) == (
            entries[0].prev_enqueue_time,
            entries[0].next_enqueue_time,
        )
        assert (b"p", NOON + timedelta(hours=1)) == (entries[1].task_payload, entries[1].next_enqueue_time)
        await one.move(10)
        await one.beat()
        [(_, entries)] = ask(redis_url, list_schedulers(clock.now()))
        assert NOON + timedelta(seconds=10) == entries[0].prev_enqueue_time
    assert [] == ask(redis_url, list_schedulers(clock.now()))


@run_async
async def test_w24_a_heartbeat_in_parts_of_a_second_expires_in_whole_ones(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Rounded up, so it does not vanish between two heartbeats."""
    async with Running(redis_url, clock, SchedulerConfig(heartbeat_interval=0.7)) as one:
        await one.register(EVERY, "t")
        await one.beat()
        assert set_to(2) == redis_client.ttl(f"asynq:schedulers:{{{one.scheduler.id}}}")


@run_async
async def test_w26_an_unregistered_entry_is_fired_no_more_and_leaves_no_history(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Its last tick stays, for the other schedulers that may still have it."""
    async with Running(redis_url, clock) as one:
        entry = await one.register(EVERY, "t")
        other = await one.register(EVERY, "u")
        await one.move(10)
        one.scheduler.unregister(entry)
        await one.beat()
        assert [20] == await one.move(10)
        [(_, entries)] = ask(redis_url, list_schedulers(clock.now()))
        assert [other] == [found.id for found in entries]
        assert [f"asynq:scheduler_history:{other}".encode()] == redis_client.keys("asynq:scheduler_history:*")
        assert seconds(10)[0].encode() == redis_client.hget("asynq:{default}:x:ticks", entry)
        with pytest.raises(ScheduleNotFoundError):
            one.scheduler.unregister(entry)


@run_async
async def test_w26_facts_about_entries_without_a_scheduler_are_deleted(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """After ninety days without a tick; what another scheduler shows is kept."""
    async with Running(redis_url, clock) as other:
        kept = await other.register("@yearly", "t")
        await other.beat()
        ticks = "asynq:{default}:x:ticks"
        redis_client.hset(ticks, mapping={"gone": 1, "gone:since": 1, kept: 1, f"{kept}:since": 1})
        async with Running(redis_url, clock) as one:
            mine = await one.register(EVERY, "u")
            one.scheduler._heartbeat._forget_at = 0  # type: ignore[union-attr]
            await one.beat()
    assert {kept, f"{kept}:since", f"{mine}:since"} == {field.decode() for field in redis_client.hkeys(ticks)}


@run_async
async def test_hooks_see_what_is_enqueued(redis_url: str, clock: Clock) -> None:
    """Coroutines or plain functions."""
    seen: list[Any] = []

    async def before(task: Task) -> None:
        seen.append(task.type)

    config = SchedulerConfig(
        pre_enqueue=before,
        post_enqueue=lambda info, error: seen.append((info, error)),
        error_handler=lambda task, error: seen.append(task),
    )
    async with Running(redis_url, clock, config) as one:
        await one.register(EVERY, "t")
        await one.move(10)
    [name, (info, error)] = seen
    assert ("t", None) == (name, error)
    assert isinstance(info, TaskInfo)
    assert seconds(10)[0] == info.id.rpartition(":")[2]


@run_async
async def test_hooks_see_what_is_refused(redis_url: str, redis_client: RedisClient, clock: Clock) -> None:
    """A unique task whose lock is held: the tick counts, and the next one is tried again."""
    seen: list[Any] = []
    config = SchedulerConfig(
        post_enqueue=lambda info, error: seen.append((info, type(error))),
        error_handler=lambda task, error: seen.append((task.type, type(error))),
    )
    async with Running(redis_url, clock, config) as one:
        entry = await one.register(EVERY, "t", unique=3600)
        assert [10] == await one.move(10)
        seen.clear()
        assert [] == await one.move(10)
        assert [(None, DuplicateTaskError), ("t", DuplicateTaskError)] == seen
        [failed] = one.seen
        assert (entry, NOON + timedelta(seconds=20), False) == (failed.entry_id, failed.tick, failed.retried)
    assert seconds(10) == pending(redis_client)


@run_async
async def test_a_tick_that_is_ignored_is_not_a_failure_and_has_no_history(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Its task is not in Redis; the hook is told."""
    seen: list[Any] = []
    config = SchedulerConfig(
        post_enqueue=lambda info, error: seen.append((info and info.enqueue_status, error))
    )
    async with Running(redis_url, clock, config) as one:
        entry = await one.register(EVERY, "t", unique=3600, on_duplicate="ignore")
        assert [10] == await one.move(10)
        await one.move(10)
        assert [("enqueued", None), ("ignored", None)] == seen
    assert seconds(10) == pending(redis_client)
    assert 1 == redis_client.zcard(f"asynq:scheduler_history:{entry}")


@run_async
async def test_a_hook_that_raises_changes_nothing(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """It is reported."""

    def fail(*args: object) -> None:
        raise ValueError("no")

    config = SchedulerConfig(pre_enqueue=fail, post_enqueue=fail)
    async with Running(redis_url, clock, config) as one:
        await one.register(EVERY, "t")
        assert [10] == await one.move(10)
        assert ["pre_enqueue", "post_enqueue"] == [event.hook for event in one.seen]
    assert seconds(10) == pending(redis_client)


@run_async
async def test_client_middleware_goes_around_each_enqueue(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """It may change headers, and sees that another scheduler was first."""
    seen: list[object] = []
    both = asyncio.Barrier(2)

    async def add_tenant(task: Task, call_next: CallNext) -> TaskInfo:
        await both.wait()  # so that neither learns from a heartbeat that the other was first
        changed = task.with_headers(tenant="acme")
        try:
            return await call_next(changed)
        except TickTakenError as error:
            seen.append(error.last)
            raise

    async with (
        Running(redis_url, clock, middleware=[add_tenant]) as one,
        Running(redis_url, clock, middleware=[add_tenant]) as other,
    ):
        await one.register(EVERY, "t")
        await other.register(EVERY, "t")
        clock.move(10)
        fired = await asyncio.gather(one.move(0), other.move(0))
        assert [[], [10]] == sorted(fired)
        assert seconds(10) == [str(last) for last in seen]
    [key] = redis_client.keys("asynq:{default}:t:*")
    assert {"tenant": "acme"} == dict(decode_task_message(redis_client.hget(key, "msg")).headers)


@run_async
async def test_middleware_that_raises_leaves_the_tick_out(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """It is reported, and not tried again and again."""

    async def fail(task: Task, call_next: CallNext) -> TaskInfo:
        raise ValueError("no")

    async with Running(redis_url, clock, middleware=[fail]) as one:
        await one.register(EVERY, "t")
        assert [] == await one.move(10)
        assert [] == await one.move(1)
        assert [(ValueError, False)] == [(type(event.error), event.retried) for event in one.seen]
    assert [] == pending(redis_client)


@run_async
async def test_a_tick_waits_while_redis_is_away(own_server: OwnServer, clock: Clock) -> None:
    """It is reported once and fired when Redis is back; nothing else is lost by it."""
    own_server.connect().close()
    async with Running(own_server.url, clock) as one:
        await one.register(EVERY, "t")
        await one.beat()
        one.scheduler._driver._state.timeout = 0.1  # type: ignore[union-attr]
        own_server.stop()
        assert [] == await one.move(10)
        assert [] == await one.move(1)
        failed = [event for event in one.seen if isinstance(event, TickFailed)]
        assert [(RedisUnavailableError, True)] == [(type(event.error), event.retried) for event in failed]
        own_server.start()
        with own_server.connect() as client:
            one.scheduler._driver._state.timeout = 5  # type: ignore[union-attr]
            assert [10] == await one.move(1)
            assert seconds(10) == pending(client)


@run_async
async def test_the_location_is_that_of_expressions_that_name_none(redis_url: str, clock: Clock) -> None:
    """The location is a name or a tzinfo."""
    for location in ("Europe/Berlin", ZoneInfo("Europe/Berlin")):
        async with Running(redis_url, clock, SchedulerConfig(location=location)) as one:
            entry = await one.register("0 15 * * *", "t")
            await one.beat()
            [(_, [found])] = ask(redis_url, list_schedulers(clock.now()))
            assert (entry, NOON + timedelta(hours=1)) == (found.id, found.next_enqueue_time)


@run_async
async def test_what_cannot_be_is_refused_at_the_registration(redis_url: str) -> None:
    """The error comes from `register`, and not at the first tick."""
    scheduler = Scheduler(redis_url)
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (CronError, {"spec": "* * * *"}),
        (InvalidOptionError, {"misfire": "never"}),
        (InvalidOptionError, {"max_retry": -1}),
        (InvalidOptionError, {"task": Task("t"), "payload": b""}),
        (UnknownOptionError, {"timeuot": 1}),
        (PayloadTooLargeError, {"payload": bytes(8_000_001)}),
    ]
    for error, changes in refused:
        with pytest.raises(error):
            scheduler.register(**{"spec": EVERY, "task": "t", **changes})
    assert {} == scheduler.entries


@pytest.mark.parametrize(
    "settings",
    [{"heartbeat_interval": 0}, {"heartbeat_interval": -1}, {"location": "Berlin"}, {"location": 1}],
)
def test_a_configuration_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidOptionError, match=next(iter(settings))):
        SchedulerConfig(**settings)


@run_async
async def test_a_scheduler_starts_once(redis_url: str, clock: Clock) -> None:
    """Its states are those of a server; closing twice does no harm."""
    states: list[str] = []
    scheduler = Scheduler(redis_url, clock=clock)
    scheduler.events.subscribe(SchedulerStateChanged, lambda event: states.append(event.state))
    assert ServerState.NEW is scheduler.state
    async with scheduler:
        with pytest.raises(SchedulerStateError):
            await scheduler.start()
        await scheduler.stop()
        await scheduler.stop()
    await scheduler.shutdown()
    with pytest.raises(SchedulerStateError):
        await scheduler.start()
    assert ["active", "stopped", "closed"] == states


@pytest.mark.usefixtures("impatient")
@run_async
async def test_a_start_without_redis_fails_and_leaves_nothing(tmp_path_factory: Any) -> None:
    """The caller is told."""
    scheduler = Scheduler(f"unix://{tmp_path_factory.mktemp('r')}/none")
    scheduler.register(EVERY, "t")
    with pytest.raises(RedisUnavailableError):
        await scheduler.start()
    assert ServerState.CLOSED is scheduler.state


@run_async
async def test_a_stopped_scheduler_is_still_shown_and_fires_no_more(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Until it is shut down; this is what TSTP does."""
    async with Running(redis_url, clock) as one:
        await one.register(EVERY, "t")
        await one.beat()
        await one.scheduler.stop()
        clock.move(10)
        await one.beat()
        assert 1 == len(ask(redis_url, list_schedulers(clock.now())))
    assert [] == pending(redis_client)


@run_async
async def test_run_ends_when_it_is_asked_to(redis_url: str, clock: Clock) -> None:
    """A signal ends `run`, and so does the program."""
    scheduler = Scheduler(redis_url, clock=clock)
    scheduler.events.subscribe(RoundFinished, lambda event: scheduler.request_shutdown())
    assert 0 == await scheduler.run()
    assert ServerState.CLOSED is scheduler.state


@run_async
async def test_an_entry_that_cannot_be_fired_does_not_hinder_the_others(
    redis_url: str, redis_client: RedisClient, clock: Clock
) -> None:
    """Redis refuses the tasks of one queue, here because somebody put something else in its place."""
    redis_client.set("asynq:{broken}:x:ticks", "no hash")
    async with Running(redis_url, clock) as one:
        one.scheduler.register(EVERY, "t", queue="broken")
        one.scheduler.register(EVERY, "t", queue="low")
        redis_client.delete("asynq:{broken}:x:ticks")
        await one.beat()
        await one.move(0)
        redis_client.set("asynq:{broken}:x:ticks", "no hash")
        assert [10] == await one.move(10)
        assert [20] == await one.move(10)
        failed = [event.tick for event in one.seen if isinstance(event, TickFailed)]
        assert [NOON + timedelta(seconds=10), NOON + timedelta(seconds=20)] == failed
        redis_client.delete("asynq:{broken}:x:ticks")
    assert seconds(10, 20) == pending(redis_client, "low")


@run_async
async def test_a_shutdown_does_not_wait_for_a_hook_that_hangs(redis_url: str, clock: Clock) -> None:
    """It says which one; so a program can end, and the entries are taken away. (D53)"""
    called = asyncio.Event()

    async def hang(task: Task) -> None:
        called.set()
        await asyncio.Event().wait()

    one = Running(redis_url, clock, SchedulerConfig(pre_enqueue=hang, shutdown_timeout=0.01))
    async with one:
        await one.register(EVERY, "t")
        clock.move(10)
        one.scheduler._ticker.wake()  # type: ignore[union-attr]
        await called.wait()
    assert [ShutdownHung] == [type(event) for event in one.seen]
    assert "the hook pre_enqueue (called " in one.seen[0].what
    assert ServerState.CLOSED is one.scheduler.state
    assert 3 == one.scheduler.exit_code
    assert [] == ask(redis_url, list_schedulers(clock.now()))


@run_async
async def test_a_stop_does_not_wait_for_a_hook_that_hangs(redis_url: str, clock: Clock) -> None:
    """Stopping gives up a hook that hangs, as a shutdown does. (D53)"""
    called = asyncio.Event()

    async def hang(task: Task) -> None:
        called.set()
        await asyncio.Event().wait()

    async with Running(redis_url, clock, SchedulerConfig(pre_enqueue=hang, shutdown_timeout=0.01)) as one:
        await one.register(EVERY, "t")
        clock.move(10)
        one.scheduler._ticker.wake()  # type: ignore[union-attr]
        await called.wait()
        await one.scheduler.stop()
        assert ServerState.STOPPED is one.scheduler.state


@run_async
async def test_schedulers_of_two_zones_have_entries_of_their_own(redis_url: str, clock: Clock) -> None:
    """Each fires nine o'clock of its own zone. (D60)"""
    berlin, tokyo = (
        Scheduler(redis_url, SchedulerConfig(location=zone), clock=clock)
        for zone in ("Europe/Berlin", "Asia/Tokyo")
    )
    assert berlin.register("0 9 * * *", "t") != tokyo.register("0 9 * * *", "t")
    assert berlin.register(EVERY, "t") == tokyo.register(EVERY, "t")


@run_async
async def test_a_scheduler_forwards_due_tasks_of_the_queues_that_it_is_told(
    redis_url: str, redis_client: RedisClient
) -> None:
    """So a scaler sees them while there is no worker; other queues stay as they are."""
    for name in ("told", "other"):
        Tasks(redis_client, name).put(TaskState.SCHEDULED, "late", score=1)
        Tasks(redis_client, name).put(TaskState.RETRY, "again", score=1)
    scheduler = Scheduler(redis_url, SchedulerConfig(forward_queues=("told",)))
    ended = asyncio.Event()
    scheduler.events.subscribe(
        RoundFinished, lambda event: ended.set() if event.service == "forwarder" else None
    )
    async with scheduler:
        await ended.wait()
    assert {b"late", b"again"} == set(redis_client.lrange("asynq:{told}:pending", 0, -1))
    assert [] == redis_client.lrange("asynq:{other}:pending", 0, -1)


@run_async
async def test_the_forwarder_of_a_scheduler_rests_until_the_next_task_is_due(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Five seconds at most."""
    for name, after in (("soon", 2), ("later", 1_000)):
        due = int(redis_client.time()[0]) + after
        Tasks(redis_client, name).put(TaskState.SCHEDULED, "x", score=due)
    rests = {}
    for name in ("soon", "later"):
        scheduler = Scheduler(redis_url, SchedulerConfig(forward_queues=(name,)))
        first: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def note(event: RoundFinished, first: asyncio.Future[float] = first) -> None:
            if event.service == "forwarder" and not first.done():
                first.set_result(event.rest)

        scheduler.events.subscribe(RoundFinished, note)
        async with scheduler:
            rests[name] = await first
    assert rests["soon"] <= 2
    assert 5 == rests["later"]


@pytest.mark.parametrize("names", ["emails", [" "], [5], None])
def test_what_cannot_be_names_of_queues_is_refused(names: Any) -> None:
    """A single name is not a sequence of names."""
    with pytest.raises(InvalidOptionError, match="forward_queues"):
        SchedulerConfig(forward_queues=names)
