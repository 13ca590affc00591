"""Commands of an instance: each attempt runs one command, whose end decides the attempt's outcome."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import bytes_text, counted, duration
from pyasynq._visible_text import visible
from pyasynq.control import Archive, Retry
from pyasynq.gateway.configurations import CommandRules
from pyasynq.gateway.configurations.argument_template import ArgumentError

from .command_run import CommandRun, ResultTooLongError, read_result
from .command_table import CommandTable
from .exit_outcomes import (
    CommandEnd,
    describe_program_end,
    find_killing_limit,
    judge_end,
    judge_failed_start,
)
from .isolation import find_isolation, is_root
from .launch import KeeperLostError, Launcher
from .launcher.control_group import ControlGroup
from .programs import check_command, find_user

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.configurations import CommandSettings, TaskConfiguration
    from pyasynq.gateway.hosted.outcome import HostedOutcome

    from .command_run import ReadyEnd
    from .isolation import Isolation
    from .launch import KeeperLink

_log = logging.getLogger("pyasynq.gateway")
_output_log = logging.getLogger("pyasynq.commands")

_RESULT_FILE: Final = ".pyasynq-result"
_RESULT_BYTES: Final = 1_000_000
"""Maximum bytes of the file that a command writes as its result."""
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_DEFAULT_LANGUAGE: Final = "C.UTF-8"
_GRACE_PART: Final = 0.1
"""Maximum fraction of an attempt's time that is used as grace period."""
_MARGIN_PART: Final = 0.05
_LONGEST_MARGIN: Final = 1.0
"""Maximum seconds that are reserved before the deadline, for SIGKILL and for writing the outcome."""
_SHUTDOWN_GRACE: Final = 8.0
"""Grace period of commands at a shutdown, in seconds: less than the 10 s that hosted tasks have to end."""


