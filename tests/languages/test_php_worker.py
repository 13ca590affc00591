"""The worker of `clients/php` with a real service: outcomes, leases, crashes, kills and drains."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.languages.test_example_workers import (
    TYPES,
    enqueue,
    find_state,
    killed_at_end,
    running_service,
    service,
)
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

__all__ = ["service"]
PHP = shutil.which("php")


@contextmanager
def running_worker(**variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker with these variables until the end of a block."""
    if PHP is None:
        pytest.skip("php is missing: install php-cli and php-curl")
    command = [PHP, "-d", "memory_limit=64M", str(Path(__file__).with_name("worker.php"))]
    with killed_at_end(command, env={**os.environ, **variables}) as worker:
        yield worker


@contextmanager
def working(service: httpx.Client, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker of a service until the end of a block."""
    with running_worker(PYASYNQ_SERVICE=str(service.base_url).rstrip("/"), **more) as worker:
        yield worker


def fetch_task(service: httpx.Client, task: str) -> dict[str, Any]:
    """Return what the service tells of a task."""
    return dict(service.get(f"/v1/tasks/resize/{task}").json())


def is_alive(number: int) -> bool:
    """Return whether a process runs; a dead one whose parent has not noticed does not."""
    try:
        return "Z" != Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def read_numbers(file: Path, count: int) -> list[int]:
    """Return the processes of the attempts so far, as soon as there are this many."""
    wait_until(lambda: file.exists() and len(file.read_text("utf-8").splitlines()) >= count)
    return [int(line) for line in file.read_text("utf-8").splitlines()]


def test_payloads_and_results_in_chinese(service: httpx.Client) -> None:
    """A middleware sees the result."""
    task = enqueue(service, {"do": "echo", "text": "配送任务"})
    with working(service):
        answer = service.get(f"/v1/tasks/resize/{task}/result", params={"wait": 30}).json()
    assert {"text": "配送任务", "attempt": 1} == answer["result"]


@pytest.mark.parametrize(
    ("do", "state", "text"),
    [
        ("exit", "retry", "the handler ended its process, with the exit code 7"),
        ("hog", "retry", "Allowed memory size of 67108864 bytes exhausted"),
        ("hog", "retry", "(PHP's memory_limit) [worker.php:"),
        (
            "burn",
            "retry",
            "Maximum execution time of 1 second exceeded (PHP's max_execution_time) [worker.php",
        ),
        ("crash", "retry", "the handler's process was ended by signal 11 (SIGSEGV)"),
        ("throw", "retry", "LogicException: 配送失败 [worker.php"),
        ("retry", "retry", "busy"),
        ("snooze", "retry", ""),
        ("archive", "archived", "never"),
    ],
)
def test_each_outcome(service: httpx.Client, do: str, state: str, text: str) -> None:
    """The error of a child that ends names its signal or limit; the worker goes on."""
    task = enqueue(service, {"do": do})
    next_task = enqueue(service, {"do": "echo", "text": "next"})
    with working(service):
        wait_until(lambda: find_state(service, task) == state)
        wait_until(lambda: find_state(service, next_task) == "completed")
    assert text in str(fetch_task(service, task)["last_error"])


def test_a_handler_beyond_its_timeout_is_killed(service: httpx.Client, tmp_path: Path) -> None:
    """The error of the task names the limit, and the worker goes on."""
    params = {"do": "sleep", "seconds": 1000, "pidfile": str(tmp_path / "pids")}
    body = {"type": "resize", "params": params, "options": {"timeout": 3}}
    with working(service):
        task = service.post("/v1/tasks", json=body).json()["id"]
        [number] = read_numbers(tmp_path / "pids", 1)
        wait_until(lambda: find_state(service, task) == "retry")
        assert not is_alive(number)
        last = enqueue(service, {"do": "echo", "text": "a"})
        wait_until(lambda: find_state(service, last) == "completed")
    error = fetch_task(service, task)["last_error"]
    assert re.fullmatch(
        r"the task timed out: its handler was killed after 2\.\d s, at the deadline 20\S+", error
    )


def test_a_handler_sleeps_over_its_lease(service: httpx.Client) -> None:
    """The parent extends it."""
    task = enqueue(service, {"do": "sleep", "seconds": 2})
    with working(service):
        answer = service.get(f"/v1/tasks/resize/{task}/result", params={"wait": 30}).json()
    assert "completed" == answer["state"]


def test_cancelling_kills_the_child_and_term_drains(service: httpx.Client, tmp_path: Path) -> None:
    """The worker goes on, and ends cleanly."""
    task = enqueue(service, {"do": "sleep", "seconds": 1000, "pidfile": str(tmp_path / "pids")})
    with working(service) as worker:
        [number] = read_numbers(tmp_path / "pids", 1)
        service.post(f"/v1/tasks/resize/{task}:cancel", json={})
        wait_until(lambda: not is_alive(number))
        last = enqueue(service, {"do": "sleep", "seconds": 1, "pidfile": str(tmp_path / "last")})
        read_numbers(tmp_path / "last", 1)
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(30)
    assert "completed" == find_state(service, last)


def test_children_ignore_the_signals_that_go_to_all_processes(service: httpx.Client, tmp_path: Path) -> None:
    """A terminal and systemd send them; the handler ends by itself, in its first attempt."""
    task = enqueue(service, {"do": "sleep", "seconds": 1, "pidfile": str(tmp_path / "pids")})
    with working(service):
        [number] = read_numbers(tmp_path / "pids", 1)
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(number, one)
        wait_until(lambda: find_state(service, task) == "completed")
    assert [number] == read_numbers(tmp_path / "pids", 1)


def test_a_second_term_puts_tasks_back(service: httpx.Client, tmp_path: Path) -> None:
    """The child is killed; exit code 3."""
    task = enqueue(service, {"do": "sleep", "seconds": 1000, "pidfile": str(tmp_path / "pids")})
    with working(service) as worker:
        [number] = read_numbers(tmp_path / "pids", 1)
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)
        assert 3 == worker.wait(30)
    assert (False, "pending") == (is_alive(number), find_state(service, task))
    service.delete(f"/v1/tasks/resize/{task}")


def test_the_guard_ends_the_children_of_a_killed_worker(service: httpx.Client, tmp_path: Path) -> None:
    """The task runs again elsewhere, after its lease."""
    file = tmp_path / "pids"
    task = enqueue(service, {"do": "sleep", "seconds": 1000, "pidfile": str(file)})
    with working(service) as worker:
        [number] = read_numbers(file, 1)
        worker.kill()
        wait_until(lambda: not is_alive(number))
    with working(service):
        assert number != read_numbers(file, 2)[1]
        service.post(f"/v1/tasks/resize/{task}:cancel", json={})
        wait_until(lambda: find_state(service, task) == "retry")


def test_the_children_of_a_killed_guard_end_with_their_worker(service: httpx.Client, tmp_path: Path) -> None:
    """Nothing would end a child that hangs: its lease lapses, and its task runs elsewhere."""
    file = tmp_path / "pids"
    task = enqueue(service, {"do": "sleep", "seconds": 1000, "pidfile": str(file)})
    with working(service) as worker:
        [number] = read_numbers(file, 1)
        guard = Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(") ")[2].split()[1]
        os.kill(int(guard), signal.SIGKILL)
        assert 255 == worker.wait(30)
        wait_until(lambda: not is_alive(number))
    service.post(f"/v1/tasks/resize/{task}:cancel", json={})
    wait_until(lambda: find_state(service, task) == "retry")


def run_dead_child(runs: Path) -> dict[str, list[str]]:
    """Return what a worker did that sent one task to a dead child, and the next one to its successor."""
    if PHP is None:
        pytest.skip("php is missing: install php-cli and php-curl")
    script = str(Path(__file__).with_name("dead_child.php"))
    done = subprocess.run([PHP, script, str(runs)], check=True, capture_output=True, timeout=60)
    return dict(json.loads(done.stdout))


def test_a_task_for_a_dead_child_does_not_reach_its_successor(tmp_path: Path) -> None:
    """It is tried again; the outcome of the next task is its own."""
    done = run_dead_child(tmp_path / "runs")
    assert ["/v1/attempts/dead:fail", "/v1/attempts/next:complete"] == done["paths"]
    assert "next" == (tmp_path / "runs").read_text("utf-8")


def test_the_timers_of_a_task_go_with_it(tmp_path: Path) -> None:
    """Otherwise each task of the last half hour, its timeout, would cost memory and time."""
    assert ["extend 0", "deadline 0"] == run_dead_child(tmp_path / "runs")["timers"]


def test_children_are_replaced_after_their_tasks(service: httpx.Client) -> None:
    """No task is given to a child that ends."""
    tasks = [enqueue(service, {"do": "echo", "text": "a"}) for _ in range(20)]
    with working(service, MAX_TASKS="1"):
        for task in tasks:
            answer = service.get(f"/v1/tasks/resize/{task}/result", params={"wait": 30}).json()
            assert {"text": "a", "attempt": 1} == answer["result"]


def count_waits(process: int) -> int:
    """Return how many times a process has waited."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_idle_worker_sleeps(tmp_path: Path) -> None:
    """The parent wakes about once in a second, its guard twice, and its children do not."""
    with running_service(tmp_path, TYPES) as (service, _), working(service) as worker:
        enqueue(service, {"do": "sleep", "seconds": 0, "pidfile": str(tmp_path / "pids")})
        [child] = read_numbers(tmp_path / "pids", 1)
        guard = int(Path(f"/proc/{child}/stat").read_text("utf-8").rpartition(") ")[2].split()[1])
        processes = worker.pid, guard, child
        # The first polls are over then, and the next answer is up to 20 s away.
        time.sleep(1)
        before, began_at = [count_waits(one) for one in processes], time.monotonic()
        time.sleep(4)
        waits = [count_waits(one) - old for one, old in zip(processes, before, strict=True)]
        seconds = time.monotonic() - began_at
    assert waits[0] <= 2 + seconds
    assert waits[1] <= 2 + 2 * seconds
    assert 0 == waits[2]


def test_the_client_enqueues_and_waits(service: httpx.Client) -> None:
    """An unknown type is refused, in a batch for itself."""
    with working(service):
        done = subprocess.run(
            [str(PHP), str(Path(__file__).with_name("client.php"))],
            env={**os.environ, "PYASYNQ_SERVICE": str(service.base_url).rstrip("/")},
            check=True,
            capture_output=True,
            timeout=60,
        )
    assert ["配送", "b", 422, 422] == json.loads(done.stdout)


def test_a_missing_extension_is_told() -> None:
    """By its name, with the remedy."""
    if PHP is None:
        pytest.skip("php is missing: install php-cli and php-curl")
    done = subprocess.run(
        [PHP, "-n", str(Path(__file__).with_name("client.php"))], check=False, capture_output=True, text=True
    )
    assert "PHP lacks ext-curl: install" in done.stdout + done.stderr
