"""The examples of workers in Go and Node, with a real service: tasks, cancellation, and the end at TERM."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pyasynq.embedded import EmbeddedServer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXAMPLES = Path(__file__).parents[2] / "examples"
GO = os.environ.get("PYASYNQ_GO") or shutil.which("go")
NODE = shutil.which("node")
FILE = """
[service]
redis = "{url}"
listen = "127.0.0.1:0"
"""
TYPES = """
[tasks.resize]
retention = "1h"
retry = ["1h"]
"""


@contextmanager
def killed_at_end(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the end of a block."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def running_service(folder: Path, types: str) -> Iterator[tuple[httpx.Client, str]]:
    """Run the service on a server of its own; yield a client of it, and the URL of Redis."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        file = folder / "service.toml"
        file.write_text(FILE.format(url=server.url) + types, "utf-8")
        command = [sys.executable, "-m", "pyasynq", "service", str(file), "--no-access-log"]
        process = stack.enter_context(killed_at_end(command, stderr=subprocess.PIPE))
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            pytest.fail("the service has not started")
        yield stack.enter_context(httpx.Client(base_url=found[0], timeout=60)), server.url


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Run the service on a server of its own, and yield a client of it."""
    with running_service(tmp_path_factory.mktemp("service"), TYPES) as (client, _):
        yield client


@pytest.fixture(scope="module", params=["go", "node"])
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of an example; skip where its language is missing."""
    if request.param == "node":
        if NODE is None:
            pytest.skip("node is missing: install nodejs")
        return [NODE, str(EXAMPLES / "worker_node" / "worker.mjs"), "resize"]
    if GO is None:
        pytest.skip("go is missing: install golang-go")
    program = tmp_path_factory.mktemp("go") / "worker"
    build = [GO, "build", "-o", str(program), str(EXAMPLES / "worker_go" / "main.go")]
    subprocess.run(build, check=True, timeout=300, env={**os.environ, "GO111MODULE": "off"})
    return [str(program), "resize"]


@contextmanager
def working(service: httpx.Client, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a worker until the end of a block."""
    environment = {
        **os.environ,
        "PYASYNQ_SERVICE": str(service.base_url).rstrip("/"),
        "LEASE_SECONDS": "1",
    }
    with killed_at_end(command, env=environment) as worker:
        yield worker


def enqueue(service: httpx.Client, params: object) -> str:
    """Enqueue a task; return its id."""
    answer = service.post("/v1/tasks", json={"type": "resize", "params": params})
    assert 201 == answer.status_code, answer.text
    return str(answer.json()["id"])


def find_state(service: httpx.Client, task: str) -> object:
    """Return the state of a task."""
    return service.get(f"/v1/tasks/resize/{task}").json()["state"]


def test_fifty_tasks_are_done_and_term_ends_the_worker(service: httpx.Client, command: list[str]) -> None:
    """Each result is of its own task; the tasks that were leased are finished."""
    tasks = {enqueue(service, {"number": number}): number for number in range(50)}
    with working(service, command) as worker:
        for task, number in tasks.items():
            answer = service.get(f"/v1/tasks/resize/{task}/result", params={"wait": 30}).json()
            assert {"double": 2 * number} == answer["result"]
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(30)


def test_a_task_that_fails_is_tried_again_later(service: httpx.Client, command: list[str]) -> None:
    """With the text of the error."""
    task = enqueue(service, {})
    with working(service, command):
        wait_until(lambda: find_state(service, task) == "retry")


def test_a_task_outlives_its_first_lease(service: httpx.Client, command: list[str]) -> None:
    """The lease is extended: otherwise its outcome would be refused."""
    task = enqueue(service, {"number": 1, "seconds": 1.5})
    with working(service, command):
        answer = service.get(f"/v1/tasks/resize/{task}/result", params={"wait": 30}).json()
    assert {"double": 2} == answer["result"]


def test_a_cancelled_task_ends(service: httpx.Client, command: list[str]) -> None:
    """Otherwise a worker that has got TERM would wait for its end."""
    task = enqueue(service, {"number": 1, "seconds": 1_000})
    with working(service, command) as worker:
        wait_until(lambda: find_state(service, task) == "active")
        assert service.post(f"/v1/tasks/resize/{task}:cancel", json={}).is_success
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(30)
