"""What Redis holds at the end of a chaos run, when no worker lives any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._wire.keys import queue_keys
from pyasynq.doctor import Doctor, FindingKind, Severity
from tests.chaos.checker import FinalState
from tests.invariants import violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.invariants import RedisClient

_PAUSE_SECONDS: Final = 0.2
_OF_THE_MACHINE: Final = frozenset({FindingKind.SLOW_SCRIPT, FindingKind.CLOCK_SKEW})
"""They say something about the machine or the faults, and nothing about the data."""


async def read_final_state(url: str, client: RedisClient, queues: Sequence[str]) -> FinalState:
    """Read all tasks, and let the invariants and the doctor say what they have to say."""
    states, complaints = _states(client, queues), violations(client)
    async with Doctor(url, pause=_PAUSE_SECONDS, unowned_locks=True) as doctor:
        complaints += [
            f"doctor: {finding}"
            for finding in await doctor.examine()
            if finding.severity is not Severity.NOTICE and finding.kind not in _OF_THE_MACHINE
        ]
    return FinalState(states, complaints)


def _states(client: RedisClient, queues: Sequence[str]) -> dict[str, str]:
    """Return the state of each task by its id, which is unique across the queues."""
    prefixes = tuple(queue_keys(queue).task_prefix.encode() for queue in queues)
    keys = [key for key in client.scan_iter(match="asynq:{*}:t:*", count=10_000) if key.startswith(prefixes)]
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hget(key, "state")
        states = pipeline.execute()
    return {
        key.decode().partition("}:t:")[2]: (state or b"without a state").decode()
        for key, state in zip(keys, states, strict=True)
    }
