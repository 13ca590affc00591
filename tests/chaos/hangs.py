"""Scenarios: lifespans that hang, and children of a supervisor that stop in the middle of their work."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, Final

from tests.chaos.scenario import NothingTwice
from tests.chaos.settings import hang_file, hanging_file

if TYPE_CHECKING:
    from collections.abc import Iterable

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


SCENARIOS = (LifespanHangs,)
