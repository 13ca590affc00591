"""Every error that pyasynq raises: one tree, one class for each cause, the data as attributes.

Catch :class:`PyasynqError` for all of them. Errors about a wrong argument are also ``ValueError``,
errors about an unreachable Redis are also ``ConnectionError``, so that code that knows nothing of
pyasynq treats them sensibly.
"""

from collections import Counter
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from pyasynq._human_text import counted
from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self

    from pyasynq.task import EnqueueResult, TaskInfo


class PyasynqError(Exception):
    """Base of all errors of pyasynq. They can be pickled and copied, as process pools do."""

    def __reduce__(self) -> "tuple[Any, ...]":
        # Exception's own way calls the class with the message alone, which most of these cannot be made of.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[PyasynqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> PyasynqError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


def nearest(name: str, known: "Iterable[str]") -> str:
    """Return ``"; did you mean 'x'?"`` for the known name most like `name`, or an empty string."""
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def describe_value(value: object) -> str:
    """Return how an error shows a value: numbers, switches and times as they are, all else by its type.

    Text, bytes and objects are never shown. They may be a payload, or a part of one, in the wrong place.
    """
    if value is None or type(value) in _SHOWN or (type(value) is int and abs(value) < _LONG_NUMBER):
        return repr(value)
    if isinstance(value, type):
        return value.__qualname__
    # A function's name shows no value; a partial has no name, and holds arguments.
    name = f" {value.__qualname__}" if isinstance(value, FunctionType) else ""
    return f"<{type(value).__qualname__}{name}>"


_SHOWN = frozenset({bool, float, timedelta, datetime})
_LONG_NUMBER = 10**18
"""Python refuses to write numbers of more than 4,300 digits."""


# Wrong arguments and settings.


class ConfigurationError(PyasynqError, ValueError):
    """A setting, URL or declaration that cannot work."""


class InvalidOptionError(ConfigurationError):
    """An option with a value it cannot have. The message shows numbers and times; text and objects by type.

    Attributes:
        option: the option's name.
        value: what was given.
    """

    def __init__(self, option: str, value: object, remedy: str) -> None:
        # A class stands for a value that is not kept, because it may be secret.
        shown = f"<{value.__qualname__}>" if isinstance(value, type) else describe_value(value)
        super().__init__(f"{option}={shown}: {remedy}")
        self.option = option
        self.value = value


# What Celery, RQ, arq, Dramatiq, taskiq and Huey call our options; none of it is like our name in spelling.
_OPTIONS_ELSEWHERE = {
    "at_time": "process_at",
    "countdown": "process_in",
    "defer_by": "process_in",
    "defer_until": "process_at",
    "delay": "process_in",
    "eta": "process_at",
    "expires": "deadline",
    "job_id": "task_id",
    "job_timeout": "timeout",
    "job_try": "max_retry",
    "keep_result": "retention",
    "queue_name": "queue",
    "result_ttl": "retention",
    "retries": "max_retry",
    "soft_time_limit": "timeout",
    "time_limit": "timeout",
}


class UnknownOptionError(ConfigurationError, TypeError):
    """An option that does not exist; the message suggests the nearest one.

    Attributes:
        option: the name that was given.
    """

    def __init__(self, option: str, known: "Iterable[str]") -> None:
        known = sorted(known)
        meant = _OPTIONS_ELSEWHERE.get(option.strip("_"))
        hint = f"; did you mean {meant!r}?" if meant in known else nearest(option, known)
        hint = hint or f"; the options are {', '.join(known)}"
        super().__init__(f"there is no option {option!r}{hint}")
        self.option = option


class CronError(ConfigurationError):
    """A cron expression that cannot be read; the message says what to write instead.

    Attributes:
        expression: all of it.
        field: name of the field that is wrong, such as ``"day of week"``; None if it is not one of the five.
        value: the part that is wrong.
    """

    def __init__(self, expression: str, value: str, remedy: str, *, field: str | None = None) -> None:
        place = f"{field} " if field else ""
        shown = "" if value == expression else f": {place}{_shortened(value)}"
        super().__init__(f"cron expression {_shortened(expression)}{shown}: {remedy}")
        self.expression = expression
        self.field = field
        self.value = value


