"""The guardian: a small process that owns one embedded server and ends it after its last user.

It runs as a script in an interpreter without site packages, so that it is small and starts quickly. Therefore
it imports the standard library only. It reads a JSON object from standard input. When the server is ready or
has failed, it answers with a JSON object on standard output.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHUTDOWN_SECONDS = 10.0
LONGEST_LOG = 1_000_000

_SHOWN_LOG_LINES = 8
_PR_SET_PDEATHSIG = 1


class NotStartedError(Exception):
    """The server did not become ready; the message says why."""


def _ask(socket_path: str, password: str | None, command: str) -> bytes:
    """Send one inline command to a server on a unix socket and return the first line of its reply.

    Raises:
        OSError: the server cannot be reached, or is silent for two seconds.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(os.fsencode(socket_path))
        with connection.makefile("rwb") as stream:
            if password:
                stream.write(f"AUTH {password}\r\n".encode())
                stream.flush()
                stream.readline()
            stream.write(f"{command}\r\n".encode())
            stream.flush()
            return stream.readline().rstrip()


def is_ready(socket_path: str, password: str | None) -> bool:
    """Return whether a server answers on a unix socket and has loaded its data."""
    try:
        return _ask(socket_path, password, "PING") == b"+PONG"
    except OSError:
        return False


def main() -> None:
    """Run the guardian: read the options, leave the caller's process tree, and run the server to its end."""
    order = json.load(sys.stdin)
    # A grandchild of the caller need not be reaped by the caller.
    if os.fork():
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)
    guardian = Guardian(order)
    if guardian.take_charge():
        guardian.guard()
    else:
        _answer({"outcome": "busy"})


class Guardian:
    """Runs the server of one data folder for as long as it has users."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._socket: str = order["socket"]
        self._log = Path(order["log"])
        self._log_begin = 0
        self._unused = threading.Event()
        self._state = os.open(order["state"], os.O_RDWR | os.O_CREAT, 0o600)
        self._users = os.open(order["marker"], os.O_RDWR)
        # systemd-tmpfiles removes old files of a temporary folder, except those of a locked folder.
        fcntl.flock(os.open(Path(self._socket).parent, os.O_RDONLY), fcntl.LOCK_SH)

    def take_charge(self) -> bool:
        """Become the only guardian of the folder (lock); return False if there is one already."""
        try:
            fcntl.flock(self._state, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def guard(self) -> None:
        """Start the server, answer the starting process, and wait until the server ends.

        It ends when its last user leaves, or by itself.
        """
        last = self._read_state()
        # The file may contain anything: a crash may have truncated it, and another program may have written
        # it.
        name, version = last.get("name"), last.get("version")
        last_server = f"{name} {version}" if name and version else last.get("last_server")
        self._write_state({"last_server": last_server})
        failure: dict[str, Any] | None = None
        try:
            self._run(self._claim_log(last))
        except NotStartedError as error:
            failure = {"reason": str(error), "log": self._read_log_end(), "last_server": last_server}
        Path(self._socket).unlink(missing_ok=True)
        # The folder stays if the server crashed while it had users: their next start uses the folder again.
        if self._order["in_memory"] and (failure or self._unused.is_set()):
            self._remove_folder()
        if failure:
            _answer({"outcome": "failed", **failure})

    def _run(self, log: int) -> None:
        server = self._start_server(log)
        try:
            threading.Thread(target=self._stop_when_unused, args=[server], daemon=True).start()
            signal.signal(signal.SIGTERM, lambda *_: server.terminate())
            self._wait_until_ready(server)
            running = {**self._order["server"], "pid": server.pid, "guardian_pid": os.getpid()}
            self._write_state(running)
            _answer({"outcome": "ready", "server": running})
            os.dup2(os.open(self._log, os.O_WRONLY | os.O_APPEND), 2)
            server.wait()
        finally:
            server.kill()
            server.wait()

    def _claim_log(self, last: dict[str, Any]) -> int:
        """Open the log, lock it, and return its descriptor.

        The server inherits the lock, because the log is its standard output. So there are never two servers.

        A server that outlived its guardian, as is possible on macOS, is told to shut down.
        """
        log = os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        while True:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"an earlier server (process {last.get('pid')}) still uses the folder; end it"
                    raise NotStartedError(message) from None
                with suppress(OSError, KeyError, TypeError, AttributeError):
                    _ask(last["socket"], last["password"], "SHUTDOWN")
                time.sleep(0.02)
            else:
                break
        if os.fstat(log).st_size > LONGEST_LOG:
            os.ftruncate(log, 0)
        self._log_begin = os.fstat(log).st_size
        return log

    def _start_server(self, log: int) -> subprocess.Popen[bytes]:
        # The configuration is passed by standard input because every user of the machine can read a command
        # line. It is far smaller than a pipe's buffer.
        source, sink = os.pipe()
        os.write(sink, self._order["configuration"].encode())
        os.close(sink)
        try:
            return subprocess.Popen(
                [self._order["binary"], "-"],
                stdin=source,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent() if sys.platform == "linux" else None,  # noqa: PLW1509 -- no threads yet
            )
        except OSError as error:
            message = f"could not be run: {error}"
            raise NotStartedError(message) from error
        finally:
            os.close(log)
            os.close(source)

    def _stop_when_unused(self, server: subprocess.Popen[bytes]) -> None:
        fcntl.flock(self._users, fcntl.LOCK_EX)  # waits for the last user, and makes new users wait
        self._unused.set()
        # The command works at once; the signal takes a tenth of a second, but also works during loading.
        with suppress(OSError):
            _ask(self._socket, self._order["server"]["password"], "SHUTDOWN")
        server.terminate()
        time.sleep(SHUTDOWN_SECONDS)
        server.kill()

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._order["seconds"]
        rest = 0.002
        while not is_ready(self._socket, self._order["server"]["password"]):
            try:
                status = server.wait(rest)
            except subprocess.TimeoutExpired:
                rest = min(rest * 1.5, 0.05)
            else:
                message = f"ended with status {status}"
                raise NotStartedError(message)
            if time.monotonic() > deadline:
                message = f"was not ready within {self._order['seconds']:g} s (start_timeout=)"
                raise NotStartedError(message)

    def _read_log_end(self) -> str:
        if not self._log.exists():
            return ""
        with self._log.open(errors="replace") as log:
            log.seek(self._log_begin)
            return "\n".join(log.read().rstrip().splitlines()[-_SHOWN_LOG_LINES:])

    def _read_state(self) -> dict[str, Any]:
        try:
            state = json.loads(os.pread(self._state, 65536, 0))
        except ValueError:
            return {}
        return state if isinstance(state, dict) else {}

    def _write_state(self, state: dict[str, Any]) -> None:
        os.ftruncate(self._state, 0)
        os.pwrite(self._state, json.dumps(state).encode(), 0)

    def _remove_folder(self) -> None:
        # Renamed first, so that a concurrent user finds either the folder with its locks or no folder.
        folder = Path(self._order["folder"])
        gone = folder.with_name(folder.name.replace("memory-", "gone-"))
        with suppress(FileNotFoundError):
            shutil.rmtree(folder.rename(gone))


def _answer(message: dict[str, Any]) -> None:
    """Answer the process that started the guardian, if it is alive.

    Then close standard output and error, because that process reads them to their end.
    """
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(message))
        sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)


def _end_with_parent() -> Callable[[], None]:
    """Return a function for a child to run first (`preexec_fn`): Linux then ends it when its parent dies."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def before_program() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return before_program


if __name__ == "__main__":
    main()
