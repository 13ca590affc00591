"""Scenarios: lifespans that hang, and children of a supervisor that freeze in the middle of their work."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, Final

import psutil

from tests.chaos.load import make_task, mixed_task
from tests.chaos.scenario import NothingTwice, Scenario
from tests.chaos.settings import hang_file, hanging_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from pyasynq.task import Task
    from tests.chaos.checker import Verdict
    from tests.chaos.records import History
    from tests.chaos.stage import Stage

_SHUTDOWN_SECONDS: Final = 2.0
_CANCEL_SECONDS: Final = 1.0
"""The default of `cancel_timeout`."""
_MARGIN_SECONDS: Final = 2.0
_NOISE_SECONDS: Final = 3.0
"""Other scenarios share the processors."""
_LIFESPANS: Final = 6
_PATIENCE_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 3.0
"""The `--beat-timeout` of the supervisors whose children freeze."""
_RECOVERY_SECONDS: Final = 8.0
"""From the end of a frozen child until its tasks run again; far less than a lease of 30 s."""
_FREEZES: Final = 4
"""Fewer than the deaths of children at which a supervisor gives up."""
_SHARE_OF_LONG_TASKS: Final = 0.2
_LONG_MILLISECONDS: Final = 1_500


class LifespanHangs(NothingTwice):
    """Workers get SIGTERM while their lifespan hangs at its start or its end; they end in time."""

    name: ClassVar = "lifespan hangs"
    tasks: ClassVar = 60_000
    hangs: ClassVar = True
    options: ClassVar = ("--shutdown-timeout", f"{_SHUTDOWN_SECONDS:g}")

    def __init__(self) -> None:
        self._late: list[str] = []

    async def inject(self, stage: Stage) -> None:
        """Let one lifespan after the other hang, and end its worker."""
        file = hang_file(stage.folder)
        places = ["start", "end"] * (_LIFESPANS // 2)
        for place in places:
            await stage.until_ready()
            await stage.pause(0.2, 1)
            pid = stage.random.choice(stage.fleet.pids())
            file.write_text(place)
            with stage.fault(f"lifespan hangs at its {place}", [pid]):
                if place == "start":
                    await self._end(stage, pid, "a healthy worker")
                    pid = stage.fleet.pids()[-1]
                    await _until_hanging(stage, pid)
                    file.write_text("nowhere")
                await self._end(stage, pid, f"a worker whose lifespan hangs at its {place}")
            if not hanging_file(stage.folder, pid).exists():
                self._late.append(f"the lifespan of worker {pid} did not hang at its {place}")
            file.write_text("nowhere")

    async def _end(self, stage: Stage, pid: int, who: str) -> None:
        """Send SIGTERM to a worker, which another one replaces, and note if it ends too late."""
        limit = _SHUTDOWN_SECONDS + _CANCEL_SECONDS + _MARGIN_SECONDS + _NOISE_SECONDS
        if not await asyncio.to_thread(stage.fleet.terminate, pid, within=limit):
            self._late.append(f"{who} did not end within {limit:g} s of SIGTERM")

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain also about workers that ended too late."""
        yield from self._late
        yield from super().judge(history, verdict)


async def _until_hanging(stage: Stage, pid: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not hanging_file(stage.folder, pid).exists():
        if time.monotonic() > deadline:
            message = f"worker {pid} has not reached its lifespan after {_PATIENCE_SECONDS:g} s"
            raise RuntimeError(message)
        await asyncio.sleep(0.05)


class ChildFrozen(Scenario):
    """Children of supervisors are stopped for good; their supervisor kills and replaces them.

    The leases are those of production, so a task that waits for the end of its lease comes back too late.
    A task that was in two frozen children is a suspect and may wait for a silence, which no limit is set for.
    """

    name: ClassVar = "frozen child"
    tasks: ClassVar = 80_000
    least_tasks: ClassVar = 20_000
    supervised: ClassVar = True
    usual_engine: ClassVar = True
    options: ClassVar = ("--beat-timeout", f"{_BEAT_SECONDS:g}")

    def __init__(self) -> None:
        self._complaints: list[str] = []

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return now and then a task that runs for long, so that every freeze meets some."""
        if random.random() < _SHARE_OF_LONG_TASKS:
            return make_task("work", task_id, {"milliseconds": _LONG_MILLISECONDS})
        return mixed_task(random, task_id)

    async def inject(self, stage: Stage) -> None:
        """Freeze one child after the other while there is work."""
        freezes = 0
        while stage.is_busy and freezes < _FREEZES:
            stage.fleet.revive()
            await stage.until_ready()
            await stage.pause(0.3, 1.5)
            child = psutil.Process(stage.random.choice(stage.worker_pids()))
            with stage.fault("SIGSTOP of a child for good", [child.pid]):
                child.suspend()
                await self._watch_end(child)
            freezes += 1

    async def _watch_end(self, child: psutil.Process) -> None:
        """Wait until its supervisor has reaped a frozen child, and note if that is too late.

        A supervisor that is told to end before it has reaped a child that it killed ends with exit code 3.
        """
        limit = _BEAT_SECONDS + _MARGIN_SECONDS + _NOISE_SECONDS
        frozen_at = time.monotonic()
        while child.is_running():
            if time.monotonic() - frozen_at > limit:
                self._complaints.append(f"child {child.pid} was frozen and still there after {limit:g} s")
                child.kill()
                return
            await asyncio.sleep(0.05)

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain also about children that froze idle, and about tasks that came back late."""
        yield from self._complaints
        if not verdict.again:
            yield "no frozen child had a task in work"
        limit = max((fault.ended - fault.began for fault in history.faults), default=0.0) + _RECOVERY_SECONDS
        if verdict.first_recovery > limit:
            yield f"a task of a frozen child ran again only after {verdict.first_recovery:.1f} s"


SCENARIOS = (LifespanHangs, ChildFrozen)
