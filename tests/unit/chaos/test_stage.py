"""Remaining work as a chaos scenario knows it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq.errors import RedisError
from tests.chaos.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 10


class _Producer:
    """Has enqueued everything at once."""

    acknowledged = 0

    async def run(self, tasks: int) -> None:
        self.acknowledged = tasks


class _Inspector:
    """Fails as often as it is told to, and then counts."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    async def queue_info(self, queue: str) -> Any:
        del queue
        if self._failures:
            self._failures -= 1
            raise RedisError("no answer")
        return SimpleNamespace(unfinished=TASKS, pending=TASKS)


def make_stage(folder: Path, *, failures: int = 0, living: tuple[int, ...] = (1,)) -> Stage:
    """Return a stage without servers and processes."""
    parts: dict[str, Any] = {
        "inspector": _Inspector(failures),
        "producer": _Producer(),
        "fleet": SimpleNamespace(pids=lambda: list(living)),
    }
    missing = dict.fromkeys(("bed", "recorder", "random", "engine"), cast("Any", None))
    return Stage(folder=folder, url="", tasks=TASKS, tell=lambda _done, _tasks: None, **parts, **missing)


@pytest.mark.parametrize("failures", [0, 2])
def test_a_load_is_over_only_when_what_is_left_is_known(tmp_path: Path, failures: int) -> None:
    """Otherwise a fast load looks as if everything had been done before it began."""
    stage = make_stage(tmp_path, failures=failures)
    asyncio.run(stage.load())
    assert stage.loaded.is_set()
    assert TASKS == stage.unfinished


def test_dead_workers_are_not_waited_for(tmp_path: Path) -> None:
    """The scenario says so at once, not when its time is over."""
    stage = make_stage(tmp_path, living=())

    async def drain() -> None:
        async with asyncio.timeout(5):
            await stage.until_drained()

    asyncio.run(drain())
    assert TASKS == stage.unfinished
