"""Progress of long work on stderr: a line that is redrawn on a terminal, elsewhere occasional lines."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from pyasynq._human_text import duration
from pyasynq.cli.output.table import cut

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_REDRAW_SECONDS: Final = 0.1
_LINE_SECONDS: Final = 5.0
"""Seconds between two status lines if they cannot be redrawn, as in the log of a CI job."""
_CLEAR_LINE: Final = "\r\x1b[K"
"""Control sequence that returns to the first column and clears the line (ECMA-48, CR and EL)."""
_BAR_CELLS: Final = 24
_DEFAULT_WIDTH: Final = 80


def bar(share: float, width: int, encoding: str = "utf-8") -> str:
    """Return a bar that is filled to `share`, from 0 to 1; it is ASCII where the encoding has no blocks."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    full, empty = ("█", "░") if encoding.lower().replace("-", "") == "utf8" else ("#", ".")
    return full * filled + empty * (width - filled)


def percent(share: float) -> str:
    """Format a share from 0 to 1 as whole percents; `100%` only for exactly 1."""
    return f"{int(share * 100)}%"


class StatusLine:
    """Status line on stderr: on a terminal, redrawn and then erased at the end of the `with` block."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_at = time.monotonic() - (_REDRAW_SECONDS if self._is_live else 0.0)
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show a text, unless the last one was shown too recently. The caller escapes control characters."""
        now = time.monotonic()
        if now - self._shown_at < (_REDRAW_SECONDS if self._is_live else _LINE_SECONDS):
            return
        self._shown_at = now
        if self._is_live:
            width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
            click.echo(_CLEAR_LINE + cut(text, width - 1), err=True, nl=False, color=True)
            self._is_shown = True
        else:
            click.echo(text, err=True)

    def show_now(self, text: str) -> None:
        """Show a text, however recently the last one was shown."""
        self._shown_at = -math.inf
        self.show(text)

    def clear(self) -> None:
        """Erase the text, so that other output can be written."""
        if self._is_shown:
            click.echo(_CLEAR_LINE, err=True, nl=False, color=True)
            self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()


class ProgressBar(StatusLine):
    """Progress bar with percentage, rate and remaining time.

    Args:
        label: name of the work, such as `Deleting`.
        total: number of items.
        done: number of items that were finished before the progress bar began.
    """

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        super().__init__()
        self._label = label
        self._total = total
        self._before = done
        self._began = time.monotonic()

    def update(self, done: int) -> None:
        """Show the progress bar for this number of finished items."""
        share = done / self._total if self._total else 1.0
        blocks = bar(share, _BAR_CELLS, sys.stderr.encoding or "utf-8")
        self.show(
            f"{self._label} {blocks} {percent(share):>4}  {done:,} of {self._total:,}{self._pace(done)}"
        )

    def _pace(self, done: int) -> str:
        elapsed = time.monotonic() - self._began
        made = done - self._before
        if made <= 0 or elapsed <= 0 or done >= self._total:
            return ""
        rate = made / elapsed
        return f"  {rate:,.0f}/s, {duration((self._total - done) / rate)} left"
