"""What the processor sends to Redis together, and who gets which of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._backoff import Backoff
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq.errors import RedisPermissionError, RedisReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._background.service import Service
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settle.settle_batches import Batch
    from pyasynq._engine.take.intake import Ask, Intake, Unreadable
    from pyasynq._redis.plan import Plan


class Parcel(NamedTuple):
    """What is sent to Redis together, in this order; the answers come in the same order."""

    batches: Sequence[Batch] = ()
    asks: Sequence[Ask] = ()
    finds: Sequence[tuple[Ask, Plan[Any]]] = ()
    quarantines: Sequence[tuple[Unreadable, Plan[Any]]] = ()
    proofs: Sequence[tuple[Attempt, Plan[bool]]] = ()

    @property
    def plans(self) -> list[Plan[Any]]:
        """The plans of all of it."""
        plans: list[Plan[Any]] = [batch.plan for batch in self.batches]
        plans += [ask.plan for ask in self.asks]
        plans += [plan for _, plan in self.finds]
        plans += [plan for _, plan in self.quarantines]
        plans += [plan for _, plan in self.proofs]
        return plans

    def by_node(self, node_of: Callable[[str], str]) -> dict[str, Parcel]:
        """Return a parcel for each node; `node_of` returns the node that serves a queue."""
        parts: dict[str, list[list[Any]]] = {}
        for place, (items, queue_of) in enumerate(zip(self, _QUEUE_OF, strict=True)):
            for item in items:
                node = node_of(queue_of(item))
                if node not in parts:
                    parts[node] = [[] for _ in self]
                parts[node][place].append(item)
        return {node: Parcel(*fields) for node, fields in parts.items()}


_QUEUE_OF: Final[tuple[Callable[[Any], str], ...]] = (
    lambda batch: batch.queue,
    lambda ask: ask.queue.name,
    lambda find: find[0].queue.name,
    lambda quarantine: quarantine[0].queue,
    lambda proof: proof[0].queue,
)
"""Return the queue of an item of each field of a parcel."""
_OF_ONE_CALL: Final = (RedisReplyError, RedisPermissionError)
"""Errors with which Redis refuses one call, and which say nothing of the others."""


class Sender:
    """Sends parcels to one server, and hands each answer to its caller. The event loop alone uses it.

    Args:
        service: in whose name failures are reported.
        parts: of the engine.
        intake: whose calls these are.
    """

    def __init__(self, service: Service, parts: Parts, intake: Intake) -> None:
        self._parts = parts
        self._intake = intake
        self._failures = QueueFailures(service, parts.clock)
        self._backoff = Backoff()
        self.rest = 0.0
        """Seconds for which the server is left alone after the last exchange; 0 if it has answered."""

    async def send(self, parcel: Parcel) -> Exception | None:
        """Send a parcel and hand out the answers; return an error if the server could not be asked.

        A queue whose calls alone failed is left alone for a while, and reported. An outcome that Redis
        refuses for good is not an error: a failure is written instead.
        """
        results = await self._exchange(parcel.plans)
        error = _server_error(results)
        if error is None:
            self._backoff.reset()
            self.rest = 0.0
        else:
            self.rest = self._backoff.next()
        self._confirm(parcel, results)
        self._hand_out(parcel, results)
        return error

    async def finish(self) -> None:
        """Return at once: nothing is under way for which `send` has not waited."""

    async def _exchange(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        driver = self._parts.driver
        try:
            driver.check_open()
            # Run in this task: a new one would cost two loop iterations, and nothing cancels this one.
            return await driver.run_unshielded(plans)
        except Exception as error:  # noqa: BLE001 - each plan that was handed over must get an answer
            return [error] * len(plans)

    def _confirm(self, parcel: Parcel, results: Sequence[Any]) -> None:
        """Hand the settle queue the answers to its batches; the syncer writes later what failed."""
        for batch, result in zip(parcel.batches, results, strict=False):
            self._parts.settles.confirm(batch, result)
            if batch.in_steps:
                self._intake.board.slot_freed(batch.queue)

    def _hand_out(self, parcel: Parcel, results: Sequence[Any]) -> None:
        """Hand the other answers to the intake."""
        intake = self._intake
        answers = iter(results[len(parcel.batches) :])
        for ask in parcel.asks:
            answer = next(answers)
            if isinstance(answer, Exception):
                intake.failed(ask, answer, self._look_at(ask.queue.name, answer))
            else:
                intake.answered(ask, answer)
                self._failures.recover(ask.queue.name)
        for call, _ in parcel.finds:
            answer = next(answers)
            if isinstance(answer, Exception):
                intake.leave_alone(call.queue.name, self._look_at(call.queue.name, answer))
            else:
                intake.found(call, answer)
        intake.deliver()
        for task, _ in parcel.quarantines:
            answer = next(answers)
            if isinstance(answer, Exception):
                intake.leave_alone(task.queue, self._look_at(task.queue, answer))
            else:
                intake.quarantined(task)
        intake.proofs_ended(parcel.proofs)

    def _look_at(self, queue: str, error: Exception) -> float:
        """Return the monotonic time until which a queue is left alone after an error."""
        rest = self.rest or self._failures.note(queue, error)
        return self._parts.clock.monotonic() + rest


def _server_error(results: Sequence[Any]) -> Exception | None:
    """Return why the server could not be asked; None if it has answered or refused a single call."""
    for result in results:
        if not isinstance(result, Exception) or isinstance(result, _OF_ONE_CALL):
            return None
    return next(iter(results), None)
