"""A process of `pyasynq work`: the user's command, in a process group of its own, with bounded output."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY_VARIABLE: Final = "PYASYNQ_KEY"
"""Environment variable with the API key, which commands do not inherit."""
MOST_OUTPUT: Final = 65_536
"""Maximum bytes of stdout that are kept as the result of the task."""
MOST_ERRORS: Final = 1_900
"""Maximum bytes of stderr that are kept, from its end: 2,048 bytes of an error's text are stored."""
_CHUNK: Final = 65_536
_LAST_OUTPUT_SECONDS: Final = 1.0
"""Seconds to wait for the end of the output after the process group was killed.

A process that has left the group may keep the pipe open.
"""


class OutputPipe:
    """Reads one stream of a process to its end, and keeps a bounded part. Belongs to the event loop.

    Args:
        file: descriptor to read from; closed at the end.
        most: maximum number of bytes that are kept.
        keeps_end: whether the last bytes are kept, instead of the first.

    Attributes:
        kept: the bytes that are kept.
        size: number of bytes that were read, including those that are not kept.
    """

    def __init__(self, file: int, most: int, *, keeps_end: bool) -> None:
        self.kept = bytearray()
        self.size = 0
        self._file = file
        self._most = most
        self._keeps_end = keeps_end
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        os.set_blocking(file, False)
        self._loop.add_reader(file, self._read)

    async def wait_end(self) -> None:
        """Wait for the end of the stream."""
        await self._ended.wait()

    def close(self) -> None:
        """Stop reading, and close the descriptor."""
        if not self._ended.is_set():
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._ended.set()

    def _read(self) -> None:
        try:
            data = os.read(self._file, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.size += len(data)
        self.kept += data if self._keeps_end else data[: self._most - len(self.kept)]
        if len(self.kept) > self._most:
            del self.kept[: -self._most]


class CommandProcess:
    """The command of one task while it runs. Belongs to the event loop.

    Args:
        program: absolute path of the program, and its arguments.
        payload: bytes that the command reads from stdin.
        environment: environment variables of the process.

    Raises:
        OSError: if the command cannot be started.
    """

    def __init__(self, program: Sequence[str], payload: bytes, environment: Mapping[bytes, bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        # Use a file instead of a pipe, because a command need not read its payload.
        with tempfile.TemporaryFile() as stdin:
            stdin.write(payload)
            stdin.seek(0)
            self._process = subprocess.Popen(
                program,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        self.output = self._open_pipe(self._process.stdout, MOST_OUTPUT, keeps_end=False)
        self.errors = self._open_pipe(self._process.stderr, MOST_ERRORS, keeps_end=True)
        threading.Thread(target=self._watch, name=f"command {self._process.pid}", daemon=True).start()

    @staticmethod
    def _open_pipe(stream: object, most: int, *, keeps_end: bool) -> OutputPipe:
        file = os.dup(stream.fileno())  # type: ignore[attr-defined]
        stream.close()  # type: ignore[attr-defined]
        return OutputPipe(file, most, keeps_end=keeps_end)

    async def wait(self) -> int:
        """Wait for the end of the command, kill the rest of its process group, and return its exit code.

        If a signal ended the command, the exit code is the negative number of the signal.
        """
        await self._exited.wait()
        # Signal the group before the command is reaped, while its process id cannot be reused.
        self.signal_group(signal.SIGKILL)
        code = self._process.wait()
        for pipe in (self.output, self.errors):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_OUTPUT_SECONDS):
                    await pipe.wait_end()
            pipe.close()
        return code

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the command's group."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _watch(self) -> None:
        """Wait in a thread until the command has ended; leave it unreaped if the system has `waitid`."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:  # older Pythons on macOS have no `waitid`
            self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited.set)
