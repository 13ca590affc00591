"""Queues and tasks that are missing or in the wrong state."""

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors._base import PyasynqError


class QueueNotFoundError(PyasynqError, LookupError):
    """No such queue.

    Attributes:
        queue: the queue's name.
    """

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} does not exist")
        self.queue = queue


class TaskNotFoundError(PyasynqError, LookupError):
    """No such task in the queue.

    Attributes:
        queue: the queue's name.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str) -> None:
        super().__init__(f"cannot find task with id={visible(task_id)} in queue {queue!r}")
        self.queue = queue
        self.task_id = task_id


class UnknownTaskStateError(PyasynqError, ValueError):
    """A task whose state is a word that pyasynq does not know; somebody else wrote it.

    Attributes:
        queue: the queue's name.
        task_id: the id.
        state: the word.
    """

    def __init__(self, queue: str, task_id: str, state: str) -> None:
        super().__init__(f"task {task_id!r} in queue {queue!r} is in the unknown state {state!r}")
        self.queue = queue
        self.task_id = task_id
        self.state = state


class TaskStateError(PyasynqError):
    """What was asked for cannot be done with a task in this state. Nothing was changed.

    Attributes:
        action: what was asked for, such as `"run"`.
        queue: the queue's name.
        task_id: the id.
        state: the task's state.
    """

    def __init__(self, action: str, queue: str, task_id: str, state: str) -> None:
        remedy = _REMEDIES.get(state, "")
        super().__init__(f"cannot {action} task {task_id!r} in queue {queue!r}: it is {state}{remedy}")
        self.action = action
        self.queue = queue
        self.task_id = task_id
        self.state = state


_REMEDIES = {
    "active": "; cancel it, or wait until it ends",
    "aggregating": " and on its way into an aggregate; wait until that is made or given up",
}


class QueueNotEmptyError(PyasynqError):
    """A queue with tasks is removed by force only.

    Attributes:
        queue: the queue's name.
        tasks: how many it has, in whatever state.
    """

    def __init__(self, queue: str, tasks: int) -> None:
        super().__init__(
            f"queue {queue!r} is not empty: it has {counted(tasks, 'task')}; force deletes them too"
        )
        self.queue = queue
        self.tasks = tasks


class ArchiveFullError(PyasynqError):
    """Archiving these tasks would delete archived ones, because an archive has a maximum.

    Attributes:
        queue: the queue's name.
        tasks: how many were to be archived.
        surplus: how many archived tasks would be deleted, the oldest first, these among them.
        max_size: how many an archive keeps.
    """

    def __init__(self, queue: str, tasks: int, surplus: int, max_size: int) -> None:
        all_tasks = "1 task" if tasks == 1 else f"{tasks:,} tasks"
        doomed = "1 archived task" if surplus == 1 else f"{surplus:,} archived tasks"
        super().__init__(
            f"archiving {all_tasks} of queue {queue!r} would delete {doomed}: its archive keeps"
            f" {max_size:,} and drops the oldest; trim=True allows that"
        )
        self.queue = queue
        self.tasks = tasks
        self.surplus = surplus
        self.max_size = max_size


class QueueBusyError(PyasynqError):
    """A queue cannot be removed while tasks of it are active.

    Attributes:
        queue: the queue's name.
        active: how many are.
    """

    def __init__(self, queue: str, active: int) -> None:
        super().__init__(
            f"cannot remove queue {queue!r} with active tasks ({active}): pause it and wait, or cancel them"
        )
        self.queue = queue
        self.active = active


class QueuePausedError(PyasynqError):
    """The queue is paused already.

    Attributes:
        queue: the queue's name.
    """

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} is already paused")
        self.queue = queue


class QueueNotPausedError(PyasynqError):
    """The queue is not paused.

    Attributes:
        queue: the queue's name.
    """

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} is not paused")
        self.queue = queue
