"""Worker processes: signals, exit codes, death and recovery."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import redis

from pyasynq.sync import Client
from tests.invariants import check_invariants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.factories import Tasks

PROGRAM = Path(__file__).with_name("worker_program.py")
SOON = {"shutdown_timeout": 0.2, "cancel_timeout": 0.2}


class Worker:
    """A worker process and what it says."""

    def __init__(
        self,
        url: str,
        config: dict[str, Any],
        engine: dict[str, Any],
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-u", str(PROGRAM), url, json.dumps(config), json.dumps(engine)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def wait_for(self, line: str) -> None:
        """Read until the process says this."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said.strip() == line:
                return
        pytest.fail(f"the worker ended with {self.process.wait()} and never said {line!r}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for the end."""
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """Enqueues."""
    with Client(redis_url) as client:
        yield client


@contextlib.contextmanager
def worker(
    url: str,
    config: dict[str, Any] | None = None,
    prefix: tuple[str, ...] = (),
    **engine: Any,
) -> Iterator[Worker]:
    """Start a worker process; it does not outlive the block."""
    started = Worker(url, config or {}, engine, prefix)
    try:
        started.wait_for("working")
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_worker_with_code_0(redis_url: str, client: Client, number: int) -> None:
    """TERM and INT, after its work is done."""
    with worker(redis_url) as process:
        client.enqueue("quick", task_id="a")
        process.wait_for("finished a succeeded")
        process.signal(number)
        assert 0 == process.exit_code()
    with redis.Redis.from_url(redis_url) as server:
        check_invariants(server)
        assert [] == server.keys("asynq:servers:*")


def test_tstp_stops_taking_and_term_then_ends(redis_url: str, client: Client, tasks: Tasks) -> None:
    """What comes after TSTP stays in its queue."""
    with worker(redis_url) as process:
        process.signal(signal.SIGTSTP)
        process.wait_for("state stopped")
        client.enqueue("quick", task_id="a")
        process.signal(signal.SIGTSTP)
        process.signal(signal.SIGTERM)
        assert 0 == process.exit_code()
    assert ["a"] == tasks.ids("pending")


@pytest.mark.parametrize("kind", ["wait", "stubborn", "thread"])
def test_unfinished_work_is_put_back_and_the_code_is_3(
    redis_url: str, client: Client, tasks: Tasks, kind: str
) -> None:
    """Whether it was cancelled, swallowed that, or is a thread that nobody can stop."""
    with worker(redis_url, SOON) as process:
        client.enqueue(kind, task_id="a")
        process.wait_for("started a")
        process.signal(signal.SIGTERM)
        assert 3 == process.exit_code()
    assert ["a"] == tasks.ids("pending")
    assert "x:crashes" not in tasks.fields("a")


def test_term_ends_a_worker_whose_loop_is_blocked(redis_url: str, client: Client, tasks: Tasks) -> None:
    """The heartbeat's thread puts the work back and ends the process."""
    with worker(redis_url, SOON, exit_margin=0.5, sweep_interval=0.05, loop_blocked_after=0.1) as process:
        client.enqueue("block", task_id="a")
        process.wait_for("started a")
        process.signal(signal.SIGTERM)
        assert 3 == process.exit_code()
    assert ["a"] == tasks.ids("pending")


def can_be_process_1() -> bool:
    """Return whether this machine lets us make a process number space."""
    try:
        return not subprocess.run(
            ["unshare", "--fork", "--pid", "true"], capture_output=True, check=False
        ).returncode
    except OSError:
        return False


@pytest.mark.skipif(not can_be_process_1(), reason="needs `unshare --pid`, which only root may")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_process_1_a_worker_obeys_signals(
    redis_url: str, client: Client, tasks: Tasks, number: int
) -> None:
    """The kernel ignores signals without a handler there."""
    with worker(redis_url, SOON, prefix=("unshare", "--fork", "--pid", "--kill-child")) as process:
        client.enqueue("wait", task_id="a")
        process.wait_for("started a")
        [child] = psutil.Process(process.process.pid).children()
        child.send_signal(number)
        assert 3 == process.exit_code()
    assert ["a"] == tasks.ids("pending")


def test_a_second_int_ends_at_once(redis_url: str, client: Client) -> None:
    """Even while the first one's shutdown waits, and while the loop is blocked."""
    with worker(redis_url, {"shutdown_timeout": 1_000}) as process:
        client.enqueue("block", task_id="a")
        process.wait_for("started a")
        process.signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once are one
        process.signal(signal.SIGINT)
        assert 130 == process.exit_code()


@pytest.mark.parametrize("kind", ["stubborn", "thread", "block"])
def test_h26_a_handler_that_cannot_be_stopped_ends_the_worker_with_code_4(
    redis_url: str, client: Client, tasks: Tasks, kind: str
) -> None:
    """Overdue by the limit: drain, exit, be restarted; another worker recovers the task as a crash."""
    config = {**SOON, "overdue_limit": 0.5}
    with worker(redis_url, config, sweep_interval=0.05, loop_blocked_after=0.2) as process:
        client.enqueue(kind, task_id="a", timeout=1)
        process.wait_for("started a")
        assert 4 == process.exit_code()
    assert ["a"] == tasks.ids("active")


def test_h26_all_slots_held_by_overdue_handlers_end_the_worker_with_code_4(
    redis_url: str, client: Client
) -> None:
    """Long before the limit, since the worker can do nothing else."""
    config = {**SOON, "concurrency": 2}
    with worker(redis_url, config, sweep_interval=0.05, stuck_grace=0.3) as process:
        client.enqueue("thread", task_id="a", timeout=1)
        client.enqueue("stubborn", task_id="b", timeout=1)
        assert 4 == process.exit_code()


def test_h08_tasks_of_a_killed_worker_are_recovered_by_another(
    redis_url: str, client: Client, tasks: Tasks
) -> None:
    """SIGKILL, leases of two seconds, and a worker that looks every 0.1 seconds."""
    engine: dict[str, Any] = {
        "lease": 2,
        "heartbeat_interval": 0.3,
        "recoverer_interval": 0.1,
        "own_slack": 0,
    }
    with worker(redis_url, **engine) as first:
        client.enqueue("wait", task_id="a")
        first.wait_for("started a")
        first.signal(signal.SIGKILL)
        first.exit_code()
        assert ["a"] == tasks.ids("active")
        with worker(redis_url, SOON, **engine) as second:
            second.wait_for("started a")
            assert b"1" == tasks.fields("a")["x:crashes"]
            second.signal(signal.SIGTERM)
            assert 3 == second.exit_code()


def test_h06_a_task_that_kills_every_worker_ends_as_poison_and_its_neighbours_are_done(
    redis_url: str, client: Client, tasks: Tasks
) -> None:
    """Three deaths, then the archive; everything else runs, and nobody else is blamed."""
    engine: dict[str, Any] = {
        "lease": 1,
        "heartbeat_interval": 0.2,
        "recoverer_interval": 0.1,
        "own_slack": 0,
    }
    client.enqueue("die", task_id="poison")
    for number in range(20):
        client.enqueue("quick", task_id=str(number))
    for _ in range(10):
        process = Worker(redis_url, {"concurrency": 5}, engine)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.process.wait(timeout=4)
        process.process.kill()
        process.process.communicate()
        if tasks.ids("archived"):
            break
    assert ["poison"] == tasks.ids("archived")
    assert ([], []) == (tasks.ids("pending"), tasks.ids("active"))


def test_a_worker_that_cannot_start_exits_with_1_and_names_the_address(tmp_path: Path) -> None:
    """No traceback: one line that says what is wrong."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), f"unix://{tmp_path}/none.sock", "{}", "{}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert 1 == done.returncode
    assert "none.sock" in done.stderr
    assert "Traceback" not in done.stderr
