"""Descriptions of queues, servers and schedulers, as the inspector returns them; tasks have `TaskInfo`.

A name is imported when it is first used: each class takes half a millisecond, and few programs need them all.
"""

from typing import TYPE_CHECKING, Final

from pyasynq import _lazy_exports

if TYPE_CHECKING:
    from ._cancellation import CancelResult, CancelStatus
    from ._events import EventPage, TaskEvent
    from ._queues import DailyStatistics, GroupInfo, GroupPage, QueueInfo, QueueInfos
    from ._redis import ClusterNode, QueueLocation, RedisNode, RedisReport, RedisTexts, ReplicaState, SlowCall
    from ._reports import ErrorGroup, ErrorReport, TypeReport, TypeStatistics
    from ._results import BulkResult, Refusal, TaskResult, TaskResults
    from ._schedules import EntryPauseResult, EntryRun, SchedulerEntryInfo, SchedulerEvent
    from ._servers import (
        RequestStatus,
        ServerAction,
        ServerAnswer,
        ServerInfo,
        ServerRequestResult,
        WorkerInfo,
    )
    from ._walks import CollectionCount, ScanFilter, ScanNumber, ScanText, SearchPage, TaskFilters, TaskPage

_EXPORTS_BY_MODULE: Final = {
    "_cancellation": "CancelResult CancelStatus",
    "_events": "EventPage TaskEvent",
    "_queues": "DailyStatistics GroupInfo GroupPage QueueInfo QueueInfos",
    "_redis": "ClusterNode QueueLocation RedisNode RedisReport RedisTexts ReplicaState SlowCall",
    "_reports": "ErrorGroup ErrorReport TypeReport TypeStatistics",
    "_results": "BulkResult Refusal TaskResult TaskResults",
    "_schedules": "EntryPauseResult EntryRun SchedulerEntryInfo SchedulerEvent",
    "_servers": "RequestStatus ServerAction ServerAnswer ServerInfo ServerRequestResult WorkerInfo",
    "_walks": "CollectionCount ScanFilter ScanNumber ScanText SearchPage TaskFilters TaskPage",
}

__all__ = [
    "BulkResult",
    "CancelResult",
    "CancelStatus",
    "ClusterNode",
    "CollectionCount",
    "DailyStatistics",
    "EntryPauseResult",
    "EntryRun",
    "ErrorGroup",
    "ErrorReport",
    "EventPage",
    "GroupInfo",
    "GroupPage",
    "QueueInfo",
    "QueueInfos",
    "QueueLocation",
    "RedisNode",
    "RedisReport",
    "RedisTexts",
    "Refusal",
    "ReplicaState",
    "RequestStatus",
    "ScanFilter",
    "ScanNumber",
    "ScanText",
    "SchedulerEntryInfo",
    "SchedulerEvent",
    "SearchPage",
    "ServerAction",
    "ServerAnswer",
    "ServerInfo",
    "ServerRequestResult",
    "SlowCall",
    "TaskEvent",
    "TaskFilters",
    "TaskPage",
    "TaskResult",
    "TaskResults",
    "TypeReport",
    "TypeStatistics",
    "WorkerInfo",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_exports.attach(__name__, _EXPORTS_BY_MODULE)
