"""Task types of the kind `cmd`: what the file may say, and how params fill the arguments."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pyasynq.errors import InvalidOptionError
from pyasynq.gateway.configurations import (
    CommandLimits,
    CommandRules,
    CommandSettings,
    TaskConfiguration,
    parse_service_file,
    parse_task_configuration,
)
from pyasynq.gateway.configurations.argument_template import ArgumentError, parse_argument
from pyasynq.gateway.configurations.command_settings import COMMAND_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "service.md").read_text("utf-8")

FULL: dict[str, Any] = {
    "kind": "cmd",
    "max_run": 3,
    "argv": ["/opt/dump", "--id={id}", "{path}"],
    "allow_dash": True,
    "stdin": "none",
    "env": ["TZ", "MODE=fast"],
    "cwd": "/srv",
    "user": "nobody",
    "umask": "027",
    "grace": "1m",
    "log_output": False,
    "limits": {"cpu": "10m", "memory": "512M", "files": 64, "processes": 32, "file_size": "1G"},
    "success_codes": [1],
    "retry_codes": [64],
    "archive_codes": [2],
    "snooze_codes": {"99": "30s"},
}


def parse(fields: dict[str, Any]) -> TaskConfiguration:
    """Return the configuration of a type in a service's file."""
    return parse_service_file({"tasks": {"dump": fields}}).tasks["dump"]


def read_command(**fields: Any) -> CommandSettings:
    """Return the command of a type in a service's file."""
    command = parse({"kind": "cmd", "argv": ["/bin/true"], **fields}).command
    assert command is not None
    return command


def test_a_command_is_read() -> None:
    """With durations in seconds and sizes in bytes."""
    command = parse(FULL).command

    assert command is not None
    assert "/opt/dump" == command.program
    assert ["/opt/dump", "--id=7", "-a"] == [one.fill({"id": 7, "path": "-a"}) for one in command.argv]
    assert ("none", ("TZ", "MODE=fast"), "/srv") == (command.stdin, command.environment, command.cwd)
    assert ("nobody", 0o027, 60, False) == (command.user, command.umask, command.grace, command.log_output)
    assert CommandLimits(600, 512 * 2**20, 64, 32, 2**30) == command.limits
    assert ((1,), (64,), (2,)) == (command.success_codes, command.retry_codes, command.archive_codes)
    assert {99: 30} == command.snooze_codes


def test_the_example_of_the_page_is_right() -> None:
    """As docs/service.md shows it; its table has each field and each limit."""
    section = PAGE.partition("## Tasks that are commands")[2].partition("\n## ")[0]
    [example] = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    file = parse_service_file(tomllib.loads(example))

    assert CommandRules() == file.commands
    assert file.tasks["dump"].command is not None
    named = set(re.findall(r"`(\w+)`", section))
    assert set() == {*COMMAND_FIELDS, *asdict(CommandLimits()), *asdict(CommandRules())} - named


def test_a_command_is_not_stored() -> None:
    """Redis holds that the type is a command, and its limits; only files say which command."""
    stored = parse(FULL).to_json()

    assert {"name": "dump", "kind": "cmd", "max_run": 3, "managed": "file"} == stored
    assert parse_task_configuration("", stored).command is None
    assert parse(FULL) == parse(FULL)
    assert parse(FULL) != parse({**FULL, "argv": ["/opt/other"]})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "cmd", "managed": "api"}, "kind=<str>"),
        ({"kind": "cmd", "argv": ["/bin/true"], "managed": "api"}, "kind=<str>"),
        ({"kind": "cmd", "argv": ["/bin/true"]}, "argv=<str>"),
        ({"kind": "cmd", "env": ["A=1"]}, "env=<str>"),
    ],
)
def test_a_command_comes_only_from_the_file(fields: dict[str, Any], named: str) -> None:
    """Neither a request nor what is stored in Redis may name a program."""
    with pytest.raises(InvalidOptionError) as caught:
        parse_task_configuration("", fields, name="dump")

    assert str(caught.value).startswith(named)
    assert "only the service's file says what a command is" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "named", "remedy"),
    [
        ({"argv": None}, "argv", "give program and arguments"),
        ({"argv": "/bin/true a"}, "argv", "no shell reads it"),
        ({"argv": []}, "argv", "must be a list"),
        ({"argv": ["true"]}, "argv[0]", "absolute path"),
        ({"argv": ["/opt/{name}"]}, "argv[0]", "without places for params"),
        ({"argv": ["/bin/true", 7]}, "argv[1]", "must be text"),
        ({"argv": ["/bin/true", "a\0b"]}, "argv[1]", "NUL"),
        ({"argv": ["/bin/true", "{a b}"]}, "argv[1]", "a brace that is not the place"),
        ({"argv": ["/bin/true"] * 1_001}, "argv", "1,000 arguments"),
        ({"managed": "api"}, "managed", "only the service's file"),
        ({"stdin": "payloads"}, "stdin", "did you mean 'payload'?"),
        ({"env": {"A": "b"}}, "env", "must be a list"),
        ({"env": ["A B"]}, "env[0]", "NAME=value"),
        ({"env": ["PYASYNQ_SECRET"]}, "env[0]", "its own are secret"),
        ({"cwd": "here"}, "cwd", "absolute path of a folder"),
        ({"user": ""}, "user", "name of a user"),
        ({"umask": 77}, "umask", "octal digits"),
        ({"grace": "2h"}, "grace", "one hour at most"),
        ({"log_output": "no"}, "log_output", "True or False"),
        ({"limits": {"cpus": 1}}, "limits.cpus", "did you mean 'cpu'?"),
        ({"limits": {"cpu": 0.5}}, "limits.cpu", "one second"),
        ({"limits": {"memory": "1M"}}, "limits.memory", "32M at least"),
        ({"limits": {"files": 0}}, "limits.files", "whole number"),
        ({"limits": {"processes": True}}, "limits.processes", "whole number"),
        ({"limits": {"file_size": "big"}}, "limits.file_size", "must be a size"),
        ({"success_codes": 3}, "success_codes", "list of exit codes"),
        ({"retry_codes": [0]}, "retry_codes[0]", "0 is success"),
        ({"archive_codes": [256]}, "archive_codes[0]", "from 1 to 255"),
        ({"snooze_codes": ["99"]}, "snooze_codes", "table of delays"),
        ({"snooze_codes": {"x": 1}}, "snooze_codes.x", "exit code from 1"),
        ({"snooze_codes": {"9": "soon"}}, "snooze_codes.9", "duration"),
        ({"retry_codes": [3], "archive_codes": [3]}, "archive_codes", "in retry_codes, too"),
        ({"kind": "worker"}, "argv", 'for kind = "cmd" only'),
    ],
)
def test_a_wrong_field_is_named_with_its_remedy(fields: dict[str, Any], named: str, remedy: str) -> None:
    """The error names the place in the file."""
    with pytest.raises(InvalidOptionError) as caught:
        parse({"kind": "cmd", "argv": ["/bin/true"], **fields})

    assert str(caught.value).startswith(f"tasks.dump.{named}=")
    assert remedy in str(caught.value)


