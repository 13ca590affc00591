"""The options of an enqueue: declared once, merged, validated and brought to the wire's units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict, cast

from pyasynq._clock import Instant
from pyasynq.errors import InvalidOptionError, UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

Duration: TypeAlias = timedelta | float | int
"""A `timedelta`, or seconds."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAX_RETRY: Final = 25
DEFAULT_TIMEOUT_SECONDS: Final = 1800
_MAX_INT32: Final = 2**31 - 1
_MAX_UNIX_TIME: Final = 253_402_300_799  # the end of the year 9999, the last that datetime knows


class EnqueueOptions(TypedDict, total=False):
    """Everything that can be said about how one task is to be run.

    A call's options win over the task's own, setting by setting; `headers` are merged key by key, and
    `process_at` and `process_in` are one setting.
    """

    queue: str
    """Name of the queue, `"default"` unless given."""
    max_retry: int
    """How often the task may be retried after its first failure, 25 unless given."""
    timeout: Duration
    """Longest run of an attempt: 30 minutes unless this or `deadline` is given. Rounded up to seconds."""
    deadline: datetime
    """Aware time at which an attempt is cut off, however late it began."""
    unique: Duration
    """At least 1 s: so long, while this one is unfinished, the queue takes none of equal type and payload."""
    process_at: datetime
    """Aware time before which the task is not run."""
    process_in: Duration
    """How long to wait before the task may run."""
    retention: Duration
    """How long a succeeded task and its result are kept; not at all unless given."""
    task_id: str
    """The task's id, unique within its queue; a random UUID unless given."""
    headers: Mapping[str, str]
    """Text that travels with the task, such as a trace or a tenant."""
    group: str
    """Name of a group, whose tasks a server's aggregator makes into one; a later process time comes first."""


_PROCESS_TIMES: Final = ("process_at", "process_in")

