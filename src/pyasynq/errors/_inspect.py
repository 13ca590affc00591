"""Errors about missing queues and tasks or wrong states, and refusals of operators."""

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
        queue: the queue's name; empty if all queues were searched.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str) -> None:
        place = f"queue {queue!r}" if queue else "any queue"
        super().__init__(f"cannot find task with id={visible(task_id)} in {place}")
        self.queue = queue
        self.task_id = task_id


class UnknownTaskStateError(PyasynqError, ValueError):
    """A task in a state that pyasynq does not know; another program wrote it.

    Attributes:
        queue: the queue's name.
        task_id: the id.
        state: the stored word.
    """

    def __init__(self, queue: str, task_id: str, state: str) -> None:
        super().__init__(f"task {task_id!r} in queue {queue!r} is in the unknown state {state!r}")
        self.queue = queue
        self.task_id = task_id
        self.state = state


class TaskStateError(PyasynqError):
    """The operation is impossible for a task in this state. Nothing was changed.

    Attributes:
        action: the operation, such as `"run"`.
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
    """A queue with tasks can be removed only with force.

    Attributes:
        queue: the queue's name.
        tasks: number of its tasks, in any state.
    """

    def __init__(self, queue: str, tasks: int) -> None:
        super().__init__(
            f"queue {queue!r} is not empty: it has {counted(tasks, 'task')}; force deletes them too"
        )
        self.queue = queue
        self.tasks = tasks


class ArchiveFullError(PyasynqError):
    """Archiving these tasks would delete archived tasks, because of the maximum size of an archive.

    Attributes:
        queue: the queue's name.
        tasks: number of tasks to archive.
        surplus: number of tasks that the archive would delete, the oldest first. Some of them may be tasks
            of this call.
        max_size: number of tasks that an archive keeps.
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
        active: number of active tasks.
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


class PayloadChangedError(PyasynqError):
    """The payload of a task differs from the payload that the caller expects: someone has changed it.

    Attributes:
        queue: the queue's name.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str) -> None:
        super().__init__(
            f"the payload of task {task_id!r} in queue {queue!r} has changed since it was read; read it again"
        )
        self.queue = queue
        self.task_id = task_id


class QueueLimitsChangedError(PyasynqError):
    """The limits of a queue differ from the limits that the caller expects: someone has changed them.

    Attributes:
        queue: the queue's name.
    """

    def __init__(self, queue: str) -> None:
        super().__init__(f"the limits of queue {queue!r} have changed since they were read; read them again")
        self.queue = queue


class QueueNotPausedError(PyasynqError):
    """The queue is not paused.

    Attributes:
        queue: the queue's name.
    """

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} is not paused")
        self.queue = queue


class OperationNotFoundError(PyasynqError, LookupError):
    """No bulk operation (on many tasks) has this id; operations are kept for 30 days after their last step.

    Attributes:
        operation: id that was given.
    """

    def __init__(self, operation: str) -> None:
        super().__init__(f"operation {operation!r} does not exist")
        self.operation = operation


class ApiKeyNotFoundError(PyasynqError, LookupError):
    """There is no such API key.

    Attributes:
        key_id: id that was given.
    """

    def __init__(self, key_id: str) -> None:
        super().__init__(f"API key {visible(key_id)} does not exist")
        self.key_id = key_id


class ReportNotFoundError(PyasynqError, LookupError):
    """No instance of the task service reports such a command, or such requests to a host.

    Attributes:
        subject: `"command"` or `"delivery"`.
        name: id or other name that was given.
    """

    def __init__(self, subject: str, name: str) -> None:
        super().__init__(f"no instance of the task service reports {subject} {visible(name)}")
        self.subject = subject
        self.name = name


class CommandStateError(PyasynqError):
    """The command does not run any more, so it cannot be killed. Its task may run again, as another command.

    Attributes:
        command: id of the command.
        state: its state.
    """

    def __init__(self, command: str, state: str) -> None:
        super().__init__(f"cannot kill command {visible(command)}: it does not run, it is {visible(state)}")
        self.command = command
        self.state = state


class PermissionDeniedError(PyasynqError):
    """The user may not do this; nothing was changed.

    Attributes:
        user: name of the user.
        verb: name of the refused method of `Operator`.
        permission: the missing permission; empty if the dashboard or command line is read-only.
        queue: the queue for which the permission is missing; empty if the call is not about a single queue.
        roles: roles that have this permission.
    """

    def __init__(
        self, user: str, verb: str, permission: str, queue: str = "", roles: tuple[str, ...] = ()
    ) -> None:
        words = verb.replace("_", " ")
        if permission:
            where = f" for queue {visible(queue)}" if queue else ""
            holders = f"; {' and '.join(roles)} have it" if len(roles) > 1 else ""
            holders = f"; {roles[0]} has it" if len(roles) == 1 else holders
            reason = f"{words} needs {permission}{where}{holders}"
        else:
            reason = f"{words} changes something, and this is read-only"
        super().__init__(f"{visible(user)} may not do this: {reason}")
        self.user = user
        self.verb = verb
        self.permission = permission
        self.queue = queue
        self.roles = roles


class ConfigurationChangedError(PyasynqError):
    """The configuration of a task type has another version than the expected one; nothing was changed.

    Attributes:
        name: name of the task type.
        version: version of its configuration; 0 if it has none.
    """

    def __init__(self, name: str, version: int) -> None:
        if version:
            found = f"has the version {version} by now: read it again before you change it"
        else:
            found = "has no configuration"
        super().__init__(f"task type {visible(name)} {found}")
        self.name = name
        self.version = version


class QueryError(PyasynqError, ValueError):
    """A query that cannot be parsed or can match nothing. The message names the position in the query.

    Attributes:
        position: where the wrong part begins, in characters from 0.
        length: length of the wrong part, in characters; 0 where something is missing.
        sentence: what is wrong and what to write.
        nearest: the nearest valid form of the wrong part; empty if there is none.
    """

    def __init__(self, position: int, length: int, sentence: str, nearest: str = "") -> None:
        super().__init__(f"{visible(sentence)} (character {position + 1} of the query)")
        self.position = position
        self.length = length
        self.sentence = visible(sentence)
        self.nearest = nearest


class ReadFromReplicaError(PyasynqError):
    """An inspector that reads from a replica was asked to change something; nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "this inspector reads from a replica and changes nothing; make one without read_from for that"
        )
