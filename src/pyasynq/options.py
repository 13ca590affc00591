"""The options of an enqueue: declared once, merged, validated and converted to the wire's units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_args

from pyasynq._checks import check_new_name, check_switch, is_whole, parse_instant, parse_seconds, utf8_size
from pyasynq.callbacks import HasCallback, read_callback
from pyasynq.errors._configuration import InvalidOptionError, UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._clock import Instant
    from pyasynq.callbacks import Callback

Duration: TypeAlias = timedelta | float | int
"""A `timedelta`, or seconds."""

Until: TypeAlias = Literal["success", "start", "finish", "expiry"]
"""Moment at which the lock of a unique task is released."""

OnDuplicate: TypeAlias = Literal["raise", "ignore", "return_existing", "replace_payload"]
"""The reaction of an enqueue when another task holds the lock."""

OnConflict: TypeAlias = Literal["raise", "replace_finished"]
"""The reaction of an enqueue when a task with its id exists."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAX_RETRY: Final = 25
DEFAULT_TIMEOUT_SECONDS: Final = 1800
DEFAULT_EVENTS_KEPT: Final = 10_000
DEFAULT_MAX_PAYLOAD: Final = 8_000_000
DEFAULT_MAX_RESULT: Final = 8_000_000
MAX_HEADER_BYTES: Final = 65_536
"""Largest size of all names and values of a task's headers together, in bytes."""
_MAX_INT32: Final = 2**31 - 1


class EnqueueOptions(TypedDict, total=False):
    """All settings of one task.

    A call's options override the task's own, one by one; `headers` are merged key by key, and
    `process_at` and `process_in` count as one option.
    """

    queue: str
    """Name of the queue; `"default"` by default."""
    max_retry: int
    """Number of times the task may be retried after its first failure; 25 by default."""
    timeout: Duration
    """Time limit of one attempt; 30 minutes unless this or `deadline` is given. Rounded up to seconds.

    With 0 and a `deadline`, only the deadline counts. 0 without a `deadline` is refused.
    """
    deadline: datetime
    """Aware time at which an attempt is cancelled, no matter when it started."""
    unique: Duration
    """Longest time, at least 1 s, for which the queue refuses equal tasks while this task is unfinished.

    This is deduplication by a lock. Tasks are equal if they have the same type and payload.
    """
    until: Until
    """Release of the lock of a `unique` task: at its success (the default, as in Asynq), when an attempt
    starts, when the task is finished in any way, or only when the time of `unique` is over."""
    unique_key: str
    """Name of the lock of a `unique` task; all tasks of the queue with this name share the lock."""
    on_duplicate: OnDuplicate
    """Reaction if the lock of a `unique` task is held: raise (the default), do nothing, return the
    task that holds it, or give that task this payload and, if one is given, this process time."""
    process_at: datetime
    """Aware time before which the task does not run."""
    process_in: Duration
    """Time to wait before the task may run."""
    retention: Duration
    """Time for which a succeeded task and its result are kept; by default not at all."""
    task_id: str
    """The task's id, unique within its queue, at most 1,000 bytes; by default a random UUID."""
    on_conflict: OnConflict
    """Reaction if the `task_id` exists: raise (the default), or replace a task that is archived or
    completed."""
    once_for: Duration
    """Time, at least 1 s, within which a task with this `task_id` is enqueued at most once, however it ends.

    This makes the id an idempotency key. A repeated enqueue returns the existing task, or reports
    `IGNORED` if that task is gone.
    """
    on_finished: HasCallback
    """A task of the app, or a `Callback`, that is enqueued when this task has ended, in any way."""
    durable: bool | int
    """Number of replicas (True: 1) that must confirm the task (WAIT) before the call returns.

    Otherwise the call raises `NotDurableError`.
    """
    headers: Mapping[str, str]
    """Text values stored with the task by name, such as a trace id or a tenant; 65,536 bytes at most."""
    front: bool
    """Whether the task goes to the front of its queue, before all that wait; an ordered queue refuses it."""
    group: str
    """Name of a group, whose tasks a server's aggregator combines.

    A task with a later process time joins the group at that time.
    """