def _shortened(text: str) -> str:
    """Return the text in quotes, cut to what fits a message."""
    return repr(text if len(text) <= 100 else text[:99] + "\N{HORIZONTAL ELLIPSIS}")


class PayloadTooLargeError(ConfigurationError):
    """A task larger than the client's `max_payload`; nothing was sent.

    Attributes:
        size: bytes of the payload, with those of the headers if it has any.
        limit: bytes that are allowed.
    """

    def __init__(self, size: int, limit: int, *, what: str = "the payload has") -> None:
        super().__init__(
            f"{what} {size:,} bytes and the limit is {limit:,}: "
            "store the data elsewhere and enqueue a reference to it, or raise max_payload",
        )
        self.size = size
        self.limit = limit


class ResultTooLargeError(PyasynqError):
    """A result larger than the server's `max_result`; it was not sent. An ordinary failure of the task.

    Attributes:
        size: bytes of the result.
        limit: bytes that are allowed.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the result has {size:,} bytes and the limit is {limit:,}: "
            "store the data elsewhere and return a reference to it, or raise max_result",
        )
        self.size = size
        self.limit = limit


class ArgumentsError(ConfigurationError, TypeError):
    """A typed task called with missing, unknown or surplus arguments.

    Attributes:
        argument: the unknown argument's name, or None.
    """

    def __init__(self, message: str, argument: str | None) -> None:
        super().__init__(message)
        self.argument = argument


class PayloadEncodingError(ConfigurationError):
    """Arguments that the payload's JSON cannot carry; the message names the argument."""


class PayloadDecodingError(PyasynqError):
    """A payload that does not fit the handler's arguments. An ordinary failure of the task."""


# Redis.


class RedisError(PyasynqError):
    """Redis, or the way to it, failed."""


class RedisUnavailableError(RedisError, ConnectionError):
    """No connection could be made or kept within the time-out. What was asked was not done.

    Attributes:
        address: host and port or socket path, without the password.
        cause: what happened, in words.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"Redis at {address} cannot be reached: {cause}")
        self.address = address
        self.cause = cause


class RedisTLSError(RedisUnavailableError):
    """Certificates, or one side's settings of TLS, are wrong; a connection is not tried again and again."""


class ReplyLostError(RedisError, ConnectionError):
    """The connection broke after a call was sent: it may or may not have taken effect.

    Attributes:
        address: host and port or socket path, without the password.
        cause: what happened, in words.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"the reply of Redis at {address} was lost, the call may have taken effect: {cause}")
        self.address = address
        self.cause = cause


class RedisAuthenticationError(RedisError):
    """Redis refused the user name or the password."""


class RedisPermissionError(RedisError):
    """The Redis user lacks a right; the message names the command or key."""


class RedisOutOfMemoryError(RedisError):
    """Redis is at its `maxmemory` and refuses what would make it grow. Nothing was written."""


class NotDurableError(RedisError):
    """A `durable` task is in its queue, but too few replicas have confirmed that they have it too.

    It will be run, unless this Redis is lost before a replica has it. Who enqueues it again does so under the
    same `task_id`, so that it is not run twice.

    Attributes:
        info: the task.
        replicas: how many have it for certain.
        wanted: how many were to have it.
    """

    def __init__(self, info: "TaskInfo", replicas: int, wanted: int, cause: str) -> None:
        super().__init__(
            f"task {info.id!r} is in queue {info.queue!r}, but of {wanted} wanted "
            f"replica{'s' if wanted > 1 else ''} {replicas or 'none'} confirmed it: {cause}"
        )
        self.info = info
        self.replicas = replicas
        self.wanted = wanted


class RedisVersionError(RedisError):
    """The server is older than Redis 6.2.

    Attributes:
        version: what the server says it is.
    """

    def __init__(self, version: str) -> None:
        super().__init__(f"this server is Redis {version}; pyasynq needs Redis 6.2 or Valkey 7.2 at least")
        self.version = version


class RedisReplyError(RedisError):
    """Redis answered with an error that pyasynq has no better class for; the message is the server's."""


