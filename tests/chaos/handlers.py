"""Scenarios: handlers that block the event loop, eat memory, and crash their workers; clocks that jump."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final

from tests.chaos.load import make_task, mixed_task
from tests.chaos.records import Fault, What
from tests.chaos.scenario import CHILDREN, NothingTwice, Scenario
from tests.chaos.settings import set_clock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from pyasynq.task import Task
    from tests.chaos.checker import Verdict
    from tests.chaos.records import History
    from tests.chaos.stage import Stage

_TEN_MINUTES: Final = 600.0
_LONGEST_BLOCK_SECONDS: Final = 38.0
"""Longer than a lease and what it takes until a task whose lease has ended is taken back."""
_SHARE: Final = 0.005
"""Number of harmful tasks so far; the maximum is fixed."""
_NO_PROCESS: Final = frozenset({0})
"""No process has this id, so a fault of it explains nothing."""


class _ByHandlers(Scenario):
    """The tasks themselves do the harm; their ids begin with the type."""

    harm: ClassVar[str]
    """The type of the harmful tasks."""
    most: ClassVar[int]
    """How many of them there are."""

    def __init__(self) -> None:
        self._left = self.most

    async def inject(self, stage: Stage) -> None:
        """Do nothing else."""

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return a harmful task now and then."""
        if not self._left or random.random() >= _SHARE:
            return self.harmless(random, task_id)
        self._left -= 1
        return self.harmful(random, f"{self.harm}-{task_id}")

    def harmless(self, random: Random, task_id: str) -> Task:
        """Return a task that does no harm."""
        return mixed_task(random, task_id)

    def harmful(self, random: Random, task_id: str) -> Task:
        """Return one that does."""
        raise NotImplementedError

    def complete(self, history: History) -> None:
        """Count the harmful runs as faults, of a kind that explains nothing."""
        history.faults += [
            Fault(self.name, run.started, run.started, _NO_PROCESS)
            for task_id, runs in history.runs.items()
            if task_id.startswith(self.harm)
            for run in runs
        ]


class LoopBlocked(_ByHandlers, NothingTwice):
    """Handlers block the event loop, one of them for longer than a lease; renewals continue."""

    name: ClassVar = "event loop blocked"
    tasks: ClassVar = 60_000
    harm: ClassVar = "block"
    most: ClassVar = 12

    def __init__(self) -> None:
        super().__init__()
        self._longest = _LONGEST_BLOCK_SECONDS

    def harmful(self, random: Random, task_id: str) -> Task:
        """Block for some seconds; the first one for very long."""
        seconds, self._longest = max(self._longest, random.uniform(0.5, 3)), 0.0
        return make_task("block", task_id, {"milliseconds": int(seconds * 1000)})


class MemoryEaten(_ByHandlers, NothingTwice):
    """Handlers take memory and never give it back; the supervisor replaces their processes in good order."""

    name: ClassVar = "memory eaten"
    tasks: ClassVar = 60_000
    least_tasks: ClassVar = 10_000
    supervised: ClassVar = True
    workers: ClassVar = 1
    options: ClassVar = ("--max-memory", "100M")
    harm: ClassVar = "eat"
    most: ClassVar = 50

    def harmful(self, random: Random, task_id: str) -> Task:
        """Eat some megabytes."""
        return make_task("eat", task_id, {"megabytes": random.randrange(5, 20)})

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain if no process was replaced."""
        processes = {run.pid for runs in history.runs.values() for run in runs}
        if len(processes) <= CHILDREN:
            yield f"only {len(processes)} processes ran tasks: none was replaced for its memory"
        yield from super().judge(history, verdict)


class Poison(_ByHandlers):
    """Tasks that always crash their worker, among others that must not be blamed for it."""

    name: ClassVar = "tasks that crash their worker"
    tasks: ClassVar = 40_000
    least_tasks: ClassVar = 10_000
    supervised: ClassVar = True
    harm: ClassVar = "crash"
    most: ClassVar = 5

    def harmless(self, random: Random, task_id: str) -> Task:
        """Return a task with the usual limit of crashes."""
        return make_task("neighbour", task_id, {"milliseconds": random.choice([0, 0, 0, 5, 50])})

    def harmful(self, random: Random, task_id: str) -> Task:
        """Crash."""
        return make_task("crash", task_id)

    async def inject(self, stage: Stage) -> None:
        """Start supervisors again that have given up because of the crashes."""
        while not stage.loaded.is_set() or stage.unfinished:
            await asyncio.sleep(0.2)
            stage.fleet.revive()

    def complete(self, history: History) -> None:
        """The handlers write down their crashes themselves."""

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain about crashing tasks that ran more often than their limit allows.

        It may be less often: they are counted for the crashes of one another as well.
        """
        del verdict
        for task_id, runs in history.runs.items():
            crashes = sum(run.how is What.CRASHING for run in runs)
            if crashes > 3:
                yield f"task {task_id} crashed {crashes} workers, more than 3"


class ClocksJump(NothingTwice):
    """The clocks of workers jump by ten minutes, to and fro."""

    name: ClassVar = "clocks jump by 10 min"
    tasks: ClassVar = 80_000
    clocks: ClassVar = True

    async def inject(self, stage: Stage) -> None:
        """Let one after the other jump."""
        while stage.is_busy:
            await stage.pause(0.2, 1)
            pid = stage.random.choice(stage.fleet.pids())
            with stage.fault("clock jump", [pid]):
                set_clock(stage.folder, pid, stage.random.choice([-_TEN_MINUTES, 0.0, _TEN_MINUTES]))


SCENARIOS = (LoopBlocked, MemoryEaten, Poison, ClocksJump)
