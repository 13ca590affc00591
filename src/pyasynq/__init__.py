"""pyasynq: Asynq for Python, a distributed task queue on Redis or Valkey that shares its queues with Go.

For newcomers, the layout from the top down; a module imports from lower floors only:

    cli           the command `pyasynq`
    app           `App` and `@app.task`: typed tasks
    scheduler periodic                   the timers: cron expressions
    client inspector server consumer mux rate embedded sync   the public interfaces, as in Asynq
    _engine       take, run, settle and lease: the life of a task; its services and processes
    _background   base of all services; shutdowns and signals
    _broker       plans: the Redis calls of each operation, with its Lua scripts
    _redis        the Redis client, which runs plans: connections, Cluster, Sentinel
    _wire         messages and key names, exactly as Go writes them
    task options errors events config limits context control retry   types shared by all floors

Names without a leading underscore are stable; everything that users need is importable from here.
"""

import importlib
import sys
from typing import TYPE_CHECKING

# Imported at once: the submodule of the same name would hide the function, and it needs the errors anyway.
from pyasynq.context import CancelReason, TaskContext, TaskFieldsFilter, context
from pyasynq.errors import (
    ApiKeyNotFoundError,
    ArchiveFullError,
    ArgumentsError,
    AttemptSettledError,
    ChildProcessDiedError,
    ClientClosedError,
    CommandStateError,
    ConfigurationChangedError,
    ConfigurationError,
    CronError,
    DuplicateTaskError,
    EnqueueError,
    EnqueueManyError,
    HandlerNotFoundError,
    InvalidOptionError,
    LeaseExpiredError,
    NotDurableError,
    OperationNotFoundError,
    PayloadDecodingError,
    PayloadEncodingError,
    PayloadTooLargeError,
    PermissionDeniedError,
    PyasynqError,
    QueueBusyError,
    QueueLimitsChangedError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueueNotPausedError,
    QueuePausedError,
    ReadFromReplicaError,
    RedisAuthenticationError,
    RedisError,
    RedisOutOfMemoryError,
    RedisPermissionError,
    RedisReplyError,
    RedisTLSError,
    RedisUnavailableError,
    RedisValueTooLargeError,
    RedisVersionError,
    RemoteError,
    ReplyLostError,
    ReportedError,
    ReportNotFoundError,
    ResultError,
    ResultNotKeptError,
    ResultTooLargeError,
    RevokeTask,
    ScheduleNotFoundError,
    SchedulePausedError,
    SchedulerStateError,
    SemaphoreFullError,
    SemaphoreNotHeldError,
    ServerNotFoundError,
    ServerStateError,
    SettleError,
    SkipRetry,
    TaskCanceledError,
    TaskDeletedError,
    TaskFailedError,
    TaskIDConflictError,
    TaskNotFoundError,
    TaskStateError,
    TaskTimeoutError,
    TickTakenError,
    UndecodableMessageError,
    UnknownAttemptError,
    UnknownOptionError,
    UnknownTaskStateError,
    WaitTimeoutError,
    WorkerDiedError,
)

if TYPE_CHECKING:
    from pyasynq._app.declaration import TypedCall
    from pyasynq._app.handles import BlockingEnqueuedTask, BlockingTaskHandle, EnqueuedTask, TaskHandle
    from pyasynq._app.typed_task import CoroutineTask, PlainTask, TypedTask
    from pyasynq.app import App
    from pyasynq.callbacks import Callback
    from pyasynq.client import Client
    from pyasynq.config import GroupRule, SchedulerConfig, ServerConfig
    from pyasynq.consumer import Attempt, Attempts, Consumer, ConsumerConfig
    from pyasynq.control import Archive, Cancel, Control, ControlFlow, Retry, Snooze, is_control
    from pyasynq.dependencies import depends
    from pyasynq.embedded import EmbeddedServer
    from pyasynq.events import Events
    from pyasynq.hooks import AttemptEnd
    from pyasynq.inspector import Inspector
    from pyasynq.limits import Queue, QueueLimits
    from pyasynq.mux import Mux
    from pyasynq.options import EnqueueOptions, OnConflict, OnDuplicate, Until
    from pyasynq.periodic import PeriodicTaskConfig, PeriodicTaskManager
    from pyasynq.rate import Semaphore
    from pyasynq.retry import default_retry_delay
    from pyasynq.scheduler import Scheduler
    from pyasynq.secret import Secret
    from pyasynq.server import Server, ServerState
    from pyasynq.task import (
        AttemptInfo,
        EnqueueResult,
        EnqueueStatus,
        FinishedTask,
        Task,
        TaskEnd,
        TaskInfo,
        TaskProgress,
        TaskState,
    )
    from pyasynq.task_types import TaskTypeInfo
    from pyasynq.worker_config import WorkerConfig

