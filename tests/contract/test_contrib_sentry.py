"""Events, transactions and check-ins that Sentry gets from workers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from pyasynq import App, Archive, Cancel, Retry, RevokeTask, SchedulerConfig, SkipRetry, Snooze
from pyasynq.contrib._sentry_monitors import make_monitors
from pyasynq.contrib.sentry import instrument
from pyasynq.events import WorkerDied
from tests.fix_engine import serving, trust_redis
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentry_sdk.envelope import Envelope

    from tests.factories import Tasks
    from tests.invariants import RedisClient


class Kept(Transport):
    """A transport that keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        """Keep events, transactions and check-ins."""
        kinds = {"event", "transaction", "check_in"}
        self.events += [item.payload.json for item in envelope.items if item.type in kinds]

    def kind(self, kind: str) -> list[Any]:
        """Return the events of a type, `event`, `transaction` or `check_in`."""
        return [one for one in self.events if one.get("type", "event") == kind]


@pytest.fixture
def sent() -> Iterator[Kept]:
    """Initialise the SDK without its own integrations, and forget it afterwards."""
    kept = Kept()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(
            "http://key@127.0.0.1:9/1",
            transport=kept,
            traces_sample_rate=1.0,
            default_integrations=False,
            auto_enabling_integrations=False,
        )
        yield kept
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)


def run(error: BaseException | None, *, plain: bool) -> None:
    """Run a task that raises this, once."""
    app = make_app()
    instrument(app)

    def act(secret: str) -> None:
        if error is not None:
            raise error

    async def act_async(secret: str) -> None:
        act(secret)

    task = app.task("email:deliver", queue="mail", max_retry=0)(act if plain else act_async)
    with sound_kit(app) as kit:
        task.options(task_id="a").enqueue_sync(secret="hunter2")
        kit.drain_sync(raises=False)


@pytest.mark.parametrize("plain", [False, True])
def test_an_error_is_an_event_of_its_own_group(sent: Kept, plain: bool) -> None:
    """With the frames of the handler, the task, and a fingerprint without numbers; without the payload."""
    run(ValueError("no user 4711"), plain=plain)

    [event] = sent.kind("event")
    [exception] = event["exception"]["values"]
    assert ("ValueError", "no user 4711") == (exception["type"], exception["value"])
    assert "act" == exception["stacktrace"]["frames"][-1]["function"]
    assert ["pyasynq", "email:deliver", "ValueError", "no user <n>"] == event["fingerprint"]
    assert {"pyasynq.queue": "mail", "pyasynq.type": "email:deliver"} == event["tags"]
    assert ("a", 0) == (event["contexts"]["pyasynq"]["task_id"], event["contexts"]["pyasynq"]["retried"])
    [transaction] = sent.kind("transaction")
    assert transaction["contexts"]["trace"]["trace_id"] == event["contexts"]["trace"]["trace_id"]
    assert "internal_error" == transaction["contexts"]["trace"]["status"]
    assert "args" not in str(event.get("request", ""))


@pytest.mark.parametrize(
    "error",
    [None, Snooze(3_600), Retry(3_600), Archive("why"), SkipRetry("why"), Cancel("why"), RevokeTask("why")],
)
def test_what_a_handler_asks_for_is_not_an_error(sent: Kept, error: BaseException | None) -> None:
    """There is a transaction for the attempt, and no event."""
    run(error, plain=False)

    assert [] == sent.kind("event")
    [transaction] = sent.kind("transaction")
    trace = transaction["contexts"]["trace"]
    assert ("email:deliver", "queue.process", "ok") == (
        transaction["transaction"],
        trace["op"],
        trace["status"],
    )
    assert "mail" == trace["data"]["messaging.destination.name"]


@run_async
async def test_a_timeout_is_reported_by_the_worker(sent: Kept, redis_url: str) -> None:
    """The handler is only cancelled, and cannot raise it."""
    app = App(redis_url)
    instrument(app)

    @app.task("slow", max_retry=0, timeout=1)
    async def slow() -> None:
        await asyncio.sleep(3_600)

    async with serving(redis_url, app) as running:
        handle = await slow.enqueue()
        await running.finished(handle.id)
    await app.close()

    [event] = sent.kind("event")
    assert "TaskTimeoutError" == event["exception"]["values"][-1]["type"]
    assert "slow" == event["tags"]["pyasynq.type"]
    assert "cancelled" == sent.kind("transaction")[0]["contexts"]["trace"]["status"]


