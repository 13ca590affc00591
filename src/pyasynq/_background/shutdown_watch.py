"""Time limits of a shutdown, and the report of hanging code when they are exceeded."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from pyasynq._background.code_places import UNKNOWN_PLACE, format_blocking_stack
from pyasynq._background.exit_guard import ExitGuard, end_process
from pyasynq._background.time_limits import TimeLeft, clear_loop
from pyasynq._exit_codes import EXIT_START_FAILED, EXIT_UNFINISHED
from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError
from pyasynq.events import ShutdownHung

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyasynq.events import Events

_log = logging.getLogger("pyasynq")
_LEFTOVERS = "what is left on the event loop"
_TURN_SECONDS = 0.1
"""Seconds without an iteration after which an event loop counts as blocked."""


class ShutdownWatch:
    """The time limits of the shutdown of a server or scheduler.

    Args:
        events: receive the reports of what hangs.
        limit: seconds that a shutdown may take.
        margin: seconds after the limit at which the steps of the shutdown are given up.
        exit_margin: seconds after the limit at which the process ends, if the server owns the process.
        put_back: called from a thread with the exit code before the process ends; puts tasks back.

    Attributes:
        stage: the current stage of the program, as text for the report; written by the loop, read by the
            guard.
        has_hung: whether anything exceeded its time; written by any thread, read by the loop.
    """

    def __init__(
        self,
        events: Events,
        limit: float,
        *,
        margin: float = 0.0,
        exit_margin: float,
        stage: object = "the start",
        put_back: Callable[[int], object] | None = None,
    ) -> None:
        self.stage = stage
        self.has_hung = False
        events.subscribe(ShutdownHung, self._note_hung)
        self._events = events
        self._limit = limit
        self._margin = margin
        self._exit_margin = exit_margin
        self._put_back = put_back
        self._left: TimeLeft | None = None
        self._guard: ExitGuard | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0

    def arm(self) -> None:
        """Arm the watchdog that ends the process. Safe in signal handlers and in any thread."""
        if self._guard is not None:
            self._guard.arm(self._limit + self._exit_margin)

    def time_left(self) -> TimeLeft:
        """Return the time limit shared by all steps; the first call starts it, and arms the watchdog."""
        if self._left is None:
            self.arm()
            self._left = TimeLeft(self._limit + self._margin)
        return self._left

    def report(self, where: str) -> None:
        """Report that the current stage did not end in time, and where it waits."""
        self._events.emit(ShutdownHung(self._describe(), where))

    def run_process(
        self,
        main: Callable[[], Coroutine[Any, Any, int]],
        name: str,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
    ) -> int:
        """Run the main program of this process, and return its exit code."""
        self._thread_id = threading.get_ident()
        try:
            with (
                ExitGuard(self._expire, EXIT_UNFINISHED) as self._guard,
                asyncio.Runner(loop_factory=loop_factory) as runner,
            ):
                self._loop = runner.get_loop()
                return runner.run(main())
        except PyasynqError as error:
            _log.error("the %s could not start: %s", name, visible(error))
            return EXIT_START_FAILED

    async def clear_loop(self, seconds: float, code: int) -> None:
        """End what handlers left on the loop (tasks, generators, threads); exit if any does not end."""
        self.stage = _LEFTOVERS
        is_clear, places = await clear_loop(min(seconds, self.time_left()()))
        for place in places:
            self.report(place)
        if not is_clear:
            end_process(code or EXIT_UNFINISHED)

    def _note_hung(self, _: ShutdownHung) -> None:
        self.has_hung = True

    def _describe(self) -> str:
        return str(self.stage) or _LEFTOVERS

    def _expire(self) -> None:
        """Report what keeps the process from ending, and put tasks back; called from the guard's thread."""
        # Done first, before any wait: the loop's thread may rarely release the GIL.
        stack = format_blocking_stack(self._thread_id).rstrip()
        if self._loop is not None and not _iterates(self._loop):
            self.stage = f"the event loop (blocked during {self._describe()})"
            self.report(f"this stack:\n{stack}")
        elif not self.has_hung:
            # If an earlier stage was reported, it has used up the time, and the present stage does not hang.
            self.report(UNKNOWN_PLACE)
        if self._put_back is not None:
            self._put_back(EXIT_UNFINISHED)


def _iterates(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop still iterates; called from another thread."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:
        return True  # the loop is closed, so it is not blocked
    return turned.wait(_TURN_SECONDS)
