"""What shells complete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from pyasynq.cli import main
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYASYNQ_REDIS_URL", f"redis://127.0.0.1:{free_port()}")
    return tmp_path / "cache" / "pyasynq"


def completions(*words: str) -> list[str]:
    """Return what a shell offers for the last of some words."""
    *before, incomplete = words
    complete = ShellComplete(main, {}, "pyasynq", "_PYASYNQ_COMPLETE")
    return [item.value for item in complete.get_completions(before, incomplete)]


def test_commands_and_verbs_are_completed() -> None:
    """A few letters are completed to the names of commands and verbs."""
    assert ["queue"] == completions("qu")
    assert {"pause", "unpause", "list"} <= set(completions("queue", ""))


def test_states_are_completed() -> None:
    """They are known without Redis."""
    assert ["archived", "aggregating", "active"] == sorted(completions("task", "ls", "-s", "a"), reverse=True)


def test_a_name_that_cannot_be_typed_is_not_offered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An escape sequence in it would reach the terminal."""
    monkeypatch.setattr("pyasynq.cli.completion._cache_file", lambda *_: cache / "kept.json")
    cache.mkdir(parents=True)
    (cache / "kept.json").write_text(json.dumps(["mail", "ma\x1b[2J", 3]), "utf-8")
    assert ["mail"] == completions("queue", "pause", "ma")


def test_a_redis_that_is_away_completes_nothing_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The line that one types must not be disturbed."""
    assert [] == completions("queue", "pause", "")
    assert ("", "") == capsys.readouterr()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_calls_pyasynq(shell: str) -> None:
    """The script sets the variable that starts completion."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert 0 == result.exit_code
    assert f"_PYASYNQ_COMPLETE={shell}_complete" in result.stdout