OPTION_NAMES: Final = frozenset(EnqueueOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class EnqueueSettings:
    """Validated options in the wire's units: whole seconds, Unix time, 0 for none."""

    queue: str = DEFAULT_QUEUE
    max_retry: int = DEFAULT_MAX_RETRY
    timeout: int = DEFAULT_TIMEOUT_SECONDS
    deadline: int = 0
    unique_ttl: int = 0
    process_at: Instant | None = None
    process_in: float | None = None
    retention: int = 0
    task_id: str | None = None
    headers: Mapping[str, str] | None = None
    group: str = ""


DEFAULT_SETTINGS: Final = EnqueueSettings()


def merge_options(*layers: Mapping[str, object]) -> EnqueueOptions:
    """Return the layers as one, later ones winning setting by setting."""
    merged: dict[str, object] = {}
    for layer in layers:
        headers = merged.get("headers"), layer.get("headers")
        if not layer.keys().isdisjoint(_PROCESS_TIMES):
            for name in _PROCESS_TIMES:
                merged.pop(name, None)
        merged.update(layer)
        if isinstance(headers[0], Mapping) and isinstance(headers[1], Mapping):
            merged["headers"] = {**headers[0], **headers[1]}
    return cast("EnqueueOptions", merged)


def check_option_names(options: Mapping[str, object]) -> None:
    """Raise `UnknownOptionError` for the first name that is no option."""
    for name in options:
        if name not in OPTION_NAMES:
            raise UnknownOptionError(name, OPTION_NAMES)


def resolve_options(options: Mapping[str, object]) -> EnqueueSettings:
    """Validate options and bring them to the wire's units.

    Raises:
        UnknownOptionError: for a name that is no option.
        InvalidOptionError: for a value that its option cannot have; both name the remedy.
    """
    if not options:
        return DEFAULT_SETTINGS
    check_option_names(options)
    if "process_at" in options and "process_in" in options:
        raise InvalidOptionError(
            "process_at", options["process_at"], "give process_at or process_in, not both"
        )
    settings: dict[str, object] = {}
    for name, value in options.items():
        field, reader = _READERS[name]
        settings[field] = reader(name, value)
    # Asynq's rule: a timeout of zero means "not given", and a deadline replaces the default timeout.
    if not settings.get("timeout"):
        settings["timeout"] = 0 if settings.get("deadline") else DEFAULT_TIMEOUT_SECONDS
    return EnqueueSettings(**settings)  # type: ignore[arg-type]


def seconds_of(name: str, value: object) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidOptionError: when it is no `timedelta` or number, is not finite, or is negative.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    else:
        raise InvalidOptionError(name, value, "a duration is a timedelta or a number of seconds")
    if not math.isfinite(seconds) or seconds > _MAX_UNIX_TIME:
        raise InvalidOptionError(name, value, "a duration must be finite and end before the year 10000")
    if seconds < 0:
        raise InvalidOptionError(name, value, "a duration cannot be negative")
    return seconds


def instant_of(name: str, value: object) -> Instant:
    """Return an aware datetime as an instant.

    Raises:
        InvalidOptionError: when it is no datetime, is naive, or lies before 1970 or too far ahead.
    """
    if not isinstance(value, datetime):
        raise InvalidOptionError(name, value, "a time is an aware datetime, such as datetime.now(UTC)")
    if value.utcoffset() is None:
        raise InvalidOptionError(
            name,
            value,
            "this datetime has no time zone; give it one, as in datetime(..., tzinfo=UTC) or .astimezone()",
        )
    instant = Instant.from_datetime(value)
    if instant.seconds < 0:
        raise InvalidOptionError(name, value, "a time cannot lie before 1970")
    return check_representable(name, value, instant)


def check_representable(name: str, value: object, instant: Instant) -> Instant:
    """Return an instant that a datetime can hold after it has been rounded up to a whole second.

    Raises:
        InvalidOptionError: otherwise; it names the option and the value that the instant was made of.
    """
    if instant.ceiling > _MAX_UNIX_TIME:
        raise InvalidOptionError(name, value, "a time must lie before the last second of the year 9999")
    return instant


def name_of(name: str, value: object) -> str:
    """Return a name that is not blank and can be written as UTF-8.

    Raises:
        InvalidOptionError: otherwise.
    """
    if not isinstance(value, str):
        raise InvalidOptionError(name, value, "must be text")
    if not value.strip():
        raise InvalidOptionError(name, value, "must contain one or more characters that are not blank")
    return _utf8(name, value)


def _utf8(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidOptionError(
            name, value, "must be text that UTF-8 can carry, without lone surrogates"
        ) from None
    return value


def _whole_seconds(name: str, value: object) -> int:
    # The wire carries whole seconds; cutting 0.5 s would turn it into 0, which means "none".
    return math.ceil(seconds_of(name, value))


def _unique_ttl(name: str, value: object) -> int:
    seconds = seconds_of(name, value)
    if seconds < 1:
        raise InvalidOptionError(name, value, "must be at least 1 second")
    return math.ceil(seconds)


def _max_retry(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptionError(name, value, "must be a whole number")
    if not 0 <= value <= _MAX_INT32:
        raise InvalidOptionError(name, value, f"must lie between 0 and {_MAX_INT32}")
    return value


def _deadline(name: str, value: object) -> int:
    return instant_of(name, value).ceiling


def _headers(name: str, value: object) -> Mapping[str, str] | None:
    # Their values may be credentials, so errors show the names alone.
    if not isinstance(value, Mapping):
        raise InvalidOptionError(name, type(value), "must be a mapping of text to text")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidOptionError(name, list(value), f"header {key!r} must be text, and so must its value")
        _utf8(name, key)
        try:
            _utf8(name, text)
        except InvalidOptionError:
            remedy = f"the value of header {key!r} must be text that UTF-8 can carry, without lone surrogates"
            raise InvalidOptionError(name, list(value), remedy) from None
    return dict(value) or None


_Reader: TypeAlias = "Callable[[str, object], object]"
_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    "queue": ("queue", name_of),
    "max_retry": ("max_retry", _max_retry),
    "timeout": ("timeout", _whole_seconds),
    "deadline": ("deadline", _deadline),
    "unique": ("unique_ttl", _unique_ttl),
    "process_at": ("process_at", instant_of),
    "process_in": ("process_in", seconds_of),
    "retention": ("retention", _whole_seconds),
    "task_id": ("task_id", name_of),
    "headers": ("headers", _headers),
    "group": ("group", name_of),
}
