"""What a server does about the tasks of others that died, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.services import recoverer as recoverer_module
from pyasynq._engine.services.recoverer import QuietTime, Recoverer
from pyasynq._engine.settings import EngineSettings
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.facts import check_health
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import RedisUnavailableError, ReplyLostError
from pyasynq.events import (
    GhostsDropped,
    LeaseLapsed,
    MessageQuarantined,
    Outcome,
    RoundFailed,
    TaskFinished,
    TaskPoisoned,
    TaskRecovered,
    TaskStarted,
)
from pyasynq.mux import Mux
from pyasynq.task import Task, TaskState
from tests.factories import Tasks
from tests.fix_engine import QUICK, do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis

    from tests.fix_drivers import OwnServer
    from tests.fix_engine import Running

AT_ONCE = dataclasses.replace(QUICK, lease=1, own_slack=0, foreign_slack=0, unleased_grace=0.3)
"""Leases of a second; what has lapsed is recovered at once, and a young Redis is waited for only so long."""


class EndlessQuietTime(QuietTime):
    """A quiet time that never ends; a young Redis begins none."""

    def __init__(self, lease: float, until: float) -> None:
        del until
        super().__init__(lease, 0.0)

    def begin(self, now: float) -> None:
        del now
        self._until = math.inf


@pytest.fixture
def endless_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no quiet time end, so that nothing is recovered if one begins."""

    def keep_quiet(service: Recoverer, queues: Iterable[str]) -> None:
        service._quiet_queues |= dict.fromkeys(queues, math.inf)

    monkeypatch.setattr(recoverer_module, "QuietTime", EndlessQuietTime)
    monkeypatch.setattr(Recoverer, "_keep_quiet", keep_quiet)


async def recovered(running: Running, task_id: str) -> TaskRecovered:
    """Wait until a task is pending again."""
    return await running.recorder.wait(TaskRecovered, lambda event: event.task_id == task_id)


@run_async
async def test_h06_h08_a_task_of_a_dead_worker_is_recovered_and_spends_no_retry(
    redis_url: str, tasks: Tasks
) -> None:
    """It is pending again with one crash more, and its run clears the crashes."""
    seen = []

    async def handle(task: Task) -> None:
        del task
        seen.append((context().retried, tasks.fields("a")["x:crashes"]))

    tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
    async with serving(redis_url, handle, settings=AT_ONCE) as running:
        event = await recovered(running, "a")
        assert (1, "dead") == (event.crashes, event.server_id)
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert [(0, b"1")] == seen
    assert {} == tasks.fields("a")


