"""streaq: 100 tasks at once, JSON."""

from __future__ import annotations

import json
import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import uvloop
from streaq import Worker

from bench.peers.counters import hit
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer, in_flight, in_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

worker = Worker(
    redis_url=os.environ[URL_VARIABLE],
    concurrency=100,
    serializer=json.dumps,
    deserializer=json.loads,
    anyio_kwargs={"use_uvloop": True},
)
_open = AsyncExitStack()


@worker.task(name=TASK, ttl=0, silent=True)
async def note(*, number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, no more
    """Do nothing."""
    hit(number, sent)


async def _connect() -> None:
    if not worker._initialized:  # noqa: SLF001 - there is no public word for it
        await _open.enter_async_context(worker)


async def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue with one awaited call after another."""
    await _connect()
    for task in tasks:
        await note.enqueue(**task)


async def concurrent(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - as above
    """Enqueue with 100 concurrent calls."""
    await _connect()
    await in_flight(note.enqueue(**task) for task in tasks)


async def bulk(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - as above
    """Enqueue in pipelines of 1,000 tasks."""
    await _connect()
    for at in range(0, len(tasks), 1_000):
        await worker.enqueue_many([note.enqueue(**task) for task in tasks[at : at + 1_000]])


def run() -> None:
    """Run one worker."""
    logging.disable()
    worker.run_sync()


def work(settings: dict[str, Any]) -> None:
    """Run the workers."""
    in_processes(settings, run)


PEER = Peer(
    title="streaq",
    packages=("streaq", "coredis", "hiredis", "uvloop"),
    setup="concurrency 100, JSON, results not kept, uvloop",
    after_a_crash="run again when they have been idle for 60 s",
    at_least_once=True,
    modes={"one": one, "concurrent": concurrent, "bulk": bulk},
    fill="bulk",
    left=(("XLEN", "streaq:default:queues:normal"),),
    work=work,
    loop_factory=uvloop.new_event_loop,
)
