"""Writes outcomes that could not be written at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._server.service import Service

if TYPE_CHECKING:
    from pyasynq._server.parts import Parts


class Syncer(Service):
    """Tries all of them every five seconds, however many are added meanwhile, and once more at the end.

    Each try has a time limit of its own, the driver's. The leases of the tasks are renewed meanwhile.
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
        await self._try_all()

    async def _try_all(self) -> Exception | None:
        settles = self._parts.settles
        batches = settles.take_delayed()
        if not batches:
            return None
        try:
            results = await self._parts.driver.run_batch([batch.plan for batch in batches])
        except Exception as error:  # noqa: BLE001 - as in the processor: the outcomes must come back
            results = [error] * len(batches)
        first: Exception | None = None
        for batch, result in zip(batches, results, strict=True):
            settles.confirm(batch, result)
            if isinstance(result, Exception):
                first = first or result
        return first
