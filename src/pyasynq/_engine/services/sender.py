"""Sender of the processor: sends its calls in pipelines, and passes on the replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._backoff import Backoff
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq.errors import RedisPermissionError, RedisReplyError
from pyasynq.events import ExchangeEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._background.service import Service
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.lease.unreadable_tasks import UnreadableTask
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settle.settle_batches import Batch
    from pyasynq._engine.take.intake import Ask, Intake
    from pyasynq._redis.plan import Plan


class RoundCalls(NamedTuple):
    """Calls of one round of the processor, sent in pipelines; the replies come in the same order."""

    batches: Sequence[Batch] = ()
    asks: Sequence[Ask] = ()
    finds: Sequence[tuple[Ask, Plan[Any]]] = ()
    quarantines: Sequence[tuple[UnreadableTask, Plan[Any]]] = ()
    proofs: Sequence[tuple[Attempt, Plan[bool]]] = ()

    @property
    def plans(self) -> list[Plan[Any]]:
        """The plans of all calls, in their order."""
        plans: list[Plan[Any]] = [batch.plan for batch in self.batches]
        plans += [ask.plan for ask in self.asks]
        plans += [plan for _, plan in self.finds]
        plans += [plan for _, plan in self.quarantines]
        plans += [plan for _, plan in self.proofs]
        return plans

    def by_node(self, find_node: Callable[[str], str]) -> dict[str, RoundCalls]:
        """Return the calls for each node; `find_node` returns the node that serves a queue."""
        parts: dict[str, list[list[Any]]] = {}
        for place, (items, get_queue) in enumerate(zip(self, _GET_QUEUE, strict=True)):
            for item in items:
                node = find_node(get_queue(item))
                if node not in parts:
                    parts[node] = [[] for _ in self]
                parts[node][place].append(item)
        return {node: RoundCalls(*fields) for node, fields in parts.items()}


_GET_QUEUE: Final[tuple[Callable[[Any], str], ...]] = (
    lambda batch: batch.queue,
    lambda ask: ask.queue.name,
    lambda find: find[0].queue.name,
    lambda quarantine: quarantine[0].queue,
    lambda proof: proof[0].queue,
)
"""Functions that return the queue of an item, one for each field of `RoundCalls`."""
_CALL_ERRORS: Final = (RedisReplyError, RedisPermissionError)
"""Errors that concern one call only."""


class Sender:
    """Sends the calls of each round to one Redis server, and passes on the replies.

    Used by the event loop only.

    Args:
        service: named in reports of failures.
        parts: parts of the engine.
        intake: makes the calls.
    """

    def __init__(self, service: Service, parts: Parts, intake: Intake) -> None:
        self._parts = parts
        self._intake = intake
        self._failures = QueueFailures(service, parts.clock)
        self._backoff = Backoff()
        self.rest = 0.0
        """Back-off: seconds to wait before the next exchange with Redis; 0 if it answered the last one."""

    async def send(self, calls: RoundCalls) -> Exception | None:
        """Send the calls of a round in pipelines, and pass on the replies; without any, return the error.

        A queue whose own calls failed is skipped for a while, and reported. An outcome that Redis permanently
        refuses is not an error: another outcome is written in its place.
        """
        began = self._parts.clock.monotonic() if self._parts.events.wants(ExchangeEnded) else None
        plans = calls.plans
        results = await self._exchange(plans)
        if began is not None:
            seconds = self._parts.clock.monotonic() - began
            outcomes = sum(len(batch.attempts) for batch in calls.batches)
            self._parts.events.emit(ExchangeEnded(seconds, outcomes, len(plans)))
        error = _find_server_error(results)
        if error is None:
            self._backoff.reset()
            self.rest = 0.0
        else:
            self.rest = self._backoff.next()
        self._confirm(calls, results)
        self._hand_out(calls, results)
        for batch in calls.batches:
            if batch.puts_back:
                # Recorded after the answers: Redis may have run these batches last, if it had to load their
                # script first.
                self._intake.board.put_back(batch.queue)
        return error

    async def finish(self) -> None:
        """Return at once: `send` has waited for all calls."""

    async def _exchange(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        driver = self._parts.driver
        try:
            driver.check_open()
            # Run in this task: a new one would cost two loop iterations, and this one is never cancelled.
            return await driver.run_unshielded(plans)
        except Exception as error:  # noqa: BLE001 - each plan needs an answer
            return [error] * len(plans)

    def _confirm(self, calls: RoundCalls, results: Sequence[Any]) -> None:
        """Pass the answers to the settle queue; the syncer retries outcomes whose write failed."""
        for batch, result in zip(calls.batches, results, strict=False):
            self._parts.settles.confirm(batch, result)
            if batch.in_steps:
                self._intake.board.slot_freed(batch.queue)

    def _hand_out(self, calls: RoundCalls, results: Sequence[Any]) -> None:
        """Pass the answers to dequeue calls, searches and quarantines to the intake."""
        intake = self._intake
        answers = iter(results[len(calls.batches) :])
        for ask in calls.asks:
            answer = next(answers)
            if isinstance(answer, Exception):
                intake.failed(ask, answer, self._start_back_off(ask.queue.name, answer))
            else:
                intake.answered(ask, answer)
                self._failures.recover(ask.queue.name)
        for call, _ in calls.finds:
            answer = next(answers)
            if isinstance(answer, Exception):
                intake.leave_alone(call.queue.name, self._start_back_off(call.queue.name, answer))
            else:
                intake.found(call, answer)
        intake.deliver()
        for task, _ in calls.quarantines:
            answer = next(answers)
            if isinstance(answer, Exception):
                intake.leave_alone(task.queue, self._start_back_off(task.queue, answer))
            else:
                intake.unreadable.quarantined(task)
                self._parts.settles.on_endings(task.queue, answer.endings)
        intake.proofs_ended(calls.proofs)

    def _start_back_off(self, queue: str, error: Exception) -> float:
        """Start the back-off of a queue after an error, unless Redis itself is in one.

        Return the monotonic time at which it ends.
        """
        rest = self.rest or self._failures.note(queue, error)
        return self._parts.clock.monotonic() + rest


def _find_server_error(results: Sequence[Any]) -> Exception | None:
    """Return the error that shows that Redis did not answer; None if any call was answered or refused."""
    for result in results:
        if not isinstance(result, Exception) or isinstance(result, _CALL_ERRORS):
            return None
    return next(iter(results), None)
