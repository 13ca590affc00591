"""Tokens of a semaphore that tasks share across processes and hosts, including Go's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.arguments import FIRST_SEND, time_arguments
from pyasynq._broker.scripts import RATE_ACQUIRE, RATE_RELEASE
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import semaphore_key

if TYPE_CHECKING:
    from pyasynq._clock import Instant


def acquire_token(
    scope: str, max_tokens: int, task_id: str, *, deadline: int, now: Instant | None = None
) -> Plan[bool]:
    """Acquire a token that expires at `deadline` (Unix second); return False if none was free."""
    args = (FIRST_SEND, max_tokens, task_id, deadline, *time_arguments(now))
    return bool((yield ScriptCall(RATE_ACQUIRE, (semaphore_key(scope),), args, Replay.BY_TOKEN)))


def release_token(scope: str, task_id: str, *, deadline: int | None = None) -> Plan[bool]:
    """Release a task's token, if it expires at `deadline` (None: any); return whether the task held it."""
    args = (FIRST_SEND, task_id, "" if deadline is None else deadline)
    return bool((yield ScriptCall(RATE_RELEASE, (semaphore_key(scope),), args, Replay.BY_TOKEN)))
