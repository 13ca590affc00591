"""Reports of state that only one instance knows, such as its workers: written to Redis every few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyasynq.operations import Operator

_log = logging.getLogger("pyasynq.gateway")

_REST_SECONDS: Final = 2.0
_Report = TypeVar("_Report")


class ReportedTable(Protocol[_Report]):
    """Protocol of a table of reports that tracks which reports have changed since they were last written."""

    def take_changed(self) -> list[_Report]:
        """Return the reports that have changed since the last call; the next call leaves them out."""

    def put_back(self, reports: Sequence[_Report]) -> None:
        """Add reports that could not be stored to the next result of `take_changed`."""


class InstanceReports(Generic[_Report]):
    """Writes the changed reports of a table to Redis at an interval. Belongs to one event loop.

    Args:
        name: name of the reports, for the log.
        operator: writes to Redis.
        table: table of the instance.
        store: writes reports, and returns how many did not fit.
        rest: seconds between two writes.
    """

    def __init__(
        self,
        name: str,
        operator: Operator,
        table: ReportedTable[_Report],
        store: Callable[[Operator, str, Sequence[_Report]], Awaitable[int]],
        *,
        rest: float = _REST_SECONDS,
    ) -> None:
        self._name = name
        self._operator = operator
        self._table = table
        self._store = store
        self._rest = rest
        self._instance = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def start(self) -> None:
        """Begin to write reports. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"pyasynq gateway {self._name}")

    async def close(self) -> None:
        """Write the changed reports a last time, and stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._report()

    async def _run(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(self._rest)

    async def _report(self) -> None:
        changed = self._table.take_changed()
        if not changed:
            return
        try:
            refused = await self._store(self._operator, self._instance, changed)
        except asyncio.CancelledError:
            self._table.put_back(changed)
            raise
        except PyasynqError as error:
            self._table.put_back(changed)
            if not self._has_failed:
                _log.warning("%s cannot be reported: %s; trying again", self._name, visible(error))
            self._has_failed = True
        except Exception:  # noqa: BLE001 - lists for people are not worth an outage
            _log.exception("%s were not reported", self._name)
        else:
            self._has_failed = False
            if refused:
                _log.warning("lists of %s lack %d: there are too many", self._name, refused)