class HostedCommands:
    """Runs the commands of an instance. Belongs to one event loop.

    Programs and arguments come from the service's file only, never from Redis. So a client with write access
    to Redis cannot run programs here.

    Args:
        types: task types of the service's file.
        rules: rules of all commands.

    Raises:
        ConfigurationError: a command cannot be run on this machine, or the machine lacks a part of the
            isolation that the rules require.
    """

    def __init__(
        self,
        types: Mapping[str, TaskConfiguration] | None = None,
        rules: CommandRules | None = None,
        table: CommandTable | None = None,
    ) -> None:
        self.rules = rules or CommandRules()
        self._commands: dict[str, CommandSettings] = {}
        self._limits: dict[str, dict[str, float | None]] = {}
        self._isolation: Isolation | None = None
        self._table = table or CommandTable()
        self._launcher = Launcher(self.rules.folder)
        self._is_closing = False
        self._is_announced = False
        self.set_types(types or {})

    @property
    def names(self) -> frozenset[str]:
        """Names of the task types whose commands this instance knows."""
        return frozenset(self._commands)

    def set_types(self, types: Mapping[str, TaskConfiguration]) -> None:
        """Use the commands of these types from now on, after the service's file was read or has changed.

        Raises:
            ConfigurationError: as the constructor does; the former commands stay in use.
        """
        commands = {name: one.command for name, one in types.items() if one.command is not None}
        for name, command in commands.items():
            check_command(name, command)
        if commands and self._isolation is None:
            self._isolation = find_isolation(self.rules)
        self._commands = commands
        self._limits = {name: asdict(command.limits) for name, command in commands.items()}

    def list_params(self, name: str) -> tuple[str, ...]:
        """Return the names of the params that fill the arguments of a type's command; none if unknown."""
        command = self._commands.get(name)
        places = (place for one in (command.argv if command else ()) for place in one.places)
        return tuple(dict.fromkeys(places))

    def check_payload(self, name: str, payload: bytes) -> None:
        """Raise `ArgumentError` for a payload whose params do not fit the command of a type."""
        if name in self._commands:
            _fill(self._commands[name], payload)

    def announce(self) -> None:
        """Log how commands are isolated on this host; only the first call logs it."""
        if self._isolation is None or self._is_announced:
            return
        self._is_announced = True
        level = logging.WARNING if self._isolation.missing else logging.INFO
        _log.log(level, "%s", self._isolation.describe())
        if is_root() and any(one.user is None for one in self._commands.values()):
            _log.warning(
                "commands run as root, because the service does: give each type a user, "
                "without whom limits.processes holds in control groups only"
            )

    async def run(self, attempt: Attempt) -> HostedOutcome:
        """Run the command of an attempt; return the outcome of the attempt.

        A cancelled call ends the command and all its descendant processes, with the type's grace period.
        """
        command = self._commands[attempt.queue]
        try:
            argv = _fill(command, attempt.task.payload or b"")
        except ArgumentError as error:
            return Archive(str(error))
        try:
            keeper = self._launcher.take()
        except OSError as error:
            _log.error("the launcher of commands cannot be started: %s", visible(error))
            return Retry(reason="the service cannot start commands; its log says why")
        folder = self._launcher.folder / f"{keeper.number}-{secrets.token_hex(8)}"
        order = self._make_order(attempt, command, argv, keeper, folder)
        if any("\0" in one for one in order["env"].values()):
            self._launcher.give_back(keeper)
            return Archive("the id of the task holds a NUL character, which no variable can have")
        return await self._run(attempt, command, keeper, order, folder)

    async def _run(
        self,
        attempt: Attempt,
        command: CommandSettings,
        keeper: KeeperLink,
        order: dict[str, Any],
        folder: Path,
    ) -> HostedOutcome:
        name = f"{visible(attempt.queue)}/{visible(attempt.id)}"

        def log(stream: str, line: str) -> None:
            _output_log.info("%s %s: %s", name, stream, line)

        run = CommandRun(
            keeper,
            order,
            log if command.log_output else None,
            lambda one: attempt.progress(one.done, one.total, one.note),
        )
        began_at = time.monotonic()
        left = max(0.0, attempt.deadline.timestamp() - time.time())
        grace = min(command.grace, left * _GRACE_PART)
        margin = min(_LONGEST_MARGIN, left * _MARGIN_PART)
        stdin = attempt.task.payload or b"" if command.stdin == "payload" else None
        owner = order["user"][0] if order["user"] else os.geteuid()
        entry = self._table.begin(attempt, command.program, run)
        try:
            end = await run.wait(stdin, left - grace - margin, lambda: self._find_grace(grace))
            outcome = _judge(end, command, run, grace)
            if outcome is None:
                outcome = _read_output(run, folder, owner)
        except KeeperLostError:
            outcome = Retry(reason="the keeper of the command was killed, and the command with it")
            self._table.end(entry, outcome)
            return outcome
        except BaseException:
            self._table.stop(entry)
            raise
        finally:
            if keeper.is_usable:
                keeper.finish()
                self._launcher.give_back(keeper)
        _tell_end(name, end, time.monotonic() - began_at, command)
        ended = None if "stage" in end.answer else CommandEnd(**end.answer)
        said = "" if ended is None else describe_program_end(ended.status)
        limit = "" if ended is None else find_killing_limit(ended, command.limits)
        self._table.end(entry, outcome, said, ended, "time" if end.timed_out else limit)
        return outcome

    def _find_grace(self, grace: float) -> float:
        return min(grace, _SHUTDOWN_GRACE) if self._is_closing else grace

    def begin_close(self) -> None:
        """Shorten the grace period of all commands to that of a shutdown."""
        self._is_closing = True

    async def close(self) -> None:
        """End the launcher and all commands, with their descendants."""
        self.begin_close()
        await self._launcher.close()
        if self._isolation is not None and self._isolation.group is not None:
            # A keeper removes its control groups, unless it was killed.
            for left in self._isolation.group.glob(_name_group("*")):
                ControlGroup(left).remove()

    def _make_order(
        self, attempt: Attempt, command: CommandSettings, argv: list[str], keeper: KeeperLink, folder: Path
    ) -> dict[str, Any]:
        group = None if self._isolation is None else self._isolation.group
        return {
            "argv": argv,
            "env": _make_environment(attempt, command, folder),
            "folder": str(folder),
            "cwd": command.cwd or str(folder),
            "user": None if command.user is None else find_user("user", command.user),
            "umask": command.umask,
            "limits": self._limits[attempt.queue],
            "cgroup": None if group is None else f"{group}/{_name_group(keeper.number)}",
        }


