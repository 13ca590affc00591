"""The five ways to settle, each brought to one form, for the tests that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
from tests.factories import NOW, message_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.plan import Plan

    Settle = Callable[[Sequence[Claim]], Plan[Settled]]

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


def done(claims: Sequence[Claim], unique_key: str = "") -> Plan[Settled]:
    """Settle attempts whose tasks are finished."""
    return settle_done("default", [DoneTask(*one, unique_key) for one in claims], now=NOW)


def complete(claims: Sequence[Claim], unique_key: str = "", result: bytes | None = None) -> Plan[Settled]:
    """Settle attempts whose tasks are finished and kept."""
    decisions = [CompleteTask(one, unique_key, completed_bytes(one.id), EXPIRES_AT, result) for one in claims]
    return settle_complete("default", decisions, now=NOW)


def retry(claims: Sequence[Claim], *, is_failure: bool = True, trace: bytes = b"") -> Plan[Settled]:
    """Settle attempts whose tasks are to be tried again in 90 seconds."""
    decisions = [RetryTask(one, failed_bytes(one.id), NOW.seconds + 90, is_failure, trace) for one in claims]
    return settle_retry("default", decisions, now=NOW)


def archive(
    claims: Sequence[Claim], *, trace: bytes = b"", max_size: int = 9_999, cutoff: int = CUTOFF
) -> Plan[Settled]:
    """Settle attempts whose tasks failed for good."""
    decisions = [ArchiveTask(one, failed_bytes(one.id), NOW.ceiling, trace) for one in claims]
    return settle_archive("default", decisions, max_size=max_size, cutoff=cutoff, now=NOW)


def requeue(claims: Sequence[Claim]) -> Plan[Settled]:
    """Settle attempts that did not come to their end."""
    return settle_requeue("default", [RequeueTask(one) for one in claims], now=NOW)


every_settle = pytest.mark.parametrize("settle", [done, complete, retry, archive, requeue])
