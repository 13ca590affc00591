"""Displays of the demo: a live view in a terminal, lines in a pipe, nothing for `--json`."""

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
    """Interface of the demo's displays: messages and the current state, within a `with` block."""

    def __enter__(self) -> Self:
        """Start the display."""

    def __exit__(self, *_: object) -> None:
        """Stop the display and restore the terminal."""

    def say(self, text: str) -> None:
        """Print a message; it stays in the terminal's history."""

    def show(self, snapshot: DemoState) -> None:
        """Show the current state of the demo; it replaces the previous one."""


def choose_display(*, quiet: bool) -> Display:
    """Return the display for this standard output: live needs a terminal and the package rich."""
    if quiet:
        return QuietDisplay()
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        from pyasynq.cli.demo.live import LiveDisplay  # noqa: PLC0415 - rich is an extra

        return LiveDisplay()
    return PlainDisplay()


class QuietDisplay:
    """Display for `--json`: prints nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Ignore the message."""

    def show(self, snapshot: DemoState) -> None:
        """Ignore the state."""


class PlainDisplay(QuietDisplay):
    """Display for a pipe: prints each message at once, and the state every two seconds."""

    def __init__(self) -> None:
        self._next_line_at = 0.0

    def say(self, text: str) -> None:
        """Print a message."""
        click.echo(text)

    def show(self, snapshot: DemoState) -> None:
        """Print the state as one line, unless the previous line is less than two seconds old."""
        if snapshot.elapsed < self._next_line_at:
            return
        self._next_line_at = snapshot.elapsed + _PLAIN_INTERVAL_SECONDS
        click.echo(plain_line(snapshot))
