"""SAQ: 100 jobs at once."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import uvloop
from saq import Queue, Worker

from bench.peers.counters import hit
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer, in_flight, in_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

queue = Queue.from_url(os.environ[URL_VARIABLE])


async def note(
    ctx: dict[str, Any],  # noqa: ARG001 - SAQ gives it to every function
    *,
    number: int,
    email: str,  # noqa: ARG001 - decoded, that is all
    sent: int,
    text: str,  # noqa: ARG001 - as above
) -> None:
    """Do nothing."""
    hit(number, sent)


async def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue with one awaited call after another."""
    for task in tasks:
        await queue.enqueue(TASK, ttl=-1, **task)


async def concurrent(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - as above
    """Enqueue with 100 concurrent calls."""
    await in_flight(queue.enqueue(TASK, ttl=-1, **task) for task in tasks)


def run() -> None:
    """Run one worker."""
    logging.disable()

    async def until_stopped() -> None:
        mine = Queue.from_url(os.environ[URL_VARIABLE])
        await Worker(mine, [(TASK, note)], concurrency=100).start()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped())


def work(settings: dict[str, Any]) -> None:
    """Run the workers."""
    in_processes(settings, run)


PEER = Peer(
    title="SAQ",
    packages=("saq", "redis", "hiredis", "uvloop"),
    setup="concurrency 100, jobs not kept, uvloop",
    after_a_crash="**not run again** unless the job has retries: swept and aborted",
    at_least_once=False,
    modes={"one": one, "concurrent": concurrent},
    fill="concurrent",
    left=(("ZCARD", "saq:default:incomplete"),),
    work=work,
    loop_factory=uvloop.new_event_loop,
)