def test_the_rules_of_commands_are_read() -> None:
    """And have defaults."""
    table = {"isolation": "process", "require": True, "concurrency": 4, "folder": "/var/tmp"}

    assert CommandRules("process", True, 4, "/var/tmp") == parse_service_file({"commands": table}).commands
    assert CommandRules(None, require=False, concurrency=16) == parse_service_file({}).commands


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"isolation": "bwrap"}, "isolation"),
        ({"require": 1}, "require"),
        ({"concurrency": 0}, "concurrency"),
        ({"folder": "tmp"}, "folder"),
        ({"requires": True}, "requires"),
    ],
)
def test_a_wrong_rule_is_named(fields: dict[str, Any], named: str) -> None:
    """The error names the place in the file."""
    with pytest.raises(InvalidOptionError, match=rf"^commands\.{named}="):
        parse_service_file({"commands": fields})


@pytest.mark.parametrize(
    ("template", "params", "filled"),
    [
        ("--id={id}", {"id": 7}, "--id=7"),
        (
            "{id}",
            {"id": "a b; rm -rf / $(x) `y` | & > \n * ? '\""},
            "a b; rm -rf / $(x) `y` | & > \n * ? '\"",
        ),
        ("--path={path}", {"path": "../../etc/passwd"}, "--path=../../etc/passwd"),
        ("--x={x}", {"x": "-rf"}, "--x=-rf"),
        ("-{x}", {"x": "v"}, "-v"),
        ("{a}{b}", {"a": True, "b": 1.5}, "true1.5"),
        ("{{x}} {x}", {"x": "{y}"}, "{x} {y}"),
        ("{{x}}", {}, "{x}"),
        ("/srv/{name}.csv", {"name": "a..b"}, "/srv/a..b.csv"),
        ("{x}", {"x": ""}, ""),
    ],
)
def test_params_fill_their_own_argument(template: str, params: object, filled: str) -> None:
    """Whatever a value holds, it is a part of this argument; no shell reads it."""
    assert filled == parse_argument("argv[1]", template).fill(params)


@pytest.mark.parametrize(
    ("template", "params", "said"),
    [
        ("{x}", {}, "params.x is missing"),
        ("{x}", [1], "params.x is missing"),
        ("{x}", {"x": None}, "params.x must be text, a number or a bool"),
        ("{x}", {"x": ["-a"]}, "params.x must be text, a number or a bool"),
        ("{x}", {"x": {"y": 1}}, "params.x must be text, a number or a bool"),
        ("{x}", {"x": "-rf"}, "params.x begins with a dash"),
        ("{x}", {"x": -7}, "params.x begins with a dash"),
        ("{a}{x}", {"a": "", "x": "--all"}, "begins with a dash"),
        ("--x={x}", {"x": "a\0b"}, "params.x holds a NUL"),
        ("--x={x}", {"x": "\ud800"}, "params.x is not Unicode"),
        ("--x={x}", {"x": "x" * 100_001}, "params.x makes an argument of more than 100,000 bytes"),
        ("/srv/{x}.csv", {"x": "../../etc/passwd"}, "params.x must be a name in a path"),
        ("/srv/{x}", {"x": ".."}, "params.x must be a name in a path"),
        ("/srv/{x}/a", {"x": ""}, "params.x cannot be a name in a path"),
        ("--out={x}/a", {"x": ".."}, "params.x must be a name in a path"),
        ("/srv/{x}{y}", {"x": ".", "y": "."}, "params.x must be a name in a path"),
        ("/srv/.{x}", {"x": "."}, "params.x must be a name in a path"),
        ("{x}/a", {"x": "/etc"}, "params.x must be a name in a path"),
    ],
)
def test_params_that_do_not_fit_are_refused(template: str, params: object, said: str) -> None:
    """The error names the param, and never shows its value."""
    with pytest.raises(ArgumentError) as caught:
        parse_argument("argv[1]", template).fill(params)

    assert said in str(caught.value)
    assert "passwd" not in str(caught.value)


def test_a_dash_may_be_allowed() -> None:
    """For commands whose arguments are options by intent."""
    command = read_command(argv=["/bin/true", "{x}"], allow_dash=True)

    assert "-rf" == command.argv[1].fill({"x": "-rf"})
