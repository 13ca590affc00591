"""Processor service: takes tasks as slots become free, starts them, and settles ended attempts."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from typing import TYPE_CHECKING, Final

from pyasynq._background.service import Service
from pyasynq._checks import parse_seconds
from pyasynq._engine.services.node_senders import NodeSenders
from pyasynq._engine.services.sender import RoundCalls, Sender
from pyasynq._engine.take.queue_state import Key, QueuePhase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.take.intake import Intake
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq._engine.take.sink import Sink
    from pyasynq._redis.key_watcher import Watcher


_PAUSE_WATCH_SECONDS: Final = 5.0
"""Seconds after which the watch of pauses is renewed, because a broken connection may have ended it."""


class Processor(Service):
    """Takes, starts and settles tasks. One round sends outcomes and dequeue calls in one pipeline.

    While that pipeline is in flight, a second one may be sent (double buffering). Then Redis and the handlers
    do not wait for each other. It is used only for queues without limits and order that return as many tasks
    as requested. Otherwise pipelines are sent one after another.
    """

    name = "processor"

    def __init__(self, parts: Parts, sink: Sink, intake: Intake, watcher: Watcher) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._sink = sink
        self._intake = intake
        self._watcher = watcher
        senders = NodeSenders if parts.driver.target.is_cluster else Sender
        self._sender: Sender | NodeSenders = senders(self, parts, intake)
        self._poll = parse_seconds("task_check_interval", parts.config.task_check_interval)
        self._was_quiet = True
        self._pause_reports = 0
        """Value of `Intake.pause_reports` when pauses were last watched; a report ends the watch."""
        self._watch_pauses_at = 0.0
        """Monotonic time at which the pauses of queues with prefetched tasks are watched again."""
        self._sending = False
        """Whether the round's own pipeline is in flight."""
        self._side: asyncio.Task[None] | None = None
        self._side_context = contextvars.copy_context()
        """Context of the second pipeline. It must not be that of the handler whose end starts the pipeline.
        """
        self._side_error: Exception | None = None
        self.on_idle: Callable[[], None] = lambda: None
        """Called when the server becomes idle and should then close (burst, max_tasks, a request).
        """
        self._closes_when_idle = False

    async def round(self) -> float:
        """Settle, take, start; pause until an attempt ends, Redis reports a change, or a poll is due."""
        intake = self._intake
        if self._side is not None and not intake.may_overlap:
            await self._wait_for_side()
        self._raise_side_error()
        quiet = self._is_quiet
        if quiet and not self._was_quiet and self._parts.config.burst:
            # A burst watches no queue, and the handlers that have just ended may have enqueued tasks.
            intake.board.ask_all_again()
        self._was_quiet = quiet
        if self._sink.give_back_at < math.inf:
            await self._watch_pauses()
        await self._renew_watches()
        calls = self._pack()
        if any(calls):
            self._sending = True
            self._start_side()
            try:
                error = await self._sender.send(calls)
            finally:
                self._sending = False
            if error is not None:
                raise error
        await self._watch_empty_queues()
        # Finished only if idle before and after the calls, because this round may have started tasks.
        if quiet and self._is_quiet and self._is_finished():
            self.on_idle()
        return self._seconds_to_rest()

    def close_when_idle(self) -> None:
        """Stop taking tasks, and call `on_idle` when nothing runs and all outcomes are confirmed."""
        self._closes_when_idle = True
        self.wake()

    def wake(self) -> None:
        """End the pause; while a pipeline is in flight, consider a second one."""
        # Called for each attempt that ends: most calls come after another one has ended the pause.
        if not self._rest.is_woken:
            self._rest.wake()
        if self._sending:
            self._start_side()

    async def leave(self) -> None:
        """Put tasks back that have not started, and write the remaining outcomes.

        The syncer retries once the outcomes that could not be written.
        """
        await self._wait_for_side()
        if batches := self._parts.settles.take_fresh():
            await self._sender.send(RoundCalls(batches))
        await self._sender.finish()
        if finds := self._intake.finds():
            await self._sender.send(RoundCalls(finds=finds))
            await self._sender.finish()
        self._intake.put_back_unstarted()
        while batches := self._parts.settles.take_fresh():
            await self._sender.send(RoundCalls(batches))
            await self._sender.finish()

    def _pack(self) -> RoundCalls:
        intake = self._intake
        intake.put_back_unstarted()
        batches = self._parts.settles.take_fresh()
        for batch in batches:
            # The batch precedes the dequeue call, so a slot that it frees can be taken at once.
            if not batch.in_steps:
                intake.board.slot_freed(batch.queue)
        asks = intake.reserve_asks()
        quarantines = intake.unreadable.quarantines(self._parts.clock.monotonic())
        return RoundCalls(batches, asks, intake.finds(), quarantines, intake.proofs_to_end())

    # The second pipeline.

    def _start_side(self) -> None:
        if self._side is None and self._is_side_worth_it():
            self._side = asyncio.create_task(
                self._work_aside(), name="pyasynq processor, second pipeline", context=self._side_context
            )

    def _is_side_worth_it(self) -> bool:
        return self._intake.has_room_aside and self._side_error is None and not self.closing

    async def _work_aside(self) -> None:
        """Send second pipelines while the round's own pipeline is in flight and there is enough to send."""
        try:
            while self._sending and self._is_side_worth_it():
                self._side_error = await self._sender.send(self._pack())
                # The tasks that this pipeline returned start in this loop iteration, and some may end.
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - the next round raises it
            self._side_error = error
        finally:
            self._side = None
            super().wake()

    async def _wait_for_side(self) -> None:
        if self._side is not None:
            await asyncio.wait({self._side})

    def _raise_side_error(self) -> None:
        error, self._side_error = self._side_error, None
        if error is not None:
            raise error

    async def _watch_pauses(self) -> None:
        """Watch for pauses while tasks wait for a slot: the tasks of a paused queue are put back."""
        now, reports = self._parts.clock.monotonic(), self._intake.pause_reports
        is_due = now >= self._watch_pauses_at or reports != self._pause_reports
        if is_due and not self._parts.config.burst:
            self._watch_pauses_at, self._pause_reports = now + _PAUSE_WATCH_SECONDS, reports
            await self._watcher.arm(*self._intake.board.pause_keys())

    async def _renew_watches(self) -> None:
        """Watch queues again when their waiting time is over, before they are polled.

        A queue whose task was left to other servers is not polled if the new watch shows no task.
        """
        if self._parts.config.burst:
            return
        queues = self._intake.board.to_watch_again(self._parts.clock.monotonic())
        if not queues or self._intake.capacity.room <= 0:
            return
        for queue, changes, is_watched in await self._watch(queues):
            if is_watched:
                self._record_watch(queue, changes, may_rest=queue.state.phase is QueuePhase.DEFERRED)

    async def _watch_empty_queues(self) -> None:
        if self._parts.config.burst:
            return
        board = self._intake.board
        if board.to_watch():
            # The tasks of this round start first; nothing depends on the watch.
            await asyncio.sleep(0)
        for queue, changes, is_watched in await self._watch(board.to_watch()):
            if is_watched:
                self._record_watch(queue, changes, may_rest=True)
            else:
                # Without a push from Redis, a queue is polled after a jittered interval, as Asynq does.
                rest = self._poll * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, guards nothing
                board.unwatchable(queue, look_at=self._parts.clock.monotonic() + rest)

    async def _watch(self, queues: Sequence[ServedQueue]) -> list[tuple[ServedQueue, int, bool]]:
        """Ask Redis to report the next change of queues (client tracking).

        Return each queue with its number of reports before the call, and whether it is watched.
        """
        if not queues:
            return []
        changes = [queue.state.changes for queue in queues]
        is_watched = await self._watcher.arm(*[key for queue in queues for key in queue.watched_keys])
        if is_watched or len(queues) == 1:
            watched = [is_watched] * len(queues)
        else:
            # One node of a cluster may be unreachable. Keys that are already watched cost no second exchange.
            watched = [await self._watcher.arm(*queue.watched_keys) for queue in queues]
        return list(zip(queues, changes, watched, strict=True))

    def _record_watch(self, queue: ServedQueue, changes: int, *, may_rest: bool) -> None:
        """Record a new watch; the queue rests if the watch showed no task to take."""
        exists, keys = self._watcher.exists, queue.keys
        has_none = not exists(keys[Key.PENDING]) or exists(keys[Key.PAUSED])
        self._intake.board.watched(queue, changes=changes, may_rest=may_rest and has_none)

    def _seconds_to_rest(self) -> float:
        if self._parts.settles.fresh:
            return 0.0
        if self._is_quiet and not self._was_quiet:
            # The last attempt has just ended; the next round decides whether the server is finished.
            return 0.0
        intake, now = self._intake, self._parts.clock.monotonic()
        return max(0.0, intake.next_call(now) - now)

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing runs, waits or is left to write, and no second pipeline is in flight."""
        return self._side is None and self._sink.is_idle and not self._parts.settles.outstanding

    def _is_finished(self) -> bool:
        if self._closes_when_idle:
            return not self._intake.unclear
        config = self._parts.config
        if self._intake.capacity.is_over:
            return True
        return config.burst and self._intake.is_all_empty
