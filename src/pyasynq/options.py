"""The options of an enqueue: declared once, merged, validated and brought to the wire's units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_args

from pyasynq._checks import instant_of, is_whole, new_name_of, seconds_of, utf8_size
from pyasynq.errors._configuration import InvalidOptionError, UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._clock import Instant

Duration: TypeAlias = timedelta | float | int
"""A `timedelta`, or seconds."""

Until: TypeAlias = Literal["success", "start", "finish", "expiry"]
"""When the lock of a unique task goes."""

OnDuplicate: TypeAlias = Literal["raise", "ignore", "return_existing", "replace_payload"]
"""What an enqueue does when another task holds the lock."""

OnConflict: TypeAlias = Literal["raise", "replace_finished"]
"""What an enqueue does when a task with its id exists."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAX_RETRY: Final = 25
DEFAULT_TIMEOUT_SECONDS: Final = 1800
DEFAULT_EVENTS_KEPT: Final = 10_000
DEFAULT_MAX_PAYLOAD: Final = 8_000_000
DEFAULT_MAX_RESULT: Final = 8_000_000
MAX_HEADER_BYTES: Final = 65_536
"""Bytes of all names and values of a task's headers together."""
_MAX_INT32: Final = 2**31 - 1


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
    """Longest run of an attempt: 30 minutes unless this or `deadline` is given. Rounded up to seconds.

    0 together with a `deadline`: only the deadline counts. 0 without one is refused."""
    deadline: datetime
    """Aware time at which an attempt is cut off, however late it began."""
    unique: Duration
    """At least 1 s: so long, while this one is unfinished, the queue takes none of equal type and payload."""
    until: Until
    """When the lock of a `unique` task goes: at its success (the default, as in Asynq), when an attempt
    starts, when the task is finished in whatever way, or only when its time is over."""
    unique_key: str
    """Names the lock of a `unique` task, which all tasks of the queue with this name share."""
    on_duplicate: OnDuplicate
    """What to do when the lock of a `unique` task is held: raise (the default), leave it at that, return the
    task that holds it, or give that task this payload and, if one is given, this process time."""
    process_at: datetime
    """Aware time before which the task is not run."""
    process_in: Duration
    """How long to wait before the task may run."""
    retention: Duration
    """How long a succeeded task and its result are kept; not at all unless given."""
    task_id: str
    """The task's id, unique within its queue, of 1,000 bytes at most; a random UUID unless given."""
    on_conflict: OnConflict
    """What to do when the `task_id` exists: raise (the default), or replace a task that is archived or
    completed."""
    durable: bool | int
    """Wait until this many replicas of Redis have the task as well, True is 1; else `NotDurableError`."""
    headers: Mapping[str, str]
    """Text that travels with the task, such as a trace or a tenant; 65,536 bytes together at most."""
    group: str
    """Name of a group, whose tasks a server's aggregator makes into one; a later process time comes first."""


_Reader: TypeAlias = "Callable[[str, object], object]"

_PROCESS_TIMES: Final = ("process_at", "process_in")
_OF_UNIQUE_TASKS: Final = ("until", "unique_key", "on_duplicate")
_RULES: Final = frozenset({*_OF_UNIQUE_TASKS, "on_conflict"})
_OF_ONE_TASK: Final = frozenset({*_PROCESS_TIMES, "deadline", "headers", "task_id", "unique_key"})
"""Options whose values hardly come again."""

OPTION_NAMES: Final = frozenset(EnqueueOptions.__annotations__)


