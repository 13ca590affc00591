"""RQ: the worker that does not fork for each job."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from redis import Redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from bench.peers.counters import hit
from bench.peers.shape import QUEUE, URL_VARIABLE, Arguments, Peer, in_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

queue = Queue(QUEUE, connection=Redis.from_url(os.environ[URL_VARIABLE]), serializer=JSONSerializer)


def note(number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, that is all
    """Do nothing."""
    hit(number, sent)


def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue the tasks one by one, each with its own call."""
    for task in tasks:
        queue.enqueue(note, kwargs=task, result_ttl=0)


def bulk(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue all tasks in one pipeline."""
    queue.enqueue_many([Queue.prepare_data(note, kwargs=dict(task), result_ttl=0) for task in tasks])


def run() -> None:
    """Run one worker."""
    logging.disable()
    SimpleWorker([queue], connection=queue.connection, serializer=JSONSerializer).work()


def work(settings: dict[str, Any]) -> None:
    """Run the workers."""
    in_processes(settings, run)


PEER = Peer(
    title="RQ",
    packages=("rq", "redis", "hiredis"),
    setup="SimpleWorker (no fork for each job), JSON, results not kept",
    after_a_crash="**not run again**: the job becomes failed (AbandonedJobError)",
    at_least_once=False,
    modes={"one": one, "bulk": bulk},
    fill="bulk",
    left=(("LLEN", "rq:queue:default"), ("ZCARD", "rq:wip:default")),
    work=work,
)
