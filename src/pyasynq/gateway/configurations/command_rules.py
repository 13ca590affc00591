"""Rules for all commands that an instance runs: the table `[commands]` of the service's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_switch
from pyasynq.errors import InvalidOptionError, nearest

from .field_names import join_path, read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ISOLATIONS: Final = ("process", "cgroup")
_MOST_COMMANDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class CommandRules:
    """Rules for all commands that an instance runs.

    Attributes:
        isolation: `process`, or `cgroup` for control groups as well; None for the best that the host offers.
        require: whether the service refuses to start if the host lacks a part of the isolation.
        concurrency: number of commands that run at once, of all types together.
        folder: parent of the working folders of attempts; None for the system's folder of temporary files.
    """

    isolation: str | None = None
    require: bool = False
    concurrency: int = 16
    folder: str | None = None


def parse_command_rules(path: str, value: object) -> CommandRules:
    """Parse the rules for commands from their table in the service's file.

    Raises:
        InvalidOptionError: for an invalid field; the message names the field and the remedy.
    """
    fields = read_table(path, value, _READERS)
    return CommandRules(**{name: _READERS[name](join_path(path, name), one) for name, one in fields.items()})


def _read_isolation(path: str, value: object) -> str:
    if isinstance(value, str) and value in ISOLATIONS:
        return value
    hint = nearest(value, ISOLATIONS) if isinstance(value, str) else ""
    raise InvalidOptionError(path, type(value), f"must be {' or '.join(map(repr, ISOLATIONS))}{hint}")


def _read_require(path: str, value: object) -> bool:
    check_switch(path, value)
    return bool(value)


def _read_concurrency(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_COMMANDS:
        raise InvalidOptionError(path, value, f"must be a whole number from 1 to {_MOST_COMMANDS:,}")
    return value


def _read_folder(path: str, value: object) -> str:
    if not isinstance(value, str) or not PurePosixPath(value).is_absolute():
        raise InvalidOptionError(path, type(value), "must be the absolute path of a folder")
    return value


_READERS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "isolation": _read_isolation,
    "require": _read_require,
    "concurrency": _read_concurrency,
    "folder": _read_folder,
}
