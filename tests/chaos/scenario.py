"""A scenario of the chaos runs: a load, a fault, and a verdict."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq._exit_codes import EXIT_GAVE_UP
from pyasynq.client import Client
from pyasynq.inspector import Inspector
from tests.chaos.bed import one_redis
from tests.chaos.checker import Verdict, check
from tests.chaos.final import read_final_state
from tests.chaos.fleet import Fleet
from tests.chaos.load import Producer, mixed_task
from tests.chaos.records import Recorder, read_history
from tests.chaos.settings import environment, queue_names
from tests.chaos.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from pyasynq.task import Task
    from tests.chaos.bed import Bed
    from tests.chaos.checker import FinalState
    from tests.chaos.records import History
    from tests.chaos.stage import Tell
    from tests.fix_proxy import Proxy


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """How long everything takes."""

    name: str
    share: float
    """Types of the tasks of each scenario."""
    engine: Mapping[str, Any]
    """Settings of the workers' engine that differ from those of production."""


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile("long", 1.5, {}),
        Profile("short", 0.1, {"lease": 10, "own_slack": 2, "heartbeat_interval": 2.0}),
    )
}


CHILDREN: Final = 2
"""How many workers a supervisor has."""


@dataclasses.dataclass(slots=True)
class Result:
    """Result of a run of a scenario."""

    name: str
    verdict: Verdict
    seconds: float
    log: str = ""
    """The end of what the workers have written, if something is wrong."""

    @property
    def is_well(self) -> bool:
        """Whether nothing was lost and nothing is wrong."""
        return not (self.verdict.lost or self.verdict.problems)


class Scenario:
    """What is done to whom. A subclass injects the fault; everything else it may change."""

    name: ClassVar[str]
    tasks: ClassVar[int]
    """How many tasks the long profile has."""
    least_tasks: ClassVar[int] = 2_000
    workers: ClassVar[int] = 2
    supervised: ClassVar[bool] = False
    """Whether the processes of the fleet are supervisors of two workers each."""
    concurrency: ClassVar[int] = 100
    queues: ClassVar[int] = 1
    """How many queues the tasks are spread over."""
    options: ClassVar[tuple[str, ...]] = ()
    """Further ones of `pyasynq worker`."""
    proxy: ClassVar[type[Proxy] | None] = None
    """Proxy in front of Redis for clients and workers."""
    clocks: ClassVar[bool] = False
    """Whether the clocks of the workers can be made to jump."""
    hangs: ClassVar[bool] = False
    """Whether lifespans of the workers can be made to hang."""
    usual_engine: ClassVar[bool] = False
    """Whether the engine has the settings of production in every profile."""
    undoes: ClassVar[bool] = False
    """Whether the fault may undo what Redis had confirmed, as the loss of a primary does."""
    refuses: ClassVar[bool] = False
    """Whether the fault may make Redis refuse an outcome until its worker writes a failure in its place."""
    limit_seconds: ClassVar[float] = 900.0
    """Much more than it takes, since other work may share the machine."""

    @classmethod
    def lacks(cls) -> str:
        """Return what this machine does not have and the scenario cannot do without; empty for nothing."""
        return ""

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return the servers of Redis."""
        return one_redis(folder)

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return a task of the load."""
        return mixed_task(random, task_id)

    async def inject(self, stage: Stage) -> None:
        """Do harm; return when no more comes."""
        raise NotImplementedError

    def complete(self, history: History) -> None:
        """Add to the history events that no process recorded."""

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Return the failures of this scenario, in addition to those checked in every scenario."""
        del history, verdict
        return ()


class NothingTwice(Scenario):
    """A scenario whose fault must not make a task run again."""

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain about every second run."""
        if verdict.again:
            yield f"{verdict.again.total()} tasks ran again, and this fault must not cause that"


