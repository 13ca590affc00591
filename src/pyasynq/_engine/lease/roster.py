"""All attempts of a server, from the reply of the dequeue until Redis has confirmed the settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyasynq._engine.run.attempt import Attempt


class Roster:
    """Deadline table, cancellation registry, lease list, and what shutdown puts back: one structure.

    Only the event loop changes it. Other threads take a `snapshot`, which is one step of the interpreter.

    Args:
        queues: names of the queues that attempts may be of; a live view, read at each search.
    """

    __slots__ = ("_attempts", "_queues")

    def __init__(self, queues: Iterable[str]) -> None:
        self._queues = queues
        self._attempts: dict[tuple[str, str], Attempt] = {}
        """By queue and id: the same id may stand in two queues."""

    def add(self, attempt: Attempt) -> None:
        """Enter an attempt that was just taken."""
        self._attempts[attempt.queue, attempt.id] = attempt

    def add_all(self, attempts: Iterable[Attempt]) -> None:
        """Enter attempts that were just taken."""
        self._attempts.update([((attempt.queue, attempt.id), attempt) for attempt in attempts])

    def remove(self, attempt: Attempt) -> None:
        """Strike an attempt off, unless its task has been taken anew."""
        self.remove_all((attempt,))

    def remove_all(self, attempts: Iterable[Attempt]) -> None:
        """Strike attempts off, but for those whose tasks have been taken anew."""
        entered = self._attempts
        for attempt in attempts:
            key = attempt.queue, attempt.id
            if entered.get(key) is attempt:
                del entered[key]

    def get(self, queue: str, task_id: str) -> Attempt | None:
        """Return the attempt at a task."""
        return self._attempts.get((queue, task_id))

    def with_id(self, task_id: str) -> list[Attempt]:
        """Return the attempts at tasks of this id: a cancel request on the wire names no queue."""
        attempts = self._attempts
        return [attempts[queue, task_id] for queue in self._queues if (queue, task_id) in attempts]

    def snapshot(self) -> list[Attempt]:
        """Return all attempts; safe from any thread."""
        return list(self._attempts.copy().values())

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts.values())

    def __len__(self) -> int:
        return len(self._attempts)