@run_async
async def test_the_tasks_of_many_queues_are_recovered_by_one_pipeline(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies with tasks in hundreds of queues; a round trip for each takes a busy worker too long."""
    sizes: list[int] = []
    run_batch = AsyncDriver.run_batch

    async def count(driver: AsyncDriver, plans: Sequence[Any]) -> list[Any]:
        if recoveries := sum(plan.__name__ == "recover" for plan in plans):
            sizes.append(recoveries)
        return await run_batch(driver, plans)

    monkeypatch.setattr(AsyncDriver, "run_batch", count)
    queues = [f"q{number}" for number in range(100)]
    for queue in queues:
        Tasks(redis_client, queue).active(f"of {queue}", token="dead/1", lease=int(time.time()) - 1)
    config = ServerConfig(queues=dict.fromkeys(queues, 1))
    async with serving(redis_url, do_nothing, config, AT_ONCE) as running:
        for queue in queues:
            await running.finished(f"of {queue}")
        await running.settled()
    # On a cluster, each of the three nodes gets its own.
    assert (len(queues), True) == (sum(sizes), len(sizes) <= 3)


@run_async
async def test_a_queue_that_takes_no_task_back_holds_up_no_other(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Its own tasks stay where they are, and come back when it is mended."""
    broken = Tasks(redis_client, "broken")
    redis_client.set(broken.keys.pending, "of the wrong type")
    for number, one in enumerate((broken, tasks)):
        one.active(str(number), token="dead/1", lease=int(time.time()) - 1)
    config = ServerConfig(queues={"broken": 1, "default": 1})
    async with serving(redis_url, do_nothing, config, AT_ONCE) as running:
        await recovered(running, "1")
        await running.recorder.wait(
            RoundFailed, lambda event: (event.service, event.queue) == ("recoverer", "broken")
        )
        assert ["0"] == broken.ids("active")
        redis_client.delete(broken.keys.pending)
        await recovered(running, "0")
        await running.finished("0")
        await running.settled()


@pytest.mark.parametrize("call", ["list_expired", "recover"])
@pytest.mark.usefixtures("endless_quiet")
@run_async
async def test_a_call_that_breaks_does_not_suspend_recovery(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A worker without a processor misses its own time-out; all leases are renewed meanwhile."""
    broken = 0
    run_batch = AsyncDriver.run_batch

    async def break_once(driver: AsyncDriver, plans: Sequence[Any]) -> list[Any]:
        nonlocal broken
        if broken or not any(plan.__name__ == call for plan in plans):
            return await run_batch(driver, plans)
        broken += 1
        driver._state.note_disconnect()
        for plan in plans:
            plan.close()
        return [ReplyLostError("redis", "no reply within 5 s")] * len(plans)

    settings = dataclasses.replace(AT_ONCE, lease=30)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        monkeypatch.setattr(AsyncDriver, "run_batch", break_once)
        tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
        failed = await running.recorder.wait(RoundFailed)
        assert ("recoverer", True) == (failed.service, failed.rest <= 0.1)
        await recovered(running, "a")
        await running.finished("a")
        await running.settled()
    assert 1 == broken


@pytest.mark.parametrize("key", ["pending", "active", "lease", "aggregation_sets"])
@pytest.mark.usefixtures("endless_quiet")
@run_async
async def test_a_key_that_has_a_wrong_type_for_a_moment_does_not_suspend_recovery(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, key: str
) -> None:
    """The orphans of its queue come back when it is mended, and those of other queues before."""
    broken = Tasks(redis_client, "broken")
    broken.active("a", token="dead/1", lease=int(time.time()) + 1_000)
    name = getattr(broken.keys, key)
    has_kept = bool(redis_client.exists(name))
    config = ServerConfig(queues={"broken": 1, "default": 1})
    settings = dataclasses.replace(AT_ONCE, lease=30)
    async with serving(redis_url, do_nothing, config, settings) as running:
        if has_kept:
            redis_client.rename(name, f"{name}:kept")
        redis_client.set(name, "of the wrong type")
        if key != "lease":
            redis_client.zadd(broken.keys.lease, {"a": int(time.time()) - 1})
        await running.recorder.wait(
            RoundFailed, lambda event: event.service == "recoverer" and event.queue in {"broken", ""}
        )
        tasks.active("b", token="dead/1", lease=int(time.time()) - 1)
        await recovered(running, "b")
        redis_client.delete(name)
        if has_kept:
            redis_client.rename(f"{name}:kept", name)
        redis_client.zadd(broken.keys.lease, {"a": int(time.time()) - 1}, xx=True)
        await recovered(running, "a")
        await running.finished("a")
        await running.settled()


@pytest.mark.parametrize(
    ("call", "key"), [("recover", "pending"), ("recover", "active"), ("list_expired", "lease")]
)
@pytest.mark.usefixtures("endless_quiet")
@run_async
async def test_a_key_that_has_a_wrong_type_during_one_call_does_not_suspend_recovery(
    redis_url: str,
    redis_client: redis.Redis,
    tasks: Tasks,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    key: str,
) -> None:
    """The look before the call has read the queue, and so does the next one."""
    broken = Tasks(redis_client, "broken")
    name = getattr(broken.keys, key)
    run_batch = AsyncDriver.run_batch
    times = 0

    async def break_once(driver: AsyncDriver, plans: Sequence[Any]) -> list[Any]:
        nonlocal times
        names = [(plan.__name__, plan.gi_frame.f_locals.get("queue")) for plan in plans]
        if times or (call, "broken") not in names:
            return await run_batch(driver, plans)
        times += 1
        has_kept = bool(redis_client.exists(name)) and redis_client.rename(name, f"{name}:kept")
        redis_client.set(name, "of the wrong type")
        results = await run_batch(driver, plans)
        redis_client.delete(name)
        if has_kept:
            redis_client.rename(f"{name}:kept", name)
        return results

    config = ServerConfig(queues={"broken": 1, "default": 1})
    settings = dataclasses.replace(AT_ONCE, lease=30)
    async with serving(redis_url, do_nothing, config, settings) as running:
        monkeypatch.setattr(AsyncDriver, "run_batch", break_once)
        for number, one in enumerate((broken, tasks)):
            one.active(str(number), token="dead/1", lease=int(time.time()) - 1)
        for number in range(2):
            await recovered(running, str(number))
            await running.finished(str(number))
        await running.settled()
    assert 1 == times
    assert any(event.service == "recoverer" for event in running.recorder.of(RoundFailed))


@run_async
async def test_h08_h23_a_recovered_task_goes_to_the_front(redis_url: str, tasks: Tasks) -> None:
    """It has waited long enough; it is pending as any other, with the time since when."""
    tasks.pending("b")
    async with serving(redis_url, do_nothing, settings=AT_ONCE) as running:
        await running.finished("b")
        await running.settled()
        running.server.stop()
        # A dequeue that was under way when the server was told to stop still counts.
        await running.next_round("processor")
        tasks.pending("c")
        tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
        await recovered(running, "a")
    assert ["a", "c"] == tasks.ids("pending")
    assert "pending_since" in tasks.fields("a")


@run_async
async def test_h07_an_active_task_without_a_lease_is_recovered_after_a_grace(
    redis_url: str, tasks: Tasks
) -> None:
    """Seen so in rounds that far apart, with the same token."""
    tasks.active("a", token="dead/1", lease=None)
    begun = time.monotonic()
    async with serving(redis_url, do_nothing, settings=AT_ONCE) as running:
        await recovered(running, "a")
        assert time.monotonic() - begun >= AT_ONCE.unleased_grace
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()


@pytest.mark.parametrize(("limit", "crashes"), [(3, 2), (1, 0), (0, 0)])
@run_async
async def test_h06_a_task_that_kills_its_workers_is_archived_as_poison(
    redis_url: str, tasks: Tasks, limit: int, crashes: int
) -> None:
    """At the limit; the error names the last server, and 0 archives at the first crash."""
    tasks.active("a", token="dead-server/9!", lease=int(time.time()) - 1, crashes=crashes)
    config = ServerConfig(crash_limit=limit)
    async with serving(redis_url, do_nothing, config, AT_ONCE) as running:
        event = await running.recorder.wait(TaskPoisoned)
    assert ("a", crashes + 1, "dead-server") == (event.task_id, event.crashes, event.server_id)
    fields = tasks.fields("a")
    assert b"archived" == fields["state"]
    assert "x:crashes" not in fields
    assert "dead-server" in decode_task_message(fields["msg"]).error_msg


@pytest.mark.parametrize(
    ("token", "own", "crashes", "is_poison"),
    [
        ("dead/9!", {}, 1, False),
        ("dead/9!", {}, 2, True),
        ("dead/9!", {"x:begun": "dead/8!"}, 2, True),
        ("dead/9!+", {}, 2, True),
        ("dead/9!/leased", {"x:extended": "dead/9!/leased"}, 2, True),
        ("dead/9/leased", {"x:extended": "dead/9/leased"}, 7, False),
        ("dead/9/leased", {"x:extended": "dead/9/leased", "x:lapses": 5}, 8, True),
        ("dead/9!", {"x:begun": "dead/9!"}, 2, False),
        ("dead/9", {}, 2, False),
        ("dead/9", {}, 7, False),
        ("dead/9", {"x:lapses": 29}, 7, False),
        ("dead/9", {}, 8, True),
        ("", {}, 7, False),
        ("", {}, 8, True),
    ],
)
@run_async
async def test_a_task_is_poison_when_it_crashed_alone_or_three_times_as_often(
    redis_url: str, tasks: Tasks, token: str, own: dict[str, Any], crashes: int, is_poison: bool
) -> None:
    """The limit is 3; an attempt was alone if its token says so, unless others were taken alongside it.

    Defect D03.
    """
    tasks.active("a", token=token, lease=int(time.time()) - 1, crashes=crashes, extra=own)
    settings = dataclasses.replace(AT_ONCE, silence_share=1e-9)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        if is_poison:
            assert crashes + 1 == (await running.recorder.wait(TaskPoisoned)).crashes
        else:
            assert crashes + 1 == (await recovered(running, "a")).crashes
    if is_poison:
        error = decode_task_message(tasks.fields("a")["msg"]).error_msg
        assert ("!" not in token) == (" times while running it alongside other tasks, last" in error)


@pytest.mark.parametrize(("lapses", "extended"), [(0, ""), (28, ""), (28, "dead/8/leased"), (29, "")])
@run_async
async def test_a_lease_that_was_never_extended_does_not_count_as_a_crash(
    redis_url: str, tasks: Tasks, lapses: int, extended: str
) -> None:
    """Its worker may have hung up before it had the task. At ten times the crash limit it is poison.

    The crashes that the task has already had do not matter.
    """
    own = {"x:lapses": lapses, **({"x:extended": extended} if extended else {})}
    tasks.active("a", token="dead/9/leased", lease=int(time.time()) - 1, crashes=8, extra=own)
    settings = dataclasses.replace(AT_ONCE, silence_share=1e-9)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        if lapses == 29:
            assert 30 == (await running.recorder.wait(TaskPoisoned)).crashes
            archived = decode_task_message(tasks.fields("a")["msg"])
            assert archived.error_msg.startswith(
                "poison: its lease ended 30 times without a sign of its worker"
            )
        else:
            event = await running.recorder.wait(LeaseLapsed)
            assert ("a", lapses + 1, "dead") == (event.task_id, event.lapses, event.server_id)
            assert [] == running.recorder.of(TaskRecovered)


@pytest.mark.parametrize("limit", [0, 1])
@run_async
async def test_a_lapse_is_a_crash_for_tasks_that_must_not_run_twice(
    redis_url: str, tasks: Tasks, limit: int
) -> None:
    """The worker may have had the task and run it, for all that is known."""
    tasks.active("a", token="dead/9/leased", lease=int(time.time()) - 1)
    async with serving(redis_url, do_nothing, ServerConfig(crash_limit=limit), AT_ONCE) as running:
        assert 1 == (await running.recorder.wait(TaskPoisoned)).crashes


@pytest.mark.parametrize("limit", [0, 1])
@run_async
async def test_a_task_that_was_only_prefetched_is_run_and_not_archived(
    redis_url: str, tasks: Tasks, limit: int
) -> None:
    """Its server confirms beginnings, as its token says, and this one is not; three crashes are too many.

    Defect D29.
    """
    ended = int(time.time()) - 1
    tasks.active("taken", token="dead/9+", lease=ended, crashes=1)
    tasks.active("begun", token="dead/9+", lease=ended, extra={"x:begun": "dead/9+"})
    tasks.active("earlier", token="dead/9+", lease=ended, extra={"x:begun": "dead/3+"})
    tasks.active("often", token="dead/9+", lease=ended, crashes=2)
    async with serving(redis_url, do_nothing, ServerConfig(crash_limit=limit), AT_ONCE) as running:
        for task_id in ("taken", "earlier"):
            assert Outcome.SUCCEEDED is (await running.finished(task_id)).outcome
        await running.recorder.wait(TaskPoisoned, lambda event: event.task_id == "begun")
        await running.recorder.wait(TaskPoisoned, lambda event: event.task_id == "often")
        await running.settled()
    assert {"taken", "earlier"} == {event.task_id for event in running.recorder.of(TaskFinished)}


@run_async
async def test_a_handler_begins_after_redis_knows_of_it(redis_url: str, tasks: Tasks) -> None:
    """Tasks with a crash limit of 0 or 1 only; the others are not slowed down. (D29)"""
    seen: dict[str, tuple[bytes | None, bytes]] = {}

    async def handle(task: Task) -> None:
        fields = tasks.fields(context().task_id)
        seen[task.type] = fields.get("x:begun"), fields["x:attempt"]

    mux = Mux()
    mux.handle("once", handle, crash_limit=0)
    mux.handle("often", handle)
    async with serving(redis_url, mux) as running:
        for name in ("once", "often"):
            await running.client.enqueue(name, task_id=name)
            assert Outcome.SUCCEEDED is (await running.finished(name)).outcome
        await running.settled()
    assert seen["once"][0] == seen["once"][1]
    assert seen["often"][0] is None
    assert all(token.endswith(b"+") for _, token in seen.values())


@run_async
async def test_h06_the_crash_limit_of_a_handler_comes_before_the_servers(
    redis_url: str, tasks: Tasks
) -> None:
    """A route may say how often its tasks may crash."""
    tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
    mux = Mux()
    mux.handle("email:", do_nothing, crash_limit=0)
    async with serving(redis_url, mux, settings=AT_ONCE) as running:
        assert "a" == (await running.recorder.wait(TaskPoisoned)).task_id


@run_async
async def test_h06_suspects_run_one_at_a_time_and_without_young_attempts(
    redis_url: str, tasks: Tasks
) -> None:
    """Neighbours of a task that may kill the worker are not blamed for it."""
    together: list[set[str]] = []
    now: set[str] = set()

    async def handle(task: Task) -> None:
        del task
        now.add(context().task_id)
        together.append(set(now))
        await asyncio.sleep(0.01)
        now.discard(context().task_id)

    for number in range(12):
        crashes: dict[str, Any] = {"x:crashes": 2} if number % 4 == 1 else {}
        tasks.put(TaskState.PENDING, str(number), extra=crashes)
    settings = dataclasses.replace(QUICK, silence_share=100.0)
    async with serving(redis_url, handle, settings=settings) as running:
        for number in range(12):
            await running.finished(str(number))
        await running.settled()
    for suspect in ("1", "5", "9"):
        assert [{suspect}] == [group for group in together if suspect in group]
    assert any(len(group) > 1 for group in together)


@run_async
async def test_h08_the_recoverer_waits_for_a_lease_after_redis_was_restarted(
    redis_url: str, tasks: Tasks
) -> None:
    """A Redis that is younger than a lease: live workers are about to renew."""
    tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
    settings = dataclasses.replace(AT_ONCE, lease=100_000)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        for _ in range(5):
            await running.next_round("recoverer")
        assert [] == running.recorder.of(TaskRecovered)
    assert ["a"] == tasks.ids("active")


@pytest.mark.long
@run_async
async def test_the_recoverer_waits_for_a_lease_after_an_outage_that_was_longer_than_one(
    own_server: OwnServer,
) -> None:
    """Live workers could not renew; the wait begins when Redis answers again, not when it went away."""
    settings = dataclasses.replace(AT_ONCE, lease=2, look_interval=1.0)
    async with serving(own_server.url, do_nothing, settings=settings) as running:
        engine = running.server._engine
        assert engine is not None
        engine._driver._state.timeout = 0.2
        [recoverer] = [one for one in engine._started if one.name == "recoverer"]
        with own_server.connect() as client:
            while client.info("server")["uptime_in_seconds"] <= settings.lease:  # noqa: ASYNC110 - as it says
                await asyncio.sleep(0.05)
            Tasks(client).active("a", token="live/1", lease=int(time.time()) + 1)
        await running.next_round("queue_look")
        own_server.signal(signal.SIGSTOP)
        # A call of another service fails first, and the recoverer hears of it before the next look. On a busy
        # machine an earlier call may have taken so long that its connection was closed.
        with pytest.raises((ReplyLostError, RedisUnavailableError)):
            await engine._driver.run(check_health())
        recoverer.wake()
        await asyncio.sleep(settings.lease * 1.2)
        own_server.signal(signal.SIGCONT)
        back_at = time.monotonic()
        await recovered(running, "a")
        assert time.monotonic() - back_at > settings.lease * 0.9
        await running.finished("a")
        await running.settled()


@pytest.mark.parametrize("state", ["pending", "active"])
@run_async
async def test_h21_w22_a_message_that_cannot_be_decoded_is_archived_untouched(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, state: str
) -> None:
    """Whether met at dequeue or at recovery; the others go on."""
    if state == "pending":
        tasks.pending("a", "b")
    else:
        tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
        tasks.pending("b")
    redis_client.hset(tasks.keys.task("a"), "msg", b"\xff\xff\xff")
    async with serving(redis_url, do_nothing, settings=AT_ONCE) as running:
        assert "a" == (await running.recorder.wait(MessageQuarantined)).task_id
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.settled()
    fields = tasks.fields("a")
    assert (b"archived", b"\xff\xff\xff") == (fields["state"], fields["msg"])
    assert fields["x:trace"]


@run_async
async def test_h03_w07_ids_without_a_task_are_dropped_and_reported(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The next task is run as if they had not been."""
    redis_client.lpush(tasks.keys.pending, "ghost")
    tasks.pending("a")
    async with serving(redis_url, do_nothing) as running:
        assert 1 == (await running.recorder.wait(GhostsDropped)).ids
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()


@run_async
async def test_h02_w06_a_vanished_lease_does_not_lose_the_task(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A task in active without a lease is settled all the same."""

    async def handle(task: Task) -> None:
        del task
        redis_client.delete(tasks.keys.lease)

    settings = EngineSettings(sweep_interval=0.02)
    async with serving(redis_url, handle, settings=settings) as running:
        await running.client.enqueue("t", task_id="a")
        await running.recorder.wait(TaskStarted)
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert {} == tasks.fields("a")
