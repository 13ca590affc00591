"""How long a task was pending: from the reply of the dequeue to the handler, the events and the logs."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, dequeue, find_dequeued
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import TaskStarted
from pyasynq.limits import QueueLimits
from tests.factories import NOW, PENDING_SINCE, TOKEN
from tests.fix_consumer import consuming
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.task import Task
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ALL_TERMS = [
    DequeueTerms(),
    DequeueTerms(DequeueRules.LIMITED, QueueLimits(max_run=10)),
    DequeueTerms(DequeueRules.ORDERED, QueueLimits(ordered=True)),
]


def wait_since(tasks: Tasks, redis_client: RedisClient, task_id: str, seconds: float) -> None:
    """Let a pending task have been pending for this many seconds already."""
    since = int((time.time() - seconds) * 10**9)
    redis_client.hset(tasks.keys.task(task_id), "pending_since", since)


@pytest.mark.parametrize("terms", ALL_TERMS, ids=lambda terms: terms.rules.name)
def test_a_dequeue_tells_since_when_a_task_was_pending(
    terms: DequeueTerms, perform: Perform, tasks: Tasks
) -> None:
    """Fails if the script no longer reads the field before it deletes it."""
    tasks.pending("a")
    [taken] = perform(dequeue("default", limit=10, token=TOKEN, terms=terms, now=NOW)).tasks
    assert PENDING_SINCE == taken.pending_since
    assert "pending_since" not in tasks.fields("a")


def test_each_of_many_tasks_has_its_own_time_or_none(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A task without the field leaves no hole in the reply: those behind it keep their values."""
    tasks.pending("a", "b", "c")
    redis_client.hset(tasks.keys.task("a"), "pending_since", 7)
    redis_client.hdel(tasks.keys.task("b"), "pending_since")
    taken = perform(dequeue("default", limit=10, token=TOKEN, now=NOW)).tasks
    expected = [("a", b"7"), ("b", None), ("c", PENDING_SINCE)]
    assert expected == [(one.id, one.pending_since) for one in taken]


def test_the_largest_dequeue_fits_into_one_reply(perform: Perform, tasks: Tasks) -> None:
    """Lua unpacks at most about 8,000 values; a thousand tasks with four each stay below."""
    tasks.pending(*(f"{number:04}" for number in range(1_001)))
    taken = perform(dequeue("default", limit=1_000, token=TOKEN, now=NOW)).tasks
    assert 1_000 == len(taken)
    assert {PENDING_SINCE} == {one.pending_since for one in taken}


def test_the_time_is_lost_with_the_reply(perform: Perform, tasks: Tasks) -> None:
    """What finds the tasks of a lost reply does not know it any more."""
    tasks.pending("a")
    perform(dequeue("default", limit=10, token=TOKEN, now=NOW))
    assert [None] == [one.pending_since for one in perform(find_dequeued("default", token=TOKEN))]


@run_async
async def test_handler_events_and_log_agree_on_the_wait(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    """All have the one value, which is not less than what has passed."""
    caplog.set_level(logging.INFO, "pyasynq.outcomes")
    told: list[float | None] = []

    async def handle(task: Task) -> None:
        del task
        told.append(context().waited)

    tasks.pending("a")
    wait_since(tasks, redis_client, "a", 100)
    async with serving(redis_url, handle, ServerConfig(publish_events=True)) as running:
        finished = await running.finished("a")
        started = await running.recorder.wait(TaskStarted)
        await running.settled()
    [waited] = told
    assert waited is not None
    assert waited >= 100
    assert (waited, waited) == (started.waited, finished.waited)
    [line] = [record for record in caplog.records if getattr(record, "task_id", "") == "a"]
    assert round(waited, 6) == vars(line)["waited"]
    events = [json.loads(fields[b"event"]) for _, fields in redis_client.xrange("asynq:{default}:x:events")]
    [published] = [event for event in events if event["kind"] == "started"]
    assert round(waited, 6) == published["waited"]


@run_async
async def test_the_holder_of_an_attempt_sees_its_wait(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """A consumer hands out the same value as its event."""
    tasks.pending("a")
    wait_since(tasks, redis_client, "a", 100)
    async with consuming(redis_url) as c, c.consumer.take("default", limit=1) as [attempt]:
        waited = attempt.waited
        assert waited is not None
        assert waited >= 100
        assert waited == (await c.recorder.wait(TaskStarted)).waited
        await attempt.done()
