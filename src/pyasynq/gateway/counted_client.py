"""Client wrapper that adds the trace context of a request to new tasks, and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.errors import DuplicateTaskError, TaskIDConflictError
from pyasynq.options import DEFAULT_QUEUE
from pyasynq.task import EnqueueStatus

from .request_trace import with_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq.client import Client
    from pyasynq.gateway.service_metrics import ServiceMetrics
    from pyasynq.task import EnqueueResult, Task, TaskInfo

_OUTCOMES: Final = {
    EnqueueStatus.ENQUEUED: "enqueued",
    EnqueueStatus.REPLACED: "existing",
    EnqueueStatus.EXISTING: "existing",
    EnqueueStatus.IGNORED: "existing",
    EnqueueStatus.CONFLICT: "conflict",
    EnqueueStatus.DUPLICATE: "conflict",
}
"""Values of the metric's outcome label, by the status of the enqueue; any other status counts as failed."""


class CountedClient:
    """Wrapper of a `Client` that enqueues the tasks of all requests, with trace context and metrics.

    A client middleware would do the same, but would cost a coroutine for each task of a batch.

    Args:
        client: client of the instance; not closed here.
        metrics: receive the number of new tasks by queue, type and outcome.
    """

    def __init__(self, client: Client, metrics: ServiceMetrics) -> None:
        self._client = client
        self._metrics = metrics
        self.wait = client.wait

    async def enqueue(self, task: Task) -> TaskInfo:
        """Enqueue a task; raises what `Client.enqueue` raises."""
        outcome = "failed"
        try:
            info = await self._client.enqueue(with_trace(task))
            outcome = "enqueued" if info.is_enqueued else "existing"
        except (DuplicateTaskError, TaskIDConflictError):
            outcome = "conflict"
            raise
        finally:
            self._metrics.note_enqueued([_label(task, outcome)])
        return info

    async def enqueue_many(self, tasks: Iterable[Task]) -> list[EnqueueResult]:
        """Enqueue many tasks in their order; return a result for each."""
        traced = [with_trace(task) for task in tasks]
        results = await self._client.enqueue_many(traced, on_error="return")
        self._metrics.note_enqueued(
            _label(task, _OUTCOMES.get(result.status, "failed"))
            for task, result in zip(traced, results, strict=True)
        )
        return results


def _label(task: Task, outcome: str) -> tuple[str, str, str]:
    return task.options.get("queue", DEFAULT_QUEUE), task.type, outcome
