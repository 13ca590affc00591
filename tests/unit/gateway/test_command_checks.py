"""HostedCommands are checked against the machine before any task runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import ConfigurationError
from pyasynq.gateway.configurations import CommandRules, parse_service_file
from pyasynq.gateway.hosted.cmd.commands import HostedCommands
from pyasynq.gateway.hosted.cmd.isolation import find_isolation

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("fields", "named", "remedy"),
    [
        ({"argv": ["/nonexistent/program"]}, "argv[0]", "there is no such program"),
        ({"argv": ["/etc/passwd"]}, "argv[0]", "may execute"),
        ({"argv": ["/tmp"]}, "argv[0]", "may execute"),
        ({"cwd": "/nonexistent"}, "cwd", "is not a folder"),
        ({"user": "no-such-user"}, "user", "this machine has no such user"),
    ],
)
def test_a_command_is_checked_at_the_start(fields: dict[str, Any], named: str, remedy: str) -> None:
    """Against this machine, with the field and the remedy."""
    file = parse_service_file({"tasks": {"t": {"kind": "cmd", "argv": ["/bin/true"], **fields}}})

    with pytest.raises(ConfigurationError, match=rf"^tasks\.t\.{named.replace('[0]', '.0.')}=.*{remedy}"):
        HostedCommands(file.tasks)


def test_a_program_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Also for root: any user could make the service run another program."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    file = parse_service_file({"tasks": {"t": {"kind": "cmd", "argv": [str(program)]}}})

    with pytest.raises(ConfigurationError, match="any user could replace the program"):
        HostedCommands(file.tasks)


def test_a_program_that_the_service_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is root, who may write everything."""
    monkeypatch.setattr("pyasynq.gateway.hosted.cmd.programs.is_root", lambda: False)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = parse_service_file({"tasks": {"t": {"kind": "cmd", "argv": [str(program)]}}})

    with pytest.raises(ConfigurationError, match="could replace what later tasks run"):
        HostedCommands(file.tasks)


def test_what_is_required_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `require` it is only logged."""
    monkeypatch.setattr("pyasynq.gateway.hosted.cmd.isolation.find_own_group", lambda: None)

    assert "missing: control groups" in find_isolation(CommandRules()).describe()
    assert () == find_isolation(CommandRules("process", require=True)).missing
    with pytest.raises(ConfigurationError, match=r"commands\.require: this host lacks control groups"):
        find_isolation(CommandRules(require=True))


def test_other_systems_than_linux_say_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run there, too, and `require` makes it an error."""
    monkeypatch.setattr("pyasynq.gateway.hosted.cmd.launcher.kernel.IS_LINUX", False)
    monkeypatch.setattr("pyasynq.gateway.hosted.cmd.launcher.kernel._prctl", None)
    found = find_isolation(CommandRules("process"))

    assert found.group is None
    assert ["death of processes that leave", "a bar to programs that gain"] == [
        " ".join(one.split()[:number]) for number, one in zip((5, 6), found.missing, strict=True)
    ]
    with pytest.raises(ConfigurationError, match="it needs Linux"):
        find_isolation(CommandRules("process", require=True))
