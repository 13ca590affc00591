"""Instructions of a worker for each task, with each feature of an app, counted by callgrind.

Run it by `python -m bench.feature_instructions`; it needs valgrind, and takes some minutes.

A worker drains tasks that do nothing, once a few and once many; the difference is divided by the difference
of their numbers, so that start and end of the worker do not count. Redis runs in a process of its own and is
not counted. How many tasks a worker takes at once depends on its pace, so counts vary by some percent.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyasynq import App, Callback, Task, WorkerConfig, depends, sync
from pyasynq._engine.settings import EngineSettings
from pyasynq.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pyasynq import AttemptEnd

    Feature = Callable[[App], None]

FEW: Final = 300
MANY: Final = 1_800
QUIET: Final = EngineSettings(lease=3_600, heartbeat_interval=600, sweep_interval=60, watch_interval=60)
"""Long intervals, so that a slow machine adds little periodic work to the counts."""
_TOTAL: Final = re.compile(rb"^totals: (\d+)$", re.MULTILINE)


async def do_nothing() -> None:
    """Do nothing: the handler of the measured tasks."""


async def hear(end: AttemptEnd) -> None:
    """Do nothing: a hook."""


async def pass_on(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
    """Call the next function only: the minimal cost of any middleware."""
    return await call_next(task)


def open_pool() -> object:
    """Return what lives as long as the worker."""
    return object()


async def begin() -> AsyncIterator[object]:
    """Yield what lives as long as an attempt, and close it."""
    yield object()


async def take_pool(pool: object = depends(open_pool, per="worker")) -> None:
    """Depend on what the worker makes once."""


async def take_session(session: object = depends(begin)) -> None:
    """Depend on what is made for each attempt."""


def declare(handler: Callable[..., Awaitable[None]], prepare: Feature = lambda _app: None) -> Feature:
    """Return a function that prepares an app, and declares its only task."""

    def build(app: App) -> None:
        prepare(app)
        app.task("t")(handler)

    return build


def on_success(app: App) -> None:
    """Have a hook called for each success."""
    app.on_success(hear)


def on_error(app: App) -> None:
    """Have a hook called for each failure; none comes."""
    app.on_error(hear)


def in_middleware(app: App) -> None:
    """Run each handler in middleware."""
    app.use(pass_on)


FEATURES: Final[dict[str, Feature]] = {
    "plain": declare(do_nothing),
    "on_error": declare(do_nothing, on_error),
    "on_success": declare(do_nothing, on_success),
    "a dependency of the worker": declare(take_pool),
    "a dependency of the attempt": declare(take_session),
    "a middleware": declare(do_nothing, in_middleware),
    "on_finished": declare(do_nothing),
}
"""Features by name: each function declares a task `t` that uses the feature."""


def drain(url: str, name: str, tasks: int) -> None:
    """Enqueue this many tasks, and run a worker that ends when all are done."""
    task = Task("t", b"{}")
    if name == "on_finished":
        task = Task("t", b"{}", on_finished=Callback("ended", "callbacks"))
    with sync.Client(url) as client:
        client.enqueue_many([task] * tasks)
    app = App(url)
    FEATURES[name](app)
    server = app.server(WorkerConfig(burst=True, queues={"default": 1}))
    server._settings = QUIET  # noqa: SLF001 - users cannot set them
    gc.collect()
    os.getppid()
    asyncio.run(server.run(app, signals=False))
    os.getppid()


def run_drains(url: str) -> None:
    """Run all drains under callgrind, which writes its counts at each `getppid`."""
    for name in FEATURES:
        for tasks in (FEW, MANY):
            drain(url, name, tasks)
    os._exit(0)


def main() -> None:
    """Print the instructions of a task with each feature."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as redis:
        out = Path(folder, "counts")
        callgrind = ("valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}")
        command = (*callgrind, sys.executable, "-m", "bench.feature_instructions", redis.url)
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        for at, name in enumerate(FEATURES):
            few, many = (
                int(_TOTAL.findall(Path(f"{out}.{4 * at + number}").read_bytes())[-1]) for number in (2, 4)
            )
            print(f"{name:32}{(many - few) / (MANY - FEW):9,.0f} instructions a task")


if __name__ == "__main__":
    if sys.argv[1:]:
        run_drains(sys.argv[1])
    main()
