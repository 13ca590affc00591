"""pyasynq: Asynq for Python, a distributed task queue on Redis or Valkey, compatible with Asynq in Go.

Layout for newcomers, from top to bottom. A module imports only from lower floors (layers):

    cli           the command `pyasynq`
    app           `App` and `@app.task`: typed tasks
    scheduler periodic                   the timers: cron expressions
    client inspector server consumer mux rate embedded sync   the public interfaces
    _engine       take, lease, run and settle tasks; background services and worker processes
    _background   base classes of services; shutdown and signals
    _broker       plans: the Redis calls of each operation, with its Lua scripts
    _redis        the Redis client, which runs plans: connections, Cluster, Sentinel
    _wire         messages and key names, exactly as Go writes them
    task options errors events config limits context control retry   types shared by all floors

Names without a leading underscore are stable; everything that users need is importable from here.
"""

from typing import TYPE_CHECKING

from pyasynq import _lazy_exports

# Not imported lazily, because the submodule `context` would hide the function. It imports the errors anyway.
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
    PayloadChangedError,
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
    "_app.declaration": "TypedCall",
    "_app.handles": "BlockingEnqueuedTask BlockingTaskHandle EnqueuedTask TaskHandle",
    "_app.typed_task": "CoroutineTask PlainTask TypedTask",
    "app": "App",
    "callbacks": "Callback",
    "client": "Client",
    "config": "GroupRule SchedulerConfig ServerConfig",
    "consumer": "Attempt Attempts Consumer ConsumerConfig",
    "control": "Archive Cancel Control ControlFlow Retry Snooze is_control",
    "dependencies": "depends",
    "embedded": "EmbeddedServer",
    "events": "Events",
    "hooks": "AttemptEnd",
    "inspector": "Inspector",
    "limits": "Queue QueueLimits",
    "mux": "Mux",
    "options": "EnqueueOptions OnConflict OnDuplicate Until",
    "periodic": "PeriodicTaskConfig PeriodicTaskManager",
    "rate": "Semaphore",
    "retry": "default_retry_delay",
    "scheduler": "Scheduler",
    "secret": "Secret",
    "server": "Server ServerState",
    "sync": "",
    "task": "AttemptInfo EnqueueResult EnqueueStatus FinishedTask Task TaskEnd TaskInfo TaskProgress "
    "TaskState",
    "task_types": "TaskTypeInfo",
    "worker_config": "WorkerConfig",
}

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
    "PayloadChangedError",
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_exports.attach(__name__, _EXPORTS_BY_MODULE)
