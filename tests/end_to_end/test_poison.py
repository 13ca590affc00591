"""Tasks that kill their worker end as poison, and take no innocent task with them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyasynq import sync
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


TASKS = 1_000
POISONOUS = 5
WORKERS = 2
LIMIT_SECONDS = 55.0
SCRIPT = Path(__file__).with_name("poison_worker.py")


class Workers:
    """Processes that are started again whenever they die, as a supervisor would."""

    def __init__(self, url: str, *, in_groups: bool) -> None:
        self._command = [sys.executable, str(SCRIPT), url]
        if in_groups:
            self._command = ["sh", "-c", '"$@" & wait $!', "sh", *self._command, "group"]
        self._processes = [self._start() for _ in range(WORKERS)]
        self.deaths = 0

    def revive(self) -> None:
        """Replace those that have died."""
        for position, process in enumerate(self._processes):
            if process.poll() is not None:
                self.deaths += 1
                self._processes[position] = self._start()

    def stop(self) -> None:
        """End all of them in good order, and the stubborn ones by force."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, start_new_session=True)


@pytest.fixture
def start_workers(redis_url: str) -> Iterator[Callable[[bool], Workers]]:
    """Return a function that starts the workers, which end with the test."""
    started: list[Workers] = []

    def start(in_groups: bool) -> Workers:
        started.append(Workers(redis_url, in_groups=in_groups))
        return started[-1]

    yield start
    for workers in started:
        workers.stop()


@pytest.mark.parametrize("in_groups", [False, True])
@pytest.mark.long
def test_h06_exactly_the_tasks_that_kill_their_worker_end_as_poison(
    redis_url: str, start_workers: Callable[[bool], Workers], in_groups: bool
) -> None:
    """Among 1,000 tasks without retries 5 kill their process: these are archived, 995 are completed.

    Fails without: the count in the hash that recovery raises; the rule that a task one crash below the
    limit runs alone, without which its neighbours would be archived with it; the proof in its token.
    """
    poisonous = {f"task-{number}" for number in random.Random(6).sample(range(TASKS), POISONOUS)}
    ids = [f"task-{number}" for number in range(TASKS)]
    with sync.Client(redis_url) as client:
        results = client.enqueue_many(
            Task(
                "work",
                b"poison" if task_id in poisonous else b"",
                task_id=task_id,
                max_retry=0,
                retention=3600,
            )
            for task_id in ids
        )
    assert all(results)
    workers = start_workers(in_groups)
    deadline = time.monotonic() + LIMIT_SECONDS
    with sync.Inspector(redis_url) as inspector:
        while (info := inspector.queue_info("default")).unfinished:
            assert time.monotonic() < deadline, f"not finished in time: {info}"
            workers.revive()
            time.sleep(0.05)
        archived = inspector.list_tasks("default", "archived", page_size=TASKS)
    assert poisonous == {task.id for task in archived}
    assert TASKS - POISONOUS == info.completed
    assert 0 == max(task.retried for task in archived)
    assert 3 * POISONOUS >= workers.deaths >= POISONOUS
