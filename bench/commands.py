"""Compare commands of the task service with bare processes: `python -m bench.commands [SECONDS]`.

All run `/bin/true`, 16 at once, in turns. Printed are runs a second, and the ratio to the bare ones:

- `bare`: `posix_spawn` and `wait`, without anything else;
- `run`: commands of the service, with a fresh folder and their output, without a queue;
- `service`: an instance that takes tasks of the kind `cmd` from Redis, and settles them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from bench.service import started
from pyasynq.client import Client
from pyasynq.embedded import EmbeddedServer
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.gateway.hosted.cmd.commands import HostedCommands
from pyasynq.operations import Operator, User
from pyasynq.task import Task
from tests.fix_commands import RanAttempt
from tests.ports import free_port

if TYPE_CHECKING:
    from pyasynq.consumer import Attempt

AT_ONCE: Final = 16
SECONDS: Final = 5.0
ROUNDS: Final = 3
_MOST_TASKS: Final = 2_000
"""Tasks enqueued for each second of the measurement: more than an instance can run."""
_START_SECONDS: Final = 2.0
"""Warm-up seconds of an instance before the measurement."""
_PROGRAM: Final = "/bin/true"
_FILE: Final = """\
[service]
redis = "{url}"
listen = "127.0.0.1:{port}"
dashboard = false
[tasks.t]
kind = "cmd"
argv = ["/bin/true"]
"""


def measure_bare(seconds: float) -> float:
    """Return how many bare processes run in a second."""
    done = running = 0
    end = time.perf_counter() + seconds
    while running or time.perf_counter() < end:
        while running < AT_ONCE and time.perf_counter() < end:
            os.posix_spawn(_PROGRAM, [_PROGRAM], {})
            running += 1
        os.wait()
        running -= 1
        done += 1
    return done / seconds


async def measure_runs(seconds: float) -> float:
    """Return how many commands run in a second."""
    file = parse_service_file({"tasks": {"t": {"kind": "cmd", "argv": [_PROGRAM]}}})
    commands = HostedCommands(file.tasks)
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await commands.run(cast("Attempt", RanAttempt()))
            done += 1

    try:
        # The launcher and its keepers start once.
        await asyncio.gather(*(commands.run(cast("Attempt", RanAttempt())) for _ in range(AT_ONCE)))
        end = time.perf_counter() + seconds
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    finally:
        await commands.close()
    return done / seconds


async def measure_service(seconds: float, url: str, folder: Path) -> float:
    """Return how many tasks an instance runs in a second, on an empty Redis."""
    port = free_port()
    file = folder / "service.toml"
    file.write_text(_FILE.format(url=url, port=port), "utf-8")
    async with Client(url) as client, Operator(url, User.with_role("bench", "admin")) as operator:
        await client.enqueue_many(
            [Task("t", b"", queue="t") for _ in range(int((seconds + _START_SECONDS) * _MOST_TASKS))]
        )
        async with started("pyasynq", "service", str(file), "--no-logging", port=port):
            await asyncio.sleep(_START_SECONDS)
            before = await operator.queue("t")
            await asyncio.sleep(seconds)
            after = await operator.queue("t")
    return (after.processed_total - before.processed_total) / seconds


async def run(seconds: float) -> None:
    """Measure all variants, and print each round as soon as it has ended."""
    for number in range(ROUNDS):
        bare = measure_bare(seconds)
        print(f"round {number + 1}: bare {bare:,.0f}/s")
        runs = await measure_runs(seconds)
        with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-bench-") as folder:
            tasks = await measure_service(seconds, server.url, Path(folder))
        for name, rate in (("run", runs), ("service", tasks)):
            print(f"  {name:8} {rate:,.0f}/s ({rate / bare:.2f})")


def main() -> None:
    """Measure."""
    logging.disable()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    asyncio.run(run(seconds))


if __name__ == "__main__":
    main()
