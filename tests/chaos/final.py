"""What Redis holds at the end of a chaos run, when no worker lives any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._wire.keys import queue_keys
from pyasynq.doctor import Doctor, FindingKind, Severity
from tests.chaos.checker import FinalState
from tests.chaos.settings import QUEUE
from tests.invariants import violations

if TYPE_CHECKING:
    from tests.invariants import RedisClient

_PAUSE_SECONDS: Final = 0.2
_OF_THE_MACHINE: Final = frozenset({FindingKind.SLOW_SCRIPT, FindingKind.CLOCK_SKEW})
"""They say something about the machine or the faults, and nothing about the data."""


async def look(url: str, client: RedisClient) -> FinalState:
    """Read all tasks, and let the invariants and the doctor say what they have to say."""
    states, complaints = _states(client), violations(client)
    async with Doctor(url, pause=_PAUSE_SECONDS, unowned_locks=True) as doctor:
        complaints += [
            f"doctor: {finding}"
            for finding in await doctor.examine()
            if finding.severity is not Severity.NOTICE and finding.kind not in _OF_THE_MACHINE
        ]
    return FinalState(states, complaints)


def _states(client: RedisClient) -> dict[str, str]:
    prefix = queue_keys(QUEUE).task_prefix
    keys: list[bytes] = list(client.scan_iter(match=f"{prefix}*", count=10_000))
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hget(key, "state")
        states = pipeline.execute()
    return {
        key.decode().removeprefix(prefix): (state or b"without a state").decode()
        for key, state in zip(keys, states, strict=True)
    }