@run_async
async def test_the_death_of_a_worker_is_reported_by_the_one_that_takes_its_task_back(
    sent: Kept, redis_url: str, redis_client: RedisClient, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt is a transaction; the first one has none, since its process is gone."""
    trust_redis(monkeypatch)
    app = App(redis_url)
    instrument(app)

    @app.task("slow")
    async def slow() -> None: ...

    tasks.active("a", type="slow", token="dead/1", lease=redis_client.time()[0] - 60)
    async with serving(redis_url, app) as running:
        await running.recorder.wait(WorkerDied)
        await running.finished("a")
    await app.close()

    [event] = sent.kind("event")
    assert "WorkerDiedError" == event["exception"]["values"][-1]["type"]
    assert ["pyasynq", "slow", "WorkerDiedError"] == event["fingerprint"][:3]
    assert {"pyasynq.queue": "default", "pyasynq.type": "slow"} == event["tags"]
    assert "a" == event["contexts"]["pyasynq"]["task_id"]
    assert ["ok"] == [one["contexts"]["trace"]["status"] for one in sent.kind("transaction")]


MONDAY = datetime(2040, 1, 2, 7, tzinfo=UTC)


def list_check_ins(sent: Kept) -> list[tuple[str, str]]:
    """Return name and status of each check-in."""
    return [(one["monitor_slug"], one["status"]) for one in sent.kind("check_in")]


def test_a_run_of_a_schedule_checks_in_and_out(sent: Kept) -> None:
    """The first has what Sentry makes the monitor of; both have one id. A task enqueued by hand has none."""
    app = make_app()
    instrument(app, check_ins=True)

    @app.cron("CRON_TZ=Europe/Berlin 0 9 * * mon-fri")
    @app.task("Report:Daily", timeout=90)
    async def report() -> None: ...

    with sound_kit(app, start=MONDAY) as kit:
        report.enqueue_sync()
        kit.advance_sync(hours=2)

    begin, end = sent.kind("check_in")
    assert [("report-daily", "in_progress"), ("report-daily", "ok")] == list_check_ins(sent)
    assert {
        "schedule": {"type": "crontab", "value": "0 9 * * mon-fri"},
        "timezone": "Europe/Berlin",
        "max_runtime": 2,
    } == begin["monitor_config"]
    assert begin["check_in_id"] == end["check_in_id"]


@pytest.mark.parametrize(
    ("first", "statuses"),
    [(ValueError("once"), ["in_progress", "ok"]), (Cancel("not today"), ["in_progress", "ok"])],
)
def test_a_retried_run_ends_once(sent: Kept, first: BaseException, statuses: list[str]) -> None:
    """The check-in of its second attempt is that of its end; a run that cancels itself is well."""
    app = make_app()
    instrument(app, check_ins=True)
    errors = [first]

    @app.cron("0 8 * * *")
    @app.task("report", max_retry=1, retry_delay=60)
    def report() -> None:
        if errors:
            raise errors.pop()

    with sound_kit(app, start=MONDAY) as kit:
        kit.advance_sync(hours=2, raises=False)

    assert [("report", status) for status in statuses] == list_check_ins(sent)
    assert 1 == len({one["check_in_id"] for one in sent.kind("check_in")})


@run_async
async def test_a_run_that_is_archived_has_failed(sent: Kept, redis_url: str) -> None:
    """Also where the handler could not raise it, such as at a timeout."""
    app = App(redis_url)
    instrument(app, check_ins=True)

    @app.cron("@daily")
    @app.task("slow", max_retry=0, timeout=1)
    async def slow() -> None:
        await asyncio.sleep(3_600)

    [entry] = app.scheduler().entries
    async with serving(redis_url, app) as running:
        handle = await slow.options(task_id=f"{entry}:1").enqueue()
        await running.finished(handle.id)
    await app.close()

    assert [("slow", "in_progress"), ("slow", "error")] == list_check_ins(sent)


def test_without_check_ins_sentry_gets_none(sent: Kept) -> None:
    """Monitors cost money, so they are asked for."""
    app = make_app()
    instrument(app)
    app.cron("0 8 * * *")(app.task("report")(lambda: None))
    with sound_kit(app, start=MONDAY) as kit:
        kit.advance_sync(hours=2)

    assert [] == sent.kind("check_in")


@pytest.mark.parametrize(
    ("spec", "schedule"),
    [
        ("*/5 8-18 * * *", {"type": "crontab", "value": "*/5 8-18 * * *"}),
        ("@daily", {"type": "crontab", "value": "0 0 * * *"}),
        ("TZ=Asia/Tokyo @hourly", {"type": "crontab", "value": "0 * * * *"}),
        ("@every 1h30m", {"type": "interval", "value": 90, "unit": "minute"}),
        ("@every 90s", None),
    ],
)
def test_a_schedule_is_described_in_the_words_of_sentry(spec: str, schedule: object) -> None:
    """One in seconds is not, since Sentry counts minutes."""
    app = make_app()
    app.cron(spec)(app.task("report")(lambda: None))
    entries = app._list_entries()

    assert list(app.scheduler().entries) == [entry.id for entry in entries]
    made = [one.config["schedule"] for one in make_monitors(entries, UTC).values()]
    assert ([] if schedule is None else [schedule]) == made


def test_a_zone_without_a_name_is_not_described() -> None:
    """Sentry would take its times for UTC."""
    east = timezone(timedelta(hours=2))
    app = make_app(scheduler_config=SchedulerConfig(location=east))
    app.cron("@daily")(app.task("report")(lambda: None))

    assert {} == make_monitors(app._list_entries(), east)


def test_schedules_of_one_type_have_monitors_of_their_own() -> None:
    """Named like the type, with the beginning of the entry's id, and in at most 50 characters."""
    app = make_app()
    task = app.task("report:" + "x" * 60)(lambda: None)
    app.cron("@daily")(task)
    app.cron("@hourly")(task)

    monitors = make_monitors(app._list_entries(), UTC)

    assert [f"report-{'x' * 34}-{entry[:8]}" for entry in monitors] == [one.slug for one in monitors.values()]
