"""Record of the worker kill in the demo: the tasks that the worker held, and when they are recovered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyasynq.cli.demo.summary import WorkerKill

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq.cli.demo.workers import Worker


class WorkerKillRecord:
    """Record of a worker kill. Makes no calls to Redis: the caller passes in which tasks are still active.

    Args:
        worker: the killed process.
        share: share of the work that was finished at the kill, from 0 to 1.
        held: ids of the worker's active tasks, read after its death. It may have settled others just before.
    """

    def __init__(self, worker: Worker, share: float, held: Iterable[str]) -> None:
        self.worker = worker
        self.held = frozenset(held)
        self._share = share
        self._killed = time.monotonic()
        self._first_back: float | None = None
        self._last_back: float | None = None

    @property
    def age(self) -> float:
        """Seconds since the kill."""
        return time.monotonic() - self._killed

    def update(self, still_held: Iterable[str]) -> bool:
        """Record which held tasks are still active for the dead worker.

        Return whether the last of the held tasks has just been recovered.
        """
        left = self.held.intersection(still_held)
        if self._first_back is None and left != self.held:
            self._first_back = self.age
        if left or self._last_back is not None:
            return False
        self._last_back = self.age
        return bool(self.held)

    def to_kill(self) -> WorkerKill:
        """Return the facts about the kill for the summary."""
        return WorkerKill(
            worker=self.worker.name,
            pid=self.worker.pid,
            at_share=self._share,
            held=self.held,
            first_back=self._first_back,
            last_back=self._last_back,
        )
