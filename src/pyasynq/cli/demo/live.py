"""Live display of the demo, drawn with rich, which also handles colours and NO_COLOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pyasynq.cli.demo.picture import picture
from pyasynq.cli.demo.text import WIDTH

if TYPE_CHECKING:
    from pyasynq.cli.demo.progress import DemoState

_STYLES: Final = {"progress": "green", "states": "", "worker": "cyan", "dead": "bold red", "lease": "yellow"}


class LiveDisplay:
    """Live display that is redrawn in place; messages scroll above it."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a message above the live display; it stays in the terminal's history."""
        self._console.print(Text(text))

    def show(self, snapshot: DemoState) -> None:
        """Redraw the live display with a new state."""
        width = min(self._console.width, WIDTH)
        lines = [Text(line, style=_STYLES[part], no_wrap=True) for part, line in picture(snapshot)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        self._live.update(Group(Text(), *lines))
