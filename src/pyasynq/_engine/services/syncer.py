"""Writes outcomes that could not be written at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._engine.queue_failures import is_reachable
from pyasynq.errors import ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.settle import Settled
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.settle.settle_batches import Batch


class Syncer(Service):
    """Tries all of them every five seconds, however many are added meanwhile, and once more at the end.

    Each try has a time limit of its own, the driver's. The leases of the tasks are renewed meanwhile. An
    outcome whose error may be its own is sent alone, so that it cannot break the connection of others.
    """

    name = "syncer"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts

    async def round(self) -> float:
        """Try all outcomes that are delayed."""
        error = await self._try_all()
        if error is not None:
            raise error
        return self._parts.settings.syncer_interval

    async def leave(self) -> None:
        """Try a last time; leases of what is left lapse, and other workers get the tasks."""
        await self._try_all(patient=False)
        while batches := self._parts.settles.take_fresh():
            # The replacements of outcomes that were refused.
            await self._try_together(batches)

    async def _try_all(self, *, patient: bool = True) -> Exception | None:
        """Try all outcomes; those that are sent alone until Redis is silent, or one takes all its time."""
        error = await self._try_together(self._parts.settles.take_delayed())
        for batch in self._parts.settles.take_suspects():
            failure, healthy = await self._try_alone(batch)
            error = failure or error
            if not healthy or (isinstance(failure, ReplyLostError) and not patient):
                break
        return error

    async def _try_together(self, batches: Sequence[Batch]) -> Exception | None:
        results = await self._send(batches)
        confirm = self._parts.settles.confirm
        errors = [confirm(batch, result) for batch, result in zip(batches, results, strict=True)]
        return next((error for error in errors if error is not None), None)

    async def _try_alone(self, batch: Batch) -> tuple[Exception | None, bool]:
        """Send an outcome that may itself be why it fails; return its error, and whether Redis answers."""
        [result] = await self._send([batch])
        failure = result if isinstance(result, Exception) else None
        healthy = failure is None or await is_reachable(self._parts.driver, batch.queue)
        # The refusal is told already if something else is written instead.
        left = self._parts.settles.confirm(batch, result, blamed=failure is not None and healthy)
        return left, healthy

    async def _send(self, batches: Sequence[Batch]) -> Sequence[Settled | Exception]:
        if not batches:
            return []
        try:
            return await self._parts.driver.run_batch([batch.plan for batch in batches])
        except Exception as error:  # noqa: BLE001 - as in the processor: the outcomes must come back
            return [error] * len(batches)
