"""pyasynq: Asynq for Python, a distributed task queue on Redis or Valkey that shares its queues with Go.

For newcomers, the layout from the top down; a module imports from lower floors only:

    cli           the command `pyasynq`
    app           `App` and `@app.task`: typed tasks
    scheduler periodic                   the timers: cron expressions
    client inspector server consumer mux rate embedded sync   the doors, as Asynq has them
    _server       the engine: services, attempts, settling
    _broker       plans (what to ask Redis), drivers (how to wait for it), lua
    _wire         messages and key names, exactly as Go writes them
    task options errors events config limits context control retry   words that all floors share

Names without a leading underscore are stable; everything that users need is importable from here.
"""

from pyasynq._app.handles import BlockingEnqueuedTask, BlockingTaskHandle, EnqueuedTask, TaskHandle
from pyasynq._app.typed_task import CoroutineTask, PlainTask, TypedTask
from pyasynq._server.log_records import TaskFieldsFilter
from pyasynq.app import App
from pyasynq.client import Client
from pyasynq.config import GroupRule, SchedulerConfig, ServerConfig
from pyasynq.consumer import Attempt, Attempts, Consumer, ConsumerConfig
from pyasynq.context import TaskContext, context
from pyasynq.control import Archive, Cancel, Control, ControlFlow, Retry, Snooze
from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import (
    ArgumentsError,
    AttemptSettledError,
    ChildProcessDiedError,
    ClientClosedError,
    ConfigurationError,
    CronError,
    DuplicateTaskError,
    EnqueueError,
    HandlerNotFoundError,
    InvalidOptionError,
    LeaseExpiredError,
    NotDurableError,
    PayloadDecodingError,
    PayloadEncodingError,
    PayloadTooLargeError,
    PyasynqError,
    QueueBusyError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueueNotPausedError,
    QueuePausedError,
    RedisAuthenticationError,
    RedisError,
    RedisOutOfMemoryError,
    RedisPermissionError,
    RedisReplyError,
    RedisTLSError,
    RedisUnavailableError,
    RedisVersionError,
    RemoteError,
    ReplyLostError,
    ReportedError,
    ResultError,
    ResultNotKeptError,
    RevokeTask,
    ScheduleNotFoundError,
    SchedulerStateError,
    SemaphoreFullError,
    SemaphoreNotHeldError,
    ServerStateError,
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
    UnknownOptionError,
    UnknownTaskStateError,
    WaitTimeoutError,
)
from pyasynq.events import Events
from pyasynq.inspector import Inspector
from pyasynq.limits import Queue, QueueLimits
from pyasynq.mux import Mux
from pyasynq.options import EnqueueOptions, OnConflict, OnDuplicate, Until
from pyasynq.periodic import PeriodicTaskConfig, PeriodicTaskManager
from pyasynq.rate import Semaphore
from pyasynq.retry import default_retry_delay
from pyasynq.scheduler import Scheduler
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

__all__ = [
    "App",
    "Archive",
    "ArgumentsError",
    "Attempt",
    "AttemptInfo",
    "AttemptSettledError",
    "Attempts",
    "BlockingEnqueuedTask",
    "BlockingTaskHandle",
    "Cancel",
    "ChildProcessDiedError",
    "Client",
    "ClientClosedError",
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
    "PayloadDecodingError",
    "PayloadEncodingError",
    "PayloadTooLargeError",
    "PeriodicTaskConfig",
    "PeriodicTaskManager",
    "PlainTask",
    "PyasynqError",
    "Queue",
    "QueueBusyError",
    "QueueLimits",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueueNotPausedError",
    "QueuePausedError",
    "RedisAuthenticationError",
    "RedisError",
    "RedisOutOfMemoryError",
    "RedisPermissionError",
    "RedisReplyError",
    "RedisTLSError",
    "RedisUnavailableError",
    "RedisVersionError",
    "RemoteError",
    "ReplyLostError",
    "ReportedError",
    "ResultError",
    "ResultNotKeptError",
    "Retry",
    "RevokeTask",
    "ScheduleNotFoundError",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerStateError",
    "Semaphore",
    "SemaphoreFullError",
    "SemaphoreNotHeldError",
    "Server",
    "ServerConfig",
    "ServerState",
    "ServerStateError",
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
    "TickTakenError",
    "TypedTask",
    "UndecodableMessageError",
    "UnknownOptionError",
    "UnknownTaskStateError",
    "Until",
    "WaitTimeoutError",
    "context",
    "default_retry_delay",
]
