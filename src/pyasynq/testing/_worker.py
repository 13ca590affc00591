"""Worker of a kit: the services of a `Server`, which run when the kit calls them, not by timers.

The server's own code takes, runs, settles, forwards, recovers and aggregates tasks.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.leases import renew
from pyasynq._broker.settle import Claim
from pyasynq._clock import Instant
from pyasynq._engine.engine import Engine
from pyasynq._engine.lease.lease_errors import ServerStopping
from pyasynq._engine.run.attempt import Phase, expect_renewals
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.queue_state import QueuePhase
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.facts import read_redis_facts
from pyasynq.errors import DrainTimeoutError, EndlessDrainError
from pyasynq.testing._direct import DirectDriver
from pyasynq.testing._time import make_due_plans, require_results

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._background.service import Service
    from pyasynq._engine.handlers.routes import Router
    from pyasynq._engine.handlers.threads import HandlerThreads
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq._redis.url import RedisTarget
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events
    from pyasynq.testing._recorder import Recorder
    from pyasynq.testing._schedules import Schedules
    from pyasynq.testing._time import VirtualClock

KIT_SETTINGS: Final = EngineSettings(forward_gap=0.0, look_interval=0.0, keep_frames=True)
_CLIENT_NAME: Final = "pyasynq-testing"
_MOST_AT_ONCE: Final = 10_000
"""Number of attempts at one instant from which tasks are assumed to enqueue themselves endlessly."""
_MOST_SNOOZES: Final = 100
"""Number of snoozes of one task at one instant from which the snoozes are assumed to be endless."""
_LOOK_SECONDS: Final = 0.005
"""Seconds between two checks for tasks that running handlers have enqueued, while slots are free."""
_CLEAN_UP_SECONDS: Final = 1.0
_MICROSECOND: Final = 1e-6
_UP_FOR_LONG: Final = 1_000_000


class HandWorker(Engine):
    """A server and its schedulers, assembled but not started: the kit calls each service.

    Args:
        recorder: records attempts and events of one call of the kit.
        threads: threads in which plain handlers run.

    Attributes:
        schedules: schedules of the kit's schedulers; None for none.
        stop_at_failure: take no more tasks after a recorded failure.
        patience: seconds of real time that the call may take.
    """

    _clock: VirtualClock
    has_children = False  # the test's patches and breakpoints are in this process

    def __init__(
        self,
        target: RedisTarget,
        router: Router,
        config: ServerConfig,
        *,
        clock: VirtualClock,
        events: Events,
        recorder: Recorder,
        threads: HandlerThreads,
        task_state: Any,
    ) -> None:
        super().__init__(
            target,
            router,
            config,
            KIT_SETTINGS,
            clock=clock,
            events=events,
            task_state=task_state,
            owns_process=False,
        )
        self._driver = DirectDriver(target, client_name=_CLIENT_NAME, clock=clock, on_warning=self._warn)
        self._threads = threads
        if self._hooks is not None:
            self._hooks.threads, self._hooks.on_failure = threads, recorder.hook_failed
        self._recorder = recorder
        self._since: dict[Attempt, float] = {}
        """Monotonic time at which each running attempt was first seen: timeouts also use real time."""
        self._ended = asyncio.Event()
        self.schedules: Schedules | None = None
        self.stop_at_failure = True
        self.patience = 60.0
        self._give_up_at = math.inf

    async def assemble(self) -> None:
        """Build the parts of the server, without starting them.

        Raises:
            RedisError: when the server of the test cannot be used.
        """
        facts = await self._driver.run(read_redis_facts())
        # Recovery waits for a while after a start of Redis; the faked uptime avoids this wait.
        services = {one.name: one for one in self._build(facts._replace(uptime_seconds=_UP_FOR_LONG))}
        self._sweepers: list[Service] = [services[name] for name in ("recoverer", "janitor")]
        if self._aggregator is not None:
            self._aggregator.interval = math.inf
        self._groups_due = math.inf
        self._slots.on_end = self._ended.set
        self._give_up_at = time.monotonic() + self.patience
        if self.schedules is not None:
            self.schedules.begin(self._driver, self._redis_time)

    def _make_watcher(self, on_change: Callable[[str], object], on_loss: Callable[[str], object]) -> Any:
        del on_change, on_loss
        return _Deaf()

    async def run_instant(self) -> None:
        """Do all work that is due now, and the work that follows from it, until none is left."""
        taken = self._intake.taken
        # One round is enough: these services find new work only when time moves.
        await self._look.round()
        for service in self._sweepers:
            await service.round()
        while not self._must_stop:
            before = self._recorder.count
            if self.schedules is not None:
                await self.schedules.round()
            await self._look.round()
            await self._forwarder.round()
            await self._aggregate()
            await self.run_pending(most=taken + _MOST_AT_ONCE)
            if self._recorder.count == before:
                return

    async def run_pending(self, *, most: int = _MOST_AT_ONCE) -> None:
        """Take and run tasks until no queue returns another task."""
        intake, busy = self._intake, True
        self._ask_again()
        while busy:
            if intake.taken >= most or self._recorder.most_snoozes >= _MOST_SNOOZES:
                raise EndlessDrainError(self._most_frequent())
            self._check_patience()
            intake.taking = not self._must_stop
            await self._processor.round()
            await self._relay.round()
            busy = bool(self._runner.running or self._settles.outstanding or self._may_have_more())
            if self._runner.running:
                await self._let_run()
            elif self._hooks is not None and self._hooks.is_busy:
                await self._hooks.wait_until_idle()
                busy = True
            else:
                continue
            # Handlers and hooks may have enqueued tasks. All queues are read again only now, so that each has
            # its turn.
            self._ask_again()

    def _may_have_more(self) -> bool:
        """Return whether the last dequeue reply requires another dequeue call at once."""
        now = self._clock.monotonic()
        return self._intake.next_call(now) <= now

    @property
    def _must_stop(self) -> bool:
        return self.stop_at_failure and self._recorder.failure is not None

    def _most_frequent(self) -> dict[str, int]:
        return dict(Counter(one.type for one in self._recorder.attempts).most_common())

    async def _let_run(self) -> None:
        """Wait until an attempt ends, or until a running attempt must be cancelled."""
        # One turn of the loop lets new attempts start, which sets their deadlines.
        await asyncio.sleep(0)
        now = time.monotonic()
        self._since = {attempt: self._since.get(attempt, now) for attempt in self._runner.running}
        if not self._since:
            return
        until = [self._give_up_at, *(self._deadline(attempt) for attempt in self._since)]
        if self._intake.capacity.room > 0:
            until.append(now + _LOOK_SECONDS)
        self._ended.clear()
        wait = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({wait}, timeout=max(0.0, min(until) - now))
        finally:
            wait.cancel()
        self._cut()
        await self._progress_writer.round()
        if self._runner.running:
            self._check_patience()

    def _check_patience(self) -> None:
        if time.monotonic() >= self._give_up_at:
            names = [f"{one.message.type} {one.id}" for one in self._runner.running]
            raise DrainTimeoutError(
                names or ["no handler, but tasks that keep enqueueing tasks"], self.patience
            )

    def _deadline(self, attempt: Attempt) -> float:
        if attempt.cause is not None:
            return math.inf
        return self._since[attempt] + attempt.deadline - attempt.started

    def _cut(self) -> None:
        """Cancel attempts whose timeout or deadline has passed, by the real or the virtual clock."""
        real, virtual = time.monotonic(), self._clock.monotonic()
        for attempt in self._runner.running:
            over = attempt.deadline <= virtual or real >= self._since.get(attempt, real) + (
                attempt.deadline - attempt.started
            )
            if attempt.phase is Phase.RUNNING and over:
                attempt.cancel(attempt.build_timeout_error(), monotonic=virtual)

    async def _aggregate(self) -> None:
        if self._aggregator is None:
            return
        while not self._must_stop:
            before = self._recorder.count
            rest = await self._aggregator.round()
            await self._aggregator.wait_until_idle(self._give_up_at - time.monotonic())
            if self._recorder.count == before:
                # Due groups can be left only if some have just been aggregated.
                self._groups_due = self._clock.now().timestamp + rest
                return

    async def next_due(self) -> Instant | None:
        """Return the instant at which work is due next; None if there is none."""
        now = self._clock.now().seconds
        plans = make_due_plans(
            self._config.queues,
            now=now,
            own_slack=KIT_SETTINGS.own_slack,
            foreign_slack=KIT_SETTINGS.foreign_slack,
        )
        times: list[float] = [
            one for one in require_results(await self._driver.run_batch(plans)) if one is not None
        ]
        if self._aggregator is not None:
            times.append(self._groups_due)
        if self.schedules is not None:
            times.append(self.schedules.next_due)
        # Due work may be blocked for another reason. At least one second passes, so that time cannot stand
        # still.
        due = [Instant(max(now + 1, math.ceil(one))) for one in times if math.isfinite(one)]
        return min([*due, *self._list_turns()], default=None)

    def _ask_again(self) -> None:
        self._intake.board.ask_all_again()
        for queue in self._held_by_rate():
            # Turns are in microseconds, which floats only approximate, hence the tolerance.
            if queue.state.look_at - self._clock.monotonic() < _MICROSECOND:
                self._intake.board.ask_again(queue)

    def _list_turns(self) -> list[Instant]:
        """Return the instants (to the microsecond) at which rate-limited queues allow their next task."""
        rests = [queue.state.look_at - self._clock.monotonic() for queue in self._held_by_rate()]
        return [self._clock.now().plus(max(rest, _MICROSECOND)) for rest in rests]

    def _held_by_rate(self) -> list[ServedQueue]:
        return [queue for queue in self._intake.board.queues if queue.state.phase is QueuePhase.RATE]

    def hold_leases(self, seconds: float) -> None:
        """Renew the leases of running tasks, before virtual time moves by `seconds`. Thread-safe."""
        now = self._clock.now()
        queues: dict[str, list[Claim]] = {}
        for attempt in self._roster.snapshot():
            queues.setdefault(attempt.queue, []).append(Claim(attempt.id, attempt.token, attempt.lease_score))
            expect_renewals([attempt], now.plus(seconds).ceiling, KIT_SETTINGS.lease)
            attempt.lease_until += seconds
        driver = BlockingDriver(self._target, client_name=_CLIENT_NAME, clock=self._clock)
        try:
            for queue, claims in queues.items():
                driver.run(
                    renew(queue, claims, lease_seconds=KIT_SETTINGS.lease + math.ceil(seconds), now=now)
                )
        finally:
            driver.close()

    def time_passed(self) -> None:
        """Request the cancellation of attempts whose deadlines have passed in virtual time. Thread-safe."""
        self.loop.call_soon_threadsafe(self._cut)

    async def close(self) -> None:
        """Cancel running attempts, put their tasks back, settle, and close."""
        try:
            if hasattr(self, "_processor"):
                await self._break_off()
            if self._hooks is not None:
                await self._hooks.wait_until_idle()
        finally:
            await super().close()

    async def _break_off(self) -> None:
        now = self._clock.monotonic()
        for attempt in list(self._runner.running):
            attempt.cancel(ServerStopping(), monotonic=now)
        await self._runner.running.wait_until_idle(_CLEAN_UP_SECONDS)
        if self._aggregator is not None:
            await self._aggregator.leave()
        await self._processor.leave()


class _Deaf:
    """Key watcher that watches nothing (null object), because no service waits for a wake-up."""

    async def arm(self, *keys: str) -> bool:
        del keys
        return False

    def forget(self, *keys: str) -> None:
        pass

    async def close(self) -> None:
        pass
