"""The five ways to settle, each brought to one form, for the tests that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import pytest

from pyasynq._broker.settle import (
    ArchiveTask,
    Claim,
    CompleteTask,
    RequeueTask,
    RetryTask,
    Settled,
    settle_archive,
    settle_complete,
    settle_done,
    settle_requeue,
    settle_retry,
)
from pyasynq._broker.verdicts import NO_NOTE
from tests.factories import NOW, message_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.verdicts import VerdictNote
    from pyasynq._redis.plan import Plan

    class Settle(Protocol):
        """Settles attempts in one of the five ways."""

        def __call__(self, claims: Sequence[Claim], /, *, note: VerdictNote = ...) -> Plan[Settled]: ...


RETENTION = 60
EXPIRES_AT = NOW.seconds + RETENTION
CUTOFF = NOW.seconds - 90 * 86_400


def completed_bytes(task_id: str) -> bytes:
    """Return the message of a task that was completed at NOW."""
    return message_bytes(task_id, completed_at=NOW.seconds, retention=RETENTION)


def failed_bytes(task_id: str, retried: int = 1) -> bytes:
    """Return the message of a task that failed at NOW."""
    return message_bytes(task_id, retried=retried, error_msg="oops", last_failed_at=NOW.seconds)


class DoneTask(NamedTuple):
    """A claim to a finished task, and the message's lock, empty for none."""

    id: str
    token: str
    lease_score: int
    unique_key: str


def done(claims: Sequence[Claim], unique_key: str = "", *, note: VerdictNote = NO_NOTE) -> Plan[Settled]:
    """Settle attempts whose tasks are finished."""
    return settle_done("default", [DoneTask(*one, unique_key) for one in claims], now=NOW, note=note)


def complete(
    claims: Sequence[Claim],
    unique_key: str = "",
    result: bytes | None = None,
    *,
    note: VerdictNote = NO_NOTE,
) -> Plan[Settled]:
    """Settle attempts whose tasks are finished and kept."""
    decisions = [CompleteTask(one, unique_key, completed_bytes(one.id), EXPIRES_AT, result) for one in claims]
    return settle_complete("default", decisions, now=NOW, note=note)


def retry(
    claims: Sequence[Claim], *, is_failure: bool = True, trace: bytes = b"", note: VerdictNote = NO_NOTE
) -> Plan[Settled]:
    """Settle attempts whose tasks are to be tried again in 90 seconds."""
    decisions = [RetryTask(one, failed_bytes(one.id), NOW.seconds + 90, is_failure, trace) for one in claims]
    return settle_retry("default", decisions, now=NOW, note=note)


def archive(
    claims: Sequence[Claim],
    *,
    trace: bytes = b"",
    max_size: int = 9_999,
    cutoff: int = CUTOFF,
    note: VerdictNote = NO_NOTE,
) -> Plan[Settled]:
    """Settle attempts whose tasks failed for good."""
    decisions = [ArchiveTask(one, failed_bytes(one.id), NOW.ceiling, trace) for one in claims]
    return settle_archive("default", decisions, max_size=max_size, cutoff=cutoff, now=NOW, note=note)


def requeue(claims: Sequence[Claim], *, note: VerdictNote = NO_NOTE) -> Plan[Settled]:
    """Settle attempts that did not come to their end."""
    return settle_requeue("default", [RequeueTask(one) for one in claims], now=NOW, note=note)


every_settle = pytest.mark.parametrize("settle", [done, complete, retry, archive, requeue])
