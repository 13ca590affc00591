"""Helpers of the tests about enqueueing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq._broker.enqueueing.compose import Composed, compose
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.enqueueing.enqueue_rules import build_enqueued
from pyasynq.task import EnqueueResult, Task
from tests.factories import NOW, registered

if TYPE_CHECKING:
    from pyasynq._broker.enqueueing.enqueue import EnqueueRun, OtherResults
    from tests.fix_broker import Perform


def composed(task_id: str, payload: bytes = b"{}", **options: Any) -> Composed:
    """Return a task of the queue `default`, unless the options say otherwise."""
    return compose(Task("email:deliver", payload, task_id=task_id, **options), {}, now=NOW)


def enqueue(perform: Perform, *items: Composed) -> list[EnqueueResult]:
    """Enqueue tasks of one kind with one call."""
    [run] = split_runs(items)
    return results_of(run, perform(registered(enqueue_run(run, now=NOW), run.queue)))


def results_of(run: EnqueueRun, others: OtherResults) -> list[EnqueueResult]:
    """Return a result for each task of a run."""
    return [others[n] if n in others else build_enqueued(item) for n, item in enumerate(run.tasks)]


def statuses(results: list[EnqueueResult]) -> list[str]:
    """Return the results' words."""
    return [result.status.value for result in results]
