# Generated from src/pyasynq/inspector/events.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about events of tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyasynq._broker import inspecting
from pyasynq._broker.queue_registry import queue_names
from pyasynq._checks import check_name, check_whole, parse_seconds
from pyasynq._clock import sleep_blocking
from pyasynq.errors import InvalidOptionError

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyasynq._broker.waits.following import BlockingEvents, Follower
    from pyasynq.info import EventPage
    from pyasynq.options import Duration


class EventInspector(InspectorBase):
    """Reads and follows the events of tasks."""

    def recent_events(
        self,
        *queues: str,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        cursor: str = "",
        limit: int = 100,
    ) -> EventPage:
        """Return the newest kept events of tasks, newest first.

        Workers and clients publish events only with `publish_events`; about the last 10,000 of each queue are
        kept, until a day after the last one. Events of the kind `dropped` pass all filters.

        Args:
            queues: queues whose events to return; without them all queues. A queue need not exist.
            kinds: kinds of events, as for `follow`; all kinds unless given.
            types: task types; all unless given.
            cursor: cursor of the page before, to continue with older events.
            limit: most events to return, up to 500. With kinds or types, at least the newest 500 events of
                each queue are examined; the page may then have fewer events, or none, and a cursor.

        Raises:
            InvalidOptionError: for an unknown kind, an invalid name, cursor or limit.
            RedisError: Redis cannot be reached or refuses us.
            ClientClosedError: the inspector has been closed.
        """
        from pyasynq._broker.task_events import EventFilter  # noqa: PLC0415 - most programs read no events

        reading = inspecting.recent_events
        wanted = EventFilter(kinds, types)
        place = reading.parse_cursor(cursor)
        check_whole("limit", limit, 1)
        if limit > reading.MOST_EVENTS:
            raise InvalidOptionError("limit", limit, f"must be at most {reading.MOST_EVENTS}")
        names = [check_name("queue", queue) for queue in queues] or self._run(queue_names())
        count = limit + 1 if wanted.is_empty else reading.MOST_EVENTS
        plans = [reading.read_stream_part(queue, place, count) for queue in names]
        return reading.merge_parts(self._run_in_parts(plans), wanted, limit)

    def follow(
        self,
        *queues: str,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        after: Mapping[str, str] | None = None,
        seconds: Duration | None = None,
    ) -> BlockingEvents:
        """Yield the events of tasks as they are published, in the order of each queue's stream.

        Only workers and clients with this setting publish events: `ServerConfig(publish_events=True)`,
        `Client(publish_events=True)`. The iteration yields the events published after its first step, each at
        most 0.25 s late. It continues after an outage of Redis. A follower that is too slow, or had no
        connection for too long, gets an event of the kind `missed`; `dropped` says how many events a worker
        could not publish. Events of these two kinds pass all filters.

        Args:
            queues: queues whose events to yield; without them all queues, also new ones. A queue need
                not exist yet.
            kinds: kinds of events, such as `"succeeded"`, `"retried"`, `"archived"`; all kinds unless given.
            types: task types; all unless given. Some events have no type, such as those of the kind
                `recovered`.
            after: for each queue the `position` of the last event that is known; `"0"` yields all that
                are kept. Other queues are followed from now on.
            seconds: how long to follow; None follows without end.

        Raises:
            InvalidOptionError: for an unknown kind, an invalid name or an invalid position; at once.
            RedisError: Redis refuses us; while iterating.
            ClientClosedError: the inspector has been closed; while iterating.
        """
        from pyasynq._broker.waits.following import Follower  # noqa: PLC0415 - most programs follow nothing

        follower = Follower(queues, kinds=kinds, types=types, after={} if after is None else after)
        limit = None if seconds is None else parse_seconds("seconds", seconds)
        return self._follow(follower, limit)

    def _follow(self, follower: Follower, limit: float | None) -> BlockingEvents:
        # Not the clock of the inspector: a test may have frozen it.
        began = time.monotonic()
        while True:
            now = time.monotonic()
            for event in follower.take(self._driver.run_batch(follower.plans(now)), now):
                yield event
            rest = follower.rest()
            if limit is not None:
                left = began + limit - time.monotonic()
                if left <= 0 and not follower.behind:
                    return
                rest = min(rest, max(0.0, left))
            sleep_blocking(rest)
