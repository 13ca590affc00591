"""Reports of what ran while a kit drained or advanced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pyasynq._human_text import counted
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from pyasynq._app.typed_task import TypedTask

_R_co = TypeVar("_R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[_R_co]):
    """One run of one task.

    Attributes:
        task_id: the task's id.
        type: the task's type.
        queue: queue of the task.
        payload: payload of the task.
        arguments: arguments of the handler, for typed tasks; None for others.
        retried: number of earlier retries of the task.
        at: the virtual time at which it ran.
        outcome: outcome of the attempt.
        result: result of the handler.
        error: error of the handler, or the reason of its cancellation.
    """

    task_id: str
    type: str
    queue: str
    payload: bytes = field(repr=False)
    arguments: Mapping[str, Any] | None
    retried: int
    at: datetime
    outcome: Outcome
    result: _R_co | None = None
    error: BaseException | None = None

    def __str__(self) -> str:
        called = "" if self.arguments is None else ", ".join(f"{k}={v!r}" for k, v in self.arguments.items())
        ended = self.outcome.value if self.error is None else f"{self.outcome.value}: {self.error!r}"
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.queue} {self.type}({called}) {ended}"


@dataclass(frozen=True, slots=True)
class Report:
    """Attempts in the order of their ends; iteration, `len` and indexing use the attempts.

    Attributes:
        attempts: all attempts, including retries.
        events: other events: `TickFired`, `TasksAggregated`, `TaskRecovered` and so on, in order.
        left: number of tasks that are still pending, by queue: the queue is paused, limited or not served.
    """

    attempts: tuple[Attempt[Any], ...]
    events: tuple[tuple[object, ...], ...]
    left: Mapping[str, int]

    def __iter__(self) -> Iterator[Attempt[Any]]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    def __bool__(self) -> bool:
        return bool(self.attempts)

    @overload
    def __getitem__(self, index: int) -> Attempt[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Attempt[Any], ...]: ...

    def __getitem__(self, index: int | slice) -> Attempt[Any] | tuple[Attempt[Any], ...]:
        return self.attempts[index]

    def of(self, task: TypedTask[..., Any] | str) -> list[Attempt[Any]]:
        """Return the attempts of tasks of one type."""
        name = task if isinstance(task, str) else task.type
        return [attempt for attempt in self.attempts if attempt.type == name]

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """Number of attempts by outcome."""
        return Counter(attempt.outcome for attempt in self.attempts)

    @property
    def succeeded(self) -> list[Attempt[Any]]:
        """The attempts that succeeded."""
        return self._select(Outcome.SUCCEEDED)

    @property
    def retried(self) -> list[Attempt[Any]]:
        """The attempts whose tasks will be retried."""
        return self._select(Outcome.RETRIED)

    @property
    def archived(self) -> list[Attempt[Any]]:
        """The attempts whose tasks failed permanently."""
        return self._select(Outcome.ARCHIVED)

    @property
    def errors(self) -> list[BaseException]:
        """Errors of handlers, in order."""
        return [attempt.error for attempt in self.attempts if attempt.error is not None]

    def _select(self, outcome: Outcome) -> list[Attempt[Any]]:
        return [attempt for attempt in self.attempts if attempt.outcome is outcome]

    def __str__(self) -> str:
        lines = [counted(len(self.attempts), "attempt"), *map(str, self.attempts)]
        lines += [f"left in queue {queue!r}: {count}" for queue, count in self.left.items()]
        return "\n".join(lines)
