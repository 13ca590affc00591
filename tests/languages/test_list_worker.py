"""The example of a worker in PHP that only speaks Redis, with a real service and two instances of it."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.languages.test_example_workers import EXAMPLES, killed_at_end, running_service
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    import httpx

PHP = shutil.which("php")
TYPES = """
[tasks.resize]
kind = "list"
shards = 2
retention = "1h"
retry = ["1h"]
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, str]]:
    """Run the service on a server of its own; yield a client of it, and the address of Redis."""
    with running_service(tmp_path_factory.mktemp("service"), TYPES) as running:
        yield running


@contextmanager
def working(redis: str, shard: int) -> Iterator[subprocess.Popen[str]]:
    """Run a worker until the end of a block."""
    if PHP is None:
        pytest.skip("php is missing: install php-cli")
    command = [PHP, str(EXAMPLES / "worker_list_php" / "worker.php"), "resize", str(shard)]
    with killed_at_end(command, env={**os.environ, "REDIS": redis}) as worker:
        yield worker


def enqueue(client: httpx.Client, **payload: object) -> str:
    """Enqueue a task; return its id."""
    answer = client.post("/v1/tasks", json={"type": "resize", "payload": payload})
    assert 201 == answer.status_code, answer.text
    return str(answer.json()["id"])


def count_listening(client: httpx.Client) -> int:
    """Return how many workers listen."""
    return int(client.get("/v1/task-types/resize").json()["listening"])


def test_results_failures_and_the_end_at_term(running: tuple[httpx.Client, str]) -> None:
    """The second worker has a shard of its own; a worker that is told to end finishes its task."""
    client, redis = running
    with working(redis, 0) as first, working(redis, 1):
        tasks = [enqueue(client, number=number) for number in range(6)]
        for number, task in enumerate(tasks):
            answer = client.get(f"/v1/tasks/resize/{task}/result", params={"wait": 50}).json()
            assert {"double": 2 * number} == answer["result"]
        wrong = enqueue(client, seconds=0)
        wait_until(lambda: client.get(f"/v1/tasks/resize/{wrong}").json()["state"] == "retry")
        assert "InvalidArgumentException: number is missing" in client.get(f"/v1/tasks/resize/{wrong}").text
        first.send_signal(signal.SIGTERM)
        assert 0 == first.wait(30)
        wait_until(lambda: count_listening(client) == 1)


def test_the_task_of_a_killed_worker_runs_elsewhere(running: tuple[httpx.Client, str]) -> None:
    """Its heartbeat ends with it."""
    client, redis = running
    with working(redis, 0) as first:
        wait_until(lambda: count_listening(client) > 0)
        task = enqueue(client, number=3, seconds=2)
        wait_until(lambda: client.get(f"/v1/tasks/resize/{task}").json()["state"] == "active")
        first.kill()
    with working(redis, 1):
        answer = client.get(f"/v1/tasks/resize/{task}/result", params={"wait": 55}).json()
        assert {"double": 6} == answer["result"]
