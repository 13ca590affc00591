"""A busy healthy system, examined all the time: the doctor reports nothing, and nothing is changed.

    PYTHONPATH=src:. python -m tests.chaos.doctor [--seconds 60]

A server, a scheduler, clients and inspectors work on four queues in all ways at once, while a doctor makes
one examination after the other, with hardly a pause between the two looks of each. Exit code 1 on any
finding, and on a database that is not sound at the end.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import random
import sys
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import redis

from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.doctor import Doctor, Finding, FindingKind
from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import PyasynqError, SkipRetry
from pyasynq.inspector import Inspector
from pyasynq.limits import Queue
from pyasynq.scheduler import Scheduler
from pyasynq.server import Server
from pyasynq.task import Task, TaskState
from tests.fix_engine import QUICK
from tests.invariants import violations

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUES: Final = ("default", "limited", "ordered", "groups")
PAUSE_SECONDS: Final = 0.05


async def handle(task: Task) -> None:
    """Work for a moment, and end as the type says."""
    await asyncio.sleep(random.random() / 100)
    await context().write_result(b"r")
    if task.type == "fails":
        raise ValueError("no")
    if task.type == "skips":
        raise SkipRetry("no")


def aggregate(group: str, tasks: Sequence[Task]) -> Task:
    """Make one task of many."""
    return Task("aggregate", b"%d of %s" % (len(tasks), group.encode()))


def options(number: int) -> dict[str, Any]:
    """Return what a task is enqueued with, of all that there is."""
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"retention": 1.0},
        {"process_in": random.random() * 3},
        {"unique": 5},
        {"unique": 5, "process_in": 1},
        {"max_retry": 2},
        {"unique": 1, "until": "expiry"},
        {"unique": 5, "until": "start"},
        {"unique": 5, "until": "finish", "retention": 1.0},
        {"unique": 2, "unique_key": "own", "on_duplicate": "replace_payload"},
        {"task_id": f"replaced-{number % 20}", "on_conflict": "replace_finished", "retention": 5.0},
        {"task_id": f"named-{number % 50}"},
    )
    chosen = dict(random.choice(ways))
    chosen["queue"] = random.choice(QUEUES)
    if chosen["queue"] == "groups":
        chosen["group"] = random.choice(["a", "b", "c:d"])
    return chosen


@dataclasses.dataclass
class Done:
    """What was done so far, and at which monotonic time it may end."""

    ends: float
    enqueued: int = 0
    actions: int = 0
    examinations: int = 0
    found_something: bool = False

    @property
    def is_enough(self) -> bool:
        """Whether the time is over and something of each was done, or a finding ends it."""
        worked = self.enqueued > 100 and self.actions > 5 and self.examinations > 1
        return self.found_something or (worked and time.monotonic() >= self.ends)


async def enqueue_all_the_time(client: Client, done: Done) -> None:
    """Enqueue in all ways."""
    while not done.is_enough:
        done.enqueued += 1
        number = done.enqueued
        kind = random.choice(["works", "works", "fails", "skips"])
        with suppress(PyasynqError):
            await client.enqueue(kind, b"%d" % random.randrange(500), **options(number))
        if not number % 20:
            await asyncio.sleep(0.01)


async def interfere_all_the_time(inspector: Inspector, done: Done) -> None:
    """Do what people do with an inspector, and count the actions that succeed."""
    states = (
        TaskState.SCHEDULED,
        TaskState.RETRY,
        TaskState.ARCHIVED,
        TaskState.PENDING,
        TaskState.COMPLETED,
    )
    while not done.is_enough:
        queue = random.choice(QUEUES)
        with suppress(PyasynqError):
            await random.choice([inspector.pause_queue, inspector.unpause_queue])("default")
        for task in await inspector.list_tasks(queue, random.choice(states), page_size=5):
            act = random.choice([inspector.run_task, inspector.archive_task, inspector.delete_task])
            with suppress(PyasynqError):
                await act(queue, task.id)
                done.actions += 1
        for task in await inspector.list_tasks(queue, TaskState.ACTIVE, page_size=2):
            with suppress(PyasynqError):
                await inspector.cancel(task.id, queue)
        if not done.actions % 7:
            with suppress(PyasynqError):
                await inspector.archive_all(queue, TaskState.RETRY)
            await inspector.delete_all(queue, TaskState.ARCHIVED)
        await asyncio.sleep(0.02)


async def examine_all_the_time(doctor: Doctor, done: Done) -> list[Finding]:
    """Examine until something is found or enough was done; return what was found."""
    found: list[Finding] = []
    while not done.is_enough and not found:
        done.examinations += 1
        # How fast scripts are says something about the machine, and nothing about the data.
        found = [one for one in await doctor.examine() if one.kind is not FindingKind.SLOW_SCRIPT]
    done.found_something = bool(found)
    return found


async def live(url: str, seconds: float) -> tuple[Done, list[Finding]]:
    """Let everything work at once for this long at least; return what was done, and what the doctor found."""
    config = ServerConfig(
        concurrency=20,
        queues={
            "default": 1,
            "limited": Queue(max_run=3, rate=200),
            "ordered": Queue(ordered=True),
            "groups": 1,
        },
        retry_delay=lambda retried, error, task: random.random(),
        group_aggregator=aggregate,
        group_max_size=5,
        group_grace_period=1,
        shutdown_timeout=5,
    )
    async with AsyncExitStack() as stack:
        server = Server(url, config)
        server._settings = QUICK
        await server.start(handle)
        stack.push_async_callback(server.shutdown)
        scheduler = Scheduler(url)
        scheduler.register("@every 1s", Task("works"), queue="default", unique=1)
        await scheduler.start()
        stack.push_async_callback(scheduler.shutdown)
        client = await stack.enter_async_context(Client(url))
        inspector = await stack.enter_async_context(Inspector(url))
        doctor = await stack.enter_async_context(Doctor(url, pause=PAUSE_SECONDS))
        for queue in QUEUES:
            await client.enqueue("works", queue=queue)
        done = Done(time.monotonic() + seconds)
        _, _, found = await asyncio.gather(
            enqueue_all_the_time(client, done),
            interfere_all_the_time(inspector, done),
            examine_all_the_time(doctor, done),
        )
        with suppress(PyasynqError):
            await inspector.unpause_queue("default")
    return done, found


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    logging.getLogger("pyasynq").setLevel(logging.CRITICAL)  # thousands of failures are part of it
    with EmbeddedServer() as embedded, redis.Redis.from_url(embedded.url) as client:
        done, found = asyncio.run(live(embedded.url, seconds))
        print(f"{done.enqueued:,} enqueued, {done.actions:,} actions, {done.examinations:,} examinations")
        wrong = [*map(str, found), *violations(client, ids_return=True)]
    print("\n".join(wrong) or "nothing found, and the database is sound")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
