"""Attention on a real Redis: each finding appears with its numbers and query, and goes by its action."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.servers import clear_server_state, write_server_state
from pyasynq._clock import Instant
from pyasynq._error_signature import poison_error
from pyasynq._wire.attempt_counts import COUNTERS
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import ServerInfo
from pyasynq.config import ServerConfig
from pyasynq.events import TasksAggregated
from pyasynq.operations import AttentionFinding, Operator, Thresholds, User
from pyasynq.operations import sync as blocking
from pyasynq.scheduler import Scheduler
from pyasynq.task import Task, TaskState
from tests.factories import Tasks
from tests.fake_clock import FakeClock
from tests.fix_engine import QUICK, Gate, do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq._redis.plan import Plan
    from tests.invariants import RedisClient

ADMIN = User.with_role("root", "admin")
AT_ONCE = dataclasses.replace(QUICK, lease=1, aggregation_interval=0.05)


class Viewer:
    """An operator whose every look is a new sweep."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock(int(time.time()))
        self.operator = Operator(url, ADMIN, clock=self.clock)

    @property
    def now(self) -> int:
        return int(self.clock.seconds)

    async def look(self, thresholds: Thresholds | None = None) -> tuple[AttentionFinding, ...]:
        """Return the findings after a new sweep."""
        self.clock.monotonic_seconds += 1_000
        return (await self.operator.attention(thresholds or Thresholds())).findings

    async def find(self, detector: str, thresholds: Thresholds | None = None) -> AttentionFinding:
        """Return the only finding, which is of this detector."""
        [finding] = await self.look(thresholds)
        assert detector == finding.detector
        return finding

    async def run(self, plan: Plan[Any]) -> None:
        """Run a plan of the broker."""
        await self.operator._inspector.run(plan)

    async def count(self, query: str) -> int:
        """Return how many tasks a query finds."""
        found = 0
        async for page in self.operator.search(query, limit=10_000):
            found += len(page.tasks)
        return found

    async def act(self, finding: AttentionFinding, **more: Any) -> Any:
        """Perform the action of a finding."""
        return await getattr(self.operator, finding.action.verb)(**finding.action.arguments, **more)


@asynccontextmanager
async def viewing(url: str) -> AsyncIterator[Viewer]:
    """Provide a viewer for the time of a block."""
    viewer = Viewer(url)
    async with viewer.operator:
        yield viewer


def age(client: RedisClient, seconds: int, queue: str = "default") -> None:
    """Make all pending tasks of a queue this many seconds older."""
    keys = queue_keys(queue)
    for task_id in client.lrange(keys.pending, 0, -1):
        since = (int(time.time()) - seconds) * 1_000_000_000
        client.hset(keys.task(task_id.decode()), "pending_since", since)


def server_record(server_id: str, *queues: str, engine: str = "pyasynq") -> ServerInfo:
    """Return the record of a server."""
    return ServerInfo(
        host="h",
        pid=7,
        server_id=server_id,
        concurrency=4,
        queues=dict.fromkeys(queues or ("default",), 1),
        strict_priority=False,
        status="active",
        start_time=Instant.from_timestamp(time.time()).to_datetime(),
        active_worker_count=0,
        engine=engine,
    )


async def announce_server(
    viewer: Viewer, server_id: str = "s", *queues: str, engine: str = "pyasynq"
) -> None:
    """Make a live server by its record alone."""
    await viewer.run(write_server_state(server_record(server_id, *queues, engine=engine), [], ttl=600))


async def ended(viewer: Viewer, seconds_ago: int, queue: str = "default", **counts: int) -> None:
    """Count attempts that ended a time ago."""
    vector = [counts.get(name, 0) for name in COUNTERS]
    now = Instant.from_timestamp(time.time() - seconds_ago)
    await viewer.run(count_attempts(queue, {"report": vector}, now=now))


