"""Takes tasks as slots become free, starts them, and writes down what became of those that have ended."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from pyasynq._server.bell import Backoff
from pyasynq._server.service import Service
from pyasynq.errors import PyasynqError
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyasynq._broker.plan import Plan
    from pyasynq._server.intake import Ask, Intake, Unclear, Unreadable
    from pyasynq._server.parts import Parts
    from pyasynq._server.runner import Runner
    from pyasynq._server.settle_queue import Batch
    from pyasynq._server.wake_up import WakeUp


class Processor(Service):
    """One round: send what is done and ask for what fits, in one pipeline; start what came."""

    name = "processor"

    def __init__(self, parts: Parts, runner: Runner, intake: Intake, wake_up: WakeUp) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._runner = runner
        self._intake = intake
        self._wake_up = wake_up
        self._trouble = Backoff()
        self._poll = seconds_of("task_check_interval", parts.config.task_check_interval)
        self._was_quiet = True
        self.on_idle: Callable[[], None] = lambda: None
        """Called when the server was told to close when idle (burst, max_tasks), and is."""

    async def round(self) -> float:
        """Settle, take, start; rest until an attempt ends, Redis reports a change, or a poll is due."""
        intake = self._intake
        quiet = self._is_quiet
        if quiet and not self._was_quiet:
            # The handlers that have just ended may have enqueued: in burst mode nothing may be missed.
            intake.board.ask_all_again()
        self._was_quiet = quiet
        batches = self._parts.settles.take_fresh()
        asks = intake.asks()
        finds = intake.finds()
        quarantines = intake.quarantines()
        plans: list[Plan[Any]] = [*(batch.plan for batch in batches), *(ask.plan for ask in asks)]
        plans += [plan for _, plan in finds]
        plans += [plan for _, plan in quarantines]
        if plans:
            results = await self._send(plans)
            errors = [result for result in results if isinstance(result, Exception)]
            self._sort_out(iter(results), batches, asks, finds, quarantines)
            if errors:
                raise errors[0]
            self._trouble.reset()
            await self._watch_empty_queues()
        # Quiet before and after: this round may have started what it took.
        if quiet and self._is_quiet and self._is_finished():
            self.on_idle()
        return self._rest()

    async def leave(self) -> None:
        """Write what is left. What Redis does not take now, the syncer tries once more."""
        finds = self._intake.finds()
        if finds:
            found = await self._send([plan for _, plan in finds])
            self._sort_out(iter(found), (), (), finds, ())
        while batches := self._parts.settles.take_fresh():
            results = await self._send([batch.plan for batch in batches])
            for batch, result in zip(batches, results, strict=True):
                self._parts.settles.confirm(batch, result)

    async def _send(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        try:
            return await self._parts.driver.run_batch(plans)
        except PyasynqError as error:
            # An outcome that was handed over must come back, whatever happens to the driver.
            return [error] * len(plans)

    def _sort_out(
        self,
        results: Iterator[Any],
        batches: Sequence[Batch],
        asks: Sequence[Ask],
        finds: Sequence[tuple[Unclear, object]],
        quarantines: Sequence[tuple[Unreadable, object]],
    ) -> None:
        """Hand each result to whoever asked for it; the results are in the order of the questions."""
        intake = self._intake
        for batch in batches:
            self._parts.settles.confirm(batch, next(results))
        for ask in asks:
            answer = next(results)
            if isinstance(answer, Exception):
                intake.failed(ask, answer, self._parts.clock.monotonic() + self._trouble.next())
            else:
                intake.answered(ask, answer)
        for call, _ in finds:
            tasks = next(results)
            if not isinstance(tasks, Exception):
                intake.found(call, tasks)
        for task, _ in quarantines:
            if not isinstance(next(results), Exception):
                intake.quarantined(task)

    async def _watch_empty_queues(self) -> None:
        if self._parts.config.burst:
            return
        board = self._intake.board
        for view in board.to_watch():
            changes = view.changes
            if await self._wake_up.watch(view.pending_key, view.paused_key):
                board.watched(view, changes=changes)
            else:
                # Without a push from Redis, a queue is looked at after a jittered interval, as Asynq does.
                rest = self._poll * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, guards nothing
                board.unwatchable(view, look_at=self._parts.clock.monotonic() + rest)

    def _rest(self) -> float:
        if self._parts.settles.fresh or self._intake.unclear or self._intake.unreadable:
            return 0.0
        if self._is_quiet and not self._was_quiet:
            # Everything has just ended; whether that was all is the next round's business.
            return 0.0
        now = self._parts.clock.monotonic()
        return max(0.0, self._intake.next_ask(now) - now)

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing runs and nothing waits to be written."""
        return not self._runner.running and not self._parts.settles.outstanding

    def _is_finished(self) -> bool:
        config = self._parts.config
        if config.max_tasks is not None and self._intake.taken >= config.max_tasks:
            return True
        return config.burst and self._intake.board.all_empty and not self._intake.unclear
