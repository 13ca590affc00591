"""Heartbeater: renews leases and the server's record from a thread, so a blocked loop loses no lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pyasynq._background.service import Service
from pyasynq._broker.server_requests import ServerRequest, read_request
from pyasynq._broker.servers import clear_server_state, write_server_state
from pyasynq._broker.settle import Claim, RequeueTask, settle_requeue
from pyasynq._engine.lease.renewal import Renewal, RenewalResult
from pyasynq._engine.run.attempt import TAKEN, Attempt, Phase
from pyasynq._exit_codes import EXIT_OVERDUE
from pyasynq.errors import LeaseExpiredError, TaskCanceledError
from pyasynq.events import HeartbeatWritten, ServerAsked, SignOfLife
from pyasynq.info import ServerAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.lease.stuck_rule import OverdueRule
    from pyasynq._engine.loop_watch import LoopWatch
    from pyasynq._engine.server_record import ServerRecordBuilder
    from pyasynq._redis.driver import BlockingDriver
    from pyasynq._redis.plan import Plan
    from pyasynq.info import ServerAction

_RETRY_SECONDS = 1.0
_SIGN_SECONDS = 1.0


class Beat(NamedTuple):
    """Result of one heartbeat (beat), which the thread passes to the event loop."""

    lost: list[Attempt]
    canceled: list[tuple[Attempt, str]]
    error: Exception | None
    began_at: float
    request: ServerRequest | None = None


class Heartbeater(Service):
    """Thread that sends heartbeats (beats); the rounds on the event loop process their results.

    A beat renews all leases first, then writes the server's record. Between calls to Redis the thread sends a
    sign of life through the event loop: it shows that thread and loop run, whether or not Redis answers.
    Between beats the thread checks whether the event loop runs. If it is blocked and its handlers are far
    past their deadlines, the thread ends the process, if the server owns the process.
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
        self._wake_thread = threading.Event()
        self._stopping = False
        self.on_request: Callable[[ServerAction], object] | None = None
        """Called on the loop with an operator's request; None ignores requests. Set before the start."""
        self._next_sign = 0.0
        """Monotonic time of the next sign of life. Written and read by the thread."""
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def _answer(self, request: ServerRequest) -> None:
        """Obey a request, unless it was answered before, and acknowledge it at once."""
        if self._record.answer is not None and self._record.answer.number == request.number:
            return
        # Emitted before the worker obeys, so that its supervisor learns why it ends.
        obeys = self.on_request is not None
        self.events.emit(ServerAsked(self._parts.server_id, request.action.value, obeys))
        if self.on_request is not None:
            self.on_request(request.action)
        self._record.answer = ServerAnswer(request.action, request.number, obeys)
        self.beat_now()

    def beat_now(self) -> None:
        """Send a heartbeat at once, so that a new status is visible."""
        self._wake_thread.set()

    async def enter(self) -> None:
        """Start the thread, which sends its first heartbeat at once."""
        threading.Thread(target=self._work, name="pyasynq-heartbeat", daemon=True).start()

    async def round(self) -> float:
        """Process the results of beats: cancel lost attempts, and attempts with a cancel request.

        Beats that came during a pause after an error are processed together. The newest one decides whether
        Redis is reachable.
        """
        beats = [await self._beats.get()]
        while not self._beats.empty():
            beats.append(self._beats.get_nowait())
        newest: Beat | None = None
        for beat in beats:
            if beat is not None:
                self._process_beat(beat)
                newest = beat
        if newest is None:
            return 0.0
        if newest.error is not None:
            raise newest.error
        self.asked_at = newest.began_at
        if self.events.wants(HeartbeatWritten):
            self.events.emit(HeartbeatWritten(self._parts.server_id))
        return 0.0

    def _process_beat(self, beat: Beat) -> None:
        now = self._parts.clock.monotonic()
        for attempt in beat.lost:
            attempt.lost = True
            # An outcome in flight may be the reason why the lease is lost.
            # An attempt that has not started has no handler to interrupt.
            begun = attempt.phase is not TAKEN
            if attempt.cancel(LeaseExpiredError(), monotonic=now) and begun:
                self._parts.settles.on_lost(attempt)
        for attempt, outcome in beat.canceled:
            attempt.cancel(TaskCanceledError(outcome), monotonic=now)
        if beat.request is not None:
            self._answer(beat.request)

    def _on_beat(self, beat: Beat) -> None:
        """Queue a beat of the thread, on the loop; a successful one ends the pause after a failed one."""
        self._beats.put_nowait(beat)
        if beat.error is None:
            self.wake()

    def interrupt(self) -> None:
        """End the wait for the next beat."""
        self._beats.put_nowait(None)

    async def leave(self) -> None:
        """Stop the thread, which finally removes the server's record."""
        self._stopping = True
        self._wake_thread.set()
        await self._ended

    def _work(self) -> None:
        clock = self._parts.clock
        next_beat = clock.monotonic()
        while not self._stopping:
            self._emit_sign_of_life()
            if self._wake_thread.is_set() or clock.monotonic() >= next_beat:
                self._wake_thread.clear()
                beat = self._beat()
                pause = _RETRY_SECONDS if beat.error is not None else self._parts.settings.heartbeat_interval
                next_beat = clock.monotonic() + min(pause, self._parts.settings.heartbeat_interval)
                self._report(beat)
            if self._watch.check():
                self._consider_exit()
            if not self._stopping:
                until_beat = max(0.0, next_beat - clock.monotonic())
                self._wake_thread.wait(min(self._parts.settings.watch_interval, until_beat))
        self._clear_record()
        self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _beat(self) -> Beat:
        """Renew the leases, then write the server's record. Returns any error: the thread must not end."""
        now, began_at = self._parts.clock.monotonic(), time.monotonic()
        attempts = self._parts.roster.snapshot()
        found = RenewalResult([], [], None)
        error: Exception | None = None
        request: ServerRequest | Exception | None = None
        try:
            found = self._renewal.renew(
                [attempt for attempt in attempts if not self._rule.is_hopeless(attempt, now)],
            )
            self._emit_sign_of_life()
            info, workers = self._record.write(attempts)
            writing = write_server_state(
                info,
                workers,
                ttl=self._parts.settings.server_record_ttl,
                now=self._parts.clock.redis_now(),
            )
            plans: list[Plan[Any]] = [writing, read_request(self._parts.server_id)]
            written, request = self._driver.run_batch(plans)
            if isinstance(written, Exception):
                error = written
        except Exception as failure:  # noqa: BLE001 - the round on the loop raises it
            error = failure
        # In a cluster, requests may be on a node that is away; a later beat reads them.
        asked = None if isinstance(request, Exception) else request
        return Beat(found.lost, found.canceled, found.error or error, began_at, asked)

    def _report(self, beat: Beat) -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_beat, beat)
        except RuntimeError:
            # The loop was closed without stopping the server, so there are no leases to renew.
            self._stopping = True

    def _emit_sign_of_life(self) -> None:
        """Emit a `SignOfLife` on the loop, about once a second."""
        now = self._parts.clock.monotonic()
        if now < self._next_sign or not self.events.wants(SignOfLife):
            return
        self._next_sign = now + min(_SIGN_SECONDS, self._parts.settings.heartbeat_interval)
        with contextlib.suppress(RuntimeError):  # the loop was closed; the next beat notices
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
        """Put tasks back, remove the record, and end the process without waiting."""
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
        except Exception as error:  # noqa: BLE001 - the record expires by itself; the loop gets the error
            self._report(Beat([], [], error, time.monotonic()))
