"""Dramatiq: one thread a process and a long prefetch."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.counters import hit_from_thread
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

dramatiq.set_broker(RedisBroker(url=os.environ[URL_VARIABLE]))


@dramatiq.actor(actor_name=TASK.replace(":", "-"))
def note(number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, that is all
    """Do nothing."""
    hit_from_thread(number, sent)


def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue the tasks one by one, each with its own call."""
    for task in tasks:
        note.send(**task)


def work(settings: dict[str, Any]) -> None:
    """Replace this process by `dramatiq`."""
    os.environ["dramatiq_queue_prefetch"] = "500"  # noqa: SIM112 - so it is called
    command = [sys.executable, "-m", "dramatiq", "bench.peers.dramatiq", "--threads", "1", "--skip-logging"]
    command += ["--processes", str(settings.get("processes", 1))]
    os.execv(sys.executable, command)  # noqa: S606 - this process has nothing else to do


PEER = Peer(
    title="Dramatiq",
    packages=("dramatiq", "redis", "hiredis"),
    setup="one thread a process and dramatiq_queue_prefetch=500, which is its fastest setting here",
    after_a_crash="run again when the heartbeat of the worker has been missed for 60 s and another worker "
    "looks, which one of 1,000 commands does",
    at_least_once=True,
    modes={"one": one},
    fill="one",
    left=(("HLEN", "dramatiq:default.msgs"),),
    work=work,
)
