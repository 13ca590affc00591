"""Metrics of programs that enqueue: client middleware that counts tasks by queue, type and result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.errors import DuplicateTaskError, PyasynqError, TaskIDConflictError
from pyasynq.metrics.store import MAX_QUEUES, MAX_TYPES, MetricStore
from pyasynq.metrics.text import render
from pyasynq.options import DEFAULT_QUEUE

if TYPE_CHECKING:
    from pyasynq.client import CallNext
    from pyasynq.metrics.text import Samples
    from pyasynq.task import Task, TaskInfo


class EnqueueMetrics:
    """Counts the tasks that an app or a client enqueues: `app.use_client(EnqueueMetrics())`.

    Tasks of `enqueue_many` pass through middleware one by one, which is slower than without middleware.

    Args:
        max_types: number of task types with a label value of their own; all others are counted under
            `_other`.
        max_queues: number of queues with a label value of their own, likewise.
    """

    def __init__(self, *, max_types: int = MAX_TYPES, max_queues: int = MAX_QUEUES) -> None:
        self._store = MetricStore(max_types=max_types, max_queues=max_queues)

    async def __call__(self, task: Task, call_next: CallNext) -> TaskInfo:
        """Pass a task on to `call_next`, which enqueues it; count and return the result."""
        try:
            info = await call_next(task)
        except (DuplicateTaskError, TaskIDConflictError):
            self._count(task, "duplicate")
            raise
        except PyasynqError:
            self._count(task, "failed")
            raise
        self._count(task, "enqueued" if info.is_enqueued else "duplicate")
        return info

    def samples(self) -> list[Samples]:
        """Return the values of all metrics."""
        return self._store.samples()

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body for a header `Accept`."""
        return render(self.samples(), accept)

    def _count(self, task: Task, result: str) -> None:
        queue = task.options.get("queue", DEFAULT_QUEUE)
        self._store.add("pyasynq_tasks_enqueued_total", (queue, task.type, result))
