"""What an app enqueues periodically, from its declaration to the scheduler that registers it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyasynq._app.declaration import UnknownAnnotationError
from pyasynq._cron import parse_cron
from pyasynq.config import check_misfire

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._app.typed_task import TypedTask
    from pyasynq.config import Misfire
    from pyasynq.options import EnqueueOptions
    from pyasynq.scheduler import Scheduler
    from pyasynq.task import Task


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A task and the expression that says when it is enqueued.

    Attributes:
        make_task: makes the task; its arguments may not be known to be right before all modules are there.
        options: those that the task will have.
    """

    spec: str
    make_task: Callable[[], Task]
    options: EnqueueOptions
    misfire: Misfire

    def register(self, scheduler: Scheduler) -> None:
        """Register it. Raises what making the task raises."""
        scheduler.register(self.spec, self.make_task(), misfire=self.misfire)


def schedule_task(spec: str, task: Task, misfire: Misfire) -> DeclaredSchedule:
    """Return the schedule of a finished task.

    Raises:
        CronError: for an expression that cannot be read.
    """
    parse_cron(spec)
    check_misfire(misfire)
    return DeclaredSchedule(spec, lambda: task, task.options, misfire)


def schedule_handler(spec: str, task: TypedTask[..., Any], misfire: Misfire) -> DeclaredSchedule:
    """Return the schedule of calls without arguments.

    Raises:
        CronError: for an expression that cannot be read.
        ArgumentsError: for a handler that cannot be called without arguments.
    """
    parse_cron(spec)
    check_misfire(misfire)
    with suppress(UnknownAnnotationError):  # its module may define it further down
        task.task()
    return DeclaredSchedule(spec, task.task, task.declared_options, misfire)
