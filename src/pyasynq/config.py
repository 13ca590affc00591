"""Settings of a server, with Asynq's words and defaults."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pyasynq._checks import (
    check_function,
    check_max_bytes,
    check_switch,
    check_whole,
    checked_name,
    is_whole,
    positive_seconds_of,
    seconds_of,
)
from pyasynq.errors import InvalidOptionError, nearest
from pyasynq.limits import Queue
from pyasynq.options import DEFAULT_MAX_PAYLOAD, DEFAULT_MAX_RESULT, DEFAULT_QUEUE, Duration, events_kept
from pyasynq.retry import default_retry_delay, retry_delay_of

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
"""What to do about the ticks that fell due while no scheduler ran: nothing, fire the last one, or all."""


def _is_failure(error: BaseException) -> bool:  # noqa: ARG001 - Asynq's default: every error is one
    return True


MAX_GROUP_SIZE: Final = 10_000
"""The largest `max_size` of a group; Redis moves and deletes so many members in one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRule:
    """When groups of certain names are aggregated; None is the server's setting. Durations as there.

    Raises:
        InvalidOptionError: at construction, for a value that a setting cannot have.
    """

    grace_period: Duration | None = None
    max_delay: Duration | None = None
    max_size: int | None = None

    def __post_init__(self) -> None:
        if self.grace_period is not None:
            _grace_period("grace_period", self.grace_period)
        if self.max_delay is not None:
            seconds_of("max_delay", self.max_delay)
        if self.max_size is not None:
            _group_size("max_size", self.max_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server works. Durations are `timedelta` or seconds.

    Raises:
        InvalidOptionError: at construction, for a value that a setting cannot have.
    """

    concurrency: int = 100
    """How many tasks run at once in this process."""
    prefetch: int = 100
    """How many tasks at most are taken before there is a slot for them; 0 for none.

    Only while tasks are short, and only from queues without limits and order; see "Taking tasks ahead" in
    the page on workers.
    """
    executor_processes: int | None = None
    """How many tasks with `executor="process"` run at once, each in a child process; None for one a slot.

    Children are started when they are needed. Tasks beyond that wait in their slots; their time-outs do not
    begin before they do.
    """
    executor_max_tasks: int | None = None
    """After so many tasks a child process is replaced by a new one; None for never."""
    queues: Mapping[str, int | Queue] = field(default_factory=lambda: {DEFAULT_QUEUE: 1})
    """Queue names and their priorities, which share out the slots by weight; a `Queue` says more."""
    strict_priority: bool = False
    """Serve a queue only while all queues of higher priority are empty."""
    retry_delay: RetryDelay | Duration = default_retry_delay
    """How long to wait before the next attempt: a function of `retried, error, task`, or always as long."""
    is_failure: Callable[[BaseException], bool] = _is_failure
    """False for an error that is retried without spending a retry, such as "busy, later please"."""
    error_handler: ErrorHandler | None = None
    """Called with the task and the error for each failed attempt."""
    on_unknown: Literal["fail", "return"] = "fail"
    """A type without a handler: `fail` the task as Asynq does, or `return` it to its queue for others."""
    crash_limit: int = 3
    """Archive a task as poison after this many worker crashes, the last of them without a task alongside it.

    Without such a proof it is archived at three times as many; 0 and 1 archive it at the first crash.
    """
    shutdown_timeout: Duration = 8.0
    """How long running tasks may go on after a stop."""
    cancel_timeout: Duration = 1.0
    """How long cancelled coroutines may clean up after that."""
    overdue_limit: Duration = 600.0
    """An attempt so long over its deadline makes the worker drain and exit with code 4."""
    task_check_interval: Duration = 1.0
    """How often empty queues are looked at where Redis cannot wake the server."""
    delayed_task_check_interval: Duration = 5.0
    """The longest rest of the forwarder. Below 3 s, all queues are looked at as often."""
    janitor_interval: Duration = 8.0
    janitor_batch_size: int = 100
    health_check: HealthCheck | None = None
    """Called with None, or with the error, after each ping of Redis."""
    health_check_interval: Duration = 15.0
    archive_max_size: int = 9_999
    """How many archived tasks a queue keeps."""
    archive_max_age: Duration = 90 * 86_400.0
    max_result: int = DEFAULT_MAX_RESULT
    """Bytes that a result may have; a larger one is not sent, and its task has failed."""
    max_payload: int = DEFAULT_MAX_PAYLOAD
    """Bytes that the payload of a task may have that `group_aggregator` returns; an app has its own limit."""
    group_aggregator: GroupAggregator | None = None
    """Called with a group's name and tasks; makes one task of them, or None to leave them for later.

    `async def`, or `def` in a thread. What it raises leaves them for later too.
    """
    group_grace_period: Duration = 60.0
    """A group is aggregated when no task has joined it for so long; at least 1 s, rounded up to seconds."""
    group_max_delay: Duration = 0.0
    """A group is aggregated when a task has been waiting in it for so long; 0 for no limit."""
    group_max_size: int = 0
    """A group is aggregated when it has so many tasks, and no more at a time.

    0 is no limit: then it is 1,000 at a time. 10,000 is the most, and 16 MB of tasks.
    """
    groups: Mapping[str, GroupRule] = field(default_factory=dict)
    """Other values for groups of these names; a name that ends in `*` stands for all that begin so."""
    publish_events: bool | int | Mapping[str, bool | int] = False
    """Publish what happens to tasks, for `Inspector.follow`: of all queues, or of those that a mapping names.

    True keeps about the last 10,000 events of each queue, a number so many.
    """
    burst: bool = False
    """Close when all queues are empty and nothing runs."""
    max_tasks: int | None = None
    """Close after so many attempts."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "janitor_batch_size", "archive_max_size"):
            check_whole(name, getattr(self, name), 1)
        for name in ("crash_limit", "prefetch"):
            check_whole(name, getattr(self, name), 0)
        numbers = ("max_tasks", "executor_processes", "executor_max_tasks")
        for name in (name for name in numbers if getattr(self, name) is not None):
            check_whole(name, getattr(self, name), 1)
        check_max_bytes("max_result", self.max_result)
        check_max_bytes("max_payload", self.max_payload)
        if self.on_unknown not in ("fail", "return"):
            raise InvalidOptionError("on_unknown", self.on_unknown, "must be 'fail' or 'return'")
        for name in ("strict_priority", "burst"):
            check_switch(name, getattr(self, name))
        retry_delay_of(self.retry_delay)
        check_function("is_failure", self.is_failure)
        for name in ("error_handler", "health_check"):
            if getattr(self, name) is not None:
                check_function(name, getattr(self, name))
        check_queues(self.queues)
        _ = self.event_stream_lengths
        for name in self.__dataclass_fields__:
            # A service whose interval is zero would never rest.
            check = positive_seconds_of if name.endswith("_interval") else seconds_of
            if name.endswith(("_timeout", "_interval", "_limit", "_age")):
                check(name, getattr(self, name))
        seconds_of("group_max_delay", self.group_max_delay)
        _grace_period("group_grace_period", self.group_grace_period)
        _group_size("group_max_size", self.group_max_size)
        _group_rules(self.groups)

    @property
    def event_stream_lengths(self) -> dict[str, int]:
        """How many events are kept of each queue whose events are published."""
        published = self.publish_events
        for queue in published if isinstance(published, Mapping) else ():
            if queue not in self.queues:
                raise InvalidOptionError("publish_events", queue, "this server does not serve such a queue")
        lengths = {queue: self.event_stream_length(queue) for queue in self.queues}
        return {queue: length for queue, length in lengths.items() if length}

    def event_stream_length(self, queue: str) -> int:
        """Return how many events are kept of a queue, one that is added later too; 0 for none."""
        published = self.publish_events
        value = published.get(queue, False) if isinstance(published, Mapping) else published
        return events_kept("publish_events", value)

    @property
    def priorities(self) -> dict[str, int]:
        """Queue names and their priorities."""
        return {name: self.queue(name).priority for name in self.queues}

    def queue(self, name: str) -> Queue:
        """Return what is set for one of the queues. Raises KeyError for another name."""
        queue = self.queues[name]
        return queue if isinstance(queue, Queue) else Queue(priority=queue)


def _group_rules(groups: Mapping[str, object]) -> None:
    for pattern, rule in groups.items():
        checked_name("groups", pattern)
        if not isinstance(rule, GroupRule):
            raise InvalidOptionError(f"groups[{pattern!r}]", rule, "must be a GroupRule")


def _grace_period(name: str, value: object) -> None:
    if seconds_of(name, value) < 1:
        raise InvalidOptionError(name, value, "must be at least 1 second")


def _group_size(name: str, value: object) -> None:
    check_whole(name, value, 0)
    if isinstance(value, int) and value > MAX_GROUP_SIZE:
        raise InvalidOptionError(name, value, f"must be at most {MAX_GROUP_SIZE}, or 0 for no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How a scheduler works. Durations are `timedelta` or seconds.

    The hooks may be coroutine functions or plain ones; a plain one runs in the event loop and must not
    block, and a slow one delays the ticks after it. What a hook raises is reported and changes nothing.

    Raises:
        InvalidOptionError: at construction, for a value that a setting cannot have.
    """

    location: tzinfo | str = UTC
    """The zone of expressions that name none, such as `"Europe/Berlin"`."""
    heartbeat_interval: Duration = 10.0
    """How often the entries are shown to dashboards; they vanish after two of these."""
    pre_enqueue: PreEnqueue | None = None
    """Called with the task before a tick is fired, by each scheduler that tries."""
    post_enqueue: PostEnqueue | None = None
    """Called after a tick with the task's info and None, or None and the error, by the one that fired it."""
    error_handler: ErrorHandler | None = None
    """Called with the task and the error when a tick could not be fired."""
    shutdown_timeout: Duration = 8.0
    """How long a shutdown waits for hooks and middleware; then it cancels them and says which hung."""

    def __post_init__(self) -> None:
        seconds_of("shutdown_timeout", self.shutdown_timeout)
        positive_seconds_of("heartbeat_interval", self.heartbeat_interval)
        if isinstance(self.location, str):
            object.__setattr__(self, "location", _zone(self.location))
        elif not isinstance(self.location, tzinfo):
            raise InvalidOptionError("location", self.location, "must be a tzinfo or the name of a zone")

    @property
    def zone(self) -> tzinfo:
        """The location as a `tzinfo`."""
        return _zone(self.location) if isinstance(self.location, str) else self.location


def check_misfire(misfire: object) -> None:
    """Raise `InvalidOptionError` for what is no policy."""
    if misfire not in get_args(Misfire):
        raise InvalidOptionError("misfire", misfire, "must be 'skip', 'once' or 'all'")


def _zone(name: str) -> tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        hint = nearest(name, zoneinfo.available_timezones()) or "; write an IANA name, as in 'Europe/Berlin'"
        raise InvalidOptionError("location", name, f"there is no such time zone{hint}") from None


def check_queues(queues: object) -> dict[str, Queue]:
    """Return names and settings of queues.

    Raises:
        InvalidOptionError: for names and settings that cannot be.
    """
    if not isinstance(queues, Mapping):
        raise InvalidOptionError("queues", queues, "must map names to priorities, as in {'default': 1}")
    if not queues:
        raise InvalidOptionError("queues", queues, "name at least one queue")
    for queue, setting in queues.items():
        checked_name("queues", queue)
        if not isinstance(setting, Queue) and not is_whole(setting, 1):
            remedy = "must be a priority, a whole number of at least 1, or a Queue"
            raise InvalidOptionError(f"queues[{queue!r}]", setting, remedy)
    return {name: one if isinstance(one, Queue) else Queue(priority=one) for name, one in queues.items()}
