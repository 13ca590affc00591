"""Settings of a task type of the kind `cmd`: its command, its limits, and the meaning of its exit codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_switch
from pyasynq._settings import Size
from pyasynq.errors import InvalidOptionError, nearest

from .argument_template import ArgumentTemplate, parse_argument
from .field_names import join_path, read_table
from .retry_rule import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_ARGUMENTS: Final = 1_000
_MOST_VARIABLES: Final = 100
_LONGEST_GRACE: Final = 3_600.0
_HIGHEST_CODE: Final = 255
_INPUTS: Final = ("payload", "none")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_VARIABLES: Final = "PYASYNQ_"
_LEAST_MEMORY: Final = 32 * 2**20
"""Minimum memory limit in bytes: few programs start with less."""
_MOST_NUMBER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Resource limits of a command (rlimits); None keeps the limit of the service's own process.

    Attributes:
        cpu: CPU seconds of each process.
        memory: bytes of address space of each process; with a control group, bytes of the whole command.
        files: open files of each process.
        processes: number of processes of the command's user; with a control group, of the command alone.
        file_size: bytes of the largest file that it writes.
    """

    cpu: float | None = None
    memory: int | None = None
    files: int | None = None
    processes: int | None = None
    file_size: int | None = None


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The command of a task type. Durations are in seconds.

    Attributes:
        argv: program and arguments.
        stdin: what the command reads: `payload`, or `none`.
        environment: names of variables to copy from the service, and `NAME=value` for additional ones.
        cwd: working folder; None for a new, empty folder for each attempt.
        user: name of the user that it runs as; None for the user of the service.
        umask: permission bits that are removed from its new files.
        grace: grace period, the time between SIGTERM and SIGKILL.
        log_output: whether its output is written to the log of the service.
        limits: its resource limits.
        success_codes: exit codes of success besides 0: the task is completed.
        retry_codes: exit codes after which a task is retried.
        archive_codes: exit codes after which a task is archived.
        snooze_codes: exit codes after which a task runs again later, with the delay of each.
    """

    argv: tuple[ArgumentTemplate, ...]
    stdin: str = "payload"
    environment: tuple[str, ...] = ()
    cwd: str | None = None
    user: str | None = None
    umask: int = 0o077
    grace: float = 10.0
    log_output: bool = True
    limits: CommandLimits = field(default_factory=CommandLimits)
    success_codes: tuple[int, ...] = ()
    retry_codes: tuple[int, ...] = ()
    archive_codes: tuple[int, ...] = ()
    snooze_codes: Mapping[int, float] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """Absolute path of the program."""
        return self.argv[0].fill({})


def build_command_settings(path: str, fields: Mapping[str, Any]) -> CommandSettings:
    """Build the settings from fields that the readers of `COMMAND_FIELDS` have checked.

    Raises:
        InvalidOptionError: a field is missing, or two fields contradict one another.
    """
    if "argv" not in fields:
        remedy = 'give program and arguments, as in argv = ["/usr/bin/dump", "--id={id}"]'
        raise InvalidOptionError(join_path(path, "argv"), None, remedy)
    values = dict(fields)
    if values.pop("allow_dash", False):
        values["argv"] = tuple(ArgumentTemplate(one.text, allow_dash=True) for one in values["argv"])
    if "env" in values:
        values["environment"] = values.pop("env")
    meant: dict[int, str] = {}
    for name in ("success_codes", "retry_codes", "archive_codes", "snooze_codes"):
        for code in values.get(name, ()):
            if code in meant:
                place = join_path(path, name)
                raise InvalidOptionError(place, code, f"has a code that is in {meant[code]}, too")
            meant[code] = name
    return CommandSettings(**values)


def _read_argv(path: str, value: object) -> tuple[ArgumentTemplate, ...]:
    if not isinstance(value, list) or not value:
        remedy = 'must be a list, the program first: ["/usr/bin/dump", "--id={id}"]; no shell reads it'
        raise InvalidOptionError(path, type(value), remedy)
    if len(value) > _MOST_ARGUMENTS:
        raise InvalidOptionError(path, len(value), f"must have {_MOST_ARGUMENTS:,} arguments at most")
    argv = tuple(parse_argument(f"{path}[{place}]", one) for place, one in enumerate(value))
    if argv[0].has_places or not argv[0].text.startswith("/"):
        remedy = "must be the absolute path of a program, without places for params"
        raise InvalidOptionError(f"{path}[0]", str, remedy)
    return argv


def _read_stdin(path: str, value: object) -> str:
    if isinstance(value, str) and value in _INPUTS:
        return value
    hint = nearest(value, _INPUTS) if isinstance(value, str) else ""
    raise InvalidOptionError(path, type(value), f"must be {' or '.join(map(repr, _INPUTS))}{hint}")


def _read_environment(path: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_VARIABLES:
        remedy = f'must be a list of {_MOST_VARIABLES} variables at most, such as ["TZ", "MODE=fast"]'
        raise InvalidOptionError(path, type(value), remedy)
    for place, one in enumerate(value):
        name = one.partition("=")[0] if isinstance(one, str) else ""
        if not _VARIABLE.fullmatch(name) or "\0" in one:
            remedy = "must be the name of a variable, or NAME=value"
            raise InvalidOptionError(f"{path}[{place}]", type(one), remedy)
        if name.startswith(_OWN_VARIABLES):
            remedy = "the service sets the variables PYASYNQ_... by itself, and its own are secret"
            raise InvalidOptionError(f"{path}[{place}]", str, remedy)
    return tuple(value)


def _read_cwd(path: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value or not PurePosixPath(value).is_absolute():
        remedy = "must be the absolute path of a folder; without one each attempt has a fresh folder"
        raise InvalidOptionError(path, type(value), remedy)
    return value


def _read_user(path: str, value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidOptionError(path, type(value), "must be the name of a user of this machine")
    return value


def _read_umask(path: str, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value):
        return int(value, 8)
    raise InvalidOptionError(path, type(value), 'must be three octal digits as text: "077"')


def _read_grace(path: str, value: object) -> float:
    seconds = parse_duration(path, value)
    if seconds > _LONGEST_GRACE:
        raise InvalidOptionError(path, value, "must be one hour at most")
    return seconds


def _read_switch(path: str, value: object) -> bool:
    check_switch(path, value)
    return bool(value)


def _read_codes(path: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidOptionError(path, type(value), "must be a list of exit codes, such as [3, 4]")
    return tuple(_check_code(f"{path}[{place}]", one) for place, one in enumerate(value))


def _check_code(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _HIGHEST_CODE:
        raise InvalidOptionError(path, value, f"must be an exit code from 1 to {_HIGHEST_CODE}; 0 is success")
    return value


def _read_snooze_codes(path: str, value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise InvalidOptionError(path, type(value), 'must be a table of delays: { "99" = "30s" }')
    delays: dict[int, float] = {}
    for name, delay in value.items():
        place = join_path(path, str(name))
        digits = str(name)
        code = _check_code(place, int(digits) if digits.isascii() and digits.isdigit() else None)
        if code in delays:
            raise InvalidOptionError(place, code, "is given twice")
        delays[code] = parse_duration(place, delay)
    return delays


def _read_limits(path: str, value: object) -> CommandLimits:
    read = {
        name: _LIMITS[name](join_path(path, name), content)
        for name, content in read_table(path, value, _LIMITS).items()
    }
    return CommandLimits(**read)


def _read_cpu(path: str, value: object) -> float:
    seconds = parse_duration(path, value)
    if seconds < 1:
        raise InvalidOptionError(path, value, "must be one second at least")
    return seconds


def _read_size(path: str, value: object) -> int:
    size = Size().read(path, value) if isinstance(value, str) else value
    Size().check(path, size)
    assert isinstance(size, int)  # noqa: S101 - it was checked
    return size


def _read_memory(path: str, value: object) -> int:
    size = _read_size(path, value)
    if size < _LEAST_MEMORY:
        raise InvalidOptionError(path, size, "must be 32M at least: few programs start with less")
    return size


def _read_number(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_NUMBER:
        raise InvalidOptionError(path, value, f"must be a whole number from 1 to {_MOST_NUMBER:,}")
    return value


_LIMITS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "cpu": _read_cpu,
    "memory": _read_memory,
    "files": _read_number,
    "processes": _read_number,
    "file_size": _read_size,
}

COMMAND_FIELDS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "argv": _read_argv,
    "allow_dash": _read_switch,
    "stdin": _read_stdin,
    "env": _read_environment,
    "cwd": _read_cwd,
    "user": _read_user,
    "umask": _read_umask,
    "grace": _read_grace,
    "log_output": _read_switch,
    "limits": _read_limits,
    "success_codes": _read_codes,
    "retry_codes": _read_codes,
    "archive_codes": _read_codes,
    "snooze_codes": _read_snooze_codes,
}
"""Parsers of field values by field; each raises `InvalidOptionError` with the field and the remedy."""