@run_async
async def test_pending_tasks_without_a_server_are_found_and_a_worker_takes_them(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The finding names the number of tasks and the age of the next one."""
    async with viewing(redis_url) as viewer, serving(redis_url, do_nothing, ServerConfig()) as running:
        await running.server.shutdown()
        for number in range(3):
            await running.client.enqueue("report", task_id=f"{number}")
        assert () == await viewer.look(), "they have just come"
        age(redis_client, 130)
        finding = await viewer.find("no_consumers")
        assert finding.sentence.startswith(
            "No server takes tasks from default, and 3 tasks are pending, the next one for 2 min"
        )
        assert (5, "default") == (finding.severity, finding.queue)
        assert 3 == await viewer.count(finding.query)
        assert "pyasynq worker MODULE:APP --queues default" == finding.action.command
        async with serving(redis_url, do_nothing) as worker:
            for number in range(3):
                await worker.finished(f"{number}")
            await worker.settled()
            assert () == await viewer.look()


@run_async
async def test_a_queue_over_its_objective_is_found_and_another_worker_cures_it(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The objective of the queue counts, not the five minutes of queues without one."""
    gate = Gate()
    async with viewing(redis_url) as viewer, serving(redis_url, gate, ServerConfig(concurrency=1)) as busy:
        await busy.client.enqueue("report", task_id="first")
        await gate.begun.wait()
        await busy.client.enqueue("report", task_id="next")
        age(redis_client, 100)
        assert () == await viewer.look()
        await viewer.operator.set_wait_objective("default", 30)
        finding = await viewer.find("pending_age")
        assert 3 == finding.severity
        assert "the objective is 30 s, and 1 task is pending" in finding.sentence
        assert 1 == await viewer.count(finding.query)
        async with serving(redis_url, do_nothing) as worker:
            await worker.finished("next")
            await worker.settled()
            assert () == await viewer.look()
        gate.open.set()
        await viewer.operator.set_wait_objective("default", None)
        assert not redis_client.exists(queue_keys("default").objectives)


@run_async
async def test_a_backlog_is_found_and_goes_when_its_limit_is_removed(redis_url: str) -> None:
    """300 tasks at 12 a minute take 25 minutes; 30 if the same work counts for six minutes of the clock."""
    small = Thresholds(backlog_least=300, drain_after=1_200)
    async with viewing(redis_url) as viewer, serving(redis_url, do_nothing, ServerConfig()) as running:
        await viewer.operator.set_queue_limits("default", rate=0.001)
        await running.client.enqueue_many(Task("report") for _ in range(301))
        while (pending := (await viewer.operator.queue("default")).pending) > 300:
            await running.next_round("processor")
        await ended(viewer, 300, succeeded=59)
        await running.settled()
        finding = await viewer.find("depth_anomaly", small)
        assert re.search("300 tasks of default are pending, which take (2[0-9]|30) min", finding.sentence)
        assert (300, 300) == (pending, await viewer.count(finding.query))
        assert "set_queue_limits" == finding.action.verb
        await viewer.act(finding)
        while (await viewer.operator.queue("default")).pending:
            await running.next_round("processor")
        await running.settled()
        assert () == await viewer.look(small)


@run_async
async def test_tasks_past_their_time_are_found_and_a_worker_moves_them(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Scheduled tasks and retries count together; the query finds both."""
    async with viewing(redis_url) as viewer:
        tasks = Tasks(redis_client)
        tasks.put(TaskState.SCHEDULED, "a", "b", score=viewer.now - 300)
        tasks.put(TaskState.RETRY, "c", score=viewer.now - 200)
        finding = await viewer.find("past_due")
        assert "3 tasks of default are past their time, by up to 5 min" in finding.sentence
        assert 3 == await viewer.count(finding.query)
        async with serving(redis_url, do_nothing) as worker:
            for task_id in "abc":
                await worker.finished(task_id, retried=0)
            await worker.settled()
            assert () == await viewer.look()


@run_async
async def test_a_group_that_is_not_aggregated_is_found_and_an_aggregator_cures_it(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A group to which a task has just come is not late."""

    async def aggregate(group: str, tasks: list[Task]) -> Task:
        return Task(f"{group}:{len(tasks)}")

    async with viewing(redis_url) as viewer:
        tasks = Tasks(redis_client)
        tasks.put(TaskState.AGGREGATING, "a", "b", group="g", score=viewer.now - 2_000)
        tasks.put(TaskState.AGGREGATING, "c", group="fresh", score=viewer.now)
        finding = await viewer.find("group_stall")
        assert "1 group of default with 2 tasks is not aggregated" in finding.sentence
        assert 3 == await viewer.count(finding.query)
        config = ServerConfig(group_aggregator=aggregate, group_grace_period=timedelta(minutes=10))
        async with serving(redis_url, do_nothing, config, AT_ONCE) as worker:
            await worker.recorder.wait(TasksAggregated)
            assert () == await viewer.look()


@run_async
async def test_orphans_are_found_and_a_worker_recovers_them(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A lease that lapsed a moment ago is not late yet."""
    async with viewing(redis_url) as viewer:
        tasks = Tasks(redis_client)
        tasks.active("a", "b", lease=viewer.now - 100)
        tasks.active("fresh", lease=viewer.now + 30)
        finding = await viewer.find("orphans")
        assert "2 active tasks of default have lost their worker" in finding.sentence
        assert 2 == await viewer.count(finding.query)
        async with serving(redis_url, do_nothing, settings=AT_ONCE) as worker:
            await worker.finished("a")
            await worker.finished("b")
            await worker.settled()
            assert () == await viewer.look()


@run_async
async def test_poison_tasks_are_found_and_their_deletion_cures_it(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Tasks that were archived for another reason do not count."""
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        tasks = Tasks(redis_client)
        tasks.put(TaskState.ARCHIVED, "a", error_msg=poison_error(3))
        tasks.put(TaskState.ARCHIVED, "b", error_msg=poison_error(30, has_lapsed=True))
        tasks.put(TaskState.ARCHIVED, "failed", error_msg="ValueError")
        finding = await viewer.find("poison")
        assert (
            "2 tasks of default were archived because their workers crashed or gave no sign."
            == finding.sentence
        )
        assert 2 == await viewer.count(finding.query)
        operation = await viewer.act(finding, reason="they kill workers")
        await viewer.operator.run_operation(operation.operation)
        assert () == await viewer.look()
        assert ["failed"] == tasks.ids("archived")


@run_async
async def test_poison_tasks_behind_other_failures_are_found_if_the_statistics_count_them(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many queues, a sweep looks only at the newest failures of each of the others."""
    monkeypatch.setattr("pyasynq.operations.sweep._OTHER_POSITIONS", 2)
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        tasks = Tasks(redis_client)
        tasks.put(TaskState.ARCHIVED, "poison", score=viewer.now - 60, error_msg=poison_error(3))
        tasks.put(TaskState.ARCHIVED, "a", "b", score=viewer.now, error_msg="ValueError")
        redis_client.set(queue_keys("default").processed, 10)
        assert () == await viewer.look()
        await ended(viewer, 60, succeeded=9, poisoned=1)
        assert "1 task of default was archived" in (await viewer.find("poison")).sentence


@run_async
async def test_a_retry_storm_is_found_and_a_pause_cures_it(redis_url: str, redis_client: RedisClient) -> None:
    """More attempts are retried than succeed."""
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        Tasks(redis_client).put(TaskState.RETRY, "a", score=viewer.now + 600)
        await ended(viewer, 0, succeeded=4, retried=120)
        redis_client.set(queue_keys("default").processed, 124)
        finding = await viewer.find("retry_storm")
        assert "120 attempts of default were retried in the last 10 min, and 4 succeeded." == finding.sentence
        assert 1 == await viewer.count(finding.query)
        await viewer.act(finding, reason="the provider is down")
        assert () == await viewer.look()


@run_async
async def test_a_spike_of_failures_is_found_and_a_pause_cures_it(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A type whose share of failures has not changed is not found."""
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        Tasks(redis_client).put(
            TaskState.ARCHIVED, "a", score=viewer.now - 10, type="report", last_failed_at=viewer.now - 10
        )
        await ended(viewer, 3_000, succeeded=98, archived=2)
        await ended(viewer, 0, succeeded=70, archived=30)
        redis_client.set(queue_keys("default").processed, 200)
        finding = await viewer.find("fail_spike")
        assert (
            "30% of the attempts of report in default failed in the last 10 min (30), "
            "and 2% in the 110 min before." == finding.sentence
        )
        assert ("report", 1) == (finding.subject, await viewer.count(finding.query))
        await viewer.act(finding, reason="look at it first")
        assert () == await viewer.look()


@run_async
async def test_an_archive_that_is_nearly_full_is_found_and_a_deletion_cures_it(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Nine of ten tasks are nearly all."""
    small = Thresholds(archive_size=10)
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        Tasks(redis_client).put(TaskState.ARCHIVED, *map(str, range(8)))
        assert () == await viewer.look(small)
        Tasks(redis_client).put(TaskState.ARCHIVED, "8")
        finding = await viewer.find("archive_full", small)
        assert "The archive of default has 9 tasks; above 10 the oldest ones are deleted." == finding.sentence
        assert 9 == await viewer.count(finding.query)
        operation = await viewer.act(finding, reason="they are old")
        await viewer.operator.run_operation(operation.operation)
        assert () == await viewer.look(small)


@run_async
async def test_a_long_pause_is_found_and_ends_by_its_action(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A paused queue without pending tasks is not found."""
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        keys = queue_keys("default")
        Tasks(redis_client).put(TaskState.ARCHIVED, "there")
        redis_client.set(keys.paused, viewer.now - 7_200)
        assert () == await viewer.look()
        Tasks(redis_client).pending("a")
        finding = await viewer.find("paused_long")
        assert "default has been paused for 2 h, and 1 task is pending." == finding.sentence
        assert (viewer.now - 7_200, 1) == (
            finding.since and finding.since.timestamp(),
            await viewer.count(finding.query),
        )
        await viewer.act(finding, reason="the provider is back")
        assert () == await viewer.look()


@run_async
async def test_lost_servers_are_found_until_others_come(redis_url: str, redis_client: RedisClient) -> None:
    """The look before, up to ten minutes ago, says how many there were."""
    async with viewing(redis_url) as viewer:
        Tasks(redis_client).put(TaskState.ARCHIVED, "there")
        for server_id in ("one", "two"):
            await announce_server(viewer, server_id)
        assert () == await viewer.look()
        viewer.clock.move(60)
        await viewer.run(clear_server_state("h", 7, "two"))
        finding = await viewer.find("consumers_dropped")
        assert "1 of 2 servers that took tasks from default 1 min ago is left." == finding.sentence
        await announce_server(viewer, "three")
        assert () == await viewer.look()


@pytest.mark.timeout(60)
@run_async
async def test_a_blocked_event_loop_is_found_and_its_server_stops(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The handler that blocks the loop looks at itself; its server obeys when the loop runs again."""
    del redis_client
    sentences: list[str] = []
    quick = Thresholds(blocked_after=1.0)

    async def block(task: Task) -> None:
        del task
        clock = FakeClock(int(time.time()))
        with blocking.Operator(redis_url, ADMIN, clock=clock) as operator:
            found: tuple[AttentionFinding, ...] = ()
            while not found:
                threading.Event().wait(0.05)  # not for time: until the heartbeat's thread has told it
                clock.monotonic_seconds += 1_000
                found = operator.attention(quick).findings
            [finding] = found
            sentences.append(finding.sentence)
            assert "stop_server" == finding.action.verb
            operator.stop_server(**finding.action.arguments)

    async with serving(redis_url, block, ServerConfig()) as running:
        await running.client.enqueue("report", task_id="blocks")
        await running.finished("blocks")
        await running.settled()
    assert "The event loop of the server at " in sentences[0]
    async with viewing(redis_url) as viewer:
        assert () == await viewer.look(quick)


@run_async
async def test_a_server_in_go_on_a_limited_queue_is_found_until_it_is_gone(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Limits that servers set count like stored ones."""
    async with viewing(redis_url) as viewer:
        Tasks(redis_client).put(TaskState.ARCHIVED, "there")
        await announce_server(viewer, "ours")
        await announce_server(viewer, "theirs", engine="")
        assert () == await viewer.look()
        await viewer.operator.set_queue_limits("default", max_run=1)
        finding = await viewer.find("limits_ignored")
        assert "1 server in Go (h:7) takes tasks from default and ignores its limits." == finding.sentence
        await viewer.run(clear_server_state("h", 7, "theirs"))
        viewer.clock.move(700)  # the servers of ten minutes ago do not count
        assert () == await viewer.look()


@run_async
async def test_a_lost_scheduler_is_found_until_one_runs(redis_url: str, redis_client: RedisClient) -> None:
    """A schedule that fired weeks ago is not missed."""
    async with viewing(redis_url) as viewer:
        await announce_server(viewer)
        keys = queue_keys("default")
        Tasks(redis_client).put(TaskState.ARCHIVED, "there")
        ticks = {"old": viewer.now - 30 * 86_400, "entry": viewer.now - 7_200, "entry:since": 1}
        redis_client.hset(keys.ticks, mapping=ticks)
        finding = await viewer.find("scheduler_gone")
        assert "No scheduler runs; 1 schedule of default last fired 2 h ago." == finding.sentence
        scheduler = Scheduler(redis_url)
        scheduler.register("@every 1h", Task("report"))
        async with scheduler:
            while await viewer.look():
                pass  # until the first heartbeat of the scheduler


@pytest.mark.single_server("its settings are changed")
@run_async
async def test_a_redis_that_evicts_is_found_until_it_does_not(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Without a limit of memory nothing is evicted. Only users who may see Redis' INFO are told."""
    before = redis_client.config_get("maxmemory*")
    try:
        async with viewing(redis_url) as viewer:
            redis_client.config_set("maxmemory-policy", "allkeys-lru")
            assert () == await viewer.look()
            redis_client.config_set("maxmemory", "1gb")
            finding = await viewer.find("redis_danger")
            assert (
                "Redis deletes keys, tasks included, when its 1.1 GB are full "
                "(maxmemory-policy is allkeys-lru)." == finding.sentence
            )
            viewer_alone = viewer.operator.for_user(User.with_role("mira", "viewer", queues="mail-*"))
            assert () == (await viewer_alone.attention()).findings
            assert "redis-cli CONFIG SET maxmemory-policy noeviction" == finding.action.command
            redis_client.config_set("maxmemory-policy", "noeviction")
            assert () == await viewer.look()
    finally:
        for name in ("maxmemory", "maxmemory-policy"):
            redis_client.config_set(name, before[name])


@run_async
async def test_a_snoozed_finding_is_apart_until_its_snooze_ends(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A new snooze replaces the one before; the key lapses with the longest possible snooze."""
    async with viewing(redis_url) as viewer:
        tasks = Tasks(redis_client)
        tasks.put(TaskState.SCHEDULED, "a", score=viewer.now - 300)
        finding = await viewer.find("past_due")
        for reason in ("known", "still known"):
            await viewer.operator.snooze_finding(
                finding.detector, finding.queue, duration=3_600, reason=reason
            )
        attention = await viewer.operator.attention()
        assert () == attention.findings
        [snoozed] = attention.snoozed
        assert snoozed.snooze is not None
        assert ("still known", "root") == (snoozed.snooze.reason, snoozed.snooze.by)
        viewer.clock.move(3_601)
        assert ["past_due"] == [one.detector for one in await viewer.look()]
        viewer.clock.move(-3_601)
        assert await viewer.operator.unsnooze_finding(finding.detector, finding.queue)
        assert not await viewer.operator.unsnooze_finding(finding.detector, finding.queue)
        assert finding.detector == (await viewer.find("past_due")).detector
        redis_client.delete(queue_keys("default").scheduled, queue_keys("default").task("a"))


@run_async
async def test_a_healthy_busy_system_has_no_findings(redis_url: str) -> None:
    """Tasks that run, fail now and then, are scheduled, and a paused queue without tasks."""

    async def sometimes(task: Task) -> None:
        if task.payload == b"7":
            raise ValueError(task.payload)

    config = ServerConfig(queues={"default": 2, "mail": 1}, concurrency=20)
    async with viewing(redis_url) as viewer, serving(redis_url, sometimes, config) as running:
        scheduler = Scheduler(redis_url)
        scheduler.register("@every 1h", Task("report"))
        await viewer.operator.pause_queue("idle")
        async with scheduler:
            for turn in range(5):
                queue = "mail" if turn % 2 else "default"
                await running.client.enqueue_many(
                    Task("report", f"{number}".encode(), queue=queue, max_retry=0) for number in range(200)
                )
                await running.client.enqueue("report", process_in=3_600, queue=queue)
                assert () == await viewer.look()
            await running.settled()
            assert () == await viewer.look()
