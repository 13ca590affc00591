"""Configuration of one task type: its limits, the options of its tasks, and the schema of its params."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_new_name, check_switch
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, nearest
from pyasynq.limits import Queue, QueueLimits, read_rate
from pyasynq.options import resolve_options

from .command_settings import COMMAND_FIELDS, CommandSettings, build_command_settings
from .field_names import join_path, read_table
from .http_fields import HTTP_FIELDS, check_http_fields
from .list_fields import DEFAULT_SHARDS, LIST_FIELDS, check_list_fields
from .params_schema import ParamsSchema, read_schema_file
from .retry_rule import RetryRule, parse_duration, parse_retry_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .url_template import UrlTemplate

_KINDS: Final = ("worker", "http", "cmd", "list")
"""Kinds of task types. Remote workers lease tasks of the kind `worker`; the service handles the other kinds.

`http` sends a request, `cmd` runs a command, and `list` puts an entry into a Redis list for a worker.
"""
_MANAGERS: Final = ("file", "api")
"""Owners of a configuration: the service's file, or the API; only the owner changes it."""
MAX_NAME_CHARACTERS: Final = 200
_MOST_PENDING: Final = 1_000_000_000
_ALIASES: Final = {"task_name": "name"}


@dataclass(frozen=True, eq=False)
class TaskConfiguration:
    """Configuration of a task type, whose name is also the name of its queue. Durations are in seconds."""

    name: str
    kind: str = "worker"
    max_run: int | None = None
    """Number of the type's tasks that run at once, in all workers together; None means unlimited."""
    max_pending: int | None = None
    """Number of waiting tasks from which the service refuses new tasks; None means unlimited."""
    rate: str | None = None
    """Rate limit of task starts, in all workers together, such as `50/s+10`; None means unlimited."""
    ordered: bool = False
    timeout: float | None = None
    max_retry: int | None = None
    retry: RetryRule | None = None
    """Retry rule; None is Asynq's back-off."""
    retention: float | None = None
    schema: dict[str, Any] | None = None
    managed: str = "file"
    url: UrlTemplate | None = None
    """URL template of the kind `http`; the following fields, up to `callback`, belong to that kind too."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    retry_on: tuple[int, ...] = ()
    """HTTP statuses after which the task is retried, even if they have another outcome by default."""
    archive_on: tuple[int, ...] = ()
    """HTTP statuses after which the task is archived."""
    max_age: float | None = None
    """Seconds for which a task waits for a throttled host before it is archived; None means a day."""
    callback: bool = False
    """Whether the host may take over a task, and settle it later by its lease token."""
    shards: int = DEFAULT_SHARDS
    """Number of lists of the kind `list`."""
    command: CommandSettings | None = None
    """Command of the kind `cmd`, from the service's file; never stored, so it is None in a stored
    configuration."""

    @cached_property
    def params_schema(self) -> ParamsSchema | None:
        """The compiled schema of params; None without one."""
        return None if self.schema is None else ParamsSchema(f"tasks.{self.name}.schema", self.schema)

    @property
    def limits(self) -> QueueLimits:
        """The limits of the type's queue."""
        rate = {} if self.rate is None else read_rate("rate", self.rate)
        return Queue(max_run=self.max_run, ordered=self.ordered, **rate).limits

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The enqueue options of the type's tasks."""
        given = {"timeout": self.timeout, "max_retry": self.max_retry, "retention": self.retention}
        return {"queue": self.name} | {name: value for name, value in given.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set as JSON for `parse_task_configuration`, without the command."""
        fields = {
            "name": self.name,
            "kind": self.kind,
            "max_run": self.max_run,
            "max_pending": self.max_pending,
            "rate": self.rate,
            "ordered": self.ordered or None,
            "timeout": self.timeout,
            "max_retry": self.max_retry,
            "retry": None if self.retry is None else self.retry.to_json(),
            "retention": self.retention,
            "schema": self.schema,
            "managed": self.managed,
            "url": None if self.url is None else self.url.text,
            "method": self.method if self.kind == "http" else None,
            "headers": dict(self.headers) or None,
            "retry_on": list(self.retry_on) or None,
            "archive_on": list(self.archive_on) or None,
            "max_age": self.max_age,
            "callback": self.callback or None,
            "shards": self.shards if self.kind == "list" else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def __eq__(self, other: object) -> bool:
        """Return whether both configurations have equal fields."""
        if not isinstance(other, TaskConfiguration):
            return False
        return self.command == other.command and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment] # as schemas are dictionaries


def parse_task_configuration(
    path: str,
    value: object,
    *,
    name: str | None = None,
    folder: Path | None = None,
    allows_command: bool = False,
) -> TaskConfiguration:
    """Parse the configuration of a task type.

    Args:
        path: dotted path of the table in the file, for error messages.
        value: the table, from TOML or JSON; None in it is a field that is not set.
        name: name of the type, if the table's key is the name; None if the field `name` contains it.
        folder: folder of the service's file, for the relative names of schema files; None if the schema is
            inside the table.
        allows_command: whether the table may contain a command, because it is from the service's file.

    Raises:
        InvalidOptionError: for an invalid field; the message names the field and the remedy.
    """
    fields = read_table(path, value, _READERS, aliases=_ALIASES)
    fields = {field: content for field, content in fields.items() if content is not None}
    if name is not None and fields.setdefault("name", name) != name:
        remedy = "differs from the name of its table: leave it out"
        raise InvalidOptionError(join_path(path, "name"), str, remedy)
    if "name" not in fields:
        raise InvalidOptionError(join_path(path, "name"), None, "give the type's name (TaskName)")
    if isinstance(fields.get("schema"), str) and folder is not None:
        fields["schema"] = read_schema_file(join_path(path, "schema"), fields["schema"], folder)
    read = {field: _READERS[field](join_path(path, field), content) for field, content in fields.items()}
    check_http_fields(path, read)
    check_list_fields(path, read)
    _take_command(path, read, is_allowed=allows_command)
    if read.get("ordered") and read.get("max_run", 1) != 1:
        remedy = "an ordered type runs one task at a time: leave it out"
        raise InvalidOptionError(join_path(path, "max_run"), read["max_run"], remedy)
    return TaskConfiguration(**read)


def _take_command(path: str, fields: dict[str, Any], *, is_allowed: bool) -> None:
    """Replace the fields of the kind `cmd` by one field `command`, with the parsed settings.

    A stored or sent configuration never has these fields, so a client that changes task types over HTTP
    cannot choose the command.

    Raises:
        InvalidOptionError: another kind has such a field, or the table is not from the service's file.
    """
    given = {name: fields.pop(name) for name in COMMAND_FIELDS if name in fields}
    if fields.get("kind") != "cmd":
        for name in given:
            raise InvalidOptionError(join_path(path, name), str, 'is for kind = "cmd" only')
        return
    remedy = "only the service's file says what a command is: write the type there"
    if fields.get("managed") == "api":
        place = join_path(path, "managed" if is_allowed else "kind")
        raise InvalidOptionError(place, str, remedy.replace("there", 'there, with managed = "file"'))
    if is_allowed:
        fields["command"] = build_command_settings(path, given)
        return
    for name in given:
        raise InvalidOptionError(join_path(path, name), str, remedy)


def _read_name(path: str, value: object) -> str:
    name = check_new_name(path, value)
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidOptionError(path, str, f"must have at most {MAX_NAME_CHARACTERS} characters")
    if "/" in name or visible(name) != name:
        raise InvalidOptionError(path, str, "must have visible characters only, and no slash")
    return name


def _read_kind(path: str, value: object) -> str:
    return _read_word(path, value, _KINDS)


def _read_managed(path: str, value: object) -> str:
    return _read_word(path, value, _MANAGERS)


def _read_word(path: str, value: object, words: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in words:
        return value
    hint = nearest(value, words) if isinstance(value, str) else ""
    raise InvalidOptionError(path, type(value), f"must be {' or '.join(map(repr, words))}{hint}")


def _read_max_run(path: str, value: object) -> int:
    try:
        return Queue(max_run=value).max_run or 0  # type: ignore[arg-type] # it is checked there
    except InvalidOptionError as error:
        hint = "; to stop a type, pause its queue" if value == 0 else ""
        remedy = f"must be a whole number from 1 to 1,000,000, or left out for no limit{hint}"
        raise InvalidOptionError(path, error.value, remedy) from None


def _read_max_pending(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_PENDING:
        remedy = f"must be a whole number from 1 to {_MOST_PENDING:,}, or left out for no limit"
        raise InvalidOptionError(path, value, remedy)
    return value


def _read_rate(path: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOptionError(path, value, 'must be text, such as "50/s" or "100/m+10"')
    fields = read_rate(path, value)
    try:
        Queue(**fields)
    except InvalidOptionError as error:
        raise InvalidOptionError(path, error.value, f"{error.option} {error.remedy}") from None
    return value.strip()


def _read_ordered(path: str, value: object) -> bool:
    check_switch(path, value)
    return bool(value)


def _read_timeout(path: str, value: object) -> float:
    return parse_duration(path, value, positive=True)


def _read_max_retry(path: str, value: object) -> int:
    try:
        return resolve_options({"max_retry": value}).max_retry
    except InvalidOptionError as error:
        raise InvalidOptionError(path, error.value, error.remedy) from None


def _read_schema(path: str, value: object) -> Any:
    ParamsSchema(path, value)
    return value


_READERS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "name": _read_name,
    "kind": _read_kind,
    "max_run": _read_max_run,
    "max_pending": _read_max_pending,
    "rate": _read_rate,
    "ordered": _read_ordered,
    "timeout": _read_timeout,
    "max_retry": _read_max_retry,
    "retry": parse_retry_rule,
    "retention": parse_duration,
    "schema": _read_schema,
    "managed": _read_managed,
    **HTTP_FIELDS,
    **COMMAND_FIELDS,
    **LIST_FIELDS,
}
"""Parsers of field values by field; each raises `InvalidOptionError` with the field and the remedy."""
