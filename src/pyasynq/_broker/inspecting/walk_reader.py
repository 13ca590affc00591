"""State of a walk: found tasks, examined positions, and the size of the next call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.task_records import STATES, decode_task_infos, read_record
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.info import ScanNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.inspecting.pace import ChunkPace
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.script import Script
    from pyasynq.info import ScanFilter, ScanText
    from pyasynq.task import TaskInfo

MAX_READ: Final = 2_000_000
"""Bytes of messages after which a call ends, so that large messages do not keep Redis busy."""
_MOST_TEXTS: Final = 40
"""Largest number of tests (`ScanText`, `ScanNumber`) that Redis makes; the caller makes further tests."""
_LETTERS: Final = {"message": b"m", "id": b"i", "result": b"r"}


class WalkReader:
    """State of one walk through the tasks of a queue.

    Args:
        queue: the queue's name.
        scan_filter: conditions by which Redis leaves tasks out.
        limit: number of tasks to find.
        scan: maximum number of positions to read.
        now: the current time, for the descriptions of the tasks.
        pace: adapts the number of positions that one call reads.
        monotonic: seconds that never run backwards; measures the calls.
    """

    def __init__(
        self,
        queue: str,
        scan_filter: ScanFilter,
        *,
        limit: int,
        scan: int,
        now: Instant,
        pace: ChunkPace,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = queue_keys(queue)
        self.texts = text_arguments(scan_filter.texts)
        self.low = "-inf" if scan_filter.low is None else str(scan_filter.low)
        self.high = "+inf" if scan_filter.high is None else str(scan_filter.high)
        self.tasks: list[TaskInfo] = []
        self.looked_at = 0
        self._limit = limit
        self._scan = scan
        self._now = now
        self._pace = pace
        self._monotonic = monotonic

    @property
    def is_full(self) -> bool:
        """Whether the walk has found `limit` tasks or read `scan` positions."""
        return len(self.tasks) >= self._limit or self.looked_at >= self._scan

    @property
    def count(self) -> int:
        """Number of positions that the next call reads."""
        return max(1, min(self._pace.size, MAX_TASKS, self._scan - self.looked_at))

    @property
    def most(self) -> int:
        """Number of tasks that are still to be found."""
        return max(1, self._limit - len(self.tasks))

    def call(self, script: Script, key: str, *args: Argument) -> Plan[Reply]:
        """Run a script, record its duration, and return its reply."""
        began = self._monotonic()
        reply = yield ScriptCall(script, (key,), (self.keys.task_prefix, *args), Replay.SAFE)
        self._pace.note(self._monotonic() - began)
        return reply

    def add(self, looked_at: int, found: Sequence[Reply]) -> None:
        """Add the tasks that a call has found, except those that cannot be decoded."""
        self.looked_at += looked_at
        records = [read_record(values) for values in found if values[2] in STATES]
        self.tasks += decode_task_infos(records, self._now)


def text_arguments(groups: Sequence[Sequence[ScanText | ScanNumber]]) -> tuple[Argument, ...]:
    """Encode tests as script arguments (conjunctive normal form): a task must pass a test of each group."""
    arguments: list[Argument] = []
    for group in sorted(groups, key=lambda group: -min(_length(one) for one in group)):
        if len(arguments) + 2 * len(group) > 2 * _MOST_TEXTS:
            continue
        for number, one in enumerate(group):
            kind, value = _encode_test(one)
            arguments += ((b"|" if number else b"&") + kind, value)
    return tuple(arguments)


def _length(one: ScanText | ScanNumber) -> int:
    """Return an estimate of a test's selectivity: the length of its text, since long texts are rare.

    A test of a number gets 0, so that it comes last.
    """
    return 0 if isinstance(one, ScanNumber) else len(one.data)


def _encode_test(one: ScanText | ScanNumber) -> tuple[bytes, bytes]:
    if isinstance(one, ScanNumber):
        kind = b"n%d" % one.source if isinstance(one.source, int) else b"j" + one.source.encode()
        return kind, f"{one.low} {one.high} {one.text}".encode()
    return _LETTERS[one.source], one.data
