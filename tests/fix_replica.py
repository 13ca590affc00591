"""A primary with replicas, all of the server under test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq.embedded import find_server_binary
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PAUSE = 0.005
"""Seconds between two checks of a server that starts."""


def wait_for_replication(primary: redis.Redis) -> None:
    """Wait until the replicas of a primary have all that it has written by now.

    WAIT only covers the writes of its own connection.
    """
    written = primary.info("replication")["master_repl_offset"]

    def have_all() -> bool:
        info = primary.info("replication")
        replicas = [info[f"slave{number}"] for number in range(info["connected_slaves"])]
        return bool(replicas) and all(int(replica["offset"]) >= written for replica in replicas)

    wait_until(have_all, "the replicas have what the primary has")


class Replicated:
    """A primary on a port of its own, and replicas of it that a test may stop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._clients: list[redis.Redis] = []
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.primary = self._start("primary", "--port", str(self.port), "--repl-diskless-sync-delay", "0")
        self.replicas: list[redis.Redis] = []

    def add_replica(self, *, port: int = 0) -> redis.Redis:
        """Start a replica, wait until it follows the primary, and return a client of it.

        Without a port it listens at a unix socket only, so that nothing finds it by what the primary tells.
        """
        number = len(self.replicas)
        options = ("--port", str(port), "--replicaof", "127.0.0.1", str(self.port))
        replica = self._start(f"replica{number}", *options)
        self.replicas.append(replica)
        wait_until(
            lambda: replica.info("replication").get("master_link_status") == "up", "the replica follows"
        )
        while int(self.primary.wait(number + 1, 1_000)) <= number:
            pass
        return replica

    def replica_url(self, number: int = 0) -> str:
        """Return the URL of the replica's Unix socket."""
        return f"unix://{self._folder}/replica{number}/s"

    def pause_replica(self, number: int = 0) -> None:
        """Stop the process of a replica, which keeps its connections open."""
        self._processes[number + 1].send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End the primary and all replicas."""
        for client in self._clients:
            client.close()
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, name: str, *options: str) -> redis.Redis:
        folder = self._folder / name
        folder.mkdir()
        binary = find_server_binary(os.environ.get("PYASYNQ_TEST_BINARY"))
        command = [str(binary.path), "--unixsocket", "s", "--dir", str(folder), "--save", "", *options]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        self._processes.append(process)
        client = redis.Redis.from_url(f"unix://{folder}/s")
        self._clients.append(client)
        while True:
            try:
                client.ping()
            except redis.ConnectionError:  # not yet; the timeout of pytest limits the wait
                time.sleep(_PAUSE)
            else:
                return client


@pytest.fixture
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    """A primary without replicas so far."""
    servers = Replicated(tmp_path_factory.mktemp("r"))
    yield servers
    servers.close()
