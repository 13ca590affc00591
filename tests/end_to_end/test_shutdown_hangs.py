"""Workers in which something never ends: TERM ends them in time, and a line says what hung."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fix_hanging import ALONE, BUSY, LIMIT, PROGRAM, WORKER, Hanging
from tests.fix_worker import CONTAINER, enqueue, may_unshare, pending, task_field

if TYPE_CHECKING:
    from tests.invariants import RedisClient


WAYS_TO_HANG = [
    ("start", ""),
    ("start-swallow", "the start of the lifespan did not end in time .* in hang"),
    ("start-blocked", r"the event loop \(blocked during the start of the lifespan\) did not end in time"),
    ("end", "the end of the lifespan did not end in time .* in hang"),
    ("end-swallow", "the end of the lifespan did not end in time .* in hang"),
    ("end-blocked", r"the event loop \(blocked during the end of the lifespan\) did not end in time"),
    ("check", "the service 'health check' did not end in time .* in hang"),
    ("check-swallow", "the service 'health check' did not end in time .* in hang"),
    ("check-blocked", r"the event loop \(blocked during the work\) did not end in time"),
]
SHORTER = {"start", "start-swallow", "end-blocked", "check"}
"""One way for each place, and one for each kind; `make test-long` has the others."""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("hang", "what"),
    [pytest.param(*way, marks=() if way[0] in SHORTER else pytest.mark.long) for way in WAYS_TO_HANG],
)
def test_term_ends_a_worker_in_which_user_code_hangs(
    tmp_path: Path, redis_url: str, hang: str, what: str
) -> None:
    """Within the timeouts and two seconds. A start that lets itself be cancelled has not hung. (D14)"""
    with Hanging(tmp_path, redis_url, hang, *ALONE) as worker:
        worker.wait_for("^entering" if hang.startswith("end") else "^hangs")
        if hang.startswith("end"):
            worker.wait_for("concurrency 100")
        assert worker.seconds_to_end() < LIMIT + BUSY
        if what:
            worker.wait_for(what)


@pytest.mark.long
@pytest.mark.parametrize("hang", ["start-swallow", "start-blocked", "end-swallow", "end-blocked"])
def test_term_ends_a_supervised_worker_whose_lifespan_hangs(
    tmp_path: Path, redis_url: str, hang: str
) -> None:
    """The supervisor ends too. (D14)"""
    with Hanging(tmp_path, redis_url, hang, *WORKER, "--processes", "1") as workers:
        workers.wait_for("takes tasks" if hang.startswith("end") else "^hangs")
        assert workers.seconds_to_end() < LIMIT + BUSY
        workers.wait_for("lifespan.* did not end in time")


def test_term_ends_a_worker_in_which_a_thread_was_forgotten(tmp_path: Path, redis_url: str) -> None:
    """The thread is not a daemon, so the interpreter would wait for it. (D14)"""
    with Hanging(tmp_path, redis_url, "thread", *WORKER) as worker:
        worker.wait_for("concurrency 100")
        assert worker.seconds_to_end() < LIMIT + BUSY
        worker.wait_for("non-daemon threads still run: forgotten")


def test_term_ends_a_worker_whose_interpreter_does_not_end(tmp_path: Path, redis_url: str) -> None:
    """It waits without limit for functions of `atexit`. (D14)"""
    with Hanging(tmp_path, redis_url, "atexit", *WORKER) as worker:
        worker.wait_for("concurrency 100")
        assert worker.seconds_to_end() < LIMIT + BUSY
        worker.wait_for("the end of the interpreter")


def test_idle_threads_of_an_executor_do_not_cut_the_end_short(tmp_path: Path, redis_url: str) -> None:
    """They end when the interpreter does, which calls what was registered with `atexit`. (D14)"""
    with Hanging(tmp_path, redis_url, "idle-executor", *WORKER) as worker:
        worker.wait_for("concurrency 100")
        worker.send(signal.SIGTERM)
        assert 0 == worker.end()
        worker.wait_for("^last act")
        assert "still run" not in worker.text


@pytest.mark.long
@pytest.mark.skipif(not may_unshare(), reason="this host does not let us make a PID namespace")
@pytest.mark.parametrize("hang", ["start-blocked", "end-swallow"])
@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_term_ends_process_1_whose_lifespan_hangs(
    tmp_path: Path, redis_url: str, hang: str, options: tuple[str, ...]
) -> None:
    """Where the kernel ignores what a process has no handler for. (D14)"""
    with Hanging(tmp_path, redis_url, hang, *WORKER, *options, prefix=CONTAINER) as workers:
        ready = "takes tasks" if options else "concurrency 100"
        workers.wait_for(ready if hang.startswith("end") else "^hangs")
        [inside] = Path(f"/proc/{workers.pid}/task/{workers.pid}/children").read_text().split()
        assert workers.seconds_to_end(int(inside)) < LIMIT + BUSY
        workers.wait_for("lifespan.* did not end in time")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["async", "thread", "child"])
@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_term_ends_a_worker_whose_handler_and_lifespan_hang(
    tmp_path: Path, redis_url: str, redis_client: RedisClient, kind: str, options: tuple[str, ...]
) -> None:
    """The task is back in front of its queue, and no crash is counted. (D14)"""
    [task_id] = enqueue(redis_url, kind)
    with Hanging(tmp_path, redis_url, "end-swallow", *WORKER, *options) as workers:
        workers.wait_for("^started")
        assert workers.seconds_to_end() < LIMIT + BUSY
        workers.wait_for("the end of the lifespan did not end in time")
        if kind != "child":
            workers.wait_for(rf"the handler of task {task_id} \({kind}\) did not end in time")
    assert [task_id] == pending(redis_client)
    assert task_field(redis_client, task_id, "x:crashes") is None


@pytest.mark.long
def test_a_child_that_keeps_the_interpreters_lock_is_replaced_and_its_task_comes_back(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """Its supervisor hears nothing of it, kills it and recovers the task at once. (D17)"""
    options = ("--processes", "1", "--beat-timeout", "8", "--concurrency", "1")
    with Hanging(tmp_path, redis_url, "", *WORKER, *options) as workers:
        workers.wait_for("takes tasks")
        [task_id] = enqueue(redis_url, "lock")
        workers.wait_for("^started")
        workers.wait_for("gave no sign of life for 8 s; killing it")
        workers.wait_for("^started", times=2)
        assert b"1" == task_field(redis_client, task_id, "x:crashes")
        # The second run keeps the lock as well, and hears no TERM.
        assert workers.seconds_to_end() < LIMIT + BUSY
        workers.wait_for("did not end within 3 s of TERM; killing it")
    assert [task_id] == pending(redis_client)


@pytest.mark.long
def test_a_reload_whose_new_child_hangs_is_called_off(tmp_path: Path, redis_url: str) -> None:
    """The old one goes on. (D17)"""
    options = ("--processes", "1", "--start-timeout", "10")
    with Hanging(tmp_path, redis_url, "", *WORKER, *options) as workers:
        workers.wait_for("takes tasks")
        (tmp_path / "hanging.py").write_text(PROGRAM.replace('os.environ["HANG"]', '"start-swallow"'))
        workers.send(signal.SIGHUP)
        workers.wait_for("^hangs")
        workers.wait_for("the reload is cancelled")
        enqueue(redis_url, "steal")
        workers.wait_for("^started")
        assert workers.seconds_to_end() < LIMIT + BUSY


def test_a_handler_that_takes_term_for_itself_does_not_take_the_shutdown_away(
    tmp_path: Path, redis_url: str
) -> None:
    """The worker notices within a second, says whose handler it was, and puts its own back. (D64)"""
    enqueue(redis_url, "steal")
    with Hanging(tmp_path, redis_url, "", *WORKER) as worker:
        worker.wait_for("^started")
        worker.wait_for("the handler of SIGTERM was replaced by hanging.steal.<locals>.<lambda>")
        assert worker.seconds_to_end() < LIMIT + BUSY
    assert "stolen" not in worker.text
