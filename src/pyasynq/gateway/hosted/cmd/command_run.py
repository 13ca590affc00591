"""One run of a command: reads its output, and ends it at its time limit or at a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .launch import KeeperLostError, make_file
from .output import KeptOutput, OutputLines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .launch import KeeperLink
    from .output import CommandProgress

_CHUNK_BYTES: Final = 65_536
_KILL_SECONDS: Final = 15.0
"""Maximum seconds that a keeper may take to kill a command."""
_LAST_CHUNKS: Final = 64
"""Maximum number of reads of a pipe after its command has ended: enough to empty a full pipe."""


class ResultTooLongError(Exception):
    """Error: the result of a command is longer than the limit."""


class ReadyEnd(NamedTuple):
    """Keeper's answer about an ended command, and whether the service ended it at the time limit."""

    answer: dict[str, Any]
    timed_out: bool


class CommandStream:
    """Pipe with a command's output, read one chunk in each turn of the event loop.

    A command that writes faster than the service reads is slowed down (back-pressure).
    """

    def __init__(self, lines: OutputLines) -> None:
        self.kept = KeptOutput()
        self._lines = lines
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        asyncio.get_running_loop().add_reader(self._read, self._receive)
        self._is_open = True

    def close(self) -> None:
        """Read the rest of the pipe, and close it. Idempotent."""
        for _ in range(_LAST_CHUNKS):
            if not self._receive():
                break
        if self._is_open:
            self._stop()
            self._lines.end()

    def _receive(self) -> bool:
        """Read the next bytes; return whether there were any."""
        if not self._is_open:
            return False
        try:
            data = os.read(self._read, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._stop()
            self._lines.end()
            return False
        self.kept.add(data)
        self._lines.feed(data)
        return True

    def _stop(self) -> None:
        self._is_open = False
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)


class CommandRun:
    """Runs one command by a keeper. Belongs to one event loop.

    Args:
        keeper: keeper that runs the command.
        order: description of the command, sent to the keeper.
        log: called with each line of its output, and the name of the stream; None to log none.
        report: called with its progress.
    """

    def __init__(
        self,
        keeper: KeeperLink,
        order: dict[str, Any],
        log: Callable[[str, str], None] | None,
        report: Callable[[CommandProgress], None],
    ) -> None:
        self._keeper = keeper
        self._order = order
        log_out = None if log is None else lambda line: log("out", line)
        log_err = None if log is None else lambda line: log("err", line)
        self.out = CommandStream(OutputLines(log_out, report))
        self.err = CommandStream(OutputLines(log_err, report))

    async def wait(self, stdin: bytes | None, seconds: float, grace: Callable[[], float]) -> ReadyEnd:
        """Run the command until it has ended.

        A cancelled call first ends the command: SIGTERM, the grace period, then SIGKILL.

        Args:
            stdin: input of the command; None for none.
            seconds: time limit of the command.
            grace: returns the seconds between SIGTERM and SIGKILL.

        Raises:
            KeeperLostError: the keeper was killed; its command is killed, too.
        """
        answer = self._start(stdin)
        timed_out = False
        try:
            await asyncio.wait({answer}, timeout=seconds)
            if not answer.done():
                timed_out = True
                await self._end(answer, grace())
        except asyncio.CancelledError:
            await self._end(answer, grace())
            raise
        finally:
            if not answer.done():
                self._keeper.close()
            self.out.close()
            self.err.close()
        return ReadyEnd(answer.result(), timed_out)

    def _start(self, stdin: bytes | None) -> asyncio.Future[dict[str, Any]]:
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else make_file(stdin)
        streams = (given, self.out.write, self.err.write)
        try:
            return self._keeper.run(self._order, streams)
        finally:
            for one in streams:
                os.close(one)

    async def _end(self, answer: asyncio.Future[dict[str, Any]], grace: float) -> None:
        """End the command; a second cancellation kills it at once, by closing its keeper's connection."""
        if not answer.done():
            self._keeper.terminate()
            await asyncio.wait({answer}, timeout=grace)
        if not answer.done():
            self._keeper.kill()
            await asyncio.wait({answer}, timeout=_KILL_SECONDS)
        with contextlib.suppress(KeeperLostError):
            if not answer.done():
                self._keeper.close()
            answer.exception()


def read_result(file: Path, limit: int, owner: int) -> bytes | None:
    """Return the content of the file that a command has written as its result; None if there is none.

    No process of the command runs any more, but the file may be a link, a device or a pipe.

    Raises:
        ResultTooLongError: the content is longer than the limit.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != owner:
            return None
        if found.st_size > limit:
            raise ResultTooLongError
        return opened.read(limit)
