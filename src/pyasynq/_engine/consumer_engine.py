"""The engine of one running consumer, whose callers take tasks themselves."""

from __future__ import annotations

import asyncio
import math
import sys
import weakref
from typing import TYPE_CHECKING

from pyasynq._broker.find_attempt import find_attempt
from pyasynq._broker.leases import confirm_extended, renew
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._broker.settle import Claim
from pyasynq._broker.verdicts import Verdict, is_leased
from pyasynq._engine.consumer_demand import ConsumerSink, Take
from pyasynq._engine.core import EngineCore
from pyasynq._engine.handlers.routes import NoRoutes
from pyasynq._engine.lease.lease_errors import ServerStopping, build_verdict_error
from pyasynq._engine.lease.lost_leases import LostLeases
from pyasynq._engine.run.attempt import Attempt, Phase, expect_renewals
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import LeaseExpiredError, RedisError, ReplyLostError, TaskTimeoutError
from pyasynq.events import ShutdownWaiting, TasksPutBack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq._background.service import Service
    from pyasynq._clock import Clock
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.lease.lease_receipt import Receipt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._redis.url import RedisTarget
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events


_SETTLE_SECONDS = 0.5
"""Minimum seconds from an attempt's deadline to the end of its lease: time to settle it as timed out."""


class ConsumerEngine(EngineCore):
    """One run of a consumer, from start to close."""

    sink: ConsumerSink
    noun = "consumer"

    def __init__(
        self,
        target: RedisTarget,
        config: ServerConfig,
        settings: EngineSettings,
        clock: Clock,
        events: Events,
    ) -> None:
        super().__init__(target, NoRoutes(), config, settings, clock=clock, events=events)
        self._alive: weakref.WeakSet[Attempt] = weakref.WeakSet()
        """Leased attempts whose first extension is recorded in Redis, as a proof that the holder lives."""

    def _make_sink(self, parts: Parts) -> ConsumerSink:
        self.sink = ConsumerSink(parts)
        self._lost_leases = LostLeases(parts)
        return self.sink

    def _receivers(self) -> tuple[Service, ...]:
        self.sink.on_wanted = self._intake.only
        self.sink.on_change = self._processor.wake
        return ()

    async def take(
        self, queues: Iterable[str], *, limit: int, wait: float | None, lease: int | None
    ) -> list[Attempt]:
        """Return up to `limit` attempts; see `ConsumerSink.take`.

        `lease` is the duration of their leases in seconds. None means that the heartbeat renews the leases
        until the attempts are settled.

        Raises:
            ConfigurationError: for a queue that this consumer does not serve.
        """
        chosen = tuple(queues)
        for queue in chosen:
            self._require_served(queue)
        seconds = self._settings.lease if lease is None else lease
        take = Take(limit, seconds, chosen or None, renewed=lease is None)
        take.unasked.update(chosen or self._parts.queues)
        attempts = await self.sink.take(take, wait)
        if lease is not None:
            await self._clip(attempts)
        return attempts

    async def _clip(self, attempts: Sequence[Attempt]) -> None:
        """Shorten each lease that would outlast its attempt's deadline, which only the message contains."""
        now = self._clock.monotonic()
        too_long: dict[tuple[str, int], list[Attempt]] = {}
        for attempt in attempts:
            left = _seconds_left(attempt, now)
            if now + left < attempt.lease_until:
                too_long.setdefault((attempt.queue, left), []).append(attempt)
        try:
            await asyncio.gather(
                *(self._move_leases(group, seconds) for (_, seconds), group in too_long.items())
            )
        except RedisError:
            # Without the change the leases are only too long: each attempt is still settled at its deadline.
            pass
        except BaseException:
            self.sink.put_back(attempts)
            raise

    async def extend(self, attempt: Attempt, seconds: int) -> None:
        """Set a lease to end this many seconds from now, but not after the attempt's deadline.

        The first time, record that its holder lives: from then on a lapse counts as a crash.

        Raises what `ConsumerSink.require_held` raises, and RedisError. After a RedisError the lease may have
        its old end or the new one.
        """
        self.sink.require_held(attempt)
        if is_leased(attempt.token) and attempt not in self._alive:
            await self._driver.run(confirm_extended(attempt.queue, attempt.id, attempt.token))
            self._alive.add(attempt)
        asked_at = self._clock.monotonic()
        seconds = min(seconds, _seconds_left(attempt, asked_at))
        await self._move_leases([attempt], seconds)
        self.sink.require_held(attempt)
        if attempt.message.unique_key:
            lock = HeldLock(attempt.id, attempt.message.unique_key)
            await self._driver.run(renew_locks(attempt.queue, [lock], lease_seconds=seconds))

    async def _move_leases(self, attempts: Sequence[Attempt], seconds: int) -> None:
        """Set leases of one queue to end this many seconds from now; mark attempts with a lost lease."""
        asked_at = self._clock.monotonic()
        claims = [Claim(one.id, one.token, one.lease_score) for one in attempts]
        # A settle may overtake the reply, and must then know the new score in Redis.
        expect_renewals(attempts, self._redis_time.now().ceiling, seconds)
        renewed = await self._driver.run(
            renew(attempts[0].queue, claims, lease_seconds=seconds, now=self._clock.redis_now())
        )
        lost = set(renewed.lost)
        for attempt in attempts:
            if attempt.id in lost:
                attempt.lost = True
            else:
                attempt.lease_until = asked_at + seconds
                attempt.lease_end = renewed.lease_score

    async def find(
        self, queue: str, task_id: str, receipt: Receipt, *, confirm: bool = True
    ) -> Attempt | Verdict:
        """Return the attempt of a receipt, or the verdict that its holder gave before.

        Without `confirm`, Redis is not asked if the attempt runs in this consumer, and its lease ends at the
        time in the receipt. If another consumer has extended or settled the attempt meanwhile, only settling
        it here raises LeaseExpiredError.

        Raises:
            TaskTimeoutError: when its deadline has passed.
            TaskCanceledError: when it was cancelled.
            LeaseExpiredError: when that attempt does not own the task any more.
            RedisError: when Redis cannot be reached.
        """
        here = self._roster.get(queue, task_id)
        if here is None:
            self._require_served(queue)
        elif here.token == receipt.token and _is_known_here(here):
            # An attempt that is being settled is returned: the same settle again waits for its confirmation.
            if here.verdict is None or not here.verdict.by_holder:
                self.sink.require_held(here)
            return here
        elif not confirm and _is_held_here(here, receipt, self._clock.monotonic()):
            return here
        found = await self._adopt(queue, task_id, receipt)
        if isinstance(found, Attempt) and found.phase is Phase.RUNNING:
            now = self._clock.monotonic()
            if found.deadline <= now:
                found.cancel(TaskTimeoutError(), monotonic=now)
            self.sink.require_held(found)
        return found

    async def _adopt(self, queue: str, task_id: str, receipt: Receipt) -> Attempt | Verdict:
        """Ask Redis for the attempt of a receipt, and manage it in this consumer from now on.

        If another consumer has extended its lease, adopt the new end of the lease.
        If the holder has settled it, return the holder's verdict instead. Raises what `find` raises.
        """
        asked_at = self._clock.monotonic()
        found = await self._driver.run(
            find_attempt(
                queue, task_id, token=receipt.token, lease_end=receipt.lease_end, now=self._clock.redis_now()
            )
        )
        here = self._roster.get(queue, task_id)
        if here is None or here.token != receipt.token:
            here = None
        elif _is_known_here(here):
            # This consumer settled the attempt during the call.
            return here
        if found is None or isinstance(found, Verdict):
            if found is None or not found.by_holder:
                raise build_verdict_error(found, queue, task_id)
            return found
        lease_until = asked_at + found.lease_score - found.redis_now.timestamp
        if here is not None and here.phase is Phase.RUNNING:
            if found.lease_score > here.lease_end:
                here.lease_end = found.lease_score
                here.lease_score = max(here.lease_score, found.lease_score)
                here.lease_until = lease_until
            return here
        try:
            message = decode_task_message(found.message)
        except UndecodableMessageError:
            raise LeaseExpiredError from None
        attempt = Attempt(
            self,
            queue,
            message,
            receipt.token,
            task_id=task_id,
            crashes=found.crashes,
            lease_until=lease_until,
            lease_score=found.lease_score,
        )
        attempt.renewed = False
        if self._parts.tally is not None:
            attempt.cells = self._parts.tally.cells(queue)
        attempt.begin(monotonic=asked_at, unix_time=found.redis_now.timestamp)
        attempt.deadline_at = receipt.deadline
        attempt.deadline = asked_at + receipt.deadline - found.redis_now.timestamp
        self._roster.add(attempt)
        self.sink.hold(attempt)
        return attempt

    async def drain(self) -> None:
        """Wait for attempts of `take` to be settled, put unsettled ones back, and stop all services.

        Leased attempts are left alone: their holders may settle them through another consumer.
        """
        left = self.time_left()
        self.stop_taking()
        self.ready = False
        self.sink.close()
        for attempt in list(self.sink.held):
            if not attempt.renewed:
                self.sink.held.remove(attempt)
        running = self.sink.held
        if running:
            self._events.emit(ShutdownWaiting(len(running), self._shutdown_timeout))
        if not await running.wait_until_idle(self._shutdown_timeout):
            now = self._clock.monotonic()
            for attempt in list(running):
                attempt.cancel(ServerStopping(), monotonic=now)
            await running.wait_until_idle(self._cancel_timeout)
        back = self.sink.put_back([one for one in self._roster if one in running])
        if back:
            self._events.emit(TasksPutBack(len(back)))
        await self._stop_services(left)
        await self._lost_leases.finish()
        for attempt in self._roster.snapshot():
            self._roster.remove(attempt)
            if attempt.settled is not None and not attempt.settled.done():
                address = self._target.address
                cause = "the consumer was closed before Redis had confirmed the outcome"
                attempt.settled.set_result(self._settles.last_error or ReplyLostError(address, cause))


def _is_known_here(attempt: Attempt) -> bool:
    """Return whether no other consumer can have extended or settled this attempt."""
    if attempt.renewed:
        return True
    return attempt.phase is Phase.SETTLING and not isinstance(attempt.cause, LeaseExpiredError)


def _is_held_here(attempt: Attempt, receipt: Receipt, now: float) -> bool:
    """Return whether an attempt still has the lease of a receipt, as far as this process knows."""
    return (
        attempt.phase is Phase.RUNNING
        and not attempt.lost
        and attempt.token == receipt.token
        and attempt.lease_end == receipt.lease_end
        and now < min(attempt.deadline, attempt.lease_until)
    )


def _seconds_left(attempt: Attempt, now: float) -> int:
    """Return the longest useful lease of an attempt in whole seconds: until shortly after its deadline."""
    if math.isinf(attempt.deadline):
        return sys.maxsize
    return max(1, math.ceil(attempt.deadline + _SETTLE_SECONDS - now))
