"""pyasynq: Asynq for Python, a distributed task queue on Redis or Valkey that shares its queues with Go.

For newcomers, the layout from the top down; a module imports from lower floors only:

    cli           the command `pyasynq`
    app           `App` and `@app.task`: typed tasks
    scheduler periodic                   the timers: cron expressions
    client inspector server mux embedded sync   the doors, as Asynq has them
    _server       the engine: services, attempts, settling
    _broker       plans (what to ask Redis), drivers (how to wait for it), lua
    _wire         messages and key names, exactly as Go writes them
    task options errors events config context retry      words that all floors share

Names without a leading underscore are stable; everything that users need is importable from here.
"""

from pyasynq._app.typed_task import CoroutineTask, PlainTask, TaskHandle, TypedTask
from pyasynq._server.log_records import TaskFieldsFilter
from pyasynq.app import App
from pyasynq.client import Client
from pyasynq.config import GroupRule, SchedulerConfig, ServerConfig
from pyasynq.context import TaskContext, context
from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import (
    ArgumentsError,
    ClientClosedError,
    ConfigurationError,
    CronError,
    DuplicateTaskError,
    EnqueueError,
    HandlerNotFoundError,
    InvalidOptionError,
    LeaseExpiredError,
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
    ReplyLostError,
    RevokeTask,
    ScheduleNotFoundError,
    SchedulerStateError,
    ServerStateError,
    SkipRetry,
    TaskCanceledError,
    TaskIDConflictError,
    TaskNotFoundError,
    TaskStateError,
    TaskTimeoutError,
    TickTakenError,
    UndecodableMessageError,
    UnknownOptionError,
    UnknownTaskStateError,
)
from pyasynq.events import Events
from pyasynq.inspector import Inspector
from pyasynq.mux import Mux
from pyasynq.options import EnqueueOptions
from pyasynq.periodic import PeriodicTaskConfig, PeriodicTaskManager
from pyasynq.retry import default_retry_delay
from pyasynq.scheduler import Scheduler
from pyasynq.server import Server, ServerState
from pyasynq.task import EnqueueResult, EnqueueStatus, Task, TaskInfo, TaskState

__all__ = [
    "App",
    "ArgumentsError",
    "Client",
    "ClientClosedError",
    "ConfigurationError",
    "CoroutineTask",
    "CronError",
    "DuplicateTaskError",
    "EmbeddedServer",
    "EnqueueError",
    "EnqueueOptions",
    "EnqueueResult",
    "EnqueueStatus",
    "Events",
    "GroupRule",
    "HandlerNotFoundError",
    "Inspector",
    "InvalidOptionError",
    "LeaseExpiredError",
    "Mux",
    "PayloadDecodingError",
    "PayloadEncodingError",
    "PayloadTooLargeError",
    "PeriodicTaskConfig",
    "PeriodicTaskManager",
    "PlainTask",
    "PyasynqError",
    "QueueBusyError",
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
    "ReplyLostError",
    "RevokeTask",
    "ScheduleNotFoundError",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerStateError",
    "Server",
    "ServerConfig",
    "ServerState",
    "ServerStateError",
    "SkipRetry",
    "Task",
    "TaskCanceledError",
    "TaskContext",
    "TaskFieldsFilter",
    "TaskHandle",
    "TaskIDConflictError",
    "TaskInfo",
    "TaskNotFoundError",
    "TaskState",
    "TaskStateError",
    "TaskTimeoutError",
    "TickTakenError",
    "TypedTask",
    "UndecodableMessageError",
    "UnknownOptionError",
    "UnknownTaskStateError",
    "context",
    "default_retry_delay",
]
