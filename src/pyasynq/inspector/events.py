"""The inspector's method that follows events of tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyasynq._checks import parse_seconds
from pyasynq._clock import sleep_async

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyasynq._broker.waits.following import AsyncEvents, Follower
    from pyasynq.options import Duration


class EventInspector(InspectorBase):
    """Follows the events of tasks."""

    def follow(
        self,
        *queues: str,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        after: Mapping[str, str] | None = None,
        seconds: Duration | None = None,
    ) -> AsyncEvents:
        """Yield the events of tasks as they are published; those of one queue in the order of their stream.

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

    async def _follow(self, follower: Follower, limit: float | None) -> AsyncEvents:
        # Not the clock of the inspector: a test may have frozen it.
        began = time.monotonic()
        while True:
            now = time.monotonic()
            for event in follower.take(await self._driver.run_batch(follower.plans(now)), now):
                yield event
            rest = follower.rest()
            if limit is not None:
                left = began + limit - time.monotonic()
                if left <= 0 and not follower.behind:
                    return
                rest = min(rest, max(0.0, left))
            await sleep_async(rest)
