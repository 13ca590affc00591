"""Settings of a server, with Asynq's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pyasynq._call_shape import name_unknown_arguments
from pyasynq._checks import check_name, is_whole, parse_positive_seconds, parse_seconds, parse_whole_number
from pyasynq._queue_texts import read_weights, show_queues
from pyasynq._settings import (
    Checked,
    Function,
    Seconds,
    Size,
    Switch,
    Whole,
    WordChoice,
    check_settings,
    setting,
)
from pyasynq.errors import InvalidOptionError, nearest
from pyasynq.limits import Queue
from pyasynq.options import DEFAULT_MAX_PAYLOAD, DEFAULT_MAX_RESULT, DEFAULT_QUEUE, Duration, events_kept
from pyasynq.retry import check_retry_delay, default_retry_delay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.retry import RetryDelay
    from pyasynq.task import Task, TaskInfo

    ErrorHandler = Callable[[Task, BaseException], Awaitable[None] | None]
    HealthCheck = Callable[[BaseException | None], Awaitable[None] | None]
    PreEnqueue = Callable[[Task], Awaitable[None] | None]
    PostEnqueue = Callable[[TaskInfo | None, BaseException | None], Awaitable[None] | None]
    GroupAggregator = Callable[[str, list[Task]], Awaitable[Task | None] | Task | None]

Misfire: TypeAlias = Literal["skip", "once", "all"]
"""Misfire policy for ticks that fell due while no scheduler ran: skip them, fire the last one, or all."""


def _is_failure(error: BaseException) -> bool:  # noqa: ARG001 - Asynq's default: every error is one
    return True


QUEUE_VALUES: Final = "names, each with a weight of 1 or more; in Python and files also with a `Queue`"
MAX_GROUP_SIZE: Final = 10_000
"""The largest `max_size` of a group: one call to Redis moves or deletes up to this many members."""


def _check_groups(name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise InvalidOptionError(name, value, "must map names of groups to GroupRules")
    for pattern, rule in value.items():
        check_name(name, pattern)
        if not isinstance(rule, GroupRule):
            raise InvalidOptionError(f"{name}[{pattern!r}]", rule, "must be a GroupRule")


def _grace_period(name: str, value: object) -> None:
    Seconds(least=1).check(name, value)


def _group_size(name: str, value: object) -> None:
    Whole(0, MAX_GROUP_SIZE).check(name, value)


def _check_some_queues(_name: str, value: object) -> None:
    check_queues(value)


def _check_retry_delay(_name: str, value: object) -> None:
    check_retry_delay(value)


def _read_delay(name: str, text: str) -> object:
    return Seconds().read(name, text)


def _show_delay(value: object) -> str:
    return Function().show(value) if callable(value) else Seconds().show(value)


def _check_events(name: str, value: object) -> None:
    for one in value.values() if isinstance(value, Mapping) else (value,):
        events_kept(name, one)


def _show_events(value: object) -> str:
    return Switch().show(value) if isinstance(value, bool) else str(value)


def _read_events(name: str, text: str) -> object:
    number = parse_whole_number(text.strip())
    return Switch().read(name, text) if number in {None, 0, 1} else number


@name_unknown_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRule:
    """Rule for when to aggregate groups of certain names. A field that is None takes the server's setting.

    Raises:
        InvalidOptionError: at construction, for an invalid value.
    """

    grace_period: Duration | None = None
    max_delay: Duration | None = None
    max_size: int | None = None

    def __post_init__(self) -> None:
        if self.grace_period is not None:
            _grace_period("grace_period", self.grace_period)
        if self.max_delay is not None:
            parse_seconds("max_delay", self.max_delay)
        if self.max_size is not None:
            _group_size("max_size", self.max_size)


class DefaultQueues(dict[str, "int | Queue"]):
    """Queues of a server whose settings name none; an app's server has the app's queues instead."""


class ResolvedQueues(dict[str, "int | Queue"]):
    """Queues with all their limits: an app adds no declared limits, because some may have been removed."""


@name_unknown_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a server. Durations are `timedelta` or seconds.

    Raises:
        InvalidOptionError: at construction, for an invalid value.
    """

    concurrency: int = setting(100, Whole(1), "Number of tasks that run at once in one process.", "-c")
    prefetch: int = setting(
        100,
        Whole(0),
        "Number of short tasks that are taken ahead at most, before there is a slot; 0 for none.",
    )
    """Maximum number of tasks that are taken before there is a slot (prefetch); 0 for none.

    Tasks are taken ahead only while they are short, and only from queues without limits and order.

    See "Taking tasks ahead" in the page on workers.
    """
    executor_processes: int | None = setting(
        None,
        Whole(1),
        "Number of tasks with executor='process' that run at once, each in a child process; "
        "one for each slot unless given.",
    )
    """Maximum number of child processes for tasks with `executor="process"`; None is one for each slot.

    Children are started when they are needed. Further tasks wait in their slots, and
    their timeouts begin when a child takes them.
    """
    executor_max_tasks: int | None = setting(
        None, Whole(1), "Number of tasks after which such a child process is replaced; never unless given."
    )
    queues: Mapping[str, int | Queue] = setting(
        {},
        Checked(_check_some_queues, read_weights, show_queues, "NAME=WEIGHT,...", QUEUE_VALUES),
        "Queues to serve, with the weights by which they share the slots, as in critical=6,default=3.",
        "-q",
        make=lambda: DefaultQueues({DEFAULT_QUEUE: 1}),
    )
    """Queues to serve, by name, with their weights; by default `default`, or the queues of the app.

    A `Queue` instead of a weight also sets limits, which hold for all workers together. An app's server keeps
    the limits that the app declares, and that the `Queue` does not set.
    """
    strict_priority: bool = setting(
        False,
        Switch(),
        "Serve a queue only while all queues of higher weight are empty.",
        "--strict/--no-strict",
    )
    retry_delay: RetryDelay | Duration = setting(
        default_retry_delay,
        Checked(
            _check_retry_delay,
            _read_delay,
            _show_delay,
            "SECONDS",
            "duration, 0 s or more; in Python also a function",
        ),
        "Time before the next attempt: always this long, or a function of `retried, error, task`.",
    )
    is_failure: Callable[[BaseException], bool] = setting(
        _is_failure,
        Function(),
        'False for an error that is retried without spending a retry, such as "busy, later please".',
        default_text="every error is a failure",
    )
    error_handler: ErrorHandler | None = setting(
        None, Function(), "Called with the task and the error for each failed attempt."
    )
    on_unknown: Literal["fail", "return"] = setting(
        "fail",
        WordChoice(("fail", "return")),
        "A task without a handler: `fail` it as Asynq does, or `return` it to its queue for other workers.",
    )
    crash_limit: int = setting(
        3, Whole(0), "Number of worker crashes after which a task is archived as poison."
    )
    """Number of worker crashes after which a task is archived as poison.

    The last crash must have happened while no other task ran in the worker.

    Otherwise the limit is three times as high. 0 and 1 archive the task at its first crash.
    """
    shutdown_timeout: Duration = setting(8.0, Seconds(), "Time that running tasks have after a stop.")
    cancel_timeout: Duration = setting(1.0, Seconds(), "Time that cancelled coroutines have to clean up.")
    overdue_limit: Duration = setting(
        600.0,
        Seconds(),
        "Time past its deadline after which an attempt makes the worker drain and exit with code 4.",
    )
    task_check_interval: Duration = setting(
        1.0, Seconds(positive=True), "Interval of looking at empty queues where Redis cannot wake the worker."
    )
    delayed_task_check_interval: Duration = setting(
        5.0,
        Seconds(positive=True),
        "Longest rest of the forwarder; below 3 s, all queues are looked at as often.",
    )
    janitor_interval: Duration = setting(
        8.0, Seconds(positive=True), "Interval of deleting completed tasks whose retention is over."
    )
    janitor_batch_size: int = setting(100, Whole(1), "Number of tasks that one such deletion takes at most.")
    health_check: HealthCheck | None = setting(
        None, Function(), "Called with None, or with the error, after each ping of Redis."
    )
    health_check_interval: Duration = setting(15.0, Seconds(positive=True), "Interval of the pings for it.")
    archive_max_size: int = setting(9_999, Whole(1), "Number of archived tasks that a queue keeps.")
    archive_max_age: Duration = setting(
        90 * 86_400.0, Seconds(), "Age after which archived tasks are deleted, when more are archived."
    )
    max_result: int = setting(
        DEFAULT_MAX_RESULT, Size(of_value=True), "Largest result; with a larger one the task has failed."
    )
    max_payload: int = setting(
        DEFAULT_MAX_PAYLOAD,
        Size(of_value=True),
        "Largest payload of a task that `group_aggregator` returns; an app has a limit of its own.",
    )
    group_aggregator: GroupAggregator | None = setting(
        None,
        Function(),
        "Called with a group's name and tasks; makes one task of them, or None to leave them.",
    )
    """Function that makes one task of the tasks of a group: `async def`, or `def` in a thread.

    If it raises, the tasks are aggregated later.
    """
    group_grace_period: Duration = setting(
        60.0, Seconds(least=1), "Aggregate a group when no task has joined it for this long; whole seconds."
    )
    group_max_delay: Duration = setting(
        0.0, Seconds(), "Aggregate a group when a task has waited in it for this long; 0 for no limit."
    )
    group_max_size: int = setting(
        0,
        Whole(0, MAX_GROUP_SIZE),
        "Aggregate a group when it has this many tasks, and at most as many at a time; 0 for no limit.",
    )
    """Number of tasks at which a group is aggregated, and maximum number taken at a time; 0 for no limit.

    With 0, one aggregation still takes at most 1,000 tasks. It never takes more than 16 MB.
    """
    groups: Mapping[str, GroupRule] = setting(
        {},
        Checked(_check_groups, values="names of groups, each with a `GroupRule`"),
        "Other values for groups of these names, or `beginning*`.",
        make=dict,
    )
    publish_events: bool | int | Mapping[str, bool | int] = setting(
        False,
        Checked(
            _check_events,
            _read_events,
            _show_events,
            metavar="",
            values="switch, or a number of events; in Python also a mapping of queues to them",
        ),
        "Publish what happens to tasks, as a stream; a variable or a file may give the number of events.",
    )
    """Whether events of the tasks are published as a stream, and how many are kept.

    True keeps about the last 10,000 events of each queue. A mapping names the queues to publish.
    """
    statistics: bool = setting(
        True,
        Switch(),
        "Count attempts by queue and type, with run times and waits, and keep that in Redis for charts.",
        "--statistics/--no-statistics",
    )
    """Whether attempts are counted by queue and type, with run times and waits, for charts.

    Statistics take at most 60 KiB for each type in a queue, and 4 MiB for a queue. Idle queues lose them.
    """
    burst: bool = setting(
        False,
        Switch(),
        "Exit when all queues are empty and nothing runs.",
        "-b",
    )
    max_tasks: int | None = setting(None, Whole(1), "Exit after this many tasks.")

    def __post_init__(self) -> None:
        check_settings(self)
        _ = self.event_stream_lengths

    @property
    def event_stream_lengths(self) -> dict[str, int]:
        """Number of events kept, by queue, for queues whose events are published."""
        published = self.publish_events
        for queue in published if isinstance(published, Mapping) and self.queues else ():
            if queue not in self.queues:
                raise InvalidOptionError("publish_events", queue, "this server does not serve such a queue")
        lengths = {queue: self.event_stream_length(queue) for queue in self.queues}
        return {queue: length for queue, length in lengths.items() if length}

    def event_stream_length(self, queue: str) -> int:
        """Return how many events of a queue are kept; 0 for none. It also works for queues added later."""
        published = self.publish_events
        value = published.get(queue, False) if isinstance(published, Mapping) else published
        return events_kept("publish_events", value)

    @property
    def priorities(self) -> dict[str, int]:
        """Queue names and their priorities."""
        return {name: self.queue(name).priority for name in self.queues}

    def queue(self, name: str) -> Queue:
        """Return the settings of one of the queues. Raises KeyError for another name."""
        queue = self.queues[name]
        return queue if isinstance(queue, Queue) else Queue(priority=queue)


