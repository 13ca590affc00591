"""`pyasynq work` and the service as programs: the commands of the page on leases, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.end_to_end.test_service_command import running, write_file
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def working(address: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `pyasynq work` for the queue `resize` until the end of a block."""
    command = [sys.executable, "-m", "pyasynq", "work", "resize", "--no-logging", "--grace", "0.1s", *words]
    environment = {**os.environ, "PYASYNQ_SERVICE": address}
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def enqueue(address: str, number: int, **params: str) -> None:
    """Enqueue a task with a number, whose result is kept."""
    options = {"task_id": str(number), "retention": 3600}
    body = {"type": "resize", "params": params, "options": options}
    assert 201 == httpx.post(f"{address}/v1/tasks", json=body).status_code


@pytest.mark.long
def test_tasks_run_commands_until_a_signal(tmp_path: Path, redis_url: str) -> None:
    """TERM lets the command finish; two of them end it, and put its task back."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    gate, began = tmp_path / "gate", tmp_path / "began"
    os.mkfifo(gate)
    script = f"cat; echo >> {began}; cat {gate}"
    with running(write_file(tmp_path, f"127.0.0.1:{port}", redis=redis_url), port=port):
        with working(address, "--", "sh", "-c", script) as worker:
            enqueue(address, 1, path="配送")
            wait_until(began.exists)
            worker.send_signal(signal.SIGTERM)
            gate.write_text("!", "utf-8")
            assert 0 == worker.wait(30)
        answer = httpx.get(f"{address}/v1/tasks/resize/1/result", params={"wait": 20}).json()
        assert ("completed", '{"path":"配送"}!') == (answer["state"], answer["result_text"])

        began.unlink()
        with working(address, "--", "sh", "-c", script) as worker:
            enqueue(address, 2, path="b")
            wait_until(began.exists)
            # Two equal signals that wait at once are one.
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGINT)
            assert 3 == worker.wait(30)
        assert "pending" == httpx.get(f"{address}/v1/tasks/resize/2").json()["state"]
