"""Displays of the demo: a live picture in a terminal, lines in a pipe, nothing for `--json`."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Final, Protocol, Self

import click

from pyasynq.cli.demo.picture import plain_line

if TYPE_CHECKING:
    from pyasynq.cli.demo.progress import DemoState

_PLAIN_INTERVAL_SECONDS: Final = 2.0


class Display(Protocol):
    """Output of the demo's news and pictures, for the time of a `with` block."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""

    def say(self, text: str) -> None:
        """Show a piece of news, which stays."""

    def show(self, snapshot: DemoState) -> None:
        """Show the current state, in place of the previous one."""


def choose_display(*, quiet: bool) -> Display:
    """Return the display for this standard output: live needs a terminal and the package rich."""
    if quiet:
        return QuietDisplay()
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        from pyasynq.cli.demo.live import LiveDisplay  # noqa: PLC0415 - rich is an extra

        return LiveDisplay()
    return PlainDisplay()


class QuietDisplay:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Show nothing."""

    def show(self, snapshot: DemoState) -> None:
        """Show nothing."""


class PlainDisplay(QuietDisplay):
    """Prints news as they come, and the state every two seconds."""

    def __init__(self) -> None:
        self._next_line_at = 0.0

    def say(self, text: str) -> None:
        """Print the news."""
        click.echo(text)

    def show(self, snapshot: DemoState) -> None:
        """Print one line, unless the last line was printed too recently."""
        if snapshot.elapsed < self._next_line_at:
            return
        self._next_line_at = snapshot.elapsed + _PLAIN_INTERVAL_SECONDS
        click.echo(plain_line(snapshot))