@name_unknown_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Settings of a scheduler. Durations are `timedelta` or seconds.

    The hooks may be coroutine functions or plain ones; a plain one runs in the event loop and must not
    block, and a slow one delays the ticks after it. An exception from a hook is reported and changes nothing.

    Raises:
        InvalidOptionError: at construction, for an invalid value.
    """

    location: tzinfo | str = UTC
    """Time zone of cron expressions that name none, such as `"Europe/Berlin"`."""
    heartbeat_interval: Duration = 10.0
    """Interval of the heartbeat, which publishes the entries for dashboards.

    The entries expire two intervals after the last heartbeat.
    """
    pre_enqueue: PreEnqueue | None = None
    """Called with the task before a tick is fired, by each scheduler that tries."""
    post_enqueue: PostEnqueue | None = None
    """Called by the scheduler that fired a tick: with the task's info and None, or None and the error."""
    error_handler: ErrorHandler | None = None
    """Called with the task and the error when a tick could not be fired."""
    forward_queues: Sequence[str] = ()
    """Queues whose due tasks the scheduler moves to pending; without it, only running workers do that.

    An autoscaler that has stopped all workers then sees these tasks.
    """
    shutdown_timeout: Duration = 8.0
    """Time that a shutdown waits for hooks and middleware; then it cancels them and reports which hung."""

    def __post_init__(self) -> None:
        parse_seconds("shutdown_timeout", self.shutdown_timeout)
        parse_positive_seconds("heartbeat_interval", self.heartbeat_interval)
        _check_names("forward_queues", self.forward_queues)
        if isinstance(self.location, str):
            object.__setattr__(self, "location", _zone(self.location))
        elif not isinstance(self.location, tzinfo):
            raise InvalidOptionError("location", self.location, "must be a tzinfo or the name of a zone")

    @property
    def zone(self) -> tzinfo:
        """The time zone `location` as a `tzinfo`."""
        return _zone(self.location) if isinstance(self.location, str) else self.location


