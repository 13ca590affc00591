"""`pyasynq metrics`, and `/metrics` of workers with one process and with several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from pyasynq import sync
from pyasynq.task import Task
from tests.end_to_end.test_processes import Workers
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

TOTAL = "pyasynq_tasks_finished_total default mark succeeded"


def scrape(port: int) -> dict[str, float]:
    """Return the samples by name and label values; none while nothing answers."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10)
    except httpx.TransportError:
        return {}
    samples = [one for family in parse(answer.text) for one in family.samples]
    return {" ".join((one.name, *one.labels.values())): one.value for one in samples}


def enqueue(url: str, number: int) -> None:
    """Enqueue tasks that end at once."""
    with sync.Client(url) as client:
        client.enqueue_many([Task("mark", b"{}") for _ in range(number)])


@pytest.mark.long
def test_totals_do_not_fall_when_a_child_is_killed(tmp_path: Path, redis_url: str) -> None:
    """The sum over all children, dead ones included, is the number of tasks that ran."""
    port = free_port()
    options = ("--processes", "2", "--concurrency", "5", "--health-port", str(port), "--metrics")
    with Workers(tmp_path, redis_url, *options) as workers:
        workers.wait_until_ready(2)
        enqueue(redis_url, 200)
        wait_until(lambda: 200 == scrape(port).get(TOTAL), "200 tasks in the totals")
        assert 10 == scrape(port)["pyasynq_slots"]
        os.kill(workers.children[0], signal.SIGKILL)
        wait_until(lambda: 1 == scrape(port)["pyasynq_worker_deaths_total"], "the death in the totals")
        found = scrape(port)
        assert (200, 5) == (found[TOTAL], found["pyasynq_slots"])
        workers.wait_until_ready(3)
        enqueue(redis_url, 100)
        wait_until(lambda: 300 == scrape(port).get(TOTAL), "300 tasks in the totals")
        wait_until(lambda: 2 == scrape(port)["pyasynq_worker_processes active"], "two processes")
        assert 300 == scrape(port)["pyasynq_task_run_seconds_count default mark"]
        assert 0 == workers.terminate()


@pytest.mark.long
def test_tasks_of_a_killed_child_are_counted_as_poison(tmp_path: Path, redis_url: str) -> None:
    """The supervisor takes them back, and a child that lives is told."""
    port = free_port()
    options = ("--processes", "2", "--concurrency", "5", "--health-port", str(port), "--metrics")
    with Workers(tmp_path, redis_url, *options) as workers:
        workers.wait_until_ready(2)
        with sync.Client(redis_url) as client:
            client.enqueue(Task("die", b"{}"))
        wait_until(lambda: 1 == scrape(port).get("pyasynq_poisoned_total default"), "the poison task")
        assert 0 == workers.terminate()


def test_a_worker_without_children_answers_for_itself(tmp_path: Path, redis_url: str) -> None:
    """At its health port; the probes go on as before."""
    port = free_port()
    with Workers(tmp_path, redis_url, "--health-port", str(port), "--metrics") as workers:
        enqueue(redis_url, 20)
        wait_until(lambda: 20 == scrape(port).get(TOTAL), "20 tasks in the totals")
        assert 200 == httpx.get(f"http://127.0.0.1:{port}/live").status_code
        assert 0 == workers.terminate()


@pytest.mark.long
def test_without_the_flag_there_is_no_such_path_and_nothing_is_loaded(tmp_path: Path, redis_url: str) -> None:
    """Metrics that are off cost nothing."""
    port = free_port()
    with Workers(tmp_path, redis_url, "--health-port", str(port)) as workers:
        wait_until(lambda: _answers(port))
        assert 404 == httpx.get(f"http://127.0.0.1:{port}/metrics").status_code
        workers.terminate()
    program = (
        "import sys, pyasynq.cli.worker, pyasynq.server, pyasynq.app\n"
        "print([name for name in sys.modules if name.startswith(('pyasynq.metrics', 'prometheus'))])"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "[]" == told.stdout.strip()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/live").status_code == 200
    except httpx.TransportError:
        return False


def test_metrics_need_a_port(tmp_path: Path, redis_url: str) -> None:
    """The error names the flag."""
    with Workers(tmp_path, redis_url, "--metrics") as workers:
        assert 2 == workers.end()
        assert "give --health-port as well" in workers.text


def test_the_command_serves_the_metrics_of_all_queues(redis_url: str) -> None:
    """Until TERM, which ends it cleanly; another path does not exist."""
    enqueue(redis_url, 3)
    port = free_port()
    command = [sys.executable, "-m", "pyasynq", "metrics", "--redis", redis_url, "--port", str(port)]
    with subprocess.Popen([*command, "--host", "127.0.0.1"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"http://127.0.0.1:{port}/metrics" in process.stderr.readline()
        wait_until(lambda: 3 == scrape(port).get("asynq_queue_size default"))
        accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
        assert httpx.get(f"http://127.0.0.1:{port}/metrics", headers=accept).text.endswith("# EOF\n")
        assert 404 == httpx.get(f"http://127.0.0.1:{port}/").status_code
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(20)