class RedisValueTooLargeError(RedisReplyError):
    """Redis takes no call with a value, or altogether, of this size. Nothing was written.

    The limit is `proto-max-bulk-len` (512 MB), often much lower at managed servers.
    """


class ClientClosedError(PyasynqError):
    """The client or server object was used after it had been closed."""


# Enqueueing.


class EnqueueError(PyasynqError):
    """A task that could not be enqueued. Nothing was written for it."""


class TaskIDConflictError(EnqueueError):
    """A task with this id exists in the queue, in whatever state.

    Attributes:
        queue: the queue's name.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str) -> None:
        super().__init__(f"task ID conflicts with another task: {task_id!r} exists in queue {queue!r}")
        self.queue = queue
        self.task_id = task_id


class DuplicateTaskError(EnqueueError):
    """A unique task of the same type and payload, or of the same `unique_key`, holds the lock in this queue.

    Attributes:
        queue: the queue's name.
        unique_key: the lock's key in Redis.
        holder: id of the task that holds it; empty if it let go before it could be read.
        reason: why the holder cannot be returned or take another payload; empty if neither was asked.
    """

    def __init__(self, queue: str, unique_key: str, holder: str = "", reason: str = "") -> None:
        # Not the key: it may hold a name that was made of the payload, and says nothing to people.
        who = f"task {holder!r}" if holder else "another task"
        why = f"; it {reason}" if reason else ""
        super().__init__(f"task already exists: {who} in queue {queue!r} holds its lock{why}")
        self.queue = queue
        self.unique_key = unique_key
        self.holder = holder
        self.reason = reason


class EnqueueManyError(EnqueueError, ExceptionGroup[PyasynqError]):
    """An `enqueue_many` lost some of its tasks, or may have.

    They were refused, it is unknown whether Redis has them, or too few replicas have them. It is an exception
    group of their errors, each of which is in it once, so `except*` works. A task that was not enqueued
    because its id exists or its lock is held is not lost: that is in the results only.

    Attributes:
        results: what `enqueue_many` would have returned: a result for each task, in their order.
    """

    results: "list[EnqueueResult]"

    def __new__(cls, results: "Iterable[EnqueueResult]") -> "Self":
        """Make a group of the errors of lost tasks; at least one of the results must have such."""
        results = list(results)
        lost = lost_results(results)
        errors = {id(result.error): result.error for result in lost if result.error is not None}
        kinds = Counter(type(result.error).__name__ for result in lost)
        counts = ", ".join(f"{count:,} {name}" for name, count in kinds.most_common())
        verb = "was" if len(lost) == 1 else "were"
        noun = "task" if len(results) == 1 else "tasks"
        lost_of_all = f"{len(lost):,} of {len(results):,} {noun} {verb}"
        message = f"{lost_of_all} not enqueued as asked: {counts}; see `results`"
        return cls._of(message, list(errors.values()), results)

    def __init__(self, results: "Iterable[EnqueueResult]") -> None:  # noqa: ARG002 - `__new__` has taken them
        super().__init__(self.message, cast("list[PyasynqError]", self.exceptions))

    @classmethod
    def _of(cls, message: str, errors: "Sequence[PyasynqError]", results: "list[EnqueueResult]") -> "Self":
        group = super().__new__(cls, message, errors)
        group.results = results
        return group

    def derive(  # type: ignore[override] # it has errors of this kind only
        self, errors: "Sequence[PyasynqError]"
    ) -> "EnqueueManyError":
        """Return a group of some of the errors, with all results."""
        return self._of(self.message, errors, self.results)

    def __reduce__(self) -> "tuple[Any, ...]":
        return _restore_group, (type(self), self.message, self.exceptions, self.results)


def _restore_group(
    kind: type[EnqueueManyError],
    message: str,
    errors: "Sequence[PyasynqError]",
    results: "list[EnqueueResult]",
) -> EnqueueManyError:
    return kind._of(message, errors, results)  # noqa: SLF001 - of this module


def lost_results(results: "Iterable[EnqueueResult]") -> "list[EnqueueResult]":
    """Return the results of tasks that are not in Redis as they were to be, for all that is known."""
    there = (TaskIDConflictError, DuplicateTaskError)
    return [result for result in results if result.error is not None and not isinstance(result.error, there)]


class TickTakenError(EnqueueError):
    """This tick of a schedule, or a later one, has been fired: most often by another scheduler, just now.

    Only client middleware of a scheduler sees it.

    Attributes:
        entry_id: of the schedule.
        tick: that was to be fired, in Unix time.
        last: that was fired last, in Unix time.
    """

    def __init__(self, entry_id: str, tick: int, last: int) -> None:
        super().__init__(f"tick {tick} of schedule {entry_id} has been fired; the last one was {last}")
        self.entry_id = entry_id
        self.tick = tick
        self.last = last


# Looking at and changing tasks.


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


# Waiting for tasks, and their results.


class WaitTimeoutError(PyasynqError, TimeoutError):
    """A task did not end within the time that somebody was ready to wait. The task goes on.

    The cause is a `RedisError` if Redis could not be reached at the end.

    Attributes:
        queue: the queue's name.
        task_id: the id.
        seconds: how long was waited.
    """

    def __init__(self, queue: str, task_id: str, seconds: float) -> None:
        super().__init__(f"task {task_id!r} in queue {queue!r} has not ended within {seconds:g} s")
        self.queue = queue
        self.task_id = task_id
        self.seconds = seconds


class ResultError(PyasynqError):
    """A task has no result to give; the subclass says why.

    Attributes:
        queue: the queue's name.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str, reason: str) -> None:
        super().__init__(f"task {task_id!r} in queue {queue!r} {reason}")
        self.queue = queue
        self.task_id = task_id


