"""Celery as a peer of the benchmarks: `acks_late`, JSON, and results that are not stored."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from celery import Celery

from bench.peers.counters import hit
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

app = Celery("bench", broker=os.environ[URL_VARIABLE])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_serializer="json",
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name=TASK)
def note(number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, that is all
    """Do nothing."""
    hit(number, sent)


def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue the tasks one by one, each with its own call."""
    for task in tasks:
        note.apply_async(kwargs=task)


def work(settings: dict[str, Any]) -> None:
    """Run `celery worker`: a single process, or a pool of child processes."""
    processes = settings.get("processes", 1)
    pool = ["--pool", "solo"] if processes == 1 else ["--pool", "prefork", "--concurrency", str(processes)]
    quiet = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", *pool, *quiet])


PEER = Peer(
    title="Celery",
    packages=("celery", "kombu", "redis", "hiredis"),
    setup="pool solo (two processes: prefork), acks_late and reject_on_worker_lost for at-least-once. "
    "Results ignored, prefetch multiplier 64 as its guide advises for short tasks; without gossip and mingle",
    after_a_crash="run again when the visibility timeout ends (1 hour)",
    at_least_once=True,
    modes={"one": one},
    fill="one",
    left=(("LLEN", "celery"), ("HLEN", "unacked")),
    work=work,
)
