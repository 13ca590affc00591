"""Reports of an instance on the workers that lease through it, stored every few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Final, Protocol

from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError
from pyasynq.operations import report_lease_workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations import LeaseWorkerReport, Operator

_log = logging.getLogger("pyasynq.gateway")

_REST_SECONDS: Final = 2.0


class ReportedWorkers(Protocol):
    """A table of workers that knows which of its reports have changed."""

    def take_changed(self) -> list[LeaseWorkerReport]:
        """Return the reports that have changed since the last call."""

    def put_back(self, reports: Sequence[LeaseWorkerReport]) -> None:
        """Add reports that could not be stored to the next result of `take_changed`."""


class WorkerReports:
    """Stores the changed reports of a table of workers, until it is closed. Belongs to one event loop.

    Args:
        operator: reaches Redis.
        table: table of the instance.
        rest: seconds between two reports.
    """

    def __init__(self, operator: Operator, table: ReportedWorkers, *, rest: float = _REST_SECONDS) -> None:
        self._operator = operator
        self._table = table
        self._rest = rest
        self._instance = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def start(self) -> None:
        """Begin to report. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="pyasynq gateway worker reports")

    async def close(self) -> None:
        """Write a last report, which says that no request waits here any more, and stop."""
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
            refused = await report_lease_workers(self._operator, self._instance, changed)
        except asyncio.CancelledError:
            self._table.put_back(changed)
            raise
        except PyasynqError as error:
            self._table.put_back(changed)
            if not self._has_failed:
                _log.warning("workers cannot be reported: %s; trying again", visible(error))
            self._has_failed = True
        except Exception:  # noqa: BLE001 - lists of workers are not worth an outage
            _log.exception("workers were not reported")
        else:
            self._has_failed = False
            if refused:
                _log.warning("lists of workers lack %d: there are too many", refused)
