"""Output of a command: keeps its beginning and end, logs its lines, and reads progress from them."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD_BYTES: Final = 16 * 1_024
_TAIL_BYTES: Final = 48 * 1_024
_LONGEST_LINE: Final = 8 * 1_024
"""Maximum number of bytes of a line that are logged."""
_LINES_PER_SECOND: Final = 100.0
_BURST_LINES: Final = 1_000.0
"""Number of lines that may be logged at once; then `_LINES_PER_SECOND` a second (token bucket)."""
_PROGRESS_MARK: Final = b"::progress "
_AMOUNT: Final = rb"(\d{1,15}(?:\.\d{1,6})?)"
_PROGRESS: Final = re.compile(_PROGRESS_MARK + _AMOUNT + rb"(?:/" + _AMOUNT + rb")?(?: (.*?))?\r?")
_LONGEST_LAST_LINE: Final = 500


class CommandProgress(NamedTuple):
    """Progress that a command has reported by a line `::progress 3/10 note`."""

    done: float
    total: float | None
    note: str


def read_progress(line: bytes) -> CommandProgress | None:
    """Return the progress that a line reports; None for other lines."""
    match = _PROGRESS.fullmatch(line)
    if match is None:
        return None
    done, total, note = match.groups()
    text = visible((note or b"").decode("utf-8", "replace"))
    return CommandProgress(float(done), None if total is None else float(total), text)


class KeptOutput:
    """The first 16 KiB and the last 48 KiB of a stream, and the number of its bytes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.total += len(data)
        room = _HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]

    def content(self) -> bytes:
        """Return the kept bytes; a line says how many bytes are left out in the middle."""
        left_out = self.total - len(self._head) - min(len(self._tail), _TAIL_BYTES)
        if left_out <= 0:
            return bytes(self._head + self._tail)
        note = f"\n... ({left_out:,} bytes left out) ...\n".encode()
        return bytes(self._head) + note + bytes(self._tail[-_TAIL_BYTES:])

    def read_end(self, most: int) -> bytes:
        """Return the last kept bytes, at most this many."""
        end = bytes(self._tail[-most:])
        return end if len(end) == most else (bytes(self._head) + end)[-most:]

    def last_line(self) -> str:
        """Return the last line that is not empty, safe to show; empty if there is none."""
        lines = bytes(self._tail[-_TAIL_BYTES:] or self._head).rstrip().rsplit(b"\n", 1)
        text = lines[-1].strip().decode("utf-8", "replace")
        return visible(text[:_LONGEST_LAST_LINE])


class OutputLines:
    """Splits a stream into lines, and passes them to the log, up to a rate (token bucket).

    Args:
        log: called with a line, safe to show.
        report: called with the newest progress in each chunk of bytes.
        clock: returns monotonic seconds, for the rate limit; a parameter for tests.
    """

    def __init__(
        self,
        log: Callable[[str], None] | None,
        report: Callable[[CommandProgress], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._report = report
        self._clock = clock
        self._rest = b""
        self._tokens = _BURST_LINES
        self._filled_at = clock()
        self._left_out = 0

    def feed(self, data: bytes) -> None:
        """Process the next bytes."""
        data = self._rest + data
        can_log = self._log is not None and self._fill() >= 1
        if not can_log and _PROGRESS_MARK not in data:
            # A flood costs no more than counting its lines.
            self._left_out += data.count(b"\n")
            self._rest = data[data.rfind(b"\n") + 1 :][:_LONGEST_LINE]
            return
        *lines, rest = data.split(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        self._take(lines)

    def end(self) -> None:
        """Process an unfinished last line, after the stream has ended."""
        if self._rest:
            self._take([self._rest])
            self._rest = b""
        self._tell_left_out()

    def _take(self, lines: list[bytes]) -> None:
        newest = None
        for line in lines:
            if line.startswith(_PROGRESS_MARK) and (progress := read_progress(line)) is not None:
                newest = progress
            elif self._log is not None and self._tokens >= 1:
                self._tell_left_out()
                self._tokens -= 1
                self._log(visible(line[:_LONGEST_LINE].rstrip(b"\r").decode("utf-8", "replace")))
            else:
                self._left_out += 1
        if newest is not None:
            self._report(newest)

    def _fill(self) -> float:
        now = self._clock()
        self._tokens = min(_BURST_LINES, self._tokens + (now - self._filled_at) * _LINES_PER_SECOND)
        self._filled_at = now
        return self._tokens

    def _tell_left_out(self) -> None:
        if self._left_out and self._log is not None:
            self._log(f"({self._left_out:,} lines left out)")
        self._left_out = 0