class ResultNotKeptError(ResultError, LookupError):
    """The result was not kept: the task has no retention, its retention is over, or it stored no result.

    The message says so if the handler returned something that could not be stored.
    """


class TaskFailedError(ResultError):
    """The task failed for good and is archived. It may still be run again by hand.

    Attributes:
        error: the message of its last error; empty if it was archived by hand before it failed.
    """

    def __init__(self, queue: str, task_id: str, error: str) -> None:
        super().__init__(queue, task_id, f"failed for good: {visible(error) or 'it was archived by hand'}")
        self.error = error


class TaskDeletedError(ResultError, LookupError):
    """The task was deleted before it could succeed: by hand, by `RevokeTask`, or by a cancellation.

    So is a task that was made into another one with the rest of its group.
    """


class UndecodableMessageError(PyasynqError, ValueError):
    """Bytes from Redis that are not the message they should be.

    The text of the error holds no part of the bytes, since they may hold a payload.

    Attributes:
        kind: name of the message.
        data: the bytes, untouched.
        reason: what is wrong with them.
    """

    def __init__(self, kind: str, data: bytes, reason: str) -> None:
        super().__init__(f"cannot decode {counted(len(data), 'byte')} as {kind}: {reason}")
        self.kind = kind
        self.data = data
        self.reason = reason


class InvalidTextError(PyasynqError, ValueError):
    """A text cannot be written as UTF-8, because it holds half of a surrogate pair.

    Attributes:
        kind: name of the message.
        field: where the text is.
        text: all of it.
    """

    def __init__(self, kind: str, field: str, text: str, position: int) -> None:
        super().__init__(
            f"{field} of {kind} is not valid Unicode: character {position} is {text[position]!a}, "
            "half of a surrogate pair; decode the text with errors='replace', or send bytes in the payload"
        )
        self.kind = kind
        self.field = field
        self.text = text


