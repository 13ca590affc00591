"""Pager for output that is still being made: it shows the first lines at once, as `git log` does."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

import click

from pyasynq.cli.output.printer import has_color

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LESS: Final = "FRX"
"""Options of `less` unless the user has set some, the same as in git.

They mean: exit if everything fits on the screen, pass colors on, and do not clear the screen.
"""
_RAW: Final = "--RAW-CONTROL-CHARS"


def find_pager() -> list[str] | None:
    """Return the command of the user's pager; None without a pager or without a terminal.

    On Windows it is None, because an event loop there cannot tell that a pager has ended.
    """
    if os.name != "posix" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    words = shlex.split(os.environ.get("PAGER", ""))
    if not words and os.environ.get("TERM") != "dumb":
        words = ["less"]
    program = shutil.which(words[0]) if words else None
    return None if program is None else [program, *words[1:]]


class StreamPager:
    """Pager process, which gets text until the user leaves it.

    Args:
        command: result of `find_pager`.
        on_left: called if the user leaves the pager before `close`.
    """

    def __init__(self, command: Sequence[str], on_left: Callable[[], object]) -> None:
        environment = {"LESS": _LESS, **os.environ}
        self.is_left = False
        """Whether the user has left the pager, so that no more text is needed."""
        self._shows_color = has_color() and _passes_color_on(command, environment)
        self._on_left = on_left
        self._loop = asyncio.get_running_loop()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        self._input = cast("IO[bytes]", self._process.stdin)
        # A pipe's writing end is reported as readable when its reader has closed.
        self._loop.add_reader(self._input.fileno(), self._note_leaving)

    def write(self, text: str) -> None:
        """Show more text. Block while the pager has enough unread text (back-pressure)."""
        if self.is_left:
            return
        shown = text if self._shows_color else click.unstyle(text)
        try:
            self._input.write(shown.encode(errors="replace"))
            self._input.flush()
        except BrokenPipeError:
            self._note_leaving()

    def close(self) -> None:
        """Tell the pager that there is no more text, and wait until the user leaves it. Idempotent."""
        if self._input.closed:
            return
        self._loop.remove_reader(self._input.fileno())
        # Ctrl-C is for the pager now. If this process ended, pager and shell would both read the terminal.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                self._input.close()
            self._process.wait()
        finally:
            signal.signal(signal.SIGINT, before)

    def _note_leaving(self) -> None:
        self._loop.remove_reader(self._input.fileno())
        self.is_left = True
        self._on_left()


def _passes_color_on(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a pager is `less` with the option to pass colors on; others may show them as text."""
    words = [*environment["LESS"].split(), *command[1:]]
    return Path(command[0]).name == "less" and any(
        word.upper() == _RAW or ("R" in word.upper() and not word.startswith("--")) for word in words
    )
