"""A worker in a process of its own, for `tests.fix_worker`: `python -m tests.worker_program SETTINGS`.

SETTINGS is JSON: the URL, fields of the server's configuration (`config`) and of the engine (`engine`).
Events are written to standard output, one line each; the line `release` on standard input lets the handlers
go on that wait for it. The type of a task names its handler: `wait`, or `wait:anything`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from pyasynq import Mux, Server, ServerConfig, context, sync
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from tests.bad_errors import bad_error

if TYPE_CHECKING:
    from pyasynq import Task
    from pyasynq._engine.handlers.middleware import AsyncHandler
    from pyasynq._engine.handlers.routes import HandlerResult

mux = Mux()
released = threading.Event()
settings: dict[str, Any] = json.loads(sys.argv[1])
server = Server(settings["url"], ServerConfig(**settings["config"]))
server._settings = dataclasses.replace(DEFAULT_ENGINE_SETTINGS, **settings["engine"])
starts: list[str] = []
"""The queues of the tasks that were started, in that order."""


def tell(*words: object) -> None:
    """Write a line that a test may wait for; in one piece, since threads tell too."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def listen() -> None:
    """Take orders from standard input."""
    for line in sys.stdin:
        if line.strip() == "release":
            released.set()


async def until_released() -> None:
    """Wait without a thread, so that cancelling works."""
    while not released.is_set():  # noqa: ASYNC110 - it is set by a thread, for threads
        await asyncio.sleep(0.01)


@mux.handler("mark")
async def mark(task: Task) -> None:
    """Tell that it ran."""
    tell("ran", context().task_id)


@mux.handler("count")
async def count(task: Task) -> None:
    """Remember the queue."""
    starts.append(context().queue)


@mux.handler("nothing")
async def nothing(task: Task) -> None:
    """Succeed."""


@mux.handler("nothing-in-thread")
def nothing_in_thread(task: Task) -> None:
    """Succeed."""


@mux.handler("report")
async def report(task: Task) -> None:
    """Tell what the process holds, this task included; the round that settles the others may still go on."""
    for _ in range(100):
        await asyncio.sleep(0.02)
        gc.collect()
        kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
        if kinds["Attempt"] == 1:
            break
    held = {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "attempts": kinds["Attempt"],
        "objects": kinds.total(),
    }
    tell("report", json.dumps(held))


@mux.handler("chain")
def chain(task: Task) -> None:
    """Enqueue one more, as long as the payload says."""
    left = int(task.payload or b"0") - 1
    tell("chained", left)
    if left:
        with sync.Client(settings["url"]) as client:
            client.enqueue("chain", str(left).encode())


@mux.handler("wait")
async def wait(task: Task) -> None:
    """Wait for the release; tell of cancellation, and of the clean-up after it."""
    tell("started", context().task_id)
    try:
        await until_released()
    except asyncio.CancelledError:
        tell("cancelled", context().task_id)
        await asyncio.sleep(0)
        tell("cleaned", context().task_id)
        raise
    tell("ended", context().task_id)


@mux.handler("wait-in-thread")
def wait_in_thread(task: Task) -> None:
    """Wait for the release in a thread, which cannot be stopped."""
    tell("started", context().task_id)
    released.wait()
    tell("ended", context().task_id)


@mux.handler("swallow")
async def swallow(task: Task) -> None:
    """Let no cancellation through."""
    tell("started", context().task_id)
    while True:
        try:
            await until_released()
            break
        except asyncio.CancelledError:
            tell("swallowed", context().task_id)


@mux.handler("stray")
async def stray(task: Task) -> None:
    """Leave a task of asyncio behind that will not end."""
    left.add(asyncio.create_task(swallow(task)))
    await asyncio.sleep(0)


left: set[asyncio.Task[None]] = set()


@mux.handler("block")
async def block(task: Task) -> None:
    """Block the event loop until the release."""
    tell("started", context().task_id)
    released.wait()


@mux.handler("die")
async def die(task: Task) -> None:
    """Take the whole process along."""
    tell("dies", context().task_id)
    os.kill(os.getpid(), signal.SIGKILL)


@mux.handler("raise")
async def fail(task: Task) -> None:
    """Raise what the payload names."""
    raise bad_error((task.payload or b"").decode())


@mux.handler("raise-in-thread")
def fail_in_thread(task: Task) -> None:
    """Raise what the payload names."""
    raise bad_error((task.payload or b"").decode())


@mux.handler("raise-late")
async def fail_late(task: Task) -> None:
    """Raise it after a turn of the event loop."""
    await asyncio.sleep(0)
    raise bad_error((task.payload or b"").decode())


@mux.use
async def middleware(task: Task, call_next: AsyncHandler) -> HandlerResult:
    """Raise in the place of a handler."""
    if task.type == "raise-in-middleware":
        raise bad_error((task.payload or b"").decode())
    return await call_next(task)


def main() -> int:
    """Run a server until it is told to stop."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=settings.get("log_level", "INFO"))
    threading.Thread(target=listen, daemon=True).start()
    code = server.run_forever(mux)
    if starts:
        tell("starts", ",".join(starts))
    return code


if __name__ == "__main__":
    sys.exit(main())
