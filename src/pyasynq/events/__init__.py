"""Events: small immutable values about what happens. Logs, metrics, traces and tests subscribe to them.

An event is built only if there is a subscriber for its class, so an unwatched one costs a look-up:

    if events.wants(TaskFinished):
        events.emit(TaskFinished(...))

A name is imported when it is first used, because programs that only enqueue emit no events.
"""

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._engine import (
        AggregationDeclined,
        AggregationFailed,
        AggregationLost,
        AggregationOverdue,
        ArchiveTrimmed,
        AttemptAbandoned,
        AttemptOverdue,
        EventsDropped,
        ExchangeEnded,
        GhostsDropped,
        HeartbeatWritten,
        LeaseLapsed,
        LeaseLost,
        LeaveFailed,
        LimitsIgnored,
        LoopBlocked,
        MessageQuarantined,
        Outcome,
        QueueChanged,
        QueuesAsked,
        RoundFailed,
        RoundFinished,
        ServerAsked,
        ServerEnded,
        ServerStarting,
        ServerStateChanged,
        SetsReclaimed,
        SettleDelayed,
        SettleRefused,
        ShutdownHung,
        ShutdownWaiting,
        SignOfLife,
        TaskFinished,
        TaskPoisoned,
        TaskRecovered,
        TasksAggregated,
        TaskSettled,
        TasksPutBack,
        TaskStarted,
        TypesNotPublished,
        WorkerDied,
        WorkerMeasured,
    )
    from ._hub import Event, Events
    from ._redis import RedisWarning
    from ._scheduling import (
        FutureTickIgnored,
        HookFailed,
        PeriodicTaskRefused,
        SchedulerStateChanged,
        SyncFailed,
        TickFailed,
        TickFired,
        TickPaused,
        TicksMissed,
    )

_EXPORTS_BY_MODULE: Final = {
    "_engine": (
        "AggregationDeclined AggregationFailed AggregationLost AggregationOverdue ArchiveTrimmed "
        "AttemptAbandoned AttemptOverdue EventsDropped ExchangeEnded GhostsDropped HeartbeatWritten "
        "LeaseLapsed LeaseLost LeaveFailed LimitsIgnored LoopBlocked MessageQuarantined Outcome "
        "QueueChanged QueuesAsked RoundFailed RoundFinished ServerAsked ServerEnded ServerStarting "
        "ServerStateChanged SetsReclaimed SettleDelayed SettleRefused ShutdownHung ShutdownWaiting "
        "SignOfLife TaskFinished TaskPoisoned TaskRecovered TaskSettled TaskStarted TasksAggregated "
        "TasksPutBack TypesNotPublished WorkerDied WorkerMeasured"
    ),
    "_hub": "Event Events",
    "_redis": "RedisWarning",
    "_scheduling": (
        "FutureTickIgnored HookFailed PeriodicTaskRefused SchedulerStateChanged SyncFailed TickFailed "
        "TickFired TickPaused TicksMissed"
    ),
}
_MODULE_BY_EXPORT: Final = MappingProxyType(
    {name: module for module, names in _EXPORTS_BY_MODULE.items() for name in names.split()}
)

__all__ = [
    "AggregationDeclined",
    "AggregationFailed",
    "AggregationLost",
    "AggregationOverdue",
    "ArchiveTrimmed",
    "AttemptAbandoned",
    "AttemptOverdue",
    "Event",
    "Events",
    "EventsDropped",
    "ExchangeEnded",
    "FutureTickIgnored",
    "GhostsDropped",
    "HeartbeatWritten",
    "HookFailed",
    "LeaseLapsed",
    "LeaseLost",
    "LeaveFailed",
    "LimitsIgnored",
    "LoopBlocked",
    "MessageQuarantined",
    "Outcome",
    "PeriodicTaskRefused",
    "QueueChanged",
    "QueuesAsked",
    "RedisWarning",
    "RoundFailed",
    "RoundFinished",
    "SchedulerStateChanged",
    "ServerAsked",
    "ServerEnded",
    "ServerStarting",
    "ServerStateChanged",
    "SetsReclaimed",
    "SettleDelayed",
    "SettleRefused",
    "ShutdownHung",
    "ShutdownWaiting",
    "SignOfLife",
    "SyncFailed",
    "TaskFinished",
    "TaskPoisoned",
    "TaskRecovered",
    "TaskSettled",
    "TaskStarted",
    "TasksAggregated",
    "TasksPutBack",
    "TickFailed",
    "TickFired",
    "TickPaused",
    "TicksMissed",
    "TypesNotPublished",
    "WorkerDied",
    "WorkerMeasured",
]

# Type checkers see the imports above instead: with this function they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used. Raises `AttributeError` for an unknown name."""
        if name not in _MODULE_BY_EXPORT:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(importlib.import_module(f".{_MODULE_BY_EXPORT[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return all names, including those not yet imported."""
    return sorted({*globals(), *__all__})
