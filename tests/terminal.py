"""A command in a real pseudo-terminal, whose output a screen emulator shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

import pyte

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping


class Terminal:
    """A terminal in which one `pyasynq` command runs.

    Args:
        arguments: of the command.
        columns: width of the terminal.
        lines: height of the terminal.
        env: variables besides those of this process; None takes one away.
        module: the module that is run as the command line.
    """

    def __init__(
        self,
        *arguments: str,
        columns: int = 80,
        lines: int = 40,
        env: Mapping[str, str | None] | None = None,
        module: str = "pyasynq.cli",
    ) -> None:
        self.raw = b""
        self.screen = pyte.HistoryScreen(columns, lines, history=2_000)
        self._stream = pyte.ByteStream(self.screen)
        # Without the variables the size is that of the terminal.
        own = {"TERM": "xterm-256color", "PAGER": "cat", "COLUMNS": None, "LINES": None}
        variables: dict[str, str | None] = {**os.environ, **own, **(env or {})}
        environment = {name: value for name, value in variables.items() if value is not None}
        size = struct.pack("HHHH", lines, columns, 0, 0)
        self._pid, self._terminal = pty.fork()
        if not self._pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            command = [sys.executable, "-m", module, *arguments]
            os.execve(command[0], command, environment)
        self._exit_code: int | None = None

    def wait_for(self, text: str) -> str:
        """Read until the output has this text, line ends and wrapping aside; return the screen."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.text.replace("\n", ""):
            if not self._read() or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} is not on the screen:\n{self.text}")
        return self.text

    def wait_for_bytes(self, data: bytes) -> None:
        """Read until the command has written these bytes, such as the bell of `less` after Ctrl-C."""
        deadline = time.monotonic() + PATIENCE
        while data not in self.raw:
            if not self._read() or time.monotonic() > deadline:
                raise AssertionError(f"{data!r} was not written:\n{self.text}")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._terminal, text.encode())

    def finish(self) -> int:
        """Read until the command has ended; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read():
            if time.monotonic() > deadline:
                raise AssertionError(f"the command does not end:\n{self.text}")
        if self._exit_code is None:
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._exit_code

    @property
    def text(self) -> str:
        """Everything that was shown and not wiped out, without spaces at the ends of lines."""
        gone = [
            "".join(line[column].data for column in range(self.screen.columns))
            for line in self.screen.history.top
        ]
        return "\n".join(line.rstrip() for line in (*gone, *self.screen.display)).rstrip() + "\n"

    def _read(self) -> bool:
        """Read what there is, or wait a moment; return False at the end of the output."""
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # Linux reports the end of a terminal as EIO
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._exit_code is None:
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)
