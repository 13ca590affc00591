"""Attempts in flight of a server: the roster of attempts without a written outcome, and the slot table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyasynq._engine.run.attempt import Attempt


class Roster:
    """All attempts of a server, from the dequeue reply until Redis has confirmed the settle.

    It is the source of deadlines, leases, attempts to cancel, and attempts that shutdown puts back. Only the
    event loop writes it. Other threads take a `snapshot`, which is atomic.

    Args:
        queues: names of the queues of attempts; a live view, read at each search.
    """

    __slots__ = ("_attempts", "_queues")

    def __init__(self, queues: Iterable[str]) -> None:
        self._queues = queues
        self._attempts: dict[tuple[str, str], Attempt] = {}
        """The attempts by queue and id: two queues may have a task with the same id."""

    def add(self, attempt: Attempt) -> None:
        """Add an attempt that was just taken."""
        self._attempts[attempt.queue, attempt.id] = attempt

    def add_all(self, attempts: Iterable[Attempt]) -> None:
        """Add attempts that were just taken."""
        self._attempts.update([((attempt.queue, attempt.id), attempt) for attempt in attempts])

    def remove(self, attempt: Attempt) -> None:
        """Remove an attempt, unless the roster has a newer attempt of its task."""
        self.remove_all((attempt,))

    def remove_all(self, attempts: Iterable[Attempt]) -> None:
        """Remove attempts, except where the roster has a newer attempt of the task."""
        entered = self._attempts
        for attempt in attempts:
            key = attempt.queue, attempt.id
            if entered.get(key) is attempt:
                del entered[key]

    def get(self, queue: str, task_id: str) -> Attempt | None:
        """Return the attempt of a task."""
        return self._attempts.get((queue, task_id))

    def with_id(self, task_id: str) -> list[Attempt]:
        """Return the attempts of tasks with this id: a cancel request in the wire format names no queue."""
        attempts = self._attempts
        return [attempts[queue, task_id] for queue in self._queues if (queue, task_id) in attempts]

    def snapshot(self) -> list[Attempt]:
        """Return all attempts; safe from any thread."""
        return list(self._attempts.copy().values())

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts.values())

    def __len__(self) -> int:
        return len(self._attempts)


class SlotTable:
    """Attempts that hold a slot, in the order in which they were started.

    Written and read by the event loop only.
    """

    __slots__ = ("_attempts", "_idle_waiters")

    def __init__(self) -> None:
        self._attempts: dict[Attempt, None] = {}
        self._idle_waiters: list[asyncio.Future[None]] = []

    def add(self, attempt: Attempt) -> None:
        """Give an attempt a slot."""
        self._attempts[attempt] = None

    def remove(self, attempt: Attempt) -> None:
        """Free an attempt's slot, if it has one."""
        self._attempts.pop(attempt, None)
        if not self._attempts:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no attempt holds a slot; return False if that takes longer than this many seconds."""
        if not self._attempts:
            return True
        idle = asyncio.get_running_loop().create_future()
        self._idle_waiters.append(idle)
        await asyncio.wait({idle}, timeout=seconds)
        self._idle_waiters.remove(idle)
        return not self._attempts

    def __contains__(self, attempt: object) -> bool:
        return attempt in self._attempts

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts)

    def __len__(self) -> int:
        return len(self._attempts)
