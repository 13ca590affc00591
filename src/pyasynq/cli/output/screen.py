"""Full-screen display in a terminal, and single key presses; the terminal is restored at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""Control sequence: alternate screen, hidden cursor, cleared screen (xterm, DECTCEM, ED)."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K\r\n"
_CLEAR_BELOW: Final = "\x1b[J"
_KEYS_AT_ONCE: Final = 1_024


def is_possible() -> bool:
    """Return whether stdin and stdout are a terminal that can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Screen:
    """Full-screen mode of a terminal, during `opened`. Keys with escape sequences (arrows) are ignored."""

    def __init__(self) -> None:
        self._keys: asyncio.Queue[str] = asyncio.Queue()

    @property
    def size(self) -> tuple[int, int]:
        """Size of the terminal: columns and lines."""
        size = shutil.get_terminal_size()
        return size.columns, size.lines

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Switch the terminal to full screen and raw keys; restore it at the end of the `with` block."""
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415 - as above

        stdin = sys.stdin.fileno()
        before = termios.tcgetattr(stdin)
        loop = asyncio.get_running_loop()
        _write(_ENTER)
        try:
            tty.setcbreak(stdin)
            loop.add_reader(stdin, self._read, stdin, loop.remove_reader)
            yield
        finally:
            loop.remove_reader(stdin)
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)
            _write(_LEAVE)

    def _read(self, stdin: int, stop: Callable[[int], object]) -> None:
        data = os.read(stdin, _KEYS_AT_ONCE)
        if not data:
            stop(stdin)
            self._keys.put_nowait("q")
        elif not data.startswith(b"\x1b"):
            for key in data.decode("utf-8", "replace"):
                self._keys.put_nowait(key)

    async def wait_for_key(self, seconds: float) -> str:
        """Return the next key that is pressed; an empty string if there is none within these seconds."""
        try:
            return await asyncio.wait_for(self._keys.get(), seconds)
        except TimeoutError:
            return ""

    def draw(self, lines: Sequence[str]) -> None:
        """Redraw the screen with these lines; lines that do not fit are left out."""
        kept = lines[: self.size[1]]
        _write(_HOME + _END_OF_LINE.join(kept) + "\x1b[K" + _CLEAR_BELOW)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
