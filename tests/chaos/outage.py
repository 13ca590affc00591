"""Scenarios: Redis is away for 20 s while tasks run in workers that live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from tests.chaos.bed import frozen, one_redis
from tests.chaos.load import make_task
from tests.chaos.records import What
from tests.chaos.scenario import NothingTwice

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path
    from random import Random

    from pyasynq.task import Task
    from tests.chaos.bed import Bed, OneRedis
    from tests.chaos.checker import Verdict
    from tests.chaos.records import History
    from tests.chaos.stage import Stage


class RedisAway(NothingTwice):
    """Redis is away for 20 s while 200 tasks run: none of them runs twice, since all keep their leases."""

    tasks: ClassVar = 200
    least_tasks: ClassVar = 200
    seconds: ClassVar = 20.0
    longest_task_seconds: ClassVar = 45.0
    usual_engine: ClassVar = True

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a server that finds everything again."""
        return one_redis(folder, fsync="always")

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return tasks that end before, in and after the outage."""
        seconds = random.uniform(2, self.longest_task_seconds)
        return make_task("work", task_id, {"milliseconds": int(seconds * 1000)})

    async def inject(self, stage: Stage) -> None:
        """Let all tasks begin, and take Redis away."""
        await stage.loaded.wait()
        await stage.pause(1, 3)
        with stage.fault(f"{self.name} for {self.seconds:g} s"):
            await self.take_away(stage)

    async def take_away(self, stage: Stage) -> None:
        """Take it away, wait, and bring it back."""
        raise NotImplementedError

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain also about runs that were broken off."""
        broken_off = sum(run.how is What.BROKEN_OFF for runs in history.runs.values() for run in runs)
        if broken_off:
            yield f"{broken_off} runs were broken off"
        yield from super().judge(history, verdict)


class RedisGone(RedisAway):
    """Its process has ended, and connecting fails at once."""

    name: ClassVar = "Redis gone"

    async def take_away(self, stage: Stage) -> None:
        """Kill it, and start it after the time."""
        bed = cast("OneRedis", stage.bed)
        bed.kill_primary()
        await asyncio.sleep(self.seconds)
        bed.restart()


class RedisFrozen(RedisAway):
    """Its process is stopped, and connections are silent."""

    name: ClassVar = "Redis frozen"

    async def take_away(self, stage: Stage) -> None:
        """Stop it, and let it go on after the time."""
        [server] = stage.bed.processes
        with frozen(server.pid):
            await asyncio.sleep(self.seconds)


SCENARIOS = (RedisGone, RedisFrozen)
