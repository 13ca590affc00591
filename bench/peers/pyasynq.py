"""pyasynq itself, in the environment of the harness."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import uvloop

from bench.peers.counters import hit, started
from bench.peers.shape import QUEUE, TASK, URL_VARIABLE, Arguments, Peer, in_flight, in_turn
from pyasynq import App, Client, Task, sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyasynq import CoroutineTask

ONE_CALL_VARIABLE = "BENCH_ONE_CALL"

app = App(os.environ[URL_VARIABLE])
client = Client(os.environ[URL_VARIABLE])
blocking = sync.Client(os.environ[URL_VARIABLE])


@app.task(TASK)
async def note(number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, that is all
    """Do nothing."""
    hit(number, sent)


@app.task("bench:nap")
async def nap(seconds: float) -> None:
    """Sleep."""
    started()
    await asyncio.sleep(seconds)
    hit(0, 0)


@app.task("bench:doze")
async def doze(most: float) -> None:
    """Sleep for a random time."""
    started()
    await asyncio.sleep(random.uniform(0, most))  # noqa: S311 - spreads the ends
    hit(0, 0)


def tasks_of(tasks: Sequence[Arguments], queues: Sequence[str]) -> Iterator[Task]:
    """Make typed tasks."""
    return (_routed(queue).task(**task) for task, queue in in_turn(tasks, queues))


@cache
def _routed(queue: str) -> CoroutineTask[..., None]:
    """Return the typed task for a queue; cached, as a program declares it only once."""
    return note if queue == QUEUE else note.options(queue=queue)


async def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:
    """Enqueue with one awaited call after another."""
    for task in tasks_of(tasks, queues):
        await client.enqueue(task)


async def concurrent(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:
    """Enqueue with 100 concurrent calls."""
    await in_flight(client.enqueue(task) for task in tasks_of(tasks, queues))


async def bulk(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:
    """Enqueue all tasks with one call."""
    results = await client.enqueue_many(tasks_of(tasks, queues))
    assert all(results)  # noqa: S101 - the harness counts too; this names the place


def blocking_one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:
    """Enqueue with one blocking call after another."""
    for task in tasks_of(tasks, queues):
        blocking.enqueue(task)


def blocking_bulk(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:
    """Enqueue all tasks with one blocking call."""
    assert all(blocking.enqueue_many(tasks_of(tasks, queues)))  # noqa: S101 - as above


async def _enqueue_sleepers(
    sleeper: CoroutineTask[[float], None], seconds: float, tasks: Sequence[Arguments], queues: Sequence[str]
) -> None:
    task = sleeper.options(queue=queues[0], timeout=86_400).task(seconds)
    await client.enqueue_many(task for _ in tasks)


def work(settings: dict[str, Any]) -> None:
    """Replace this process by the worker command that users run."""
    arguments = ["--concurrency", str(settings.get("concurrency", 100)), "--log-level", "warning"]
    queues = settings.get("queues", [QUEUE])
    arguments += ["--queues", ",".join(f"{queue}=1" for queue in queues)]
    if settings.get("processes", 1) > 1:
        arguments += ["--processes", str(settings["processes"])]
    if "shutdown_timeout" in settings:
        arguments += ["--shutdown-timeout", str(settings["shutdown_timeout"])]
    if settings.get("one_call"):
        os.environ[ONE_CALL_VARIABLE] = "1"
        arguments += ["--prefetch", "0"]
    command = [sys.executable, "-m", "pyasynq.cli", "worker", "bench.peers.pyasynq:app", *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - this process has nothing else to do


async def close() -> None:
    """Close the clients."""
    await client.close()
    blocking.close()


if os.environ.get(ONE_CALL_VARIABLE):
    from pyasynq._engine.take import sink

    # An internal setting, with which the harness measures the benefit of overlapping calls.
    sink._LEAST_OVERLAPPED = sys.maxsize  # noqa: SLF001

PEER = Peer(
    title="pyasynq",
    packages=("pyasynq", "redis", "hiredis", "protobuf", "uvloop"),
    setup="`pyasynq worker` with its defaults (100 slots) unless the row says otherwise, extra `fast`, typed "
    "handlers; leases, heartbeats, deadlines and tokens on",
    after_a_crash="recovered: within a second under --processes, else when the lease lapses (30 s)",
    at_least_once=True,
    modes={
        "one": one,
        "concurrent": concurrent,
        "bulk": bulk,
        "blocking one": blocking_one,
        "blocking bulk": blocking_bulk,
        "naps of 100 ms": partial(_enqueue_sleepers, nap, 0.1),
        "naps of 10 ms": partial(_enqueue_sleepers, nap, 0.01),
        "naps of an hour": partial(_enqueue_sleepers, nap, 3_600.0),
        "dozes of up to 500 ms": partial(_enqueue_sleepers, doze, 0.5),
    },
    fill="bulk",
    left=(("LLEN", "asynq:{QUEUE}:pending"), ("LLEN", "asynq:{QUEUE}:active")),
    work=work,
    loop_factory=uvloop.new_event_loop,
    close=close,
)
