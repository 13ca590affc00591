"""Syncer service: retries outcomes that could not be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._engine.queue_failures import is_reachable, lacks_attempts
from pyasynq.errors import ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.settle import Settled
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.settle.settle_batches import Batch


class Syncer(Service):
    """Retries all delayed outcomes every five seconds, and once more at the end.

    Each try has the time limit of the driver. The leases of the tasks are renewed during that time. A blamed
    outcome, which may have caused its last error, is sent alone, so that it cannot break the connection of
    other outcomes.
    """

    name = "syncer"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts

    async def round(self) -> float:
        """Retry all delayed outcomes."""
        error = await self._try_all()
        if error is not None:
            raise error
        return self._parts.settings.syncer_interval

    async def leave(self) -> None:
        """Try once more; leases of tasks still unsettled lapse, and other workers recover them."""
        await self._try_all(patient=False)
        while batches := self._parts.settles.take_fresh():
            # The replacements of refused outcomes.
            await self._try_together(batches)

    async def _try_all(self, *, patient: bool = True) -> Exception | None:
        """Retry all delayed outcomes together, then each blamed outcome alone; return an error, if any.

        Stop sending blamed outcomes when Redis does not answer. Unless `patient`, also stop when the reply to
        a blamed outcome is lost.
        """
        error = await self._try_together(self._parts.settles.take_delayed())
        for batch in self._parts.settles.take_blamed():
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
        """Send a blamed outcome alone; return its error or None, and whether Redis answers."""
        [result] = await self._send([batch])
        failure = result if isinstance(result, Exception) else None
        healthy = failure is None or await is_reachable(self._parts.driver, batch.queue)
        blamed = failure is not None and healthy and not await lacks_attempts(self._parts.driver, batch.queue)
        # If another outcome is written in its place, the refusal has already been reported.
        left = self._parts.settles.confirm(batch, result, blamed=blamed)
        return left, healthy

    async def _send(self, batches: Sequence[Batch]) -> Sequence[Settled | Exception]:
        if not batches:
            return []
        try:
            return await self._parts.driver.run_batch([batch.plan for batch in batches])
        except Exception as error:  # noqa: BLE001 - each batch needs an answer
            return [error] * len(batches)
