"""The page of the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pyasynq.cli import main
from pyasynq.cli.nouns import NounGroup
from pyasynq.operations import find_attention
from tests.unit.operations.test_detectors import ALL_WRONG
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
    understand(shlex.split(example)[1:])


def understand(words: list[str]) -> None:
    """Read a command line as the command does; an error of usage is raised."""
    context = click.Context(main)
    command: click.Command = main
    while isinstance(command, click.Group):
        if isinstance(command, NounGroup):
            words = command.name_command(context, words)
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    command.make_context("example", words)


def test_each_command_that_cures_a_finding_is_understood() -> None:
    """It is there to be pasted."""
    actions = [finding.action for finding in find_attention(ALL_WRONG).findings]
    commands = [shlex.split(action.command) for action in actions if action.verb]
    assert {"delete", "pause", "limits", "stop"} <= {word for words in commands for word in words}
    for program, *words in commands:
        assert "pyasynq" == program
        understand(words)


@pytest.mark.parametrize("path", [path for path, _ in commands(main)], ids=" ".join)
def test_each_command_has_its_section(path: tuple[str, ...]) -> None:
    """A command that no page names is not found by users."""
    assert f"### `pyasynq {' '.join(path)}`" in PAGE.read_text(encoding="utf-8")