def run_scenario(scenario: Scenario, seed: int, profile: Profile, tell: Tell) -> Result:
    """Run a scenario once, in a folder of its own, and judge it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        run = _ScenarioRun(scenario, seed, profile, folder, tell)
        problems, final = asyncio.run(run.perform())
        history = read_history(folder)
        scenario.complete(history)
        verdict = check(history, final, undoes=scenario.undoes, refuses=scenario.refuses)
        verdict.problems += [*problems, *scenario.judge(history, verdict)]
        result = Result(scenario.name, verdict, time.monotonic() - started)
        if not result.is_well:
            result.log = run.log.read_text(errors="replace")[-4_000:]
    return result


class _ScenarioRun:
    def __init__(self, scenario: Scenario, seed: int, profile: Profile, folder: Path, tell: Tell) -> None:
        self._scenario = scenario
        self._seed = seed
        self._engine = {} if scenario.usual_engine else profile.engine
        self._tasks = max(scenario.least_tasks, int(scenario.tasks * profile.share))
        self._folder = folder
        self._tell = tell
        self.log = folder / "workers.log"

    async def perform(self) -> tuple[list[str], FinalState]:
        """Run it; return what went wrong on the way, and what Redis holds at the end."""
        data = self._folder / "r"
        data.mkdir()
        with self._scenario.bed(data) as bed:
            problems = await self._work(bed)
            with bed.client() as client:
                return problems, await read_final_state(bed.url, client, queue_names(self._scenario.queues))

    async def _work(self, bed: Bed) -> list[str]:
        """Start workers, load, inject, wait until everything is done, and stop the workers."""
        scenario = self._scenario
        async with AsyncExitStack() as stack:
            recorder = Recorder(self._folder)
            stack.callback(recorder.close)
            url = bed.url
            proxy = None if scenario.proxy is None else stack.enter_context(scenario.proxy(url))
            url = url if proxy is None else proxy.url
            fleet = stack.enter_context(self._fleet(url))
            client = await stack.enter_async_context(Client(url))
            inspector = await stack.enter_async_context(Inspector(bed.url))
            queues = queue_names(scenario.queues)
            stage = Stage(
                folder=self._folder,
                bed=bed,
                url=url,
                fleet=fleet,
                inspector=inspector,
                recorder=recorder,
                producer=Producer(client, recorder, self._random("load"), scenario.make_task, queues),
                random=self._random("faults"),
                engine=dataclasses.replace(DEFAULT_ENGINE_SETTINGS, **self._engine),
                tasks=self._tasks,
                proxy=proxy,
                tell=self._tell,
                children=CHILDREN if scenario.supervised else 0,
                queues=queues,
            )
            await stage.until_ready()
            return await self._until_done(stage)

    async def _until_done(self, stage: Stage) -> list[str]:
        limit = self._scenario.limit_seconds
        try:
            async with asyncio.timeout(limit):
                async with stage.watching():
                    await asyncio.gather(stage.load(), self._scenario.inject(stage))
                await stage.until_drained()
        except TimeoutError:
            return [f"{stage.unfinished} tasks were left to do after {limit:g} s", *stage.fleet.failures()]
        if stage.unfinished:
            return [f"no worker lives to do {stage.unfinished} tasks", *stage.fleet.failures()]
        return [*stage.fleet.failures(), *stage.fleet.stop()]

    def _fleet(self, url: str) -> Fleet:
        scenario = self._scenario
        options = ["--concurrency", str(scenario.concurrency), "--log-level", "warning", *scenario.options]
        if scenario.queues > 1:
            options += ["--queues", ",".join(queue_names(scenario.queues))]
        if scenario.supervised:
            options += ["--processes", str(CHILDREN)]
        variables = environment(url, self._folder, self._engine, clocks=scenario.clocks, hangs=scenario.hangs)
        return Fleet(
            scenario.workers,
            ["tests.chaos.app:app", *options],
            variables,
            self.log,
            # A supervisor gives up when its children die too often.
            may_end_with=frozenset({EXIT_GAVE_UP} if scenario.supervised else ()),
        )

    def _random(self, purpose: str) -> Random:
        return Random(f"{self._seed}:{self._scenario.name}:{purpose}")
