"""Run NUMBER idle servers for one queue in one process: `python -m bench.fleet URL NUMBER`.

It serves the measurement of wake-up costs in Redis, for which connections of one process are enough.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import uvloop

from bench.peers.counters import hit
from pyasynq import Mux, Server, ServerConfig

if TYPE_CHECKING:
    from pyasynq import Task

mux = Mux()


@mux.handler("bench:note")
async def note(task: Task) -> None:  # noqa: ARG001 - it only counts
    """Count a handled task."""
    hit(0, 0)


async def main(url: str, number: int) -> None:
    """Start the servers, and wait for the end of this process."""
    async with AsyncExitStack() as stack:
        for _ in range(number):
            server = await stack.enter_async_context(Server(url, ServerConfig(concurrency=10)))
            await server.start(mux)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2])))
