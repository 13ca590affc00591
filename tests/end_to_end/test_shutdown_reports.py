"""Workers in which something hangs: one ERROR names it and its place, and the exit code is 3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyasynq import Task
from tests.fix_hanging import ALONE, BUSY, LIMIT, WORKER, Hanging
from tests.fix_worker import enqueue

if TYPE_CHECKING:
    from pathlib import Path

SUPERVISED = (*WORKER, "--processes", "1")
HUNG = "did not end in time and was given up"


def end_hanging(worker: Hanging, what: str) -> None:
    """End a worker with TERM: in time, with code 3 and with this one report."""
    assert worker.seconds_to_end() < LIMIT + BUSY
    worker.wait_for(what)
    assert 3 == worker.end(), worker.text
    reports = [line for line in worker.lines if HUNG in line]
    assert 1 == len(reports), reports
    assert re.search(what, reports[0])


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("hang", "what"),
    [
        ("start-swallow", "the start of the lifespan .* in hang$"),
        ("start-to-thread", "what is left on the event loop .* in block$"),
        pytest.param("end-swallow", "the end of the lifespan .* in hang$", marks=pytest.mark.long),
        pytest.param("check-swallow", "the service 'health check' .* in hang$", marks=pytest.mark.long),
    ],
)
def test_what_hangs_is_reported_once_with_code_3(
    tmp_path: Path, redis_url: str, hang: str, what: str
) -> None:
    """Errors already reported, which are still on the event loop at the end, are not reported again. (D14)"""
    with Hanging(tmp_path, redis_url, hang, *ALONE) as worker:
        begun = {"end-swallow": "concurrency 100", "start-to-thread": "^blocks"}
        worker.wait_for(begun.get(hang, "^hangs"))
        end_hanging(worker, what)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "begun", "where"),
    [
        ("leave", "^hangs", "in hang"),
        ("generator", "^hangs", "in hang"),
        ("executor", "^blocks", "in block"),
    ],
)
def test_what_a_handler_leaves_on_the_event_loop_is_reported_with_code_3(
    tmp_path: Path, redis_url: str, kind: str, begun: str, where: str
) -> None:
    """A task, an asynchronous generator that does not close, and a thread of the executor. (D14)"""
    enqueue(redis_url, kind)
    with Hanging(tmp_path, redis_url, "swallow", *WORKER) as worker:
        worker.wait_for(begun)
        end_hanging(worker, f"what is left on the event loop .* {where}$")


def test_a_handler_that_hangs_in_a_thread_is_reported_with_its_line(tmp_path: Path, redis_url: str) -> None:
    """The line is the innermost one of the user's code. (D14)"""
    [task_id] = enqueue(redis_url, "thread")
    with Hanging(tmp_path, redis_url, "", *WORKER) as worker:
        worker.wait_for("^started")
        end_hanging(worker, rf"the handler of task {task_id} \(thread\) .*hanging.py:\d+ in run_thread$")


def test_a_forgotten_thread_makes_the_exit_code_3(tmp_path: Path, redis_url: str) -> None:
    """The process ends although the thread, which is not a daemon, still runs. (D14)"""
    with Hanging(tmp_path, redis_url, "thread", *WORKER) as worker:
        worker.wait_for("concurrency 100")
        assert worker.seconds_to_end() < LIMIT + BUSY
        assert 3 == worker.end()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("hang", "group", "begun", "where"),
    [
        ("", "slow:1", "^hangs", "hang"),
        pytest.param("swallow", "slow:1", "^hangs", "hang", marks=pytest.mark.long),
        ("", "plain:1", "^blocks", "block"),
    ],
)
def test_an_aggregator_that_hangs_is_reported_with_its_pattern(
    tmp_path: Path, redis_url: str, hang: str, group: str, begun: str, where: str
) -> None:
    """A coroutine that ends when cancelled, one that does not, and a plain function. (D14)"""
    enqueue(redis_url, Task("t", group=group))
    with Hanging(tmp_path, redis_url, hang, *WORKER) as worker:
        worker.wait_for(begun)
        pattern = group.replace("1", r"\*")
        end_hanging(worker, f"the aggregator of '{pattern}' .* in {where}$")


def test_a_handler_that_hangs_in_a_child_process_is_reported(tmp_path: Path, redis_url: str) -> None:
    """Its child is killed. (D14)"""
    [task_id] = enqueue(redis_url, "child")
    with Hanging(tmp_path, redis_url, "", *WORKER) as worker:
        worker.wait_for("^started")
        end_hanging(worker, rf"the handler of task {task_id} \(child\) .* child process \d+")


@pytest.mark.long
@pytest.mark.parametrize("command", [ALONE, WORKER, SUPERVISED])
def test_a_handler_that_computes_without_end_on_the_event_loop_is_reported(
    tmp_path: Path, redis_url: str, command: tuple[str, ...]
) -> None:
    """Its thread, four that compute as well, and the one that reports it share the interpreter's lock.

    Defect D14.
    """
    enqueue(redis_url, *["spin-thread"] * 4, "spin")
    with Hanging(tmp_path, redis_url, "", *command) as worker:
        worker.wait_for("^started", times=5)
        assert worker.seconds_to_end() < LIMIT + BUSY
        worker.wait_for(rf"the event loop \(blocked during .*\) {HUNG}")
        worker.wait_for("line [0-9]+, in spin")
        assert 3 == worker.end()