_EXPORTS_BY_MODULE = {
    "pyasynq._app.declaration": "TypedCall",
    "pyasynq._app.handles": "BlockingEnqueuedTask BlockingTaskHandle EnqueuedTask TaskHandle",
    "pyasynq._app.typed_task": "CoroutineTask PlainTask TypedTask",
    "pyasynq.app": "App",
    "pyasynq.callbacks": "Callback",
    "pyasynq.client": "Client",
    "pyasynq.config": "GroupRule SchedulerConfig ServerConfig",
    "pyasynq.consumer": "Attempt Attempts Consumer ConsumerConfig",
    "pyasynq.control": "Archive Cancel Control ControlFlow Retry Snooze is_control",
    "pyasynq.dependencies": "depends",
    "pyasynq.embedded": "EmbeddedServer",
    "pyasynq.events": "Events",
    "pyasynq.hooks": "AttemptEnd",
    "pyasynq.inspector": "Inspector",
    "pyasynq.limits": "Queue QueueLimits",
    "pyasynq.mux": "Mux",
    "pyasynq.options": "EnqueueOptions OnConflict OnDuplicate Until",
    "pyasynq.periodic": "PeriodicTaskConfig PeriodicTaskManager",
    "pyasynq.rate": "Semaphore",
    "pyasynq.retry": "default_retry_delay",
    "pyasynq.scheduler": "Scheduler",
    "pyasynq.secret": "Secret",
    "pyasynq.server": "Server ServerState",
    "pyasynq.task": "AttemptInfo EnqueueResult EnqueueStatus FinishedTask Task TaskEnd TaskInfo TaskProgress "
    "TaskState",
    "pyasynq.task_types": "TaskTypeInfo",
    "pyasynq.worker_config": "WorkerConfig",
}
_MODULE_BY_EXPORT = {name: module for module, names in _EXPORTS_BY_MODULE.items() for name in names.split()}
_SUBMODULES = {*_EXPORTS_BY_MODULE, "pyasynq.sync"}

__all__ = [
    "ApiKeyNotFoundError",
    "App",
    "Archive",
    "ArchiveFullError",
    "ArgumentsError",
    "Attempt",
    "AttemptEnd",
    "AttemptInfo",
    "AttemptSettledError",
    "Attempts",
    "BlockingEnqueuedTask",
    "BlockingTaskHandle",
    "Callback",
    "Cancel",
    "CancelReason",
    "ChildProcessDiedError",
    "Client",
    "ClientClosedError",
    "CommandStateError",
    "ConfigurationChangedError",
    "ConfigurationError",
    "Consumer",
    "ConsumerConfig",
    "Control",
    "ControlFlow",
    "CoroutineTask",
    "CronError",
    "DuplicateTaskError",
    "EmbeddedServer",
    "EnqueueError",
    "EnqueueManyError",
    "EnqueueOptions",
    "EnqueueResult",
    "EnqueueStatus",
    "EnqueuedTask",
    "Events",
    "FinishedTask",
    "GroupRule",
    "HandlerNotFoundError",
    "Inspector",
    "InvalidOptionError",
    "LeaseExpiredError",
    "Mux",
    "NotDurableError",
    "OnConflict",
    "OnDuplicate",
    "OperationNotFoundError",
    "PayloadDecodingError",
    "PayloadEncodingError",
    "PayloadTooLargeError",
    "PeriodicTaskConfig",
    "PeriodicTaskManager",
    "PermissionDeniedError",
    "PlainTask",
    "PyasynqError",
    "Queue",
    "QueueBusyError",
    "QueueLimits",
    "QueueLimitsChangedError",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueueNotPausedError",
    "QueuePausedError",
    "ReadFromReplicaError",
    "RedisAuthenticationError",
    "RedisError",
    "RedisOutOfMemoryError",
    "RedisPermissionError",
    "RedisReplyError",
    "RedisTLSError",
    "RedisUnavailableError",
    "RedisValueTooLargeError",
    "RedisVersionError",
    "RemoteError",
    "ReplyLostError",
    "ReportNotFoundError",
    "ReportedError",
    "ResultError",
    "ResultNotKeptError",
    "ResultTooLargeError",
    "Retry",
    "RevokeTask",
    "ScheduleNotFoundError",
    "SchedulePausedError",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerStateError",
    "Secret",
    "Semaphore",
    "SemaphoreFullError",
    "SemaphoreNotHeldError",
    "Server",
    "ServerConfig",
    "ServerNotFoundError",
    "ServerState",
    "ServerStateError",
    "SettleError",
    "SkipRetry",
    "Snooze",
    "Task",
    "TaskCanceledError",
    "TaskContext",
    "TaskDeletedError",
    "TaskEnd",
    "TaskFailedError",
    "TaskFieldsFilter",
    "TaskHandle",
    "TaskIDConflictError",
    "TaskInfo",
    "TaskNotFoundError",
    "TaskProgress",
    "TaskState",
    "TaskStateError",
    "TaskTimeoutError",
    "TaskTypeInfo",
    "TickTakenError",
    "TypedCall",
    "TypedTask",
    "UndecodableMessageError",
    "UnknownAttemptError",
    "UnknownOptionError",
    "UnknownTaskStateError",
    "Until",
    "WaitTimeoutError",
    "WorkerConfig",
    "WorkerDiedError",
    "context",
    "default_retry_delay",
    "depends",
    "is_control",
]


# Type checkers see the imports above instead: with this function they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name, or a submodule that holds some, when it is first used.

        Raises:
            AttributeError: for a name that pyasynq does not have.
        """
        if name in _MODULE_BY_EXPORT:
            value = getattr(importlib.import_module(_MODULE_BY_EXPORT[name]), name)
        elif f"{__name__}.{name}" in _SUBMODULES:
            value = importlib.import_module(f"{__name__}.{name}")
        else:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__])
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return all names, including those not yet imported."""
    return sorted({*globals(), *__all__})
