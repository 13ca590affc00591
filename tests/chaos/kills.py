"""Scenarios: processes of ours are killed, stopped, and let go on."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, Final

import psutil

from tests.chaos.bed import frozen
from tests.chaos.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from pyasynq.task import Task
    from tests.chaos.checker import Verdict
    from tests.chaos.records import History
    from tests.chaos.stage import Stage

_ORPHANS_SECONDS: Final = 30.0
"""How long the children of a dead supervisor may go on: they finish what they run."""


class WorkerKilled(Scenario):
    """A random worker is killed every other second, and replaced."""

    name: ClassVar = "worker killed"
    tasks: ClassVar = 100_000
    workers: ClassVar = 3

    async def inject(self, stage: Stage) -> None:
        """Kill one after the other while they work, the first one at once."""
        while (pid := await stage.until_working()) is not None:
            with stage.fault("SIGKILL of a worker", [pid]):
                stage.fleet.kill(pid)
            await stage.until_ready()
            await stage.pause(0.3, 1.5)

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain when a task came back later than after the promised 40 s, and 10 s for a busy machine."""
        seconds = max(verdict.first_recovery, verdict.longest_orphan)
        if seconds > 50:
            yield f"a task of a killed worker was pending again only after {seconds:.1f} s"
        if not history.orphans:
            yield "no killed worker held a task that another one put back"


class WorkerStopped(Scenario):
    """A worker is stopped for longer than its leases, and goes on when others have its tasks."""

    name: ClassVar = "worker stopped"
    tasks: ClassVar = 80_000

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return a task that needs no thread.

        One can be stopped between the last look at its lease and the first line of its handler, which then
        begins when another worker has the task.
        """
        while (task := super().make_task(random, task_id)).type == "thread":
            pass
        return task

    async def inject(self, stage: Stage) -> None:
        """Stop one in the middle of its work."""
        await stage.pause(0.5, 2)
        pid = stage.random.choice(stage.fleet.pids())
        engine = stage.engine
        with stage.fault("SIGSTOP of a worker", [pid]), frozen(pid):
            await asyncio.sleep(engine.lease + engine.own_slack + engine.look_interval)
            await stage.pause(1, 3)


class SupervisorKilled(Scenario):
    """Supervisors are killed or stopped, and so are their children, which end when their supervisor has."""

    name: ClassVar = "supervisor or its child killed"
    tasks: ClassVar = 80_000
    supervised: ClassVar = True

    async def inject(self, stage: Stage) -> None:
        """Do one or the other while there is work."""
        while stage.is_busy:
            await stage.pause(0.3, 1.5)
            stage.fleet.revive()
            supervisor = stage.random.choice(stage.fleet.pids())
            children = psutil.Process(supervisor).children()
            kind = stage.random.random()
            if kind < 0.3:
                with stage.fault("SIGSTOP of a supervisor", [supervisor]), frozen(supervisor):
                    await stage.pause(0.5, 2)
            elif kind < 0.6 and children:
                child = stage.random.choice(children)
                with stage.fault("SIGKILL of a child", [child.pid]):
                    child.kill()
            else:
                with stage.fault("SIGKILL of a supervisor", [supervisor, *(child.pid for child in children)]):
                    stage.fleet.kill(supervisor)
                    await _until_gone(children)


async def _until_gone(processes: Sequence[psutil.Process]) -> None:
    deadline = time.monotonic() + _ORPHANS_SECONDS
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
        if time.monotonic() > deadline:
            message = f"children outlive their supervisor by more than {_ORPHANS_SECONDS:g} s"
            raise RuntimeError(message)
        await asyncio.sleep(0.05)


SCENARIOS = (WorkerKilled, WorkerStopped, SupervisorKilled)
