# Generated from src/pyasynq/operations/operator/audit.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.operating.audit import Written, read_audit, read_refused
from pyasynq._checks import check_whole
from pyasynq.errors import InvalidOptionError
from pyasynq.operations.audit import AuditEntry, AuditFilters, AuditPage, decode_entry

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan

_READ_AT_ONCE: Final = 500
_MOST_SCANNED: Final = 10_000
_EVERYTHING: Final = AuditFilters()


class AuditOperator(OperatorBase):
    """The operator's methods about the audit: entries about queues that the user sees, and the user's own."""

    def audit(
        self, filters: AuditFilters = _EVERYTHING, *, cursor: str = "", limit: int = 50
    ) -> AuditPage:
        """Return up to `limit` entries that match, newest first; pass the page's cursor to continue.

        A page examines at most 10,000 entries, so it may be short or empty and still have a cursor.

        Raises:
            InvalidOptionError: for an invalid cursor, or a limit below 1.
        """
        return self._read_page(read_audit, filters, cursor, limit)

    def refusals(
        self, filters: AuditFilters = _EVERYTHING, *, cursor: str = "", limit: int = 50
    ) -> AuditPage:
        """Return the entries of refused calls; arguments and result are as for `audit`.

        At most ten refused calls a minute of the same user and address have an entry; its field `more` counts
        further ones.
        """
        return self._read_page(read_refused, filters, cursor, limit)

    def _read_page(
        self, read: Callable[[str, int], Plan[list[Written]]], filters: AuditFilters, cursor: str, limit: int
    ) -> AuditPage:
        check_whole("limit", limit, 1)
        check_cursor(cursor)
        entries: list[AuditEntry] = []
        scanned = 0
        while scanned < _MOST_SCANNED:
            page = self._inspector.run(read(cursor, _READ_AT_ONCE))
            for written in page:
                cursor = written.position
                scanned += 1
                entry = decode_entry(written.position, written.entry, more=written.more)
                if entry is not None and filters.match(entry) and self._may_read(entry):
                    entries.append(entry)
                    if len(entries) == limit:
                        return AuditPage(tuple(entries), cursor, scanned)
            if len(page) < _READ_AT_ONCE:
                return AuditPage(tuple(entries), None, scanned)
        return AuditPage(tuple(entries), cursor, scanned)

    def _may_read(self, entry: AuditEntry) -> bool:
        # Entries that the user may not see must not use up the page.
        return self._shown(entry) is entry


def check_cursor(cursor: str) -> None:
    """Raise `InvalidOptionError` unless this is empty or a position in a stream."""
    parts = cursor.split("-")
    if cursor and not (len(cursor) < 50 and len(parts) == 2 and all(map(_is_number, parts))):
        raise InvalidOptionError("cursor", cursor, "must be the cursor of an earlier page")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
