"""A busy healthy system, asked all the time what needs attention: nothing does.

    PYTHONPATH=src:. python -m tests.chaos.attention [--seconds 600] [--pause 10]

Servers and a scheduler work on four queues whose tasks succeed, fail now and then, wait for their time and
form groups. Exit code 1 on any finding.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.embedded import EmbeddedServer
from pyasynq.limits import Queue
from pyasynq.operations import Operator, Thresholds, User
from pyasynq.operations.thresholds import DEFAULT_THRESHOLDS
from pyasynq.scheduler import Scheduler
from pyasynq.server import Server
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations import AttentionFinding

QUEUES: Final = ("default", "limited", "ordered", "groups")
TASKS_A_SECOND: Final = 100
_FAILS: Final = 50
"""One task in this many fails, and succeeds when it is tried again."""


async def handle(task: Task) -> None:
    """Work for a moment, and fail if the type says so, at the first attempt."""
    await asyncio.sleep(0.005)
    if task.type == "fails" and not context().retried:
        raise ValueError("the other side is away")


def aggregate(group: str, tasks: Sequence[Task]) -> Task:
    """Make one task of many."""
    return Task("aggregate", b"%d of %s" % (len(tasks), group.encode()))


@dataclasses.dataclass
class Asked:
    """What was done, and what was found."""

    enqueued: int = 0
    times: int = 0
    findings: list[AttentionFinding] = dataclasses.field(default_factory=list)
    is_over: bool = False


def options(number: int) -> dict[str, Any]:
    """Return what a task is enqueued with."""
    ways: tuple[dict[str, Any], ...] = ({}, {"retention": 60.0}, {"process_in": 2.0}, {"max_retry": 3})
    chosen = {**ways[number // len(QUEUES) % len(ways)], "queue": QUEUES[number % len(QUEUES)]}
    if chosen["queue"] == "groups":
        chosen.pop("process_in", None)
        chosen["group"] = "a"
    return chosen


async def enqueue_all_the_time(client: Client, asked: Asked) -> None:
    """Enqueue at a steady rate that the servers can follow."""
    while not asked.is_over:
        number = asked.enqueued = asked.enqueued + 1
        await client.enqueue("works" if number % _FAILS else "fails", b"%d" % number, **options(number))
        await asyncio.sleep(1 / TASKS_A_SECOND)


async def ask_all_the_time(
    operator: Operator, asked: Asked, seconds: float, pause: float, thresholds: Thresholds
) -> None:
    """Ask until the time is over and at least two sweeps were compared, or something is found."""
    began = time.monotonic()
    while not asked.findings and (asked.times < 2 or time.monotonic() < began + seconds):
        asked.findings = list((await operator.attention(thresholds)).findings)
        asked.times += 1
        await asyncio.sleep(pause)
    asked.is_over = True


async def live(url: str, seconds: float, pause: float, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Asked:
    """Let everything work, and ask what needs attention."""
    config = ServerConfig(
        concurrency=20,
        queues={
            "default": 1,
            "limited": Queue(max_run=10, rate=200),
            "ordered": Queue(ordered=True),
            "groups": 1,
        },
        retry_delay=lambda retried, error, task: 1.0,
        group_aggregator=aggregate,
        group_grace_period=1,
    )
    asked = Asked()
    async with AsyncExitStack() as stack:
        for _ in range(2):
            server = Server(url, config)
            await server.start(handle)
            stack.push_async_callback(server.shutdown)
        scheduler = Scheduler(url)
        scheduler.register("@every 5s", Task("works"), queue="default")
        await scheduler.start()
        stack.push_async_callback(scheduler.shutdown)
        client = await stack.enter_async_context(Client(url))
        operator = Operator(url, User.with_role("quiet", "admin"), read_only=True)
        stack.push_async_callback(operator.close)
        await asyncio.gather(
            enqueue_all_the_time(client, asked),
            ask_all_the_time(operator, asked, seconds, pause, thresholds),
        )
    return asked


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--pause", type=float, default=10.0)
    arguments = parser.parse_args()
    logging.getLogger("pyasynq").setLevel(logging.CRITICAL)  # some tasks fail
    with EmbeddedServer() as embedded:
        asked = asyncio.run(live(embedded.url, arguments.seconds, arguments.pause))
    print(f"{asked.enqueued:,} enqueued, asked {asked.times} times what needs attention")
    print("\n".join(map(str, asked.findings)) or "nothing does")
    return 1 if asked.findings else 0


if __name__ == "__main__":
    sys.exit(main())
