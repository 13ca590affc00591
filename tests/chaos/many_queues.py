"""Scenarios: a server of many queues is killed; one queue among others holds a key of the wrong type."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import redis.asyncio

from tests.chaos.kills import WorkerKilled
from tests.chaos.scenario import NothingTwice
from tests.chaos.settings import queue_names

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

_HARMED: Final = ("pending", "active", "lease", "scheduled", "retry", "completed")
_HARM: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('RENAME', KEYS[1], KEYS[2])
end
redis.call('SET', KEYS[1], 'not what belongs here')
"""
_MEND: Final = """
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('RENAME', KEYS[2], KEYS[1])
end
"""


class ThousandQueues(WorkerKilled):
    """Workers that serve 1,000 queues are killed and replaced."""

    name: ClassVar = "1,000 queues"
    tasks: ClassVar = 60_000
    workers: ClassVar = 2
    queues: ClassVar = 1_000


class WrongType(NothingTwice):
    """A key of one queue holds a value of the wrong type for some seconds; the other queues work on.

    An outcome can meet such a key at each of its three tries, five seconds apart. Then a failure takes its
    place, as docs/guarantees.md says, and the task runs again or is archived.
    """

    name: ClassVar = "key of the wrong type"
    tasks: ClassVar = 300_000
    least_tasks: ClassVar = 100_000
    refuses: ClassVar = True
    queues: ClassVar = 3

    async def inject(self, stage: Stage) -> None:
        """Put a text in the place of a key, and the key back again."""
        harmed = queue_names(self.queues)[-1]
        places = cycle(stage.random.sample(_HARMED, len(_HARMED)))
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            while stage.is_busy:
                await stage.pause(0.1, 0.5)
                place = next(places)
                keys = (f"asynq:{{{harmed}}}:{place}", f"kept:{{{harmed}}}:{place}")
                with stage.fault(f"{place} of the wrong type"):
                    await cast("Any", client.eval(_HARM, 2, *keys))
                    await stage.pause(0.2, 2)
                    await cast("Any", client.eval(_MEND, 2, *keys))


SCENARIOS = (ThousandQueues, WrongType)
