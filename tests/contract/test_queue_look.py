"""The look at all queues: plain reads that say where a script has work to do."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.leases import list_expired
from pyasynq._broker.queue_readings import QueueReader, QueueReading, decode_reading
from pyasynq._engine.services import recoverer
from pyasynq._engine.settings import EngineSettings
from pyasynq._redis.key_watcher import ServerWatcher
from pyasynq._redis.pool_async import AsyncPool
from pyasynq._wire.keys import queue_keys
from pyasynq.config import ServerConfig
from pyasynq.events import HeartbeatWritten, QueuesAsked, RoundFinished, TaskRecovered, TaskStarted
from pyasynq.task import TaskState
from tests.factories import NOW, Tasks
from tests.fix_engine import Running, do_nothing, is_watched, serving, swallow_reports
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.fix_drivers import OwnServer

MANY = 300
LOOKS = 5
SILENT = EngineSettings(look_interval=0.05, heartbeat_interval=1_000)
"""Only looks are to be seen; the janitor and the forwarder have their rounds all the same."""
FORWARDED = ServerConfig(concurrency=10, shutdown_timeout=5, janitor_interval=1)


async def all_watched(running: Running) -> None:
    """Wait until Redis reports the next task of each queue, and the server has written its record."""
    await running.recorder.wait(HeartbeatWritten)
    while not all(map(is_watched, running.queues)):
        await running.recorder.wait(RoundFinished, new=True)


async def looks(running: Running, number: int) -> None:
    """Wait until all queues have been looked at this many times more."""
    for _ in range(number):
        await running.next_round("queue_look")


def commands(redis_client: redis.Redis) -> dict[str, int]:
    """Return how often each command was carried out."""
    stats: Any = redis_client.info("commandstats")
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}


@pytest.mark.single_server("statistics of one server are read")
@run_async
async def test_idle_queues_cause_no_script_call(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: a look is one pipeline, with one command for each queue. (D25)"""
    exchanges: list[int] = []
    perform = AsyncPool.perform

    async def count(pool: AsyncPool, begin: Any, wanted: Any) -> Any:
        exchanges.append(len(wanted))
        return await perform(pool, begin, wanted)

    config = dataclasses.replace(FORWARDED, queues={f"q{number}": 1 for number in range(MANY)})
    async with serving(redis_url, do_nothing, config, SILENT) as running:
        await all_watched(running)
        await running.next_round("janitor")
        redis_client.config_resetstat()
        monkeypatch.setattr(AsyncPool, "perform", count)
        before = len(running.recorder.of(QueuesAsked))
        await looks(running, LOOKS)
        monkeypatch.undo()
        done, looked = commands(redis_client), len(running.recorder.of(QueuesAsked)) - before
    assert not done.keys() & {"evalsha", "eval", "llen", "zrange", "zcard"}
    # A look under way when the statistics were reset is told afterwards.
    assert (looked - 1) * MANY <= done["exists"] <= (looked + 1) * MANY
    assert looked - 1 <= len(exchanges) <= looked + 1
    assert {MANY + 1} == set(exchanges), "the clock of Redis is read, too"


@pytest.mark.single_server("statistics of one server are read")
@run_async
async def test_queues_with_tasks_for_later_cause_no_script_call_either(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, damage_allowed: None
) -> None:
    """Scheduled, held by another worker, kept: what is due later is not asked for now. (D25)"""
    later = int(time.time()) + 3_600
    tasks.put(TaskState.SCHEDULED, "scheduled", score=later)
    tasks.put(TaskState.RETRY, "tried", score=later)
    tasks.put(TaskState.COMPLETED, "kept", score=later)
    tasks.active("held", token="other/1", lease=later)
    async with serving(redis_url, do_nothing, FORWARDED, SILENT) as running:
        await all_watched(running)
        await running.next_round("janitor")
        while not running.server._engine._watcher.exists(tasks.keys.scheduled):  # type: ignore[union-attr]
            await running.next_round("forwarder")
        await running.next_round("forwarder")
        redis_client.config_resetstat()
        await looks(running, LOOKS)
        done = commands(redis_client)
    assert not done.keys() & {"evalsha", "eval"}
    assert done["zrange"] >= 5 * LOOKS


@run_async
async def test_after_a_lost_report_the_queue_is_watched_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look finds the task that was not reported; the next one is reported again. (D25)"""
    settings = EngineSettings(look_interval=0.2)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        await all_watched(running)
        swallowed = swallow_reports(monkeypatch)
        await running.client.enqueue("t", task_id="lost")
        await swallowed.wait()
        await running.finished("lost")
        monkeypatch.undo()
        await all_watched(running)
        reported = asyncio.Event()
        invalidate = ServerWatcher._invalidate

        def note(watcher: ServerWatcher, keys: list[bytes] | None) -> None:
            reported.set()
            invalidate(watcher, keys)

        monkeypatch.setattr(ServerWatcher, "_invalidate", note)
        await running.client.enqueue("t", task_id="next")
        await reported.wait()
        await running.finished("next")
        await running.settled()


@run_async
async def test_a_due_task_whose_report_was_lost_starts_after_a_look(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within six seconds of its time: looks are three seconds apart, here less, and suffice. (D25)"""
    assert EngineSettings().look_interval <= 3
    config = ServerConfig(delayed_task_check_interval=1_000)
    async with serving(redis_url, do_nothing, config, EngineSettings(look_interval=0.5)) as running:
        await all_watched(running)
        await running.next_round("forwarder")
        swallowed = swallow_reports(monkeypatch)
        await running.client.enqueue("t", task_id="a", process_in=1)
        await swallowed.wait()
        await running.recorder.wait(TaskStarted)
        monkeypatch.undo()
        await running.settled()


