"""Base class of all background services: `enter` once, call `round` in a loop, `leave` once."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from pyasynq._background.rest import Rest
from pyasynq._background.time_limits import CANCEL_SECONDS, cancel_task, report_place
from pyasynq._backoff import Backoff
from pyasynq._redis.failures import drop_tracebacks
from pyasynq.events import LeaveFailed, RoundFailed, RoundFinished, ShutdownHung

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.events import Events


async def stop_services(services: list[Service], seconds: Callable[[], float], *, keep: int = 0) -> None:
    """Stop services in reverse order and remove them from the list, even if one of them fails.

    Args:
        services: services in the order of their starts.
        seconds: returns how long the next one may take to stop, such as a `TimeLeft`.
        keep: number of services, from the first, that keep running.
    """
    while len(services) > keep:
        await services.pop().stop(seconds())


class Service:
    """A background loop of a server, in an asyncio task; one iteration is a round, followed by a pause.

    A subclass overrides `round`, and `enter`, `leave`, `interrupt` if needed.

    `start` and `stop` are idempotent, also when several tasks stop it at the same time. A stopped service can
    be started again. All of it belongs to one event loop.
    """

    name = "service"
    node = ""
    """Address of the cluster node that it works for; empty for all of Redis."""
    first_rest = 0.0
    """Seconds before the first round."""
    stop_limit = math.inf
    """Seconds that the last round may take after a stop; finite if it calls user functions."""
    asked_at: float | None = None
    """Time of `time.monotonic` before the calls that Redis has answered in this round.

    Set by services whose rounds show whether Redis answers.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self._rest = Rest()
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def enter(self) -> None:
        """Prepare the first round. `start` raises the exceptions of this method."""

    async def round(self) -> float:
        """Do one iteration of the service's work; return the seconds to pause before the next one."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Clean up after the last round."""

    def interrupt(self) -> None:
        """End any endless wait of a round; called once when the service is being stopped."""

    def describe(self) -> str:
        """Return a description of the round's work, for the report of a round that does not end."""
        return f"the service {self.name!r}"

    @property
    def running(self) -> bool:
        """Whether the service has been started and not stopped."""
        return self._task is not None

    @property
    def closing(self) -> bool:
        """Whether the current round is the last."""
        return self._closing

    def wake(self) -> None:
        """End the pause; during a round, skip the next pause."""
        self._rest.wake()

    def wake_for(self, node: str) -> None:  # noqa: ARG002 - only `NodeServices` has one for each node
        """End the pause of the service that works for a cluster node."""
        self.wake()

    async def start(self) -> None:
        """Call `enter`, then start the task that repeats `round`; do nothing if the service is running."""
        if self._task is not None:
            return
        self._closing = False
        self._rest.clear()
        # Create the task first, so that a second start sees it while the first still enters.
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(entered), name=f"pyasynq {self.name}")
        try:
            await asyncio.shield(entered)
        except asyncio.CancelledError:
            await self.stop(CANCEL_SECONDS)
            raise
        except Exception:
            self._task = None
            raise

    async def stop(self, limit: float = math.inf) -> bool:
        """End the service's pause, let its current round finish, and call `leave`.

        If that takes longer than `limit` or `stop_limit` seconds, the service's task is cancelled, with a
        `ShutdownHung` event; if it ignores the cancellation, it is left running. An error of `leave` becomes
        a `LeaveFailed` event. The stop continues if the caller is cancelled. Returns whether the service
        ended in time.
        """
        task = self._task
        if task is None:
            return True
        if not self._closing:
            self._closing = True
            self._rest.wake()
            self.interrupt()
        longest = min(limit, self.stop_limit)
        await asyncio.wait({task}, timeout=None if math.isinf(longest) else max(0.0, longest))
        in_time = task.done()
        if not in_time:
            self.events.emit(ShutdownHung(self.describe(), report_place(task)))
            await cancel_task(task)
        if self._task is task:
            self._task = None
        return in_time

    async def _live(self, entered: asyncio.Future[None]) -> None:
        try:
            await self.enter()
        except BaseException as error:
            if not isinstance(error, Exception):
                entered.cancel()
                raise
            entered.set_exception(error)
            return
        entered.set_result(None)
        try:
            if self.first_rest and not self._closing:
                await self._rest.sleep(self.first_rest)
            while not self._closing:
                self._rest.clear()
                # A stop during the round has woken the rest, which then ends at once.
                await self._rest.sleep(await self._one_round())
        finally:
            await self._leave()

    async def _leave(self) -> None:
        try:
            await self.leave()
        except Exception as error:  # noqa: BLE001 - an event, because other services must still be stopped
            self.events.emit(LeaveFailed(self.name, error))
            drop_tracebacks(error)

    async def _one_round(self) -> float:
        self.asked_at = None
        try:
            rest = await self.round()
        except Exception as error:  # noqa: BLE001 - an event, and another round
            rest = self._backoff.next()
            self.events.emit(RoundFailed(self.name, error, rest, self.node))
            drop_tracebacks(error)
            return rest
        self._backoff.reset()
        if self.events.wants(RoundFinished):
            self.events.emit(RoundFinished(self.name, rest, self.node, self.asked_at))
        return rest