def _check_names(option: str, names: object) -> None:
    if not isinstance(names, Sequence) or isinstance(names, str | bytes):
        raise InvalidOptionError(option, names, "give the names of queues, as in ['emails']")
    for name in names:
        check_name(option, name)


def check_misfire(misfire: object) -> None:
    """Raise `InvalidOptionError` for a value that is not a misfire policy."""
    if misfire not in get_args(Misfire):
        raise InvalidOptionError("misfire", misfire, "must be 'skip', 'once' or 'all'")


def _zone(name: str) -> tzinfo:
    import zoneinfo  # noqa: PLC0415 - few programs name a time zone

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        hint = nearest(name, zoneinfo.available_timezones()) or "; write an IANA name, as in 'Europe/Berlin'"
        raise InvalidOptionError("location", name, f"there is no such time zone{hint}") from None


def check_server_config(config: object) -> None:
    """Raise `InvalidOptionError` unless a value is the settings of a server or of a worker."""
    if not isinstance(config, ServerConfig):
        raise InvalidOptionError("config", type(config), "must be a WorkerConfig or a ServerConfig")


def check_queues(queues: object) -> dict[str, Queue]:
    """Check the option `queues`; return the settings of each queue by its name.

    Raises:
        InvalidOptionError: for invalid names and settings.
    """
    if not isinstance(queues, Mapping):
        raise InvalidOptionError("queues", queues, "must map names to priorities, as in {'default': 1}")
    if not queues:
        raise InvalidOptionError("queues", queues, "name at least one queue")
    for queue, one in queues.items():
        check_name("queues", queue)
        if not isinstance(one, Queue) and not is_whole(one, 1):
            remedy = "must be a priority, a whole number of at least 1, or a Queue"
            raise InvalidOptionError(f"queues[{queue!r}]", one, remedy)
    return {name: one if isinstance(one, Queue) else Queue(priority=one) for name, one in queues.items()}
