"""Asynq for Python."""

from pyasynq.app import App
from pyasynq._app.typed_task import CoroutineTask, PlainTask, TaskHandle, TypedTask
from pyasynq.context import context
from pyasynq.task import EnqueueResult, EnqueueStatus, Task, TaskInfo

__all__ = ["App", "CoroutineTask", "EnqueueResult", "EnqueueStatus", "PlainTask", "Task", "TaskHandle", "TaskInfo", "TypedTask", "context"]
