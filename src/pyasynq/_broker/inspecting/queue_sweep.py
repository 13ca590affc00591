"""Description of many queues in few pipelines, which survives queues and nodes that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq._broker.inspecting.queues import describe_queue
from pyasynq._broker.queue_registry import queue_names
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq.errors import PyasynqError, QueueNotFoundError, RedisUnavailableError
from pyasynq.info import QueueInfos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._broker.inspecting.group_counts import GroupCounts
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq.info import QueueInfo

MOST_QUEUES: Final = 200
"""Number of queues in one pipeline: about 5 ms of Redis' time, in as many calls."""

MOST_WEIGHED: Final = 50
"""Number of queues whose memory one sweep estimates: up to 220 MEMORY USAGE each (0.3 ms of Redis' time)."""

LEAST_WEIGHED: Final = 10
"""Number of queues whose memory one sweep estimates if there are very many, since counting takes long."""

_COUNTED_FOR_ONE_WEIGHED: Final = 15
"""Number of queues beyond the first 200 whose counts take as long as one memory estimate."""

_MOST_KNOWN: Final = 10_000
_GROUP_PAGES: Final = 1
_NAMES_AT_ONCE: Final = 1_000


class MemoryEstimates:
    """Cache of the newest memory estimate of each queue, so that each sweep renews only the oldest.

    Written and read by the inspector that it belongs to.
    """

    def __init__(self) -> None:
        self._known: dict[str, QueueInfo] = {}

    def choose(self, names: Sequence[str]) -> set[str]:
        """Return 10 to 50 of these queues: those without an estimate first, then the oldest estimates.

        The more queues there are, the fewer are chosen: 50 of up to 200, 10 of 800 and more.
        """
        if len(names) <= MOST_WEIGHED:
            return set(names)
        ages = {name: age for age, name in enumerate(self._known)}
        most = MOST_WEIGHED - max(0, len(names) - MOST_QUEUES) // _COUNTED_FOR_ONE_WEIGHED
        return set(sorted(names, key=lambda name: ages.get(name, -1))[: max(LEAST_WEIGHED, most)])

    def complete(self, info: QueueInfo) -> QueueInfo:
        """Store the memory estimate of a queue's description, and return the description.

        A description without an estimate gets the stored one, scaled to its number of tasks.
        """
        if info.memory_usage is None:
            known = self._known.get(info.queue)
            if known is None:
                return info
            growth = info.size / known.size if known.size else 1.0
            usage = round((known.memory_usage or 0) * growth)
            return replace(info, memory_usage=usage, memory_at=known.memory_at)
        # Inserted at the end: the dictionary is ordered from the oldest estimate to the newest.
        self._known.pop(info.queue, None)
        self._known[info.queue] = info
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return info


class QueueSweep:
    """One description of many queues, in parts of 200 queues.

    A queue that cannot be read is reported with its error. A cluster node that cannot be reached is asked
    once: its other queues are reported as unreadable too.

    Args:
        names: names of existing queues.
        missing: names that no queue has.
        find_node: returns the address of the node that serves a key; empty for a single server.
        estimates: memory estimates, if they are wanted.
    """

    def __init__(
        self,
        names: Sequence[str],
        missing: Iterable[str],
        find_node: Callable[[str], str],
        estimates: MemoryEstimates | None,
    ) -> None:
        self._names = names
        self._find_node = find_node
        self._estimates = estimates
        self._weighed = set() if estimates is None else estimates.choose(names)
        self._next = 0
        self._infos: dict[str, QueueInfo] = {}
        self._missing = {name: str(QueueNotFoundError(name)) for name in missing}
        self._unreadable: dict[str, str] = {}
        self._away: dict[str, PyasynqError] = {}

    def next_plans(self, now: Instant, group_counts: GroupCounts) -> dict[str, Plan[QueueInfo]]:
        """Return plans that describe the next queues, at most 200, by queue name; an empty dict at the end.

        Queues of a node that cannot be reached are skipped, and recorded as unreadable. The plans of several
        calls may be performed concurrently; their outcomes go to `take` in any order.
        """
        part: list[str] = []
        while self._next < len(self._names) and len(part) < MOST_QUEUES:
            name = self._names[self._next]
            self._next += 1
            error = self._away.get(self._find_node(queue_keys(name).pending)) if self._away else None
            if error is None:
                part.append(name)
            else:
                self._unreadable[name] = str(error)
        return {
            name: describe_queue(
                name,
                now=now,
                group_counts=group_counts,
                group_pages=_GROUP_PAGES,
                memory=name in self._weighed,
            )
            for name in part
        }

    def take(self, names: Iterable[str], outcomes: Sequence[QueueInfo | Exception]) -> None:
        """Record the outcomes of the plans of these queues.

        Raises:
            RedisUnavailableError: Redis could not be reached for any of these queues, and no other queue
                has been read before.
        """
        errors = [outcome for outcome in outcomes if isinstance(outcome, RedisUnavailableError)]
        if len(errors) == len(outcomes) and not self._infos:
            raise errors[0]
        for name, outcome in zip(names, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                self._infos[name] = self._estimates.complete(outcome) if self._estimates else outcome
            elif isinstance(outcome, PyasynqError):
                self._unreadable[name] = str(outcome)
                if isinstance(outcome, RedisUnavailableError):
                    self._away[self._find_node(queue_keys(name).pending)] = outcome
            else:
                raise outcome

    def result(self) -> QueueInfos:
        """Return the descriptions, in the order of the names."""
        infos, unreadable = self._infos, self._unreadable
        return QueueInfos(
            tuple(infos[name] for name in self._names if name in infos),
            {**self._missing, **{name: unreadable[name] for name in self._names if name in unreadable}},
        )


def find_queues(queues: Iterable[str] | None) -> Plan[tuple[list[str], list[str]]]:
    """Return the names of existing queues, in the given order, and those of missing queues; None is all."""
    if queues is None:
        return (yield from queue_names()), []
    names = list(dict.fromkeys(check_name("queue", name) for name in queues))
    if not names:
        return [], []
    found: list[str] = []
    missing: list[str] = []
    for first in range(0, len(names), _NAMES_AT_ONCE):
        part = names[first : first + _NAMES_AT_ONCE]
        reply = yield CommandCall(("SMISMEMBER", ALL_QUEUES, *part), ALL_QUEUES, Replay.SAFE)
        for name, exists in zip(part, reply, strict=True):
            (found if exists else missing).append(name)
    return found, missing
