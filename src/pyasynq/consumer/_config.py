"""Settings of a consumer, with the names and defaults of a server's settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from pyasynq._checks import parse_seconds
from pyasynq.config import ServerConfig
from pyasynq.errors import InvalidOptionError
from pyasynq.options import DEFAULT_MAX_RESULT, DEFAULT_QUEUE, Duration
from pyasynq.retry import default_retry_delay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq.limits import Queue
    from pyasynq.retry import RetryDelay

_SERVER_DEFAULTS = ServerConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer. Durations are `timedelta` or seconds.

    Raises:
        InvalidOptionError: at construction, for an invalid value.
    """

    queues: Mapping[str, int | Queue] = field(default_factory=lambda: {DEFAULT_QUEUE: 1})
    """The queues to take tasks from, and their priorities for takes from several queues.

    The consumer also maintains them as every server does: it forwards due tasks, recovers tasks of dead
    workers, and deletes expired ones.
    """
    strict_priority: bool = False
    """Whether to take from a queue only while all queues of higher priority are empty."""
    concurrency: int = 100
    """Maximum number of attempts held at once; further takes wait until one is settled."""
    max_lease: Duration = 43_200.0
    """Longest lease that may be requested."""
    retry_delay: RetryDelay | Duration = default_retry_delay
    """Delay before the next attempt: a function of `retried, error, task`, or a constant."""
    is_failure: Callable[[BaseException], bool] = _SERVER_DEFAULTS.is_failure
    """Function of an error; returns False if the task is to be retried without spending a retry."""
    crash_limit: int = 3
    """Number of worker crashes after which a task is archived as poison, as `ServerConfig` says.

    If a task's leases lapse without an extension, it is archived after ten times as many lapses in a row.
    With a limit of 0 or 1, it is archived at the first lapse.
    """
    shutdown_timeout: Duration = 8.0
    """Time that closing waits for attempts held in `take` blocks."""
    cancel_timeout: Duration = 1.0
    """Time that closing waits after the cancellation of attempts, before it puts their tasks back."""
    overdue_limit: Duration = 600.0
    """Time past its deadline from which the lease of a held attempt is not renewed any more."""
    task_check_interval: Duration = 1.0
    """Interval of polling empty queues where Redis cannot wake the consumer."""
    delayed_task_check_interval: Duration = 5.0
    """Longest interval at which scheduled and retry tasks that are due become pending."""
    janitor_interval: Duration = 8.0
    janitor_batch_size: int = 100
    archive_max_size: int = 9_999
    """Number of archived tasks that a queue keeps."""
    archive_max_age: Duration = 90 * 86_400.0
    max_result: int = DEFAULT_MAX_RESULT
    """Largest result in bytes; a larger one is refused with `ResultTooLargeError` and not sent."""
    publish_events: bool | int | Mapping[str, bool | int] = False
    """Whether to publish events of the tasks taken; see `ServerConfig.publish_events`."""

    def __post_init__(self) -> None:
        self.server_config()
        if parse_seconds("max_lease", self.max_lease) < 1:
            raise InvalidOptionError("max_lease", self.max_lease, "must be at least 1 second")

    def server_config(self) -> ServerConfig:
        """Return these settings as those of a server without handlers."""
        return ServerConfig(
            **{one.name: getattr(self, one.name) for one in fields(self) if one.name != "max_lease"}
        )

    def lease_seconds(self, duration: object) -> int:
        """Return the whole seconds of a requested lease.

        Raises:
            InvalidOptionError: for a value that is not a duration, is under a second, or above `max_lease`.
        """
        longest = parse_seconds("max_lease", self.max_lease)
        if not 1 <= parse_seconds("duration", duration) <= longest:
            remedy = f"must be from 1 to {longest:g} seconds, which is max_lease"
            raise InvalidOptionError("duration", duration, remedy)
        return math.ceil(parse_seconds("duration", duration))
