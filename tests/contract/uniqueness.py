"""Helpers of the tests about uniqueness: unique tasks come into any state by what clients and workers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq._broker import settle
from pyasynq._broker.dequeue import dequeue
from pyasynq._broker.groups import GroupLimits
from pyasynq._wire.messages import decode_task_message, encode_task_message
from tests.contract.aggregating import check
from tests.contract.enqueueing import composed, enqueue
from tests.contract.settling import CUTOFF, EXPIRES_AT, RETENTION, DoneTask
from tests.factories import NOW, TOKEN, claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._broker.settle import Settled
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform

KEY = "asynq:{default}:x:unique:k"
"""The lock of all tasks made here."""

RETRY_AT = NOW.seconds + 90


def unique(task_id: str, payload: bytes = b"{}", **options: Any) -> Composed:
    """Return a task of the lock KEY that holds it for 600 seconds, unless the options say otherwise."""
    return composed(task_id, payload, **({"unique": 600, "unique_key": "k"} | options))


def named_lock(item: Composed) -> str:
    """Return the lock that the message names; one that only time ends is not named."""
    return decode_task_message(item.encoded).unique_key


def _changed(item: Composed, **changes: Any) -> bytes:
    message = decode_task_message(item.encoded)
    for name, value in changes.items():
        setattr(message, name, value)
    return encode_task_message(message)


def done(item: Composed) -> Plan[Settled]:
    """Settle the attempt of a task that is finished."""
    task = DoneTask(*claim(item.id), named_lock(item))
    return settle.settle_done("default", [task], now=NOW)


def complete(item: Composed) -> Plan[Settled]:
    """Settle the attempt of a task that is finished and kept."""
    message = _changed(item, completed_at=NOW.seconds, retention=RETENTION)
    task = settle.CompleteTask(claim(item.id), named_lock(item), message, EXPIRES_AT, None)
    return settle.settle_complete("default", [task], now=NOW)


def retry(item: Composed, retry_at: int = RETRY_AT) -> Plan[Settled]:
    """Settle the attempt of a task that is to be tried again."""
    message = _changed(item, retried=1, last_failed_at=NOW.seconds)
    key = named_lock(item)
    task = settle.RetryTask(claim(item.id), message, retry_at, True, b"", unique_key=key)
    return settle.settle_retry("default", [task], now=NOW)


def archive(item: Composed) -> Plan[Settled]:
    """Settle the attempt of a task that failed for good."""
    message = _changed(item, last_failed_at=NOW.seconds)
    task = settle.ArchiveTask(claim(item.id), message, NOW.ceiling, b"")
    return settle.settle_archive("default", [task], max_size=9_999, cutoff=CUTOFF, now=NOW)


_OPTIONS: dict[str, dict[str, Any]] = {
    "scheduled": {"process_in": 60},
    "aggregating": {"group": "g"},
    "being aggregated": {"group": "g"},
    "completed": {"retention": RETENTION},
}
_ENDINGS: dict[str, Callable[[Composed], Plan[Settled]]] = {
    "retry": retry,
    "archived": archive,
    "completed": complete,
    "done or deleted": done,
}


def take(perform: Perform) -> None:
    """Take the next task, as the attempt whose claims the settles here show."""
    perform(dequeue("default", limit=1, token=TOKEN, now=NOW))


def bring_into(perform: Perform, state: str, task_id: str = "a", **options: Any) -> Composed:
    """Enqueue a unique task and let it come into a state, called as in docs/unique.md."""
    item = unique(task_id, **(_OPTIONS.get(state, {}) | options))
    [result] = enqueue(perform, item)
    assert result, result
    if state == "being aggregated":
        check(perform, g=GroupLimits(grace=0, max_size=1))
    if state in {"active", *_ENDINGS}:
        take(perform)
    if state in _ENDINGS:
        perform(_ENDINGS[state](item))
    return item