def _name_group(keeper: object) -> str:
    return f"pyasynq-{os.getpid()}-{keeper}"


def _fill(command: CommandSettings, payload: bytes) -> list[str]:
    """Return the arguments for a payload. Raises `ArgumentError` for params that do not fit."""
    if not any(one.has_places for one in command.argv):
        return [one.fill({}) for one in command.argv]
    try:
        params = json.loads(payload)
    except (ValueError, RecursionError):
        params = None
    return [one.fill(params) for one in command.argv]


def _make_environment(attempt: Attempt, command: CommandSettings, folder: Path) -> dict[str, str]:
    """Return the environment variables of a command: its own, and those of the service that it may read."""
    environment = {
        "PATH": os.environ.get("PATH", _DEFAULT_PATH),
        "LANG": os.environ.get("LANG", _DEFAULT_LANGUAGE),
    }
    for one in command.environment:
        name, has_value, value = one.partition("=")
        if has_value:
            environment[name] = value
        elif name in os.environ:
            environment[name] = os.environ[name]
    trace = attempt.task.headers.get("traceparent", "")
    if trace and trace.isascii() and trace.isprintable():
        environment["TRACEPARENT"] = trace
    return environment | {
        "PYASYNQ_TASK_ID": attempt.id,
        "PYASYNQ_QUEUE": attempt.queue,
        "PYASYNQ_ATTEMPT": str(attempt.retried + 1),
        "PYASYNQ_DEADLINE": attempt.deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "PYASYNQ_RESULT": str(folder / _RESULT_FILE),
    }


def _read_output(run: CommandRun, folder: Path, owner: int) -> HostedOutcome:
    """Return the result of a command: the content of its result file, or else its standard output."""
    try:
        result = read_result(folder / _RESULT_FILE, _RESULT_BYTES, owner)
    except ResultTooLongError:
        return Archive(f"the command has written a result of more than {bytes_text(_RESULT_BYTES)}")
    return run.out.kept.content() or None if result is None else result


def _judge(end: ReadyEnd, command: CommandSettings, run: CommandRun, grace: float) -> HostedOutcome:
    if "stage" in end.answer:
        return judge_failed_start(end.answer["stage"], end.answer["errno"])
    if end.timed_out:
        return Retry(reason=f"timed out; it was asked to end by TERM, with {duration(grace)} until KILL")
    return judge_end(CommandEnd(**end.answer), command, run.err.kept.last_line())


def _tell_end(name: str, end: ReadyEnd, seconds: float, command: CommandSettings) -> None:
    """Write the end of a command to the log."""
    if "stage" in end.answer:
        number = end.answer["errno"]
        _log.error("%s: %s could not be started: %s", name, visible(command.program), os.strerror(number))
        return
    ended = CommandEnd(**end.answer)
    if _log.isEnabledFor(logging.INFO):
        _log.info(
            "%s: %s after %s; CPU %s, memory %s",
            name,
            describe_program_end(ended.status),
            duration(seconds),
            duration(ended.cpu),
            bytes_text(ended.memory),
        )
    if ended.left:
        _log.error("%s: %s cannot be killed", name, counted(ended.left, "process", "processes"))
