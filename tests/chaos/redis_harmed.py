"""Scenarios: Redis itself is killed, cut off, emptied of scripts, filled up, and its clock jumps."""

from __future__ import annotations

import resource
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, Final, cast

import redis.asyncio
import redis.exceptions

from tests.chaos import faketime
from tests.chaos.bed import one_redis
from tests.chaos.load import make_task, mixed_task
from tests.chaos.scenario import NothingTwice, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from random import Random

    from pyasynq.task import Task
    from tests.chaos.bed import Bed, OneRedis
    from tests.chaos.stage import Stage

_ROOM_BYTES: Final = 50_000
_TEN_MINUTES: Final = 600
_SHARE_OF_LONG_TASKS: Final = 0.005


class RedisKilled(Scenario):
    """Redis writes each change to its file at once, is killed, and starts on that file."""

    name: ClassVar = "Redis killed"
    tasks: ClassVar = 60_000

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a server that confirms nothing that is not on disk."""
        return one_redis(folder, fsync="always")

    async def inject(self, stage: Stage) -> None:
        """Kill it every other second while there is work."""
        bed = cast("OneRedis", stage.bed)
        while stage.is_busy:
            await stage.pause(1, 3)
            with stage.fault("SIGKILL of Redis"):
                bed.kill_primary()
                await stage.pause(0, 1.5)
                bed.restart()


class DiskFull(Scenario):
    """Redis cannot write its file any more, and says so (MISCONF) until there is room again."""

    name: ClassVar = "disk full"
    tasks: ClassVar = 60_000

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a server that writes to its file each second: one that does at once ends itself."""
        return one_redis(folder, fsync="everysec")

    async def inject(self, stage: Stage) -> None:
        """Let its files grow no more for some seconds, several times."""
        [server] = stage.bed.processes
        files = stage.folder / "r" / "appendonlydir"
        while stage.is_busy:
            await stage.pause(0.5, 2)
            size = max(path.stat().st_size for path in files.iterdir())
            with stage.fault("disk full"), _file_size_limit(server.pid, size + _ROOM_BYTES):
                await stage.pause(1, 4)


@contextmanager
def _file_size_limit(pid: int, size: int) -> Iterator[None]:
    """Let the files of a process grow no larger for the time of a block."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class MemoryFull(NothingTwice):
    """Redis has no room for more tasks, and those that are there are worked off."""

    name: ClassVar = "memory full"
    tasks: ClassVar = 80_000

    async def inject(self, stage: Stage) -> None:
        """Allow no more memory than is used, again and again."""
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            await client.config_set("maxmemory-policy", "noeviction")
            while stage.is_busy:
                await stage.pause(0.2, 1)
                used = (await client.info("memory"))["used_memory"]
                with stage.fault("out of memory"):
                    await client.config_set("maxmemory", used)
                    await stage.pause(0.2, 1.5)
                    await client.config_set("maxmemory", 0)


class ConnectionsKilled(Scenario):
    """Redis closes the connections of a random half of its clients."""

    name: ClassVar = "CLIENT KILL"
    tasks: ClassVar = 100_000

    async def inject(self, stage: Stage) -> None:
        """Do it several times a second."""
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            while stage.is_busy:
                await stage.pause(0.05, 0.5)
                ids = sorted(int(one["id"]) for one in await client.client_list(_type="normal"))
                with stage.fault("CLIENT KILL"):
                    for number in stage.random.sample(ids, len(ids) // 2):
                        # One that has gone meanwhile is an error, and so is our own.
                        with suppress(redis.exceptions.RedisError):
                            await client.client_kill_filter(_id=str(number), skipme=True)


class ScriptsFlushed(NothingTwice):
    """Redis forgets all scripts, also between the scripts of a pipeline."""

    name: ClassVar = "SCRIPT FLUSH"
    tasks: ClassVar = 100_000

    async def inject(self, stage: Stage) -> None:
        """Do it ten times a second or more."""
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            while stage.is_busy:
                await stage.pause(0.0, 0.2)
                with stage.fault("SCRIPT FLUSH"):
                    await client.script_flush()


class ClockJumps(Scenario):
    """The clock by which leases, retries and limits go jumps ahead by ten minutes, and back again."""

    name: ClassVar = "Redis' clock jumps by 10 min"
    tasks: ClassVar = 60_000

    @classmethod
    def lacks(cls) -> str:
        """Return what is missing for it."""
        return "" if faketime.library() else "libfaketime (a package of that name in most distributions)"

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a server with such a clock."""
        return one_redis(folder, clock=faketime.MovedClock(folder / "clock"))

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return now and then one that runs while the clock jumps, and seems to have outlived its lease."""
        if random.random() < _SHARE_OF_LONG_TASKS:
            return make_task("work", task_id, {"milliseconds": 3_000})
        return mixed_task(random, task_id)

    async def inject(self, stage: Stage) -> None:
        """Let it jump while there is work; it ends ahead, so that what was put off while it was is due."""
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            while stage.is_busy:
                await self._jump(stage, client, 0)
                await stage.pause(0.5, 2)
                await self._jump(stage, client, _TEN_MINUTES)
                await stage.pause(0.5, 2)

    async def _jump(self, stage: Stage, client: redis.asyncio.Redis, seconds: int) -> None:
        clock = cast("OneRedis", stage.bed).clock
        assert clock is not None
        with stage.fault("clock jump of Redis"):
            clock.move(seconds)
            while not faketime.is_off_by((await client.time())[0], seconds):
                await stage.pause(0.05, 0.1)


SCENARIOS = (RedisKilled, DiskFull, MemoryFull, ConnectionsKilled, ScriptsFlushed, ClockJumps)
