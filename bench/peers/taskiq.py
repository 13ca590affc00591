"""taskiq: the Redis stream broker, with acknowledgements."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import uvloop
from taskiq_redis import RedisStreamBroker

from bench.peers.counters import hit
from bench.peers.shape import TASK, URL_VARIABLE, Arguments, Peer, in_flight

if TYPE_CHECKING:
    from collections.abc import Sequence

# Read the stream from its beginning: by default, a group only sees later entries.
broker = RedisStreamBroker(os.environ[URL_VARIABLE], consumer_id="0")
_NOT_ACKNOWLEDGED = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
if #groups == 0 then return redis.call('XLEN', KEYS[1]) end
local left = 0
for at = 1, #groups[1], 2 do
  local name = groups[1][at]
  if name == 'pending' or name == 'lag' then left = left + groups[1][at + 1] end
end
return left
"""


@broker.task(task_name=TASK)
async def note(number: int, email: str, sent: int, text: str) -> None:  # noqa: ARG001 - decoded, that is all
    """Do nothing."""
    hit(number, sent)


async def one(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - there is one queue
    """Enqueue with one awaited call after another."""
    for task in tasks:
        await note.kiq(**task)


async def concurrent(tasks: Sequence[Arguments], queues: Sequence[str]) -> None:  # noqa: ARG001 - as above
    """Enqueue with 100 concurrent calls."""
    await in_flight(note.kiq(**task) for task in tasks)


def work(settings: dict[str, Any]) -> None:
    """Replace this process by `taskiq worker`."""
    command = [sys.executable, "-m", "taskiq", "worker", "bench.peers.taskiq:broker", "--log-level", "ERROR"]
    command += ["--workers", str(settings.get("processes", 1)), "--max-async-tasks", "100"]
    os.execv(sys.executable, command)  # noqa: S606 - this process has nothing else to do


PEER = Peer(
    title="taskiq",
    packages=("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"),
    setup="RedisStreamBroker, acknowledged when executed, no result backend, one worker process under its "
    "manager, uvloop",
    after_a_crash="run again when they have been idle for 10 minutes",
    at_least_once=True,
    modes={"one": one, "concurrent": concurrent},
    fill="concurrent",
    left=(("EVAL", _NOT_ACKNOWLEDGED, "1", "taskiq"),),
    work=work,
    loop_factory=uvloop.new_event_loop,
    close=broker.shutdown,
)