_Reader: TypeAlias = "Callable[[str, object], object]"

_PROCESS_TIMES: Final = ("process_at", "process_in")
_OF_UNIQUE_TASKS: Final = ("until", "unique_key", "on_duplicate")
_NOT_AT_FRONT: Final = ("process_at", "process_in", "group", "on_conflict", "once_for", "on_finished")
"""Options that cannot be combined with `front`, because their scripts never put a task at the front."""
_RULES: Final = frozenset({*_OF_UNIQUE_TASKS, "on_conflict", "once_for", "front"})
_OF_ONE_TASK: Final = frozenset({*_PROCESS_TIMES, "deadline", "headers", "task_id", "unique_key"})
"""Options whose values differ from task to task, so that caching their parsed values is useless."""

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
    once_ttl: int = 0
    on_finished: Callback | None = None
    replicas: int = 0
    headers: Mapping[str, str] | None = None
    group: str = ""
    front: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing is set besides queue, max_retry and timeout."""
        # By position: comparing thirteen fields by name would cost 1 % of an enqueue.
        return self[_PLAIN_FIELDS:] == _NOTHING_MORE


DEFAULT_SETTINGS: Final = EnqueueSettings()
_PLAIN_FIELDS: Final = 1 + EnqueueSettings._fields.index("timeout")
_NOTHING_MORE: Final = DEFAULT_SETTINGS[_PLAIN_FIELDS:]


def merge_options(*layers: Mapping[str, object]) -> EnqueueOptions:
    """Merge mappings of options; later ones override earlier ones, option by option."""
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
    """Return options that keep a result readable for this long.

    Raises:
        InvalidOptionError: for less than a second, or if `options` also has `retention`.
    """
    if "retention" in options:
        raise InvalidOptionError("result_ttl", result_ttl, "is retention by another name: give one of them")
    if parse_seconds("result_ttl", result_ttl) < 1:
        raise InvalidOptionError("result_ttl", result_ttl, "must be at least 1 second")
    return {**options, "retention": result_ttl}


def check_option_names(options: Mapping[str, object], also: Iterable[str] = ()) -> None:
    """Raise `UnknownOptionError` for the first name that is not an option.

    The message suggests similar names, also from `also`: names that the caller accepts besides the options.
    """
    for name in options:
        if name not in OPTION_NAMES:
            raise UnknownOptionError(name, OPTION_NAMES.union(also))


def resolve_options(options: Mapping[str, object]) -> EnqueueSettings:
    """Validate options and convert them to the wire's units.

    Raises:
        UnknownOptionError: for a name that is not an option.
        InvalidOptionError: for an invalid value. Both messages say what to write instead.
    """
    if not options:
        return DEFAULT_SETTINGS
    if options.keys().isdisjoint(_OF_ONE_TASK):
        try:
            return _resolve_shared(tuple(options), *options.values())
        except TypeError:  # an unhashable value, which is invalid anyway
            return _resolve(options)
    return _resolve(options)


@lru_cache(maxsize=256, typed=True)
def _resolve_shared(names: tuple[str, ...], *values: object) -> EnqueueSettings:
    """Resolve options that many tasks have in common, mainly the options of a declaration. Cached."""
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
    """Reject contradictory options of one task.

    Raises:
        InvalidOptionError: for an option of the lock without `unique`; for `on_conflict` or `once_for`
            without `task_id`; for `until="expiry"` with `on_duplicate="replace_payload"`; for `front` with an
            option that puts the task elsewhere.
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
            "on_conflict", options["on_conflict"], "needs task_id=; a random id never conflicts"
        )
    if "once_for" in options and "task_id" not in options:
        raise InvalidOptionError(
            "once_for", options["once_for"], "needs task_id=; a random id is never enqueued again"
        )
    if options.get("front"):
        _check_front(options)
    if options.get("until") == "expiry" and options.get("on_duplicate") == "replace_payload":
        remedy = (
            'until="expiry" keeps the lock of a task that has run; until="start" replaces what still waits'
        )
        raise InvalidOptionError("on_duplicate", "replace_payload", remedy)


