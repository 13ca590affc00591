"""Following the events of queues: the read positions of the streams, and the filter of events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyasynq._backoff import jittered_pause
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.task_events import FIRST_MARK, EventFilter, NewEvents, StreamPosition, read_events
from pyasynq._checks import check_name
from pyasynq.errors import InvalidOptionError, RedisTLSError, RedisUnavailableError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Sequence

    from pyasynq._redis.plan import Plan
    from pyasynq.info import TaskEvent

AsyncEvents: TypeAlias = "AsyncIterator[TaskEvent]"
BlockingEvents: TypeAlias = "Iterator[TaskEvent]"

_SHORTEST_REST: Final = 0.05
_LONGEST_REST: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
_NEW_QUEUES_SECONDS: Final = 5.0
_POSITION: Final = re.compile(r"\d+(-\d+)?")


class Follower:
    """State of one call of `follow`: read positions, filter and pause. It does no I/O itself (sans I/O)."""

    def __init__(
        self,
        queues: Collection[str],
        *,
        kinds: Collection[str],
        types: Collection[str],
        after: Mapping[str, str],
    ) -> None:
        self._filter = EventFilter(kinds, types)
        _check_is_mapping(after)
        self._marks: dict[str, StreamPosition | None] = dict.fromkeys(
            check_name("queue", queue) for queue in queues
        )
        for queue, position in after.items():
            self._marks[check_name("queue", queue)] = _parse_mark(position)
        self._follows_all = not queues
        self._knows_all = False
        self._look_for_queues_at = 0.0
        self._asked: list[str] = []
        self._quiet = 0
        self._failures = 0
        self.behind = False
        """Whether there is more to read at once."""

    def plans(self, now: float) -> list[Plan[Any]]:
        """Return the plans (commands to Redis) of the next read of the streams; pass their results to `take`.

        A follower of all queues also searches for new queues from time to time. `now` is monotonic time in
        seconds.
        """
        self._asked = list(self._marks)
        plans: list[Plan[Any]] = [read_events(queue, mark) for queue, mark in self._marks.items()]
        if self._follows_all and now >= self._look_for_queues_at:
            plans.append(queue_names())
        return plans

    def take(self, answers: Sequence[Any], now: float) -> list[TaskEvent]:
        """Return the events that pass the filter, from the answers to `plans`; advance the read positions.

        Raises:
            Exception: the first error among the answers that will not pass by itself.
        """
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        for error in errors:
            if not isinstance(error, RedisUnavailableError | ReplyLostError) or isinstance(
                error, RedisTLSError
            ):
                raise error
        self._failures = self._failures + 1 if errors else 0
        events: list[TaskEvent] = []
        self.behind = False
        for queue, answer in zip(self._asked, answers, strict=False):
            if isinstance(answer, NewEvents):
                self._marks[queue] = answer.mark
                events += answer.events
                self.behind = self.behind or answer.full
        if len(answers) > len(self._asked) and not isinstance(answers[-1], Exception):
            self._add(answers[-1], now)
        self._quiet = 0 if events else self._quiet + 1
        return [event for event in events if self._filter.match(event)]

    def rest(self) -> float:
        """Return the seconds to pause before the next read."""
        if self._failures:
            return jittered_pause(self._failures, shortest=_SHORTEST_REST, longest=_LONGEST_PAUSE)
        return 0.0 if self.behind else min(_LONGEST_REST, _SHORTEST_REST * (self._quiet + 1))

    def _add(self, queues: Sequence[str], now: float) -> None:
        # A queue created since the start is read from its first event.
        mark = FIRST_MARK if self._knows_all else None
        for queue in queues:
            if queue not in self._marks:
                self._marks[queue] = mark
                self.behind = True
        self._knows_all = True
        self._look_for_queues_at = now + _NEW_QUEUES_SECONDS


def _check_is_mapping(after: object) -> None:
    if not isinstance(after, Mapping):
        raise InvalidOptionError("after", after, "must map queues to positions, as in {'default': '0'}")


def _parse_mark(position: object) -> StreamPosition:
    if not isinstance(position, str) or not _POSITION.fullmatch(position):
        raise InvalidOptionError("after", position, "must be the position of an event, or '0' for the oldest")
    return FIRST_MARK if position in {"0", "0-0"} else StreamPosition(position, seen=True)
