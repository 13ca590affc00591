"""The service's side of the launcher: the program that forks keepers, which run commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .launcher.control_group import ControlGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger("pyasynq.gateway")

_START: Final = "import sys; sys.path.append(sys.argv.pop()); from launcher.program import main; main()"
"""Code that runs the launcher as a package by itself, without importing the service's modules."""
_FOLDER_MODE: Final = 0o711
"""Mode 0711 of the folder of all attempts: users of commands enter their folder, but cannot list others."""
_LONGEST_ANSWER: Final = 65_536
_END_SECONDS: Final = 15.0


class KeeperLostError(Exception):
    """Error: a keeper ended while it ran a command; the command is killed, too."""


class KeeperLink:
    """Connection to a keeper, which runs one command at a time. Belongs to one event loop.

    Attributes:
        number: number of the connection, unique within this process.
        is_usable: whether it can run another command.
    """

    def __init__(self, number: int, link: socket.socket) -> None:
        self.number = number
        self.is_usable = True
        self._link = link
        self._link.setblocking(False)
        self._buffer = b""
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._group: str | None = None
        asyncio.get_running_loop().add_reader(link.fileno(), self._receive)

    def run(self, order: dict[str, Any], streams: Sequence[int]) -> asyncio.Future[dict[str, Any]]:
        """Start a command; the returned future has the keeper's answer, or `KeeperLostError`."""
        self._answer = asyncio.get_running_loop().create_future()
        self._group = order["cgroup"]
        file = make_file(json.dumps(order).encode())
        try:
            socket.send_fds(self._link, [b"R"], [file, *streams])
        except OSError:
            self.close()
        finally:
            os.close(file)
        return self._answer

    def terminate(self) -> None:
        """Send SIGTERM to all processes of the command."""
        self._send(b"T")

    def kill(self) -> None:
        """Send SIGKILL to all processes of the command."""
        self._send(b"K")

    def finish(self) -> None:
        """Let the keeper remove the folder of the attempt; an untouched one is kept for reuse."""
        self._send(b"D")

    def close(self) -> None:
        """Let the keeper end; it kills its running command, if any. Idempotent."""
        if self._link.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self._link.close()
        self.is_usable = False
        if self._answer is not None and not self._answer.done():
            if self._group is not None:
                ControlGroup(Path(self._group)).kill()
            self._answer.set_exception(KeeperLostError())
            # If the waiting call was cancelled, asyncio would report the exception as never retrieved.
            self._answer.exception()

    def _send(self, message: bytes) -> None:
        try:
            self._link.send(message)
        except OSError:
            self.close()

    def _receive(self) -> None:
        try:
            data = self._link.recv(_LONGEST_ANSWER)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        if not data:
            self.close()
        elif self._buffer.endswith(b"\n") and self._answer is not None and not self._answer.done():
            self._answer.set_result(json.loads(self._buffer))
            self._buffer = b""


class Launcher:
    """Pool of keepers. Starts the launcher program when needed, and again after its end. For one event loop.

    Args:
        parent: folder in which the folder of all attempts is made; None for the system's temporary folder.
    """

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._idle: list[KeeperLink] = []
        self._all: set[KeeperLink] = set()
        self._made = 0
        self.folder = Path()
        """Folder of all attempts; it outlives a launcher that has died, because its keepers continue."""

    def take(self) -> KeeperLink:
        """Take a keeper that runs no command out of the pool, or start a new one; return it.

        Raises:
            OSError: the launcher cannot be started.
        """
        while self._idle:
            keeper = self._idle.pop()
            if keeper.is_usable:
                return keeper
        self._all = {one for one in self._all if one.is_usable}
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(theirs)
            except BaseException:
                ours.close()
                raise
        self._made += 1
        keeper = KeeperLink(self._made, ours)
        self._all.add(keeper)
        return keeper

    def give_back(self, keeper: KeeperLink) -> None:
        """Put a keeper back into the pool after its command has ended."""
        if keeper.is_usable:
            self._idle.append(keeper)

    async def close(self) -> None:
        """End the launcher and its keepers, with their commands."""
        for keeper in self._all:
            keeper.close()
        self._all.clear()
        self._idle.clear()
        process, self._process = self._process, None
        if self._control is not None:
            self._control.close()
        if process is not None:
            await asyncio.to_thread(_wait, process)
            # The launcher removes this folder, unless it was killed.
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def _send(self, theirs: socket.socket) -> None:
        """Ask the launcher for a keeper with this end of a socket pair; start the launcher if needed."""
        if self._process is not None and self._control is not None:
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [b"N"], [theirs.fileno()])
                return
            self._control.close()
            self._process.kill()
            self._process.wait()
            _log.warning("the launcher of commands has ended; starting another one")
        self._control = self._start()
        socket.send_fds(self._control, [b"N"], [theirs.fileno()])

    def _start(self) -> socket.socket:
        if not self.folder.name:
            self.folder = Path(tempfile.mkdtemp(prefix="pyasynq-commands-", dir=self._parent))
            self.folder.chmod(_FOLDER_MODE)
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(self.folder), str(Path(__file__).parent)]
            kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # Commands may read the launcher's environment, so it has no secrets of the service.
                env=kept,
                cwd="/",
                start_new_session=True,
            )
        return ours


def make_file(content: bytes) -> int:
    """Write the content to an unnamed temporary file; return its descriptor, positioned at the start."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pyasynq")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        _log.error("the launcher of commands does not end; what it has started may still run")
        process.kill()
        process.wait()
