"""The connection breaks at every byte of an enqueue, a dequeue and a settle, in either direction."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
from typing import TYPE_CHECKING, Self, TypeVar

import pytest

from pyasynq import sync
from pyasynq._broker.dequeue import dequeue, find_dequeued
from pyasynq._broker.settle import Claim, settle_done
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import queue_keys
from pyasynq.client import Client
from pyasynq.errors import ReplyLostError
from pyasynq.task import Task
from tests.byte_proxy import ByteProxy, Direction
from tests.contract.settling import DoneTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from pyasynq._redis.plan import Plan

T = TypeVar("T")

pytestmark = pytest.mark.single_server("its proxy serves one server")

KEYS = queue_keys("default")
_VARIES = 64
"""Bytes by which two requests may differ: digits of times, and the name of a queue that travels with some."""
_SAMPLE = 1 if os.environ.get("PYASYNQ_TEST_DRIVERS") == "all" else 7
DIRECTIONS = pytest.mark.parametrize("direction", list(Direction))


class Line:
    """A client and a driver that reach Redis through a proxy.

    Both connect before any byte counts: what is cut is the operation, not the greeting. Its repetition has
    reconnected before the next cut.
    """

    def __init__(self, url: str, *, blocking: bool) -> None:
        # The drivers share every decision, so of the second one a sample does.
        self._step = _SAMPLE if blocking else 1
        self.url = url
        self.proxy = ByteProxy(url)
        self._runner = asyncio.Runner()
        self._blocking = blocking

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        target = parse_redis_url(self.proxy.url)
        self._async_driver, self._driver = AsyncDriver(target), BlockingDriver(target)
        self._client = sync.Client(self.proxy.url) if self._blocking else Client(self.proxy.url)
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._client.close())
        self._runner.run(self._async_driver.close())
        self._driver.close()
        self._runner.close()
        self.proxy.__exit__(None, None, None)

    def run(self, plan: Plan[T]) -> T:
        """Perform a plan with one of the two drivers."""
        return self._driver.run(plan) if self._blocking else self._runner.run(self._async_driver.run(plan))

    def enqueue(self, task_id: str) -> None:
        """Enqueue a task."""
        self._wait(self._client.enqueue("t", b"payload", task_id=task_id))

    def _wait(self, result: object) -> None:
        if inspect.iscoroutine(result):
            self._runner.run(result)

    def places(self, direction: Direction, operation: Callable[[str], None]) -> Iterator[str]:
        """Cut at each byte in turn, and yield the id for the operation that meets the cut; all have a length.

        The operation is done twice before: the first time connects and loads scripts, the second counts.
        """
        operation("x000")
        self.proxy.count()
        operation("x001")
        length = self.proxy.passed[direction]
        for number in itertools.count(0, self._step):
            self.proxy.cut_after(direction, number)
            cuts = self.proxy.cuts
            yield f"n{number:03}"
            if cuts == self.proxy.cuts:
                break
        assert number > length - _VARIES


@pytest.fixture(params=["blocking", "asyncio"])
def line(redis_url: str, redis_client: redis.Redis, request: pytest.FixtureRequest) -> Iterator[Line]:
    """A line whose drivers are of one kind."""
    with Line(redis_url, blocking=request.param == "blocking") as line:
        yield line


@DIRECTIONS
def test_an_enqueue_is_acknowledged_and_done_once(
    line: Line, direction: Direction, redis_client: redis.Redis
) -> None:
    """Wherever it is cut: the driver sends it again, and the script knows its own work."""
    for task_id in line.places(direction, line.enqueue):
        line.enqueue(task_id)
        assert 1 == redis_client.lrange(KEYS.pending, 0, -1).count(task_id.encode()), task_id


@pytest.mark.sample(1)
@DIRECTIONS
def test_a_dequeue_takes_a_task_or_leaves_it(
    line: Line, direction: Direction, redis_client: redis.Redis
) -> None:
    """Tasks taken by a call whose reply was lost are found by its token."""

    def take(call: str) -> None:
        redis_client.delete(KEYS.pending, KEYS.active, KEYS.lease)
        redis_client.rpush(KEYS.pending, "task")
        redis_client.hset(KEYS.task("task"), mapping={"state": "pending", "pending_since": 1})
        plan = dequeue("default", limit=1, token=f"server/{call}")
        try:
            taken = line.run(plan).tasks
        except ReplyLostError:
            taken = line.run(find_dequeued("default", token=f"server/{call}"))
        waiting = redis_client.lrange(KEYS.pending, 0, -1)
        assert (1, 0) == (len(taken), len(waiting)) or (0, 1) == (len(taken), len(waiting)), call
        assert len(taken) == redis_client.llen(KEYS.active) == redis_client.zcard(KEYS.lease), call

    line.enqueue("task")
    for call in line.places(direction, take):
        take(call)


@pytest.mark.sample(1)
@DIRECTIONS
def test_a_settle_is_written_and_counted_once(
    line: Line, direction: Direction, redis_client: redis.Redis
) -> None:
    """Wherever it is cut: the driver sends it again, and what is done is not done twice."""
    done = 0

    def settle(task_id: str) -> None:
        nonlocal done
        done += 1
        claim = taken.pop(task_id)
        line.run(settle_done("default", [DoneTask(*claim, "")], now=SYSTEM_CLOCK.now()))
        assert not redis_client.exists(KEYS.task(task_id)), task_id
        assert not redis_client.zscore(KEYS.lease, task_id), task_id
        assert done == int(redis_client.get(KEYS.processed) or 0), task_id

    taken = take_many(line)
    for task_id in line.places(direction, settle):
        settle(task_id)
    assert done


def take_many(line: Line) -> dict[str, Claim]:
    """Take tasks with all the ids that there will be, and return the claims to them."""
    ids = ["x000", "x001", *(f"n{number:03}" for number in range(700))]
    with sync.Client(line.url) as client:
        assert all(client.enqueue_many(Task("t", b"payload", task_id=task_id) for task_id in ids))
    tasks = line.run(dequeue("default", limit=1_000, token="server/1")).tasks
    return {task.id: Claim(task.id, "server/1", task.lease_score) for task in tasks}
