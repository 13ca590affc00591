"""A worker process of the end-to-end tests: the URL, the kind of handler, and settings as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from pyasynq._server.settings import EngineSettings
from pyasynq.config import ServerConfig
from pyasynq.events import RoundFinished, ServerStateChanged, TaskFinished, TaskStarted
from pyasynq.mux import Mux
from pyasynq.server import Server

if TYPE_CHECKING:
    from pyasynq.task import Task


def say(*words: object) -> None:
    """Tell the test."""
    print(*words, flush=True)  # noqa: T201 - the test reads it


mux = Mux()


@mux.handler("quick")
async def quick(task: Task) -> None:
    """Succeed at once."""
    del task


@mux.handler("wait")
async def wait(task: Task) -> None:
    """Wait to be cancelled."""
    del task
    await asyncio.Event().wait()


@mux.handler("stubborn")
async def stubborn(task: Task) -> None:
    """Swallow every cancellation."""
    del task
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("swallowed")


@mux.handler("thread")
def thread(task: Task) -> None:
    """Never end, in a thread."""
    del task
    while True:
        time.sleep(0.1)


@mux.handler("block")
async def block(task: Task) -> None:
    """Block the event loop."""
    del task
    while True:
        time.sleep(0.1)  # noqa: ASYNC251 - blocking the loop is the point


@mux.handler("die")
async def die(task: Task) -> None:
    """Kill the worker."""
    del task
    os._exit(9)


def main() -> int:
    """Run until told to stop; print what happens, a line each."""
    url, config, engine = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    logging.basicConfig(stream=sys.stderr)
    server = Server(url, ServerConfig(**config))
    server._settings = dataclasses.replace(EngineSettings(), **engine)
    server.events.subscribe(TaskStarted, lambda event: say("started", event.task_id))
    server.events.subscribe(TaskFinished, lambda event: say("finished", event.task_id, event.outcome))
    server.events.subscribe(ServerStateChanged, lambda event: say("state", event.state))
    begun: list[str] = []

    def first_round(event: RoundFinished) -> None:
        if event.service == "processor" and not begun:
            begun.append(event.service)
            say("working")

    server.events.subscribe(RoundFinished, first_round)
    return server.run_forever(mux)


if __name__ == "__main__":
    sys.exit(main())
