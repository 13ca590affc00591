"""Fixtures: drivers and clients of both kinds behind one blocking interface, and a server for one test."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import redis

import pyasynq.sync
from pyasynq._redis.driver import AsyncDriver, BlockingDriver, DriverBase
from pyasynq._redis.url import parse_redis_url
from pyasynq.client import Client
from pyasynq.embedded import find_server_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyasynq._redis.plan import Plan
    from pyasynq.task import EnqueueResult, TaskInfo

T = TypeVar("T")


def _set_timeout(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    make = DriverBase.__init__

    def make_with_timeout(driver: DriverBase, *args: Any, **settings: Any) -> None:
        make(driver, *args, **settings | {"timeout": seconds})

    monkeypatch.setattr(DriverBase, "__init__", make_with_timeout)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the timeout of new drivers to a second, for tests without a reachable Redis."""
    _set_timeout(monkeypatch, 1.0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the timeout of new drivers to a minute, so that tests of an outage also pass on slow machines."""
    _set_timeout(monkeypatch, 60.0)


class DriverFace:
    """Blocking interface of a driver of either kind."""

    def __init__(self, driver: AsyncDriver | BlockingDriver, runner: asyncio.Runner) -> None:
        self.driver = driver
        self._runner = runner

    def run(self, plan: Plan[T]) -> T:
        return self._wait(self.driver.run(plan))  # type: ignore[no-any-return]

    def run_batch(self, plans: Sequence[Plan[T]]) -> list[T | Exception]:
        return self._wait(self.driver.run_batch(plans))  # type: ignore[no-any-return]

    def close(self) -> None:
        self._wait(self.driver.close())

    def _wait(self, value: Any) -> Any:
        return self._runner.run(value) if asyncio.iscoroutine(value) else value


class ClientFace:
    """Blocking interface of a client of either kind."""

    def __init__(self, client: Client | pyasynq.sync.Client, runner: asyncio.Runner) -> None:
        self.client = client
        self._runner = runner

    def enqueue(self, *args: Any, **options: Any) -> TaskInfo:
        return self._wait(self.client.enqueue(*args, **options))  # type: ignore[no-any-return]

    def enqueue_many(self, tasks: Any, **options: Any) -> list[EnqueueResult]:
        return self._wait(self.client.enqueue_many(tasks, **options))  # type: ignore[no-any-return]

    def ping(self) -> None:
        self._wait(self.client.ping())

    def close(self) -> None:
        self._wait(self.client.close())

    def _wait(self, value: Any) -> Any:
        return self._runner.run(value) if asyncio.iscoroutine(value) else value


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop for the test."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(params=[AsyncDriver, BlockingDriver])
def make_driver(
    request: pytest.FixtureRequest, runner: asyncio.Runner
) -> Iterator[Callable[..., DriverFace]]:
    """Makes drivers of a URL; every test that uses this runs with both kinds."""
    made = []

    def make(url: str, **settings: Any) -> DriverFace:
        face = DriverFace(request.param(parse_redis_url(url), **settings), runner)
        made.append(face)
        return face

    yield make
    for face in made:
        face.close()


@pytest.fixture(params=[Client, pyasynq.sync.Client], ids=["async", "blocking"])
def make_client(
    request: pytest.FixtureRequest, runner: asyncio.Runner
) -> Iterator[Callable[..., ClientFace]]:
    """Makes clients of a URL; every test that uses this runs with both kinds."""
    made = []

    def make(url: str, **settings: Any) -> ClientFace:
        face = ClientFace(request.param(url, **settings), runner)
        made.append(face)
        return face

    yield make
    for face in made:
        face.close()


class OwnServer:
    """A server on a unix socket that a test may stop, start again and configure as it likes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{folder}/s"

    def start(self, *options: str) -> None:
        """Start the server; a client has to wait until it listens."""
        binary = find_server_binary(os.environ.get("PYASYNQ_TEST_BINARY"))
        self._process = subprocess.Popen(
            [binary.path, "--port", "0", "--unixsocket", "s", "--dir", str(self._folder), *options],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )

    def connect(self) -> redis.Redis:
        """Wait until the server listens, and return a client of redis-py."""
        while True:
            client = redis.Redis.from_url(self.url, protocol=2)  # some tests disable HELLO
            try:
                client.ping()
            except redis.ConnectionError:  # not yet; the timeout of pytest limits the wait
                client.close()
                time.sleep(0.005)
            else:
                return client

    def signal(self, number: int) -> None:
        """Send a signal to the server's process."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Kill the server, if it runs, and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """A running server that only this test uses."""
    server = OwnServer(tmp_path_factory.mktemp("r"))
    server.start()
    yield server
    server.stop()
