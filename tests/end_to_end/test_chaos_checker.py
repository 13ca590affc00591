"""The checker of the chaos runs, on real runs in which a promise is broken on purpose: it names each."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq._engine.settle.settle_queue import SettleQueue
from pyasynq._wire.keys import queue_keys
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import TaskSettled
from pyasynq.server import Server
from tests.chaos.checker import Verdict, check
from tests.chaos.final import read_final_state
from tests.chaos.load import Producer, make_task
from tests.chaos.records import Recorder, What, read_history
from tests.chaos.settings import QUEUE
from tests.fix_engine import QUICK
from tests.fix_worker import enqueue
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq.task import Task

TASKS = 100
VICTIM = "t1-42"
KEYS = queue_keys(QUEUE)
LOCK = KEYS.unique("t", b"payload")

pytestmark = pytest.mark.usefixtures("damage_allowed", "redis_client")


class SmallRun:
    """A hundred tasks, a server that runs them in this process, and the checker.

    Subclasses break one promise, each at its time.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._recorder = Recorder(folder)

    async def verdict(self) -> Verdict:
        """Enqueue, run, and judge."""
        async with Client(self.url) as client:
            await Producer(client, self._recorder, random.Random(1), _task).run(TASKS)
        self.enqueued()
        await self._serve()
        self.served()
        await self._serve()
        self._recorder.close()
        with redis.Redis.from_url(self.url) as client:
            return check(read_history(self._folder), await read_final_state(self.url, client, [QUEUE]))

    async def _serve(self) -> None:
        """Run what there is."""
        server = Server(self.url, ServerConfig(queues={QUEUE: 1}, burst=True))
        server._settings = QUICK
        server.events.subscribe(TaskSettled, self._settled)
        await server.run(self._handle, signals=False)

    async def _handle(self, task: Task) -> None:
        self._recorder.note(What.STARTED, context().task_id)
        self._recorder.note(What.FINISHED, context().task_id)

    def _settled(self, event: TaskSettled) -> None:
        self._recorder.note(What.SETTLED, event.task_id)

    def enqueued(self) -> None:
        """Do something before the tasks run."""

    def served(self) -> None:
        """Do something after the tasks have run; a server looks once more after it."""


def _task(random: random.Random, task_id: str) -> Task:
    return make_task("t", task_id)


def drop_settles_of(victim: str, patch: pytest.MonkeyPatch) -> None:
    """Let servers forget the outcome of one task, on each of the two ways to a settle."""

    def put_others(put: Callable[..., None]) -> Callable[..., None]:
        def put_unless_victim(settles: SettleQueue, attempt: Attempt, *outcome: Any) -> None:
            if attempt.id == victim:
                settles._roster.remove(attempt)
            else:
                put(settles, attempt, *outcome)

        return put_unless_victim

    for name in ("put", "put_done"):
        patch.setattr(SettleQueue, name, put_others(getattr(SettleQueue, name)))


class EnqueueDeleted(SmallRun):
    """A task is deleted before it has run."""

    def enqueued(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.lrem(KEYS.pending, 1, VICTIM)
            client.delete(KEYS.task(VICTIM))


class RunTwice(SmallRun):
    """A task that has run comes back into its queue."""

    def served(self) -> None:
        enqueue(self.url, make_task("t", VICTIM))


class LockLeaked(SmallRun):
    """The lock of a task stays although the task is gone."""

    def served(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.set(LOCK, VICTIM, ex=3_600)


@run_async
async def test_a_run_in_which_all_is_well_has_a_clean_verdict(redis_url: str, tmp_path: Path) -> None:
    """Nothing is lost, nothing wrong, nothing ran again."""
    verdict = await SmallRun(redis_url, tmp_path).verdict()
    assert Verdict(acknowledged=TASKS, finished=TASKS) == verdict


@run_async
async def test_a_settle_that_was_dropped_is_named(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is active for ever."""
    drop_settles_of(VICTIM, monkeypatch)
    verdict = await SmallRun(redis_url, tmp_path).verdict()
    expected = (
        f"task {VICTIM} is active although no worker lives: it ran to its end, so its settle was dropped"
    )
    assert ([], [expected]) == (verdict.lost, verdict.problems)


@run_async
async def test_an_acknowledged_task_that_was_deleted_is_named(redis_url: str, tmp_path: Path) -> None:
    """It is the one thing that must never happen."""
    verdict = await EnqueueDeleted(redis_url, tmp_path).verdict()
    expected = f"task {VICTIM} is lost: its enqueue was acknowledged, it never ran, and is gone"
    assert ([expected], []) == (verdict.lost, verdict.problems)


@run_async
async def test_a_task_that_ran_twice_is_named(redis_url: str, tmp_path: Path) -> None:
    """There was no fault."""
    pid = os.getpid()
    verdict = await RunTwice(redis_url, tmp_path).verdict()
    expected = f"task {VICTIM} ran in process {pid} and again in process {pid}, and no fault explains it"
    assert ([], [expected]) == (verdict.lost, verdict.problems)


@run_async
async def test_a_lock_that_was_leaked_is_named(redis_url: str, tmp_path: Path) -> None:
    """By the doctor, whose findings are part of the verdict."""
    verdict = await LockLeaked(redis_url, tmp_path).verdict()
    [problem] = verdict.problems
    assert "leaked_lock" in problem
    assert LOCK in problem
