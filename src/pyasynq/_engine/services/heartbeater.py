"""Keeps leases and the server's record alive from a thread of its own: a blocked loop loses no lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._background.service import Service
from pyasynq._broker.servers import clear_server_state, write_server_state
from pyasynq._broker.settle import Claim, RequeueTask, settle_requeue
from pyasynq._engine.lease.renewal import Renewal, RenewalResult
from pyasynq._engine.run.attempt import TAKEN, Attempt, Phase
from pyasynq._exit_codes import EXIT_OVERDUE
from pyasynq.errors import LeaseExpiredError, TaskCanceledError
from pyasynq.events import HeartbeatWritten, SignOfLife

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.lease.stuck_rule import OverdueRule
    from pyasynq._engine.loop_watch import LoopWatch
    from pyasynq._engine.server_record import ServerRecordBuilder
    from pyasynq._redis.driver import BlockingDriver

_RETRY_SECONDS = 1.0
_SIGN_SECONDS = 1.0


class Beat(NamedTuple):
    """What the thread tells the loop after each beat."""

    lost: list[Attempt]
    canceled: list[tuple[Attempt, str]]
    error: Exception | None


class Heartbeater(Service):
    """The thread beats; the rounds on the event loop take in what each beat found.

    A beat renews all leases first, then writes the server's record. Between exchanges with Redis the thread
    gives a sign of life, which the event loop passes on: it says that both turn, and nothing of Redis.
    Between beats the thread looks whether the event loop runs. When it does not, and its handlers are far
    over their deadlines, the thread ends the process, if the process is ours.
    """

    name = "heartbeater"

    def __init__(
        self,
        parts: Parts,
        driver: BlockingDriver,
        record: ServerRecordBuilder,
        rule: OverdueRule,
        watch: LoopWatch,
        *,
        owns_process: bool,
    ) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._driver = driver
        self._record = record
        self._rule = rule
        self._watch = watch
        self._owns_process = owns_process
        self._renewal = Renewal(driver, parts.settings, parts.clock, parts.redis_time)
        self._beats: asyncio.Queue[Beat | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._ring = threading.Event()
        self._stopping = False
        self._next_sign = 0.0
        """Monotonic time of the next sign of life; of the thread."""
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def beat_now(self) -> None:
        """Make the next beat come at once, so that a new status shows."""
        self._ring.set()

    async def enter(self) -> None:
        """Start the thread; its first beat comes at once."""
        threading.Thread(target=self._work, name="pyasynq-heartbeat", daemon=True).start()

    async def round(self) -> float:
        """Take in what the beats have found: cancel what is lost, and what is to be cancelled.

        Beats that came during a rest after an error are taken in together. Whether Redis can be reached is
        what the newest one says.
        """
        beats = [await self._beats.get()]
        while not self._beats.empty():
            beats.append(self._beats.get_nowait())
        newest: Beat | None = None
        for beat in beats:
            if beat is not None:
                self._take_in(beat)
                newest = beat
        if newest is None:
            return 0.0
        if newest.error is not None:
            raise newest.error
        if self.events.wants(HeartbeatWritten):
            self.events.emit(HeartbeatWritten(self._parts.server_id))
        return 0.0

    def _take_in(self, beat: Beat) -> None:
        now = self._parts.clock.monotonic()
        for attempt in beat.lost:
            attempt.lost = True
            # An outcome that is on its way may be the reason why the task is not ours any more; and of one
            # that waits for its slot nothing is broken off.
            begun = attempt.phase is not TAKEN
            if attempt.cancel(LeaseExpiredError(), monotonic=now) and begun:
                self._parts.settles.on_lost(attempt)
        for attempt, outcome in beat.canceled:
            attempt.cancel(TaskCanceledError(outcome), monotonic=now)

    def _heard(self, beat: Beat) -> None:
        """Take a beat from the thread, on the loop; a good one ends the rest after a failed one."""
        self._beats.put_nowait(beat)
        if beat.error is None:
            self.wake()

    def interrupt(self) -> None:
        """End the wait for the next beat."""
        self._beats.put_nowait(None)

    async def leave(self) -> None:
        """Stop the thread, which removes the server's record as its last act."""
        self._stopping = True
        self._ring.set()
        await self._ended

    def _work(self) -> None:
        clock = self._parts.clock
        next_beat = clock.monotonic()
        while not self._stopping:
            self._give_sign()
            if self._ring.is_set() or clock.monotonic() >= next_beat:
                self._ring.clear()
                beat = self._beat()
                pause = _RETRY_SECONDS if beat.error is not None else self._parts.settings.heartbeat_interval
                next_beat = clock.monotonic() + min(pause, self._parts.settings.heartbeat_interval)
                self._tell(beat)
            if self._watch.look():
                self._consider_exit()
            if not self._stopping:
                until_beat = max(0.0, next_beat - clock.monotonic())
                self._ring.wait(min(self._parts.settings.watch_interval, until_beat))
        self._clear_record()
        self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _beat(self) -> Beat:
        """Renew, then record. Whatever goes wrong is an error of this beat: the thread must not end."""
        now = self._parts.clock.monotonic()
        attempts = self._parts.roster.snapshot()
        found = RenewalResult([], [], None)
        error: Exception | None = None
        try:
            found = self._renewal.renew(
                [attempt for attempt in attempts if not self._rule.is_hopeless(attempt, now)],
            )
            self._give_sign()
            info, workers = self._record.write(attempts)
            self._driver.run(
                write_server_state(
                    info,
                    workers,
                    ttl=self._parts.settings.server_record_ttl,
                    now=self._parts.clock.redis_now(),
                ),
            )
        except Exception as failure:  # noqa: BLE001 - it becomes the round's error on the loop
            error = failure
        return Beat(found.lost, found.canceled, found.error or error)

    def _tell(self, beat: Beat) -> None:
        try:
            self._loop.call_soon_threadsafe(self._heard, beat)
        except RuntimeError:
            # The loop was closed without stopping the server; nothing is left to renew leases for.
            self._stopping = True

    def _give_sign(self) -> None:
        """Have the loop emit a `SignOfLife`, about once a second."""
        now = self._parts.clock.monotonic()
        if now < self._next_sign or not self.events.wants(SignOfLife):
            return
        self._next_sign = now + min(_SIGN_SECONDS, self._parts.settings.heartbeat_interval)
        with contextlib.suppress(RuntimeError):  # the loop was closed; the next beat finds out
            self._loop.call_soon_threadsafe(self.events.emit, SignOfLife(self._parts.server_id))

    def _consider_exit(self) -> None:
        if not self._owns_process:
            return
        now = self._parts.clock.monotonic()
        if self._rule.is_stuck(self._parts.roster.snapshot(), now):
            attempts = self._parts.roster.snapshot()
            innocent = [attempt for attempt in attempts if not self._rule.is_overdue(attempt, now)]
            self.end_process(EXIT_OVERDUE, innocent)

    def end_process(self, code: int, unfinished: Iterable[Attempt]) -> None:
        """Put tasks back, remove the record, and end the process without waiting for anybody."""
        queues: dict[str, list[RequeueTask]] = {}
        for attempt in unfinished:
            if attempt.phase is not Phase.SETTLING:
                claim = Claim(attempt.id, attempt.token, attempt.lease_score)
                queues.setdefault(attempt.queue, []).append(RequeueTask(claim))
        try:
            plans = [settle_requeue(queue, tasks, now=None) for queue, tasks in queues.items()]
            self._driver.run_batch(plans)
            self._clear_record()
        finally:
            os._exit(code)

    def _clear_record(self) -> None:
        record = self._record
        try:
            self._driver.run(clear_server_state(record.host, record.pid, record.server_id))
        except Exception as error:  # noqa: BLE001 - it vanishes by itself; the loop is told
            self._tell(Beat([], [], error))