def _check_front(options: Mapping[str, object]) -> None:
    names = [name for name in _NOT_AT_FRONT if name in options]
    if options.get("on_duplicate", "raise") != "raise":
        names.append("on_duplicate")
    if names:
        raise InvalidOptionError("front", True, f"does not go with {names[0]}=: leave one of them out")


def check_unattended(options: Mapping[str, object]) -> None:
    """Reject options that need a caller, for tasks that servers enqueue.

    Raises:
        InvalidOptionError: for `durable` and `front`.
    """
    if options.get("front"):
        remedy = "what schedules and aggregators enqueue goes to the end of a queue: leave it out"
        raise InvalidOptionError("front", options["front"], remedy)
    if options.get("durable"):
        remedy = (
            "schedules and aggregators have no caller to report to; set durable=False there, and let "
            "min-replicas-to-write in redis.conf guard all writes"
        )
        raise InvalidOptionError("durable", options["durable"], remedy)


def events_kept(name: str, value: object) -> int:
    """Return the number of events that a queue's stream keeps, from a setting; 0 if no events are published.

    Raises:
        InvalidOptionError: for a value that is neither a bool nor a number of at least 1.
    """
    if isinstance(value, bool):
        return DEFAULT_EVENTS_KEPT if value else 0
    if not is_whole(value, 1):
        raise InvalidOptionError(name, value, "must be True, False, or how many events to keep, 1 at least")
    return value


def _whole_seconds(name: str, value: object) -> int:
    # The wire has whole seconds; cutting 0.5 s would give 0, which means "none".
    return math.ceil(parse_seconds(name, value))


def _at_least_a_second(name: str, value: object) -> int:
    seconds = parse_seconds(name, value)
    if seconds < 1:
        raise InvalidOptionError(name, value, "must be at least 1 second")
    return math.ceil(seconds)


def _make_choice_reader(*words: str) -> _Reader:
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


def _read_front(name: str, value: object) -> object:
    check_switch(name, value)
    return value


def _deadline(name: str, value: object) -> int:
    return parse_instant(name, value).ceiling


def _replicas(name: str, value: object) -> int:
    if isinstance(value, bool):
        return int(value)
    if not is_whole(value, 1):
        raise InvalidOptionError(name, value, "must be True, False, or how many replicas, 1 at least")
    return value


def _headers(name: str, value: object) -> Mapping[str, str] | None:
    # Their values may be credentials, so errors show only the type and the names.
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
    """Return the total size of the names and values of headers, in bytes."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in headers.items()) if headers else 0


_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    "queue": ("queue", check_new_name),
    "max_retry": ("max_retry", _max_retry),
    "timeout": ("timeout", _whole_seconds),
    "deadline": ("deadline", _deadline),
    "unique": ("unique_ttl", _at_least_a_second),
    "until": ("until", _make_choice_reader(*get_args(Until))),
    "unique_key": ("unique_key", check_new_name),
    "on_duplicate": ("on_duplicate", _make_choice_reader(*get_args(OnDuplicate))),
    "process_at": ("process_at", parse_instant),
    "process_in": ("process_in", parse_seconds),
    "retention": ("retention", _whole_seconds),
    "task_id": ("task_id", check_new_name),
    "on_conflict": ("on_conflict", _make_choice_reader(*get_args(OnConflict))),
    "once_for": ("once_ttl", _at_least_a_second),
    "on_finished": ("on_finished", read_callback),
    "durable": ("replicas", _replicas),
    "headers": ("headers", _headers),
    "group": ("group", check_new_name),
    "front": ("front", _read_front),
}
