"""Events of schedulers and of their periodic tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime


class SchedulerStateChanged(NamedTuple):
    """A scheduler is now `new`, `active`, `stopped` or `closed`."""

    scheduler_id: str
    state: str


class TickFired(NamedTuple):
    """This scheduler has enqueued the task of a tick."""

    entry_id: str
    spec: str
    task_type: str
    queue: str
    task_id: str
    tick: datetime


class TickFailed(NamedTuple):
    """A tick could not be fired. If `retried`, it is retried, and its further failures are not reported."""

    entry_id: str
    spec: str
    task_type: str
    tick: datetime
    error: Exception
    retried: bool


class TickPaused(NamedTuple):
    """A tick of an entry that an operator has paused: it counts as fired, and enqueues nothing."""

    entry_id: str
    spec: str
    task_type: str
    tick: datetime


class TicksMissed(NamedTuple):
    """Missed ticks up to this one are skipped (misfire `skip`), as no scheduler ran or could reach Redis."""

    entry_id: str
    spec: str
    task_type: str
    tick: datetime


class FutureTickIgnored(NamedTuple):
    """The stored last tick of an entry is over 5 minutes in the future, so the scheduler ignores it.

    The clock of Redis was ahead when the tick was written. The next tick that is fired replaces it.
    """

    entry_id: str
    spec: str
    task_type: str
    tick: datetime


class HookFailed(NamedTuple):
    """A hook of a scheduler raised an exception."""

    hook: str
    error: Exception


class SyncFailed(NamedTuple):
    """The provider of periodic tasks raised, or returned something invalid; the entries stay unchanged."""

    error: Exception


class PeriodicTaskRefused(NamedTuple):
    """A periodic task has an invalid expression; other periodic tasks are not affected."""

    spec: str
    task_type: str
    error: Exception
