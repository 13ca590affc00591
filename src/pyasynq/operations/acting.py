"""Adaptive step size of operations, and the changes that they make to single tasks. Pure."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import parse_instant, parse_seconds
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._wire.messages import TaskMessage
    from pyasynq.operations.operation import OperationOptions
    from pyasynq.task import TaskInfo

_LARGEST_STEP: Final = 400
_SMALLEST_STEP: Final = 20
_TARGET: Final = 0.0045
"""Target duration of a step in seconds; no single step may block other clients for more than 10 ms."""
_SAMPLES: Final = 5
"""Number of recent steps from which the fastest one is taken, since delays only make a step slower."""


class StepPace:
    """Adaptive size of an operation's steps, from the time that Redis takes for a task.

    The duration of a step is Redis' work, a network round trip, and delays by other programs.
    The estimate is in seconds per task: the duration of the fastest recent step, without the shortest round
    trip, divided by the number of tasks in that step.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque(maxlen=_SAMPLES)
        self._trips: deque[float] = deque(maxlen=_SAMPLES)

    def next_size(self, size: int, seconds: float, trip: float) -> int:
        """Record the duration of a step; return the number of tasks that the next step is to have.

        Args:
            size: number of tasks in the last step.
            seconds: duration of that step.
            trip: duration of a trivial call, in seconds, which approximates the network round trip.
        """
        self._steps.append((max(1, size), seconds))
        self._trips.append(trip)
        shortest = min(self._trips)
        each = min((took - shortest) / number for number, took in self._steps)
        wanted = int(_TARGET / each) if each > 0 else _LARGEST_STEP
        return max(_SMALLEST_STEP, min(_LARGEST_STEP, size * 2, wanted))


def due_times(
    options: OperationOptions, ids: Sequence[str], position: int, total: int
) -> list[tuple[str, int]]:
    """Return the due time of each task in Unix seconds, spread evenly.

    `position` is the index, from 0, of the first of the `ids` among the operation's `total` tasks.
    """
    first = parse_instant("process_at", options.process_at).ceiling
    distance = options.spread.total_seconds() / max(1, total)
    return [(task_id, first + int((position + at) * distance)) for at, task_id in enumerate(ids)]


def editor_of(options: OperationOptions) -> Callable[[TaskMessage], None]:
    """Return a function that applies the options to a task's message."""

    def edit(message: TaskMessage) -> None:
        if options.max_retry is not None:
            message.retry = max(options.max_retry, message.retried)
        if options.timeout is not None:
            message.timeout = -int(-parse_seconds("timeout", options.timeout) // 1)
        if options.deadline is not None:
            message.deadline = parse_instant("deadline", options.deadline).ceiling
        for name, value in options.headers.items():
            message.headers[name] = value

    return edit


def copy_of(info: TaskInfo, operation: str = "") -> tuple[Task, dict[str, Any]]:
    """Return a new task with type, payload, headers, timeout, retries and retention of an existing one.

    Deadline, group and lock are not copied. With `operation`, the id is derived from operation and task, so
    that a repeated step makes no second copy.
    """
    options: dict[str, Any] = {
        "queue": info.queue,
        "max_retry": info.max_retry,
        "retention": info.retention,
        "headers": dict(info.headers),
    }
    if operation:
        digest = hashlib.sha256(f"{operation}\n{info.queue}\n{info.id}".encode("utf-8", "replace"))
        options["task_id"] = digest.hexdigest()[:32]
    if info.timeout is not None:
        options["timeout"] = info.timeout
    return Task(info.type, info.payload), options
