"""Searches that take long show their first tasks in a pager on a terminal, as `git log` does."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
LINES = 10
"""Height of the terminal."""


def searching(until: Path, finds: int, *arguments: str, **env: str | None) -> Terminal:
    """Run a search in a terminal; it finds some tasks at once, and goes on until a file appears."""
    settings: dict[str, str | None] = {
        "PYASYNQ_REDIS_URL": "redis://localhost:1/0",
        "PAGER": "less",
        "LESS": None,
        "SLOW_SEARCH_FINDS": str(finds),
        "SLOW_SEARCH_UNTIL": str(until),
    }
    command = arguments or ("search", "error:x")
    return Terminal(*command, lines=LINES, env=settings | env, module="tests.slow_search")


def test_few_tasks_are_shown_at_once_and_the_pager_ends_with_the_search(tmp_path: Path) -> None:
    """`less` leaves by itself if everything fits on the screen; progress would disturb it meanwhile."""
    go_on = tmp_path / "go-on"
    with searching(go_on, 3) as terminal:
        terminal.wait_for("task-2")
        assert "last-task" not in terminal.text
        go_on.touch()
        assert 0 == terminal.finish()
        assert "last-task" in terminal.text
        assert "4 matches in all 9,000 looked at." in terminal.text
        shown = terminal.raw[terminal.raw.index(b"task-2") :]
        assert b"Searching" not in shown


@pytest.mark.parametrize(
    "command",
    [
        ("search", "error:x"),
        ("task", "ls", "--where", "error:x"),
        ("search", "error:x", "-o", "name"),
    ],
)
def test_leaving_the_pager_ends_the_search(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The exit code is 0: the user has seen enough, and is told how to go on."""
    with searching(tmp_path / "never", 2 * LINES, *command) as terminal:
        terminal.wait_for("task-3")
        terminal.wait_for(":")
        assert "task-19" not in terminal.text
        terminal.type("q")
        assert 0 == terminal.finish()
        assert "20 matches in 2,000 of 9,000 looked at." in terminal.text
        assert "--cursor CURSOR" in terminal.text
        assert "Interrupted" not in terminal.text


def test_ctrl_c_ends_the_search_and_leaves_its_tasks_in_the_pager(tmp_path: Path) -> None:
    """The exit code is 130, as that of every interrupted command."""
    with searching(tmp_path / "never", 2 * LINES) as terminal:
        terminal.wait_for("task-3")
        terminal.type("\x03")
        terminal.wait_for_bytes(b"\a")
        terminal.type(" ")
        terminal.wait_for("task-15")
        terminal.type("q")
        assert 130 == terminal.finish()
        assert "Interrupted." in terminal.text
        assert "--cursor CURSOR" in terminal.text


def test_the_options_of_less_are_those_of_the_user(tmp_path: Path) -> None:
    """With -R alone it does not leave by itself; Ctrl-C at the end of the search changes no exit code."""
    go_on = tmp_path / "go-on"
    with searching(go_on, 3, LESS="-R") as terminal:
        terminal.wait_for("task-2")
        go_on.touch()
        terminal.wait_for("(END)")
        terminal.type("\x03")
        terminal.wait_for_bytes(b"\a")
        terminal.type("q")
        assert 0 == terminal.finish()


def test_a_dumb_terminal_without_a_pager_gets_the_rows_themselves(tmp_path: Path) -> None:
    """As a pipe does."""
    go_on = tmp_path / "go-on"
    with searching(go_on, 2 * LINES, PAGER=None, TERM="dumb") as terminal:
        terminal.wait_for("task-19")
        go_on.touch()
        assert 0 == terminal.finish()
        assert b"(END)" not in terminal.raw
