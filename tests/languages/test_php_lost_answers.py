"""The worker of `clients/php` when answers of the service are lost, or the service is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from pyasynq.embedded import EmbeddedServer
from tests.fix_proxy import Cut, Proxy
from tests.languages.test_example_workers import (
    FILE,
    TYPES,
    enqueue,
    find_state,
    killed_at_end,
    service,
)
from tests.languages.test_php_worker import read_numbers, running_worker
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["service"]

SECRET = "s" * 43
"""Instances with the same secret know each other's leases."""

LEASE_AND_RECOVERY = 60.0
"""Seconds; a server that has just started does not look for lapsed leases for 30 of them."""


def proxied(service: httpx.Client) -> Proxy:
    """Return a proxy before the service."""
    return Proxy(f"redis://127.0.0.1:{urlsplit(str(service.base_url)).port}")


@contextmanager
def working_through(proxy: Proxy) -> Iterator[None]:
    """Run a worker behind a proxy until the end of a block."""
    with running_worker(PYASYNQ_SERVICE=f"http://127.0.0.1:{proxy.port}", LEASE_SECONDS="3"):
        yield


@pytest.mark.parametrize("cut", [Cut.BEFORE_REPLY, Cut.IN_REPLY], ids=["none of it", "half of it"])
@pytest.mark.parametrize("request_path", [b":extend", b":complete"])
def test_a_lost_answer(service: httpx.Client, tmp_path: Path, request_path: bytes, cut: Cut) -> None:
    """The request is repeated: the handler runs once."""
    runs = tmp_path / "pids"
    task = enqueue(service, {"do": "sleep", "seconds": 4, "pidfile": str(runs)})
    with proxied(service) as proxy:
        proxy.cut(cut, containing=request_path)
        with working_through(proxy):
            wait_until(lambda: find_state(service, task) == "completed")
        assert 1 == proxy.cuts
    assert 1 == len(read_numbers(runs, 1))


def test_tasks_of_lost_answers_come_again_after_their_leases(service: httpx.Client, tmp_path: Path) -> None:
    """No worker knows them, and each runs once; that counts no crash."""
    runs = tmp_path / "pids"
    with proxied(service) as proxy:
        proxy.cut(Cut.BEFORE_REPLY, containing=b"/v1/leases")
        proxy.cut(Cut.IN_REPLY, containing=b"/v1/leases")

        def lose_task() -> str:
            cuts = proxy.cuts + 1
            task = enqueue(service, {"do": "sleep", "seconds": 0, "pidfile": str(runs)})
            wait_until(lambda: proxy.cuts == cuts)
            return task

        with working_through(proxy):
            tasks = [lose_task(), lose_task()]
            wait_until(
                lambda: {find_state(service, task) for task in tasks} == {"completed"},
                seconds=LEASE_AND_RECOVERY,
            )
    assert 2 == len(read_numbers(runs, 2))
    assert [0, 0] == [service.get(f"/v1/tasks/resize/{task}").json()["crashes"] for task in tasks]


@contextmanager
def instance(file: Path, url: str, port: int) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Run the service on a port until the end of a block."""
    file.write_text(FILE.format(url=url).replace("127.0.0.1:0", f"127.0.0.1:{port}") + TYPES, "utf-8")
    command = [sys.executable, "-m", "pyasynq", "service", str(file), "--no-access-log"]
    with (
        killed_at_end(
            command, stderr=subprocess.DEVNULL, env={**os.environ, "PYASYNQ_SECRET": SECRET}
        ) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        wait_until(lambda: is_ready(client))
        yield process, client


def is_ready(client: httpx.Client) -> bool:
    """Return whether the service answers."""
    try:
        return client.get("/ready").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("seconds", [1, 3], ids=["the handler ends without a service", "it ends afterwards"])
def test_a_service_is_killed_while_a_handler_runs(tmp_path: Path, seconds: int) -> None:
    """Its successor gets the outcome: the handler has run once, and the worker goes on."""
    runs, port = tmp_path / "pids", free_port()
    file = tmp_path / "service.toml"
    with EmbeddedServer() as server, instance(file, server.url, port) as (process, client):
        task = enqueue(client, {"do": "sleep", "seconds": seconds, "pidfile": str(runs)})
        with running_worker(PYASYNQ_SERVICE=str(client.base_url), LEASE_SECONDS="30"):
            read_numbers(runs, 1)
            process.kill()
            process.wait()
            with instance(file, server.url, port) as (_, successor):
                wait_until(lambda: find_state(successor, task) == "completed")
                last = enqueue(successor, {"do": "echo", "text": "a"})
                wait_until(lambda: find_state(successor, last) == "completed")
    assert 1 == len(read_numbers(runs, 1))
