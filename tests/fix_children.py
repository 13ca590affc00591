"""A server whose handlers, those of `tests.child_tasks`, run in child processes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from pyasynq import Inspector, ServerConfig
from tests import child_tasks
from tests.fix_engine import serving
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from pyasynq.mux import Mux
    from pyasynq.task import TaskInfo
    from tests.fix_engine import Running
    from tests.invariants import RedisClient

    Serve = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def serve(redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Returns what runs the tasks of `tests.child_tasks`, whose app in this process enqueues them there.

    What is in Redis at the end must be sound, and no child may be left.
    """
    monkeypatch.setattr(child_tasks.app, "_url", redis_url)

    @asynccontextmanager
    async def run(
        config: ServerConfig | None = None, *, mux: Mux | None = None, **more: Any
    ) -> AsyncIterator[Running]:
        config = config or ServerConfig(concurrency=4)
        async with serving(redis_url, mux or child_tasks.app, config, **more) as running:
            yield running
            await child_tasks.app.close()
        left = [
            one.pid for one in psutil.Process().children() if "executor.program" in " ".join(one.cmdline())
        ]
        assert [] == left, "children have outlived their worker"

    return run


async def looked_up(url: str, running: Running, task_id: str, *, retried: int = 0) -> TaskInfo:
    """Return a task as Redis keeps it after an attempt."""
    await running.finished(task_id, retried=retried)
    await running.settled()
    async with Inspector(url) as inspector:
        return await inspector.task_info("default", task_id)


def lives(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_end(*pids: int) -> None:
    """Wait until processes have ended."""
    wait_until(lambda: not any(map(lives, pids)), seconds=10, what=f"the ends of {pids}")


def written(path: Path) -> list[int]:
    """Return the process ids that a handler writes into a file, once it has."""
    wait_until(path.exists, seconds=30, what=f"{path} to be written")
    return [int(pid) for pid in path.read_text("ascii").split()]
