"""What ran while a kit drained or advanced."""

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
        queue: the queue that it was in.
        payload: its payload.
        arguments: those of the handler, for typed tasks; None for others.
        retried: how many retries had been spent before.
        at: the virtual time at which it ran.
        outcome: what became of the task.
        result: what the handler returned.
        error: what it raised, or why it was broken off.
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
    """What ran, in the order in which it ended; iterating, `len` and indexing are about the attempts.

    Attributes:
        attempts: all of them, retries included.
        events: what else happened: `TickFired`, `TasksAggregated`, `TaskRecovered` and so on, in order.
        left: how many tasks are pending still, by queue: the queue is paused or limited, or nobody serves it.
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
        """Return the attempts at tasks of one type."""
        name = task if isinstance(task, str) else task.type
        return [attempt for attempt in self.attempts if attempt.type == name]

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """How many attempts ended how."""
        return Counter(attempt.outcome for attempt in self.attempts)

    @property
    def succeeded(self) -> list[Attempt[Any]]:
        """The attempts that succeeded."""
        return self._that(Outcome.SUCCEEDED)

    @property
    def retried(self) -> list[Attempt[Any]]:
        """The attempts whose task is to be tried again."""
        return self._that(Outcome.RETRIED)

    @property
    def archived(self) -> list[Attempt[Any]]:
        """The attempts whose task has failed for good."""
        return self._that(Outcome.ARCHIVED)

    @property
    def errors(self) -> list[BaseException]:
        """What handlers raised, in order."""
        return [attempt.error for attempt in self.attempts if attempt.error is not None]

    def _that(self, outcome: Outcome) -> list[Attempt[Any]]:
        return [attempt for attempt in self.attempts if attempt.outcome is outcome]

    def __str__(self) -> str:
        lines = [counted(len(self.attempts), "attempt"), *map(str, self.attempts)]
        lines += [f"left in queue {queue!r}: {count}" for queue, count in self.left.items()]
        return "\n".join(lines)
