"""Reports of instances of the task service, in Redis: a hash for each kind, by subject and instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.arguments import chunks, time_arguments
from pyasynq._broker.scripts import TYPE_PUBLISH
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import COMMANDS_KEY, DELIVERIES_KEY, DOORS_KEY, LEASE_WORKERS_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

MAX_REPORT_BYTES: Final = 16_000
_SAMPLE: Final = 20
"""Number of random reports that each call checks for expiry, as Redis' active expiry does with keys."""
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A hash of reports.

    Attributes:
        key: key of the hash.
        seconds: retention of a report, in seconds.
        most: maximum number of reports; each instance writes one for each of its subjects.
    """

    key: str
    seconds: int
    most: int


LEASE_WORKER_REPORTS: Final = ReportTable(LEASE_WORKERS_KEY, seconds=600, most=5_000)
"""Reports on workers that lease over HTTP; a lost worker stays visible for 10 minutes."""
DELIVERY_REPORTS: Final = ReportTable(DELIVERIES_KEY, seconds=3_600, most=1_000)
"""Reports on the requests of hosted types, by host and queue, of the last hour."""

COMMAND_REPORTS: Final = ReportTable(COMMANDS_KEY, seconds=600, most=2_000)
"""Reports on commands that run, or have ended within 10 minutes."""

DOOR_REPORTS: Final = ReportTable(DOORS_KEY, seconds=600, most=1_000)
"""Reports on protocol gateways (doors) that were open within 10 minutes."""


def write_reports(table: ReportTable, reports: Sequence[tuple[str, bytes]], now: Instant | None) -> Plan[int]:
    """Write reports, each with its name; return how many did not fit."""
    refused = 0
    for some in chunks(reports, width=2, size_of=_get_size):
        tail = [argument for report in some for argument in report]
        args = (*time_arguments(now), table.seconds, table.most, _SAMPLE, *tail)
        refused += len((yield ScriptCall(TYPE_PUBLISH, (table.key,), args, Replay.SAFE)))
    return refused


def read_reports(table: ReportTable, now: Instant) -> Plan[dict[str, tuple[int, bytes]]]:
    """Return the reports that are kept, by name, each with the second at which it was written."""
    cursor: Any = b"0"
    found: dict[str, tuple[int, bytes]] = {}
    while True:
        command = ("HSCAN", table.key, cursor, "COUNT", _PAGE)
        cursor, fields = yield CommandCall(command, table.key, Replay.SAFE)
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            second, _, report = value.partition(b" ")
            if second.isdigit() and parse_number(second) >= now.seconds - table.seconds:
                found[decode_name(name)] = parse_number(second), report
        if cursor == b"0":
            return found


def _get_size(report: tuple[str, bytes]) -> int:
    return len(report[0]) + len(report[1])
