"""Redis or Valkey servers for one run, on a free loopback port, without persistence."""

from __future__ import annotations

import os
import shutil
import socket
import time
from typing import TYPE_CHECKING, Any

import redis

from bench.children import cpu_seconds
from bench.contestants import MAIN, VALKEY
from pyasynq.embedded import find_server_binary

if TYPE_CHECKING:
    from pathlib import Path

    from bench.children import Child, Children
    from pyasynq.embedded import ServerBinary

_START_SECONDS = 10.0


class RedisServer:
    """A Redis server started for the benchmark, and the harness's connection to it."""

    def __init__(self, binary: ServerBinary, children: Children, folder: Path) -> None:
        self.binary = binary
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._child: Child = children.start(
            [str(binary.path), *self._settings(folder)], name=binary.name, environment=os.environ
        )
        self.client = redis.Redis(port=self.port, socket_timeout=60)
        self._wait()

    def _settings(self, folder: Path) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "save": "",
            "appendonly": "no",
            "dir": str(folder),
            "loglevel": "warning",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _wait(self) -> None:
        ends = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError as error:
                if time.monotonic() > ends or not self._child.alive:
                    raise RuntimeError(f"{self.binary} did not start: {self._child.said}") from error
                time.sleep(0.01)
            else:
                return

    def flush(self) -> None:
        """Delete all data of the server."""
        self.client.flushall()

    def cpu_seconds(self) -> float:
        """Return the processor seconds that the server has used."""
        return cpu_seconds(self._child.process.pid)

    def commands(self) -> int:
        """Return the number of commands that the server has run, including commands in scripts."""
        return int(self._info("stats")["total_commands_processed"])

    def calls(self, name: str) -> int:
        """Return the number of commands of this name that the server has run."""
        entry = self._info("commandstats").get(f"cmdstat_{name}")
        return int(entry["calls"]) if entry else 0

    def memory(self) -> int:
        """Return the bytes of memory in use, without buffers of connections."""
        found = self._info("memory")
        return int(found["used_memory"]) - int(found["mem_clients_normal"])

    def left(self, commands: list[list[str]], queues: tuple[str, ...]) -> int:
        """Return the sum of the commands' integer replies; QUEUE in a command stands for each queue."""
        whole = {
            tuple(word.replace("QUEUE", queue) for word in command)
            for command in commands
            for queue in queues
        }
        return sum(_number(self._execute(*command)) for command in whole)

    def stop(self) -> None:
        """Kill the server and close the connection."""
        self.client.close()
        self._child.kill()

    def _info(self, section: str) -> dict[str, Any]:
        return self.client.info(section)

    def _execute(self, *command: str) -> Any:
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py leaves it out


def _number(reply: Any) -> int:
    """Return an integer reply; for XPENDING's summary its first number, for a list of keys their count."""
    if isinstance(reply, dict):
        return int(reply["pending"])
    return len(reply) if isinstance(reply, list) else int(reply)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def find_servers(*, embedded_only: bool = False) -> dict[str, ServerBinary]:
    """Return the server programs to measure on: the main one, and Valkey if it is a different one.

    The main server is an installed Redis, or else the embedded Valkey.

    Args:
        embedded_only: ignore an installed Redis.

    Raises:
        ServerBinaryError: neither is installed.
    """
    embedded = find_server_binary()
    path = shutil.which("redis-server")
    if path is None or embedded_only:
        return {MAIN: embedded}
    servers = {MAIN: find_server_binary(path)}
    return servers | {VALKEY: embedded} if embedded.name == "Valkey" else servers