# What handlers raise, and what ends an attempt.


class SkipRetry(PyasynqError):  # noqa: N818 - Asynq's word
    """Raised by a handler (or wrapped as a cause): archive the task now, whatever retries are left."""


class RevokeTask(PyasynqError):  # noqa: N818 - Asynq's word
    """Raised by a handler (or wrapped as a cause): the task is done with; no retry, no archive, no trace."""


class HandlerNotFoundError(PyasynqError, LookupError):
    """No handler is registered for the task's type; the message suggests the nearest one.

    Attributes:
        task_type: the type.
        words: Go's words for it, which Redis keeps.
    """

    def __init__(self, task_type: str, known: "Iterable[str]" = ()) -> None:
        self.words = f'handler not found for task "{task_type}"'
        super().__init__(self.words + nearest(task_type, known))
        self.task_type = task_type


class TaskTimeoutError(PyasynqError, TimeoutError):
    """The attempt reached its timeout or deadline. A note shows the stack of the handler, where it is known.

    Attributes:
        limit: how many seconds the attempt had; None if that is not known.
        place: file, line and function of the handler's innermost line; empty if that is not known.
        words: Go's words for it, which Redis keeps.
    """

    def __init__(self, limit: float | None = None, place: str = "") -> None:
        self.words = "context deadline exceeded"
        after = "" if limit is None else f" after {max(0.0, limit):g} s"
        super().__init__(self.words + after + (f" at {place}" if place else ""))
        self.limit = limit
        self.place = place


class TaskCanceledError(PyasynqError):
    """The attempt was cancelled through the inspector, the dashboard or the command line.

    Attributes:
        outcome: what becomes of the task: `"retry"`, `"archive"` or `"delete"`.
    """

    def __init__(self, outcome: str = "retry") -> None:
        super().__init__("context canceled")
        self.outcome = outcome


class LeaseExpiredError(PyasynqError):
    """The attempt's lease lapsed or went to another worker; this attempt may no longer settle the task."""

    def __init__(self) -> None:
        super().__init__("asynq: task lease expired")


class UnknownAttemptError(LeaseExpiredError):
    """Redis knows nothing of the attempt any more: it was settled or lost too long ago, or there was none."""

    def __init__(self) -> None:
        PyasynqError.__init__(self, "unknown: settled or lost more than 60 s ago")


class AttemptSettledError(PyasynqError):
    """The attempt was settled before: what becomes of its task has been said.

    Attributes:
        queue: the queue's name.
        task_id: the id.
        verdict: how a leased attempt was settled: `"done"`, `"retry"`, `"snooze"`, `"archive"`, `"cancel"` or
            `"requeue"`; empty for other attempts.
    """

    def __init__(self, queue: str, task_id: str, verdict: str = "") -> None:
        before = f"settled before, as {verdict!r}" if verdict else "settled before"
        super().__init__(f"this attempt at task {task_id!r} of queue {queue!r} was {before}")
        self.queue = queue
        self.task_id = task_id
        self.verdict = verdict


class ReportedError(PyasynqError):
    """What went wrong with a task, in the words of whoever ran it, elsewhere or in another language."""


class SettleError(PyasynqError):
    """The end of an attempt that cannot be written down: an ordinary failure of its task.

    It could not be worked out, or Redis refuses it for good; `__cause__` is what Redis said.
    """


class RemoteError(PyasynqError):
    """An error of a handler in a child process, whose class the worker does not know, or cannot make.

    Attributes:
        type_name: the class with its module, as in `shop.errors.CardDeclined`.
        text: what the error said.
    """

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(text)
        self.type_name = type_name
        self.text = text


