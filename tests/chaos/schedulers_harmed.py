"""Scenarios: schedulers are killed and stopped."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, Final

from tests.chaos.bed import frozen
from tests.chaos.fleet import Fleet
from tests.chaos.records import What
from tests.chaos.scenario import NothingTwice
from tests.chaos.settings import environment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.chaos.checker import Verdict
    from tests.chaos.records import History
    from tests.chaos.stage import Stage

_SCHEDULERS: Final = 3
_FAULTS: Final = 5
_START_SECONDS: Final = 120.0


class SchedulerKilled(NothingTwice):
    """One of three schedulers after the other is killed or stopped: each tick is enqueued exactly once."""

    name: ClassVar = "scheduler killed or stopped"
    tasks: ClassVar = 60_000

    async def inject(self, stage: Stage) -> None:
        """Do it; two of the three are always at work."""
        variables = environment(stage.url, stage.folder, {})
        log = stage.folder / "schedulers.log"
        started = _SCHEDULERS
        with Fleet(
            _SCHEDULERS, ["scheduler", "tests.chaos.ticking:app"], variables, log, program="pyasynq.cli"
        ) as fleet:
            await _until_ticking(log, started)
            for _ in range(_FAULTS):
                await stage.pause(0.5, 2)
                pid = stage.random.choice(fleet.pids())
                if stage.random.random() < 0.5:
                    with stage.fault("SIGKILL of a scheduler", [pid]):
                        fleet.kill(pid)
                    started += 1
                    await _until_ticking(log, started)
                else:
                    with stage.fault("SIGSTOP of a scheduler", [pid]), frozen(pid):
                        await stage.pause(1, 4)

    def complete(self, history: History) -> None:
        """Ticks are enqueued by the schedulers, which write down nothing."""
        history.enqueues |= {task_id: What.INTENDED for task_id in history.runs if _is_tick(task_id)}

    def judge(self, history: History, verdict: Verdict) -> Iterable[str]:
        """Complain about ticks that are missing between others."""
        ticks = sorted(int(task_id.rpartition(":")[2]) for task_id in history.runs if _is_tick(task_id))
        if len(ticks) < _FAULTS:
            yield f"there were only {len(ticks)} ticks"
        missing = set(range(ticks[0], ticks[-1] + 1)).difference(ticks) if ticks else ()
        yield from (f"tick {tick} was never enqueued" for tick in sorted(missing))
        yield from super().judge(history, verdict)


def _is_tick(task_id: str) -> bool:
    return ":" in task_id


async def _until_ticking(log: Path, times: int) -> None:
    """Wait until this many schedulers have said that they work."""
    deadline = time.monotonic() + _START_SECONDS
    while (text := _text_of(log)).count("is scheduled") < times:
        if time.monotonic() > deadline:
            raise RuntimeError(f"a scheduler did not start:\n{text[-2_000:]}")
        await asyncio.sleep(0.1)


def _text_of(log: Path) -> str:
    return log.read_text()


SCENARIOS = (SchedulerKilled,)
