"""The SDK of the task service: a worker next to a web application, and enqueues of configured task types.

worker = await start_worker(
    handlers={"dumpfeature": dump_feature},
    middlewares=[init_logger, update_dataset_status, task_run],
    redis="redis://localhost:6379/0",
    team="starmap",
)
await enqueue(TaskReq(task_id=1, task_name="dumpfeature", params={"path": "/tmp/1"}))
"""

from __future__ import annotations

from .client import SdkClient
from .endings import EndReport
from .errors import ServiceError, WorkerEndedError
from .lifespan import with_worker
from .task_request import RequestedTask, TaskReq
from .task_run import task_run
from .worker import RunningWorker, enqueue, enqueue_sync, start_worker

__all__ = [
    "EndReport",
    "RequestedTask",
    "RunningWorker",
    "SdkClient",
    "ServiceError",
    "TaskReq",
    "WorkerEndedError",
    "enqueue",
    "enqueue_sync",
    "start_worker",
    "task_run",
    "with_worker",
]