class EnqueueSettings(NamedTuple):
    """Validated options in the wire's units: whole seconds, Unix time, 0 for none."""

    queue: str = DEFAULT_QUEUE
    max_retry: int = DEFAULT_MAX_RETRY
    timeout: int = DEFAULT_TIMEOUT_SECONDS
    deadline: int = 0
    unique_ttl: int = 0
    until: Until = "success"
    unique_key: str = ""
    on_duplicate: OnDuplicate = "raise"
    process_at: Instant | None = None
    process_in: float | None = None
    retention: int = 0
    task_id: str | None = None
    on_conflict: OnConflict = "raise"
    replicas: int = 0
    headers: Mapping[str, str] | None = None
    group: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether nothing is set besides queue, max_retry and timeout."""
        # By position: with the names of eleven fields it costs 1 % of an enqueue.
        return self[_PLAIN_FIELDS:] == _NOTHING_MORE


DEFAULT_SETTINGS: Final = EnqueueSettings()
_PLAIN_FIELDS: Final = 1 + EnqueueSettings._fields.index("timeout")
_NOTHING_MORE: Final = DEFAULT_SETTINGS[_PLAIN_FIELDS:]


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


def with_result_ttl(options: EnqueueOptions, result_ttl: Duration) -> EnqueueOptions:
    """Return options by which a result can be read for so long.

    Raises:
        InvalidOptionError: for less than a second, and beside `retention`.
    """
    if "retention" in options:
        raise InvalidOptionError("result_ttl", result_ttl, "is retention by another name: give one of them")
    if seconds_of("result_ttl", result_ttl) < 1:
        raise InvalidOptionError("result_ttl", result_ttl, "must be at least 1 second")
    return {**options, "retention": result_ttl}


def check_option_names(options: Mapping[str, object], beside: Iterable[str] = ()) -> None:
    """Raise `UnknownOptionError` for the first name that is no option.

    What may be given `beside` them, where they are given, is suggested too.
    """
    for name in options:
        if name not in OPTION_NAMES:
            raise UnknownOptionError(name, OPTION_NAMES.union(beside))


def resolve_options(options: Mapping[str, object]) -> EnqueueSettings:
    """Validate options and bring them to the wire's units.

    Raises:
        UnknownOptionError: for a name that is no option.
        InvalidOptionError: for a value that its option cannot have; both name the remedy.
    """
    if not options:
        return DEFAULT_SETTINGS
    if options.keys().isdisjoint(_OF_ONE_TASK):
        try:
            return _resolve_shared(tuple(options), *options.values())
        except TypeError:  # a value that cannot be hashed, which is no value of an option
            return _resolve(options)
    return _resolve(options)


@lru_cache(maxsize=256, typed=True)
def _resolve_shared(names: tuple[str, ...], *values: object) -> EnqueueSettings:
    """Resolve options that many tasks have in common: those of a declaration, above all."""
    return _resolve(dict(zip(names, values, strict=True)))


def _resolve(options: Mapping[str, object]) -> EnqueueSettings:
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
    if settings.get("timeout") == 0 and not settings.get("deadline"):
        remedy = (
            "0 sets no limit and needs a deadline: give one, or a longer timeout; "
            "without both it is 30 minutes"
        )
        raise InvalidOptionError("timeout", options["timeout"], remedy)
    if not settings.get("timeout"):
        settings["timeout"] = 0 if settings.get("deadline") else DEFAULT_TIMEOUT_SECONDS
    return EnqueueSettings(**settings)  # type: ignore[arg-type]


def check_combination(options: Mapping[str, object]) -> None:
    """Refuse options of one task that mean nothing together.

    Raises:
        InvalidOptionError: for one that says how a lock behaves and a task without a lock, for a rule about
            an id that nobody chose, and for a payload to be replaced in a task that may be gone.
    """
    if options.keys().isdisjoint(_RULES):
        return
    for name in _OF_UNIQUE_TASKS:
        if name in options and "unique" not in options:
            raise InvalidOptionError(
                name, options[name], "needs unique=, which says how long the lock holds at most"
            )
    if "on_conflict" in options and "task_id" not in options:
        raise InvalidOptionError(
            "on_conflict", options["on_conflict"], "needs task_id=; a random id is in conflict with none"
        )
    if options.get("until") == "expiry" and options.get("on_duplicate") == "replace_payload":
        remedy = (
            'until="expiry" keeps the lock of a task that has run; until="start" replaces what still waits'
        )
        raise InvalidOptionError("on_duplicate", "replace_payload", remedy)


def check_unattended(options: Mapping[str, object]) -> None:
    """Refuse what only a caller can be told about, in the options of tasks that servers enqueue.

    Raises:
        InvalidOptionError: for `durable`.
    """
    if options.get("durable"):
        remedy = (
            "schedules and aggregators have no caller who could be told; say durable=False there, and let "
            "min-replicas-to-write in redis.conf guard all writes"
        )
        raise InvalidOptionError("durable", options["durable"], remedy)


def events_kept(name: str, value: object) -> int:
    """Return how many events a queue's stream keeps, 0 for a setting that publishes none.

    Raises:
        InvalidOptionError: for what is neither a switch nor such a number.
    """
    if isinstance(value, bool):
        return DEFAULT_EVENTS_KEPT if value else 0
    if not is_whole(value, 1):
        raise InvalidOptionError(name, value, "must be True, False, or how many events to keep, 1 at least")
    return value


def _whole_seconds(name: str, value: object) -> int:
    # The wire carries whole seconds; cutting 0.5 s would turn it into 0, which means "none".
    return math.ceil(seconds_of(name, value))


def _unique_ttl(name: str, value: object) -> int:
    seconds = seconds_of(name, value)
    if seconds < 1:
        raise InvalidOptionError(name, value, "must be at least 1 second")
    return math.ceil(seconds)


def _one_of(*words: str) -> _Reader:
    def read(name: str, value: object) -> object:
        if value not in words:
            raise InvalidOptionError(name, value, f"must be one of {', '.join(map(repr, words))}")
        return value

    return read


def _max_retry(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptionError(name, value, "must be a whole number")
    if not 0 <= value <= _MAX_INT32:
        raise InvalidOptionError(name, value, f"must lie between 0 and {_MAX_INT32}")
    return value


def _deadline(name: str, value: object) -> int:
    return instant_of(name, value).ceiling


def _replicas(name: str, value: object) -> int:
    if isinstance(value, bool):
        return int(value)
    if not is_whole(value, 1):
        raise InvalidOptionError(name, value, "must be True, False, or how many replicas, 1 at least")
    return value


def _headers(name: str, value: object) -> Mapping[str, str] | None:
    # Their values may be credentials, so errors show the type and names alone.
    if not isinstance(value, Mapping):
        raise InvalidOptionError(name, type(value), "must be a mapping of text to text")
    size = 0
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidOptionError(name, type(value), f"header {key!r} must be text, and so must its value")
        size += utf8_size(name, key)
        try:
            size += utf8_size(name, text)
        except InvalidOptionError:
            remedy = f"the value of header {key!r} must be text that UTF-8 can carry, without lone surrogates"
            raise InvalidOptionError(name, type(value), remedy) from None
    if size > MAX_HEADER_BYTES:
        remedy = f"names and values must have at most {MAX_HEADER_BYTES:,} bytes together, and have {size:,}"
        raise InvalidOptionError(name, type(value), remedy)
    return dict(value) or None


def header_bytes(headers: Mapping[str, str] | None) -> int:
    """Return the bytes of the names and values of headers."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in headers.items()) if headers else 0


_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    "queue": ("queue", new_name_of),
    "max_retry": ("max_retry", _max_retry),
    "timeout": ("timeout", _whole_seconds),
    "deadline": ("deadline", _deadline),
    "unique": ("unique_ttl", _unique_ttl),
    "until": ("until", _one_of(*get_args(Until))),
    "unique_key": ("unique_key", new_name_of),
    "on_duplicate": ("on_duplicate", _one_of(*get_args(OnDuplicate))),
    "process_at": ("process_at", instant_of),
    "process_in": ("process_in", seconds_of),
    "retention": ("retention", _whole_seconds),
    "task_id": ("task_id", new_name_of),
    "on_conflict": ("on_conflict", _one_of(*get_args(OnConflict))),
    "durable": ("replicas", _replicas),
    "headers": ("headers", _headers),
    "group": ("group", new_name_of),
}
