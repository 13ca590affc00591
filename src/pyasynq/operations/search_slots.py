"""Semaphores that limit how many searches of one process run at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from pyasynq._clock import sleep_async, sleep_blocking

if TYPE_CHECKING:
    from types import TracebackType

_SEARCHES: Final = 2
_SLOT_SECONDS: Final = 0.005


class SearchSlots:
    """Counting semaphore for the searches of all threads and event loops of this process."""

    def __init__(self, slots: int) -> None:
        self._slots = threading.BoundedSemaphore(slots)

    async def enter_async(self) -> Self:
        """Acquire a search slot, polling 200 times a second; the end of the `with` block releases it."""
        while not self._slots.acquire(blocking=False):
            await sleep_async(_SLOT_SECONDS)
        return self

    def enter_blocking(self) -> Self:
        """Acquire a search slot; the end of the `with` block releases it."""
        while not self._slots.acquire(blocking=False):
            sleep_blocking(_SLOT_SECONDS)
        return self

    def __enter__(self) -> Self:
        """Return the semaphore, in which the caller has a slot already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the slot."""
        self._slots.release()


search_slots: Final = SearchSlots(_SEARCHES)
"""Semaphore of searches in this process: at most two run at once, so that Redis has time for the workers."""
