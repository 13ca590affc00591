"""arq: many jobs at once and a short poll delay."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import uvloop
from arq import create_pool, func
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

from bench.peers.counters import hit
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer, in_flight, in_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTINGS = RedisSettings.from_dsn(os.environ[URL_VARIABLE])
_pools: list[ArqRedis] = []


def _serialize(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


async def note(
    ctx: dict[str, Any],  # noqa: ARG001 - arq gives it to every function
    *,
    number: int,
    email: str,  # noqa: ARG001 - decoded, that is all
    sent: int,
    text: str,  # noqa: ARG001 - as above
) -> None:
    """Do nothing."""
    hit(number, sent)


async def _pool() -> ArqRedis:
    if not _pools:
        _pools.append(await create_pool(SETTINGS, job_serializer=_serialize, job_deserializer=json.loads))
    return _pools[0]


async def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue with one awaited call after another."""
    pool = await _pool()
    for task in tasks:
        await pool.enqueue_job(TASK, **task)


async def concurrent(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - as above
    """Enqueue with 100 concurrent calls."""
    pool = await _pool()
    await in_flight(pool.enqueue_job(TASK, **task) for task in tasks)


def run() -> None:
    """Run one worker."""
    asyncio.set_event_loop(uvloop.new_event_loop())
    Worker(
        [func(note, name=TASK)],
        redis_settings=SETTINGS,
        max_jobs=1_000,
        poll_delay=0.01,
        keep_result=0,
        log_results=False,
        job_serializer=_serialize,
        job_deserializer=json.loads,
    ).run()


def work(settings: dict[str, Any]) -> None:
    """Run the workers."""
    in_processes(settings, run)


PEER = Peer(
    title="arq",
    packages=("arq", "redis", "hiredis", "uvloop"),
    setup="max_jobs 1,000 and poll_delay 10 ms (default: 10 and 500 ms), JSON, results not kept, uvloop",
    after_a_crash="run again when the job's timeout has passed (5 minutes)",
    at_least_once=True,
    modes={"one": one, "concurrent": concurrent},
    fill="concurrent",
    left=(("ZCARD", "arq:queue"),),
    work=work,
    loop_factory=uvloop.new_event_loop,
)
