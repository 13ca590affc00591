"""Scenarios: a server of many queues is killed; one queue among others holds a key of the wrong type."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import redis.asyncio

from tests.chaos.kills import WorkerKilled
from tests.chaos.scenario import NothingTwice
from tests.chaos.settings import queue_names

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

_HARMED: Final = ("scheduled", "retry", "lease", "completed")
"""Keys of a queue that are empty most of the time, so that a wrong one can take their place."""


class ThousandQueues(WorkerKilled):
    """Workers that serve 1,000 queues are killed and replaced."""

    name: ClassVar = "1,000 queues"
    tasks: ClassVar = 60_000
    workers: ClassVar = 2
    queues: ClassVar = 1_000


class WrongType(NothingTwice):
    """A key of one queue holds a value of the wrong type for some seconds; the other queues work on."""

    name: ClassVar = "key of the wrong type"
    tasks: ClassVar = 300_000
    queues: ClassVar = 3

    async def inject(self, stage: Stage) -> None:
        """Put a text where a queue expects something else, if nothing is there, and take it away again."""
        harmed = queue_names(self.queues)[-1]
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            while stage.is_busy:
                await stage.pause(0.1, 0.5)
                key = f"asynq:{{{harmed}}}:{stage.random.choice(_HARMED)}"
                with stage.fault("key of the wrong type"):
                    if await client.set(key, "not what belongs here", nx=True):
                        await stage.pause(0.5, 4)
                        await client.delete(key)


SCENARIOS = (ThousandQueues, WrongType)
