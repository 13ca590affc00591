"""Recorder of the audit trail: entries go to Redis and to the log `pyasynq.audit`."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pyasynq._broker.operating.audit import write_audit, write_refusal
from pyasynq.errors import RedisError, RedisPermissionError
from pyasynq.operations.audit import OUTCOME_REFUSED, AuditEntry, encode_entry, log_entry

if TYPE_CHECKING:
    from ._operator_inspector import OperatorInspector

_LOGGER = logging.getLogger("pyasynq.operations")


class AuditRecorder:
    """Writes the audit trail. If the Redis user has no right to write it, entries go to the log alone.

    Attributes:
        is_in_log_only: whether Redis has refused an entry for lack of a right.
    """

    def __init__(self, inspector: OperatorInspector) -> None:
        self._inspector = inspector
        self.is_in_log_only = False

    async def begin(self, entry: AuditEntry) -> str:
        """Write the entry that announces a change; return its stream id, empty if it went to the log alone.

        Raises:
            RedisError: the entry could not be written, so the change is not to be made.
        """
        log_entry(entry)
        return await self._write(entry, "")

    async def end(self, intent: str, entry: AuditEntry) -> None:
        """Replace the entry `intent`, which announced a change, by the entry with its result."""
        log_entry(entry)
        try:
            await self._write(entry, intent)
        except RedisError as error:
            # The caller must learn the outcome of the change, not this error. The entry keeps its outcome
            # `started`.
            _LOGGER.warning("the audit could not be written, and shows this as interrupted: %s", error)

    async def refuse(self, entry: AuditEntry, why: str) -> None:
        """Record a call that was refused."""
        entry = replace(entry, outcome=OUTCOME_REFUSED, error=why)
        log_entry(entry)
        if self.is_in_log_only:
            return
        try:
            await self._inspector.run(write_refusal(encode_entry(entry), f"{entry.user}\n{entry.address}"))
        except RedisPermissionError:
            self._note_missing_right()
        except RedisError as error:
            # The call is refused whether or not the audit can be written.
            _LOGGER.warning("a refused call could not be written to the audit: %s", error)

    async def _write(self, entry: AuditEntry, intent: str) -> str:
        if self.is_in_log_only:
            return ""
        try:
            return await self._inspector.run(write_audit(encode_entry(entry), intent=intent))
        except RedisPermissionError:
            self._note_missing_right()
            return ""

    def _note_missing_right(self) -> None:
        self.is_in_log_only = True
        _LOGGER.warning("this Redis user may not write the audit: it goes to the log pyasynq.audit alone")