class ChildProcessDiedError(PyasynqError):
    """The child process of a task ended before its handler did. An ordinary failure of the task.

    Attributes:
        exit_code: as the handler left it; None when a signal ended it.
        signal: name of the signal, such as `SIGSEGV`; None when there was none.
    """

    def __init__(self, exit_code: int | None, signal: str | None, reason: str = "") -> None:
        if reason:
            text = f"was killed: {reason}"
        elif signal is None:
            text = f"ended with exit code {exit_code}"
        else:
            hint = ", as the kernel does when memory runs out" if signal == "SIGKILL" else ""
            text = f"was killed by {signal}{hint}"
        super().__init__(f"the child process that ran the handler {text}")
        self.exit_code = exit_code
        self.signal = signal


class SemaphoreFullError(PyasynqError):
    """All tokens of a semaphore are taken; try again later.

    Attributes:
        scope: the semaphore's name.
        max_tokens: how many tokens there are.
    """

    def __init__(self, scope: str, max_tokens: int) -> None:
        super().__init__(f"semaphore {scope!r}: all {max_tokens} tokens are taken")
        self.scope = scope
        self.max_tokens = max_tokens


class SemaphoreNotHeldError(PyasynqError):
    """A token is given back by a task that holds none, or whose deadline has passed.

    Attributes:
        scope: the semaphore's name.
        task_id: the task's.
    """

    def __init__(self, scope: str, task_id: str) -> None:
        super().__init__(f"semaphore {scope!r}: task {task_id!r} holds no token")
        self.scope = scope
        self.task_id = task_id


# Servers.


class ServerStateError(PyasynqError, RuntimeError):
    """A server was asked for something that its state does not allow, such as a second start."""


# Tests.


class ForeignRedisError(ConfigurationError):
    """A test kit is in use, and something would speak to a Redis that is not the kit's.

    Attributes:
        address: where that Redis is, without the password.
    """

    def __init__(self, address: str) -> None:
        super().__init__(
            f"a test kit is in use, and something wants to speak to Redis at {address}, which is not the "
            "kit's: go through the app under test or the kit's url, or allow it by use(..., allow=[...])"
        )
        self.address = address


class DrainTimeoutError(PyasynqError, TimeoutError):
    """Tasks that a test kit ran did not end within its patience; they were broken off.

    Attributes:
        tasks: type and id of each.
        seconds: the patience.
    """

    def __init__(self, tasks: "Iterable[str]", seconds: float) -> None:
        self.tasks = tuple(tasks)
        self.seconds = seconds
        super().__init__(
            f"still running after {seconds:g} s of real time: {', '.join(self.tasks)}; where handlers wait "
            "for one another the kit needs use(..., concurrency=2), for long ones use(..., patience=...)"
        )


class EndlessDrainError(PyasynqError):
    """A test kit has run very many tasks at one instant, and there are more.

    Attributes:
        types: task types and how often each ran, the most frequent first.
    """

    def __init__(self, types: "Mapping[str, int]") -> None:
        self.types = dict(types)
        often = ", ".join(
            f"{name!r} {counted(count, 'time')}" for name, count in list(self.types.items())[:3]
        )
        super().__init__(
            f"{sum(self.types.values())} tasks ran at one instant and there are more ({often}): does a task "
            "enqueue itself, or fail, without a delay?"
        )


class HandlerExitError(PyasynqError):
    """A handler that a test kit ran raised what is no error: `SystemExit`, or a cancellation of its own."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(
            f"a handler raised {type(raised).__qualname__}; a worker goes on, and retries the task"
        )


# Schedulers.


class SchedulerStateError(PyasynqError, RuntimeError):
    """A scheduler was asked for something that its state does not allow, such as a second start."""


class ScheduleNotFoundError(PyasynqError, LookupError):
    """A scheduler has no entry with this id.

    Attributes:
        entry_id: the id.
    """

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"no scheduler entry found: {entry_id!r}")
        self.entry_id = entry_id