@run_async
async def test_only_the_queue_of_an_orphan_is_asked_for_expired_leases(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have nothing that could be one. (D25)"""
    asked: set[str] = set()

    def note(queue: str, **settings: Any) -> Plan[Any]:
        asked.add(queue)
        return list_expired(queue, **settings)

    monkeypatch.setattr(recoverer, "list_expired", note)
    config = ServerConfig(queues={"default": 1, "one": 1, "two": 1})
    settings = dataclasses.replace(SILENT, lease=1, own_slack=0)
    async with serving(redis_url, do_nothing, config, settings) as running:
        await all_watched(running)
        tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
        await running.recorder.wait(TaskRecovered)
        await running.finished("a")
        await running.settled()
    assert {"default"} == asked


@run_async
async def test_a_key_of_a_wrong_type_spoils_the_reading_of_its_own_queue_alone(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The queue answers, so that it is not unreachable; the server serves it as far as that is possible.

    Defect D25.
    """
    config = ServerConfig(queues={"broken": 1, "default": 1})
    broken = queue_keys("broken")
    tasks.put(TaskState.SCHEDULED, "later", score=int(time.time()) + 3_600)
    async with serving(redis_url, do_nothing, config, SILENT) as running:
        redis_client.set(broken.completed, "of the wrong type")
        queues = {queue.name: queue for queue in running.queues}
        while not isinstance(queues["broken"].reading, Exception):
            await looks(running, 1)
        reading = queues["default"].reading
        assert isinstance(reading, QueueReading)
        assert reading.next_scheduled > reading.redis_now.seconds
        asked = await running.recorder.wait(QueuesAsked, new=True)
        assert (2, ()) == (asked.queues, asked.unreachable)
        await running.client.enqueue("t", task_id="a", queue="broken")
        await running.finished("a")
        await running.settled()
    redis_client.delete(broken.completed)


@run_async
async def test_a_queue_that_may_not_be_read_is_named_and_others_are_read(own_server: OwnServer) -> None:
    """It is asked again each second; when it answers, it is served. (D25)"""
    with own_server.connect() as admin:
        config = ServerConfig(queues={"default": 1, "secret": 1})
        async with serving(own_server.url, do_nothing, config, SILENT) as running:
            await all_watched(running)
            rules = ("resetkeys", "~asynq:{default}*", "~asynq:servers*", "~asynq:workers*", "~asynq:queues")
            admin.execute_command("ACL", "SETUSER", "default", *rules)
            await running.recorder.wait(QueuesAsked, lambda asked: asked.unreachable == ("secret",))
            secret, default = running.queues[1], running.queues[0]
            assert isinstance(secret.reading, Exception)
            assert isinstance(default.reading, QueueReading)
            admin.execute_command("ACL", "SETUSER", "default", "allkeys")
            await running.recorder.wait(QueuesAsked, lambda asked: not asked.unreachable, new=True)
            await running.client.enqueue("t", task_id="a", queue="secret")
            await running.finished("a")
            await running.settled()


@run_async
async def test_a_queue_that_is_added_is_read_at_once(redis_url: str) -> None:
    """Long before the next look. (D25)"""
    settings = EngineSettings(look_interval=1_000)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        await all_watched(running)
        await running.server.add_queue("new")
        await running.recorder.wait(QueuesAsked, lambda asked: asked.queues == 2)
        assert isinstance(running.queues[1].reading, QueueReading)


def test_a_reading_says_what_a_queue_has(tasks: Tasks, perform: Perform, damage_allowed: None) -> None:
    """The first member of each sorted set counts; scores of other programs are rounded up."""
    reader = QueueReader("default")
    assert 0 == perform(reader.exists())
    tasks.pending("p1", "p2", "p3")
    tasks.active("a1", "a2", token="t/1", lease=NOW.seconds + 5)
    tasks.client.zrem(tasks.keys.lease, "a2")
    tasks.put(TaskState.SCHEDULED, "s", score=NOW.seconds + 10)
    tasks.client.zadd(tasks.keys.scheduled, {"s": NOW.seconds + 9.5})
    tasks.put(TaskState.RETRY, "r1", score=NOW.seconds + 8)
    tasks.put(TaskState.RETRY, "r2", score=NOW.seconds + 7)
    assert 5 == perform(reader.exists())
    reading = decode_reading([perform(plan) for plan in reader.heads()], NOW)
    assert (
        QueueReading(
            NOW,
            pending=3,
            active=2,
            leases=1,
            next_scheduled=NOW.seconds + 10,
            next_retry=NOW.seconds + 7,
            next_lease_end=NOW.seconds + 5,
        )
        == reading
    )
    assert isinstance(reading, QueueReading)
    assert (True, NOW.seconds + 7, True) == (reading.has_tasks, reading.next_due, reading.may_have_unleased)
    assert (False, False) == (reading.has_expired, reading.has_stale_set)
    assert not reading.has_lapsed_lease(0)
    assert reading.has_lapsed_lease(-5)


def test_a_reading_says_what_is_over(tasks: Tasks, perform: Perform, damage_allowed: None) -> None:
    """To the second, as scripts see it."""
    reader = QueueReader("default")
    tasks.put(TaskState.COMPLETED, "c", score=NOW.seconds)
    tasks.in_set("g", "set", "m", stale_at=NOW.seconds + 1)
    tasks.client.set(tasks.keys.paused, NOW.seconds)
    tasks.pending("p")
    reading = decode_reading([perform(plan) for plan in reader.heads()], NOW)
    assert isinstance(reading, QueueReading)
    assert (True, False) == (reading.has_expired, reading.has_stale_set)
    assert (1, False) == (reading.pending, reading.has_tasks)
    assert (math.inf, False) == (reading.next_due, reading.may_have_unleased)
