"""Compare commands of the task service with bare processes: `python -m bench.commands [SECONDS]`.

All run `/bin/true`, 16 at once, in turns. Printed are runs a second, CPU time per run, and the ratios of both
to the bare ones. Other work on the machine changes the CPU time less than the rate.

- `bare`: `posix_spawn` and `wait`, without anything else;
- `run`: commands of the service, with a fresh folder and their output, without a queue;
- `limited`: the same with a limit, for which a keeper forks;
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
from typing import TYPE_CHECKING, Final, NamedTuple, cast

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


class Rate(NamedTuple):
    """Speed of one variant.

    Attributes:
        per_second: runs in a second.
        cpu: CPU seconds of a run in all processes; None if they are not children of this one.
    """

    per_second: float
    cpu: float | None = None


def read_cpu() -> float:
    """Return the CPU seconds of this process and of all that it has waited for."""
    return sum(os.times()[:4])


def measure_bare(seconds: float) -> Rate:
    """Measure bare processes."""
    done = running = 0
    cpu = read_cpu()
    end = time.perf_counter() + seconds
    while running or time.perf_counter() < end:
        while running < AT_ONCE and time.perf_counter() < end:
            os.posix_spawn(_PROGRAM, [_PROGRAM], {})
            running += 1
        os.wait()
        running -= 1
        done += 1
    return Rate(done / seconds, (read_cpu() - cpu) / done)


async def measure_runs(seconds: float, limits: dict[str, int]) -> Rate:
    """Measure commands with limits."""
    cpu = read_cpu()
    file = parse_service_file({"tasks": {"t": {"kind": "cmd", "argv": [_PROGRAM], "limits": limits}}})
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
    return Rate(done / seconds, (read_cpu() - cpu) / (done + AT_ONCE))


async def measure_service(seconds: float, url: str, folder: Path) -> Rate:
    """Measure tasks of an instance, on an empty Redis."""
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
    return Rate((after.processed_total - before.processed_total) / seconds)


async def run(seconds: float) -> None:
    """Measure all variants, and print each round as soon as it has ended."""
    for number in range(ROUNDS):
        bare = measure_bare(seconds)
        print(f"round {number + 1}: bare {describe(bare, bare)}")
        print(f"  run      {describe(await measure_runs(seconds, {}), bare)}")
        print(f"  limited  {describe(await measure_runs(seconds, {'files': 64}), bare)}")
        with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-bench-") as folder:
            print(f"  service  {describe(await measure_service(seconds, server.url, Path(folder)), bare)}")


def describe(rate: Rate, bare: Rate) -> str:
    """Return a rate and its ratio to the bare one, and the same for the CPU time."""
    text = f"{rate.per_second:,.0f}/s ({rate.per_second / bare.per_second:.2f})"
    if rate.cpu is None or bare.cpu is None:
        return text
    return f"{text}, CPU {rate.cpu * 1_000:.2f} ms ({bare.cpu / rate.cpu:.2f})"


def main() -> None:
    """Measure."""
    logging.disable()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    asyncio.run(run(seconds))


if __name__ == "__main__":
    main()
