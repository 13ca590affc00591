"""Common base of scheduler and periodic task manager: run until a signal or a call stops it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

from pyasynq._background.code_places import find_waiting_place
from pyasynq._background.shutdown_watch import ShutdownWatch
from pyasynq._background.signals import SignalWatch
from pyasynq._background.time_limits import cancel_task
from pyasynq._exit_codes import EXIT_CLEAN

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pyasynq._background.calls import CallsInProgress
    from pyasynq.events import Events

_EXIT_MARGIN_SECONDS: Final = 2.5
"""Seconds beyond its limit that a shutdown may take before the process is ended."""


class Runnable:
    """A program part that starts, stops and shuts down. As a context manager it runs inside the block."""

    def __init__(self, events: Events, calls: CallsInProgress, shutdown_seconds: float) -> None:
        self._calls = calls
        self._shutdown_seconds = shutdown_seconds
        self._watch = ShutdownWatch(events, shutdown_seconds, exit_margin=_EXIT_MARGIN_SECONDS, stage=calls)
        self.events = events
        self.exit_code = EXIT_CLEAN
        """Exit code: 0, or 3 when code hung at the shutdown and was not waited for."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close_asked: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._owns_process = False
        self._has_started = False

    async def start(self) -> None:
        """Start the work, and return."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Begin no new work; work in progress continues."""
        raise NotImplementedError

    async def shutdown(self) -> None:
        """Finish the work in progress, and close the connections."""
        raise NotImplementedError

    async def run(self, *, signals: bool = True) -> int:
        """Run until stopped by a signal or `request_shutdown`; return the exit code.

        Args:
            signals: handle TERM and INT (shut down) and TSTP (start nothing new), if this is the main thread.

        When cancelled, it first shuts down gracefully. Raises what `start` raises.
        """
        self._loop = asyncio.get_running_loop()
        self._close_asked = asyncio.Event()
        with SignalWatch(self, owns_process=self._owns_process, enabled=signals):
            closing = asyncio.ensure_future(self._close_asked.wait())
            try:
                if await self._start_unless_closed(closing):
                    await closing
            finally:
                closing.cancel()
                if self._has_started:
                    await self.shutdown()
        return self.exit_code

    async def _start_unless_closed(self, closing: asyncio.Future[Any]) -> bool:
        """Start; cancel the start if `closing` is set meanwhile. Return whether it has started."""
        starting = asyncio.ensure_future(self.start())
        try:
            await asyncio.wait({starting, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not starting.done():
                self._has_started = True  # started so far that a shutdown is needed
                if self._calls:
                    self._watch.report(find_waiting_place(starting))
                await cancel_task(starting)
        if closing.done() and (not starting.done() or starting.cancelled()):
            return False
        starting.result()
        self._has_started = True
        return True

    def run_forever(self, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> int:
        """Run as the main program of this process until stopped; return the exit code.

        0: stopped gracefully; 1: the start failed, the log says why; 3: a hook or middleware hung,
        the log says which. The process ends 2.5 seconds after `shutdown_timeout` at the latest, even if a
        hook hangs. A second INT ends it at once.
        """
        self._owns_process = True
        return self._watch.run_process(self.run, "scheduler", loop_factory)

    def request_shutdown(self) -> None:
        """Make `run` shut down and return. Safe from any thread and from signal handlers."""
        self._watch.arm()
        if self._loop is not None and not self._loop.is_closed() and self._close_asked is not None:
            self._loop.call_soon_threadsafe(self._close_asked.set)

    def request_stop(self) -> None:
        """Start nothing new, while `run` continues. Safe from any thread and from signal handlers."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        self._stopping = asyncio.create_task(self.stop())

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down."""
        await self.shutdown()
