"""Stage of a running scenario: servers, workers, a recorder, and the remaining work."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psutil

from pyasynq.errors import QueueNotFoundError, RedisError
from tests.chaos.records import Fault, is_working
from tests.chaos.settings import QUEUE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from random import Random

    from pyasynq._engine.settings import EngineSettings
    from pyasynq.inspector import Inspector
    from tests.chaos.bed import Bed
    from tests.chaos.fleet import Fleet
    from tests.chaos.load import Producer
    from tests.chaos.records import Recorder
    from tests.fix_proxy import Proxy

    Tell = Callable[[int, int], None]
    """Is told how many tasks have ended, of how many."""

_LOOK_SECONDS: Final = 0.2
_WORKING_SECONDS: Final = 0.01
_LOOKED_AT_ONCE: Final = 100
"""More queues than this are looked at less often, so that looking stays a small part of the load."""
_START_SECONDS: Final = 180.0


@dataclass(slots=True)
class Stage:
    """One run of a scenario.

    Attributes:
        folder: of the records, the clocks and the log of the workers.
        url: where clients and workers believe Redis to be; a proxy's if the scenario has one.
        random: chooses what is done to whom, and when.
        engine: the settings of the workers' engine.
        tasks: how many are to be acknowledged.
        children: how many workers each process of the fleet supervises; 0 if it is a worker itself.
        queues: the names of the queues that the tasks go to.
        proxy: the fault proxy in front of Redis, if any.
    """

    folder: Path
    bed: Bed
    url: str
    fleet: Fleet
    inspector: Inspector
    recorder: Recorder
    producer: Producer
    random: Random
    engine: EngineSettings
    tasks: int
    tell: Tell
    proxy: Proxy | None = None
    children: int = 0
    queues: Sequence[str] = (QUEUE,)
    unfinished: int = 0
    """How many tasks were in the queues when they were last looked at."""
    pending: int = 0
    """How many of them waited for a worker."""
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all tasks have been enqueued, and how much is to do has been looked at since."""

    @property
    def is_busy(self) -> bool:
        """Whether there is so much to do that a fault will meet somebody at work."""
        return not self.loaded.is_set() or self.pending > 0

    @contextmanager
    def fault(self, kind: str, pids: Iterable[int] = ()) -> Iterator[None]:
        """Write down that a fault lasts for the time of a block; it touches these processes, or all."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.recorder.note_fault(Fault(kind, began, time.monotonic(), frozenset(pids)))

    async def pause(self, least: float, most: float) -> None:
        """Let a random time pass."""
        await asyncio.sleep(self.random.uniform(least, most))

    def worker_pids(self) -> list[int]:
        """Return the processes that run tasks: those of the fleet, or the children of its supervisors."""
        pids = self.fleet.pids()
        if not self.children:
            return pids
        return sorted(child.pid for pid in pids for child in psutil.Process(pid).children())

    async def until_ready(self) -> None:
        """Wait until all workers have announced themselves."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            workers = set(self.worker_pids())
            if len(workers) >= self.fleet.size * max(1, self.children) and await self._announced() >= workers:
                return
            if time.monotonic() > deadline or list(self.fleet.failures()):
                message = f"not all of the {len(workers)} workers have started"
                raise RuntimeError(message)
            await asyncio.sleep(_LOOK_SECONDS)

    async def until_working(self) -> int | None:
        """Wait until a process of the fleet runs a task; return the process, or None if all work is done."""
        while self.is_busy:
            working = [pid for pid in self.fleet.pids() if is_working(self.folder, pid)]
            if working:
                return self.random.choice(working)
            await asyncio.sleep(_WORKING_SECONDS)
        return None

    async def _announced(self) -> set[int]:
        try:
            return {server.pid for server in await self.inspector.servers()}
        except RedisError:
            return set()

    async def load(self) -> None:
        """Enqueue all tasks."""
        await self.producer.run(self.tasks)
        # Until then `unfinished` may be of the time before the first task.
        while not await self._look():  # noqa: ASYNC110 - Redis does not notify
            await asyncio.sleep(self._look_seconds)
        self.loaded.set()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look for the time of a block how much is to do."""
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    async def until_drained(self) -> None:
        """Wait until nothing is left to do, or no process is left that could do it."""
        while (not await self._look() or self.unfinished) and self.fleet.pids():  # noqa: ASYNC110 - as above
            await asyncio.sleep(self._look_seconds)

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(self._look_seconds)

    @property
    def _look_seconds(self) -> float:
        return _LOOK_SECONDS * max(1.0, len(self.queues) / _LOOKED_AT_ONCE)

    async def _look(self) -> bool:
        """Ask how much is to do, and return whether there was an answer; faults meet this one too."""
        counts = await asyncio.gather(*map(self._count, self.queues), return_exceptions=True)
        for error in counts:
            if isinstance(error, BaseException) and not isinstance(error, RedisError):
                raise error
        known = [count for count in counts if not isinstance(count, BaseException)]
        if len(known) < len(self.queues):
            return False
        self.unfinished, self.pending = map(sum, zip(*known, strict=True))
        self.tell(max(0, self.producer.acknowledged - self.unfinished), self.tasks)
        return True

    async def _count(self, queue: str) -> tuple[int, int]:
        """Return how many tasks of a queue are unfinished, and how many of these are pending."""
        try:
            info = await self.inspector.queue_info(queue)
        except QueueNotFoundError:
            return 0, 0
        return info.unfinished, info.pending
