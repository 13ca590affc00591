"""The page of the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pyasynq.cli import main
from tools.generate_cli_docs import commands

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
EXAMPLES = re.findall(
    r"""^\$ (?:.*\| )?(pyasynq (?:'[^'\n]*'|"[^"\n]*"|[^|>\['"\n])*)""",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_understood(example: str) -> None:
    """Its command exists, and takes these arguments and options."""
    words = shlex.split(example)[1:]
    context = click.Context(main)
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    command.make_context("example", words)


@pytest.mark.parametrize("path", [path for path, _ in commands(main)], ids=" ".join)
def test_each_command_has_its_section(path: tuple[str, ...]) -> None:
    """A command that no page names is not found by users."""
    assert f"### `pyasynq {' '.join(path)}`" in PAGE.read_text(encoding="utf-8")
