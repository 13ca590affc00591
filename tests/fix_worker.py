"""Processes that tests start, watch, signal and kill: workers, other programs, and a separate Redis."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
import redis

from pyasynq import sync
from pyasynq._embedded.binary import find_server_binary
from tests.invariants import check_invariants
from tests.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from pyasynq import Task
    from tests.invariants import RedisClient

ROOT = Path(__file__).parent.parent
QUICK: dict[str, Any] = {
    "lease": 2,
    "heartbeat_interval": 0.5,
    "own_slack": 1,
    "look_interval": 0.25,
    "syncer_interval": 0.25,
}
"""Engine settings of tests that wait for leases to lapse."""

CONTAINER = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
"""A command that runs another one as process 1 of a container."""


def may_unshare() -> bool:
    """Return whether `unshare` exists and may be used."""
    return (
        shutil.which("unshare") is not None
        and not subprocess.run([*CONTAINER, "true"], check=False).returncode
    )


class Program:
    """A child process whose standard output and error are read line by line.

    Leaving the `with` block kills it, if it still runs.
    """

    def __init__(self, *command: str, **environment: str) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All that was read so far."""
        return "\n".join(self.lines)

    def all(self, pattern: str) -> list[str]:
        """Return the text of the pattern's group in each line so far that matches from its beginning."""
        return [match[1] for line in list(self.lines) if (match := re.match(pattern, line))]

    def wait_for(self, pattern: str, *, times: int = 1) -> None:
        """Wait for this many lines that match; fail when the process ends without them."""

        def seen() -> bool:
            return sum(1 for line in self.lines if re.search(pattern, line)) >= times

        with self._news:
            self._news.wait_for(lambda: seen() or self._over, PATIENCE)
        assert seen(), f"no {times} lines match {pattern!r} in:\n{self.text}"

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def send(self, *numbers: signal.Signals) -> None:
        """Send signals to the process."""
        for number in numbers:
            self._process.send_signal(number)

    def end(self, *, within: float = PATIENCE) -> int:
        """Wait for the end of the process and of its output; return the exit code."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended in {within} s:\n{self.text}") from None
        self._reader.join(PATIENCE)
        return code

    def terminate(self, *, within: float = PATIENCE) -> int:
        """Send TERM and wait for the end."""
        self.send(signal.SIGTERM)
        return self.end(within=within)

    def kill(self) -> None:
        """Kill it as a crash would, and wait until it is gone."""
        self._process.kill()
        self.end()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


class Worker(Program):
    """A server of its own process, with the handlers of `tests.worker_program`.

    Args:
        url: where Redis is.
        engine: settings of the engine; `QUICK` shortens leases.
        prefix: a command that runs the worker, such as `unshare`.
        config: fields of `ServerConfig`.
    """

    def __init__(
        self,
        url: str,
        *,
        engine: dict[str, Any] | None = None,
        prefix: tuple[str, ...] = (),
        log_level: str = "INFO",
        **config: Any,
    ) -> None:
        self.url = url
        settings = {"url": url, "config": config, "engine": engine or {}, "log_level": log_level}
        super().__init__(*prefix, sys.executable, "-m", "tests.worker_program", json.dumps(settings))

    def wait_until_active(self, client: RedisClient) -> None:
        """Wait until its record is in Redis, which it writes when it begins to take tasks."""
        wait_until(lambda: list(client.scan_iter(f"asynq:servers:{{*:{self.pid}:*", count=1_000)))

    def stop_taking(self, client: RedisClient) -> None:
        """Make the worker take no more tasks; no other worker may run yet.

        A dequeue call in flight may still take tasks, so the worker first runs a task and becomes idle.
        """
        [task_id] = enqueue(self.url, "mark")
        self.wait_for(f"ran {task_id}")
        wait_until(lambda: not client.exists(f"asynq:{{default}}:t:{task_id}"))
        self.send(signal.SIGTSTP)
        self.wait_for("worker takes no more tasks")


class Monitor(threading.Thread):
    """Recorder (MONITOR) of all commands that Redis receives within a `with` block."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._news = threading.Condition()
        self.calls: list[tuple[float, str, list[str]]] = []
        """When, which command, and what it did inside if it is a script; none of the client's own."""

    def __enter__(self) -> Self:
        self._monitor = self._client.monitor().__enter__()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.echo("the end")
        self.join(PATIENCE)
        self._monitor.__exit__(kind, error, traceback)

    def run(self) -> None:
        """Read commands until the end of the block."""
        for told in self._monitor.listen():
            command: str = told["command"]
            if command == "ECHO the end":
                return
            with self._news:
                if told["client_type"] == "lua":
                    self.calls[-1][2].append(command)
                else:
                    self.calls.append((told["time"], command, []))
                self._news.notify_all()

    def scripts_with(self, beginning: str) -> list[int]:
        """Return the indexes of the scripts that called a command with this beginning."""
        return [
            place
            for place, (_, _, inside) in enumerate(self.calls)
            if any(command.startswith(beginning) for command in inside)
        ]

    def wait_for_scripts_with(self, beginning: str, times: int) -> None:
        """Wait until this many scripts have called a command with this beginning."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.scripts_with(beginning)) >= times, PATIENCE)


class RedisProcess:
    """A server of the test's own, on a unix socket, that can be killed and started again on its data.

    `environment` holds its variables, in addition to those of this process.
    """

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self._socket = folder / "s"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"
        self.start()

    def start(self) -> None:
        """Start it on what an earlier run has left, and wait until it answers."""
        self._process = subprocess.Popen(
            [
                str(find_server_binary(os.environ.get("PYASYNQ_TEST_BINARY")).path),
                *("--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder)),
                *("--save", "", "--appendonly", "yes", "--appendfsync", "always", *self._options),
            ],
            stdout=subprocess.DEVNULL,
            env=self._environment,
            # Ignore SIGXFSZ, as Python does, which a limit on the size of files sends.
            restore_signals=False,
        )
        with redis.Redis.from_url(self.url) as client:
            wait_until(lambda: _answers(client))

    @property
    def pid(self) -> int:
        """The id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A server that only this test uses; at the end, the invariants of its data are checked."""
    server = RedisProcess(tmp_path_factory.mktemp("r"))
    try:
        yield server
        with redis.Redis.from_url(server.url) as client:
            check_invariants(client)
    finally:
        server.kill()


def enqueue(url: str, *tasks: str | Task, **options: object) -> list[str]:
    """Put tasks into the queue, one after the other, and return their ids."""
    with sync.Client(url) as client:
        return [client.enqueue(task, **options).id for task in tasks]  # type: ignore[arg-type]


def task_field(client: RedisClient, task_id: str, field: str, queue: str = "default") -> bytes | None:
    """Return a field of a task's hash."""
    value: bytes | None = client.hget(f"asynq:{{{queue}}}:t:{task_id}", field)
    return value


def pending(client: RedisClient, queue: str = "default") -> list[str]:
    """Return the ids of a queue's pending tasks, the next to be taken first."""
    ids: list[bytes] = client.lrange(f"asynq:{{{queue}}}:pending", 0, -1)
    return [task_id.decode() for task_id in reversed(ids)]


def active(client: RedisClient, queue: str = "default") -> set[str]:
    """Return the ids of a queue's active tasks."""
    return {task_id.decode() for task_id in client.lrange(f"asynq:{{{queue}}}:active", 0, -1)}
