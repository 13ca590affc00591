"""Quarantine of taken tasks whose messages cannot be decoded: they are archived unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.leases import quarantine
from pyasynq._checks import parse_seconds
from pyasynq.events import MessageQuarantined

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyasynq._broker.settle import Claim
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._redis.plan import Plan


class UnreadableTask(NamedTuple):
    """A taken task that cannot be decoded."""

    queue: str
    claim: Claim
    reason: str


class UnreadableTasks:
    """Taken tasks that cannot be decoded, until Redis has archived them.

    Written by the intake, on the event loop.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._archive_max_age = int(parse_seconds("archive_max_age", parts.config.archive_max_age))
        self._tasks: list[UnreadableTask] = []

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def queues(self) -> Collection[str]:
        """Names of the queues that have unreadable tasks here."""
        return {task.queue for task in self._tasks}

    def add(self, queue: str, claim: Claim, reason: str) -> None:
        """Add a task, with the reason why it cannot be decoded."""
        self._tasks.append(UnreadableTask(queue, claim, reason))

    def quarantines(self, now: float) -> list[tuple[UnreadableTask, Plan[object]]]:
        """Return the calls that archive unreadable tasks, for queues that are not in a back-off at `now`."""
        if not self._tasks:
            return []
        board, config, redis_now = self._parts.board, self._parts.config, self._parts.redis_time.now()
        cutoff = redis_now.seconds - self._archive_max_age
        return [
            (
                task,
                quarantine(
                    task.queue,
                    task.claim,
                    reason=task.reason,
                    max_size=config.archive_max_size,
                    cutoff=cutoff,
                    now=redis_now,
                ),
            )
            for task in self._tasks
            if board.ready_at(task.queue) <= now
        ]

    def quarantined(self, task: UnreadableTask) -> None:
        """Remove a task that Redis has archived, and emit a `MessageQuarantined` event."""
        self._tasks.remove(task)
        self._parts.events.emit(MessageQuarantined(task.queue, task.claim.id, task.reason))
