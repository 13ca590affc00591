"""Reports about workers that lease tasks from the task service: a hash by worker and service instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.arguments import chunks, time_arguments
from pyasynq._broker.scripts import TYPE_PUBLISH
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import LEASE_WORKERS_KEY, queue_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

REPORT_SECONDS: Final = 600
"""Seconds for which a report is kept: people still see a worker that was lost 10 minutes ago."""
MAX_REPORTS: Final = 5_000
"""Maximum number of reports; each instance has one of each of its workers."""
MAX_REPORT_BYTES: Final = 16_000
_SAMPLE: Final = 20
"""Number of random reports that each call checks for expiry, as Redis' active expiry does with keys."""
_PAGE: Final = 200
_AT_ONCE: Final = 500


def write_reports(reports: Sequence[tuple[str, bytes]], now: Instant | None) -> Plan[int]:
    """Write reports, each with its name; return how many did not fit."""
    refused = 0
    for some in chunks(reports, width=2, size_of=_get_size):
        tail = [argument for report in some for argument in report]
        args = (*time_arguments(now), REPORT_SECONDS, MAX_REPORTS, _SAMPLE, *tail)
        refused += len((yield ScriptCall(TYPE_PUBLISH, (LEASE_WORKERS_KEY,), args, Replay.SAFE)))
    return refused


def read_reports(now: Instant) -> Plan[dict[str, tuple[int, bytes]]]:
    """Return the reports of the last 10 minutes by name, each with the second at which it was written."""
    cursor: Any = b"0"
    found: dict[str, tuple[int, bytes]] = {}
    while True:
        command = ("HSCAN", LEASE_WORKERS_KEY, cursor, "COUNT", _PAGE)
        cursor, fields = yield CommandCall(command, LEASE_WORKERS_KEY, Replay.SAFE)
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            second, _, report = value.partition(b" ")
            if second.isdigit() and parse_number(second) >= now.seconds - REPORT_SECONDS:
                found[decode_name(name)] = parse_number(second), report
        if cursor == b"0":
            return found


def find_leased(queue: str, task_ids: Sequence[str], now: Instant) -> Plan[set[str]]:
    """Return which of some tasks of a queue have a lease that has not ended."""
    lease = queue_keys(queue).lease
    found: set[str] = set()
    for first in range(0, len(task_ids), _AT_ONCE):
        part = task_ids[first : first + _AT_ONCE]
        scores = yield CommandCall(("ZMSCORE", lease, *part), lease, Replay.SAFE)
        found |= {
            task_id
            for task_id, score in zip(part, scores, strict=True)
            if score is not None and float(score) > now.seconds
        }
    return found


def _get_size(report: tuple[str, bytes]) -> int:
    return len(report[0]) + len(report[1])
