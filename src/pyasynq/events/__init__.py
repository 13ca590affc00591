"""Events: small immutable values about what happens. Logs, metrics, traces and tests subscribe to them.

An event is built only if its class has a subscriber. Otherwise it costs only a look-up:

    if events.wants(TaskFinished):
        events.emit(TaskFinished(...))

A name is imported when it is first used, because programs that only enqueue emit no events.
"""

from typing import TYPE_CHECKING, Final

from pyasynq import _lazy_exports

if TYPE_CHECKING:
    from ._engine import (
        AggregationDeclined,
        AggregationFailed,
        AggregationLost,
        AggregationOverdue,
        ArchiveTrimmed,
        AttemptAbandoned,
        AttemptOverdue,
        AttemptTraced,
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
        "AttemptAbandoned AttemptOverdue AttemptTraced EventsDropped ExchangeEnded GhostsDropped "
        "HeartbeatWritten LeaseLapsed LeaseLost LeaveFailed LimitsIgnored LoopBlocked "
        "MessageQuarantined Outcome QueueChanged QueuesAsked RoundFailed RoundFinished ServerAsked "
        "ServerEnded ServerStarting ServerStateChanged SetsReclaimed SettleDelayed SettleRefused "
        "ShutdownHung ShutdownWaiting SignOfLife TaskFinished TaskPoisoned TaskRecovered TaskSettled "
        "TaskStarted TasksAggregated TasksPutBack TypesNotPublished WorkerDied WorkerMeasured"
    ),
    "_hub": "Event Events",
    "_redis": "RedisWarning",
    "_scheduling": (
        "FutureTickIgnored HookFailed PeriodicTaskRefused SchedulerStateChanged SyncFailed TickFailed "
        "TickFired TickPaused TicksMissed"
    ),
}

__all__ = [
    "AggregationDeclined",
    "AggregationFailed",
    "AggregationLost",
    "AggregationOverdue",
    "ArchiveTrimmed",
    "AttemptAbandoned",
    "AttemptOverdue",
    "AttemptTraced",
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_exports.attach(__name__, _EXPORTS_BY_MODULE)
