"""Huey: worker threads that wait for a push."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from huey import RedisHuey

from bench.peers.counters import hit_from_thread
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

queue = RedisHuey("bench", url=os.environ[URL_VARIABLE], results=False)


@queue.task(name=TASK)
def note(number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, that is all
    """Do nothing."""
    hit_from_thread(number, sent)


def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue the tasks one by one, each with its own call."""
    for task in tasks:
        note(**task)


def work(settings: dict[str, Any]) -> None:
    """Replace this process by `huey_consumer`."""
    processes = settings.get("processes", 1)
    kind = ["--worker-type", "thread"] if processes == 1 else ["--worker-type", "process"]
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "bench.peers.huey.queue", *kind]
    command += ["--workers", str(processes), "--quiet", "--no-periodic"]
    os.execv(sys.executable, command)  # noqa: S606 - this process has nothing else to do


PEER = Peer(
    title="Huey",
    packages=("huey", "redis", "hiredis"),
    setup="one worker thread a process, results off; pickle, its only built-in format",
    after_a_crash="**lost**: a task leaves Redis before it runs",
    at_least_once=False,
    modes={"one": one},
    fill="one",
    left=(("LLEN", "huey.redis.bench"),),
    work=work,
)
