"""Outbox of a queue: ended tasks whose completion callbacks are still to be enqueued.

The script that ends a task writes the entry, so an end and its entry are in Redis together (transactional
outbox). The callback may belong into another slot of a cluster. So it is enqueued in a second step, and the
entry is removed in a third: at least once, however often a process dies in between.
https://microservices.io/patterns/data/transactional-outbox.html
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.endings import decode_ending, read_ended_at
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq.task import make_unchecked_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq._clock import Instant
    from pyasynq._wire.endings import TaskEnding
    from pyasynq.task import Task

ONCE_SECONDS: Final = 3_600
"""Seconds within which a callback is enqueued only once, even if its entry is delivered twice."""
_NAMESPACE: Final = uuid.UUID("6b6b4a4e-5d2c-5b0e-9f0a-3c3f0f8f3c55")
"""Namespace of the ids of callbacks (version 5 of RFC 9562); any constant would do."""


class StoredEnding(NamedTuple):
    """One outbox entry about the end of a task, with its address in the outbox."""

    address: bytes
    entry: bytes


def read_endings(reply: Iterable[Sequence[bytes]]) -> tuple[StoredEnding, ...]:
    """Decode a script's list of address and entry of each ended task that has a callback."""
    return tuple(StoredEnding(address, entry) for address, entry in reply)


def deliver_endings(queue: str, endings: Sequence[StoredEnding], *, now: Instant | None = None) -> Plan[int]:
    """Enqueue the callbacks of these entries of the queue's outbox, then remove them; return how many.

    Repeats are harmless: a callback's id is made from queue and address, and is enqueued once within an hour.
    Entries that cannot be decoded stay, for the doctor.
    """
    told: list[StoredEnding] = []
    tasks: list[Task] = []
    for stored in endings:
        try:
            tasks.append(_make_callback_task(queue, stored.address, decode_ending(stored.entry)))
        except ValueError:
            continue
        told.append(stored)
    key = queue_keys(queue).outbox
    for run in split_runs([compose(task, {}, now=now or SYSTEM_CLOCK.now()) for task in tasks]):
        yield from enqueue_run(run, now=now)
        yield CommandCall(("SADD", ALL_QUEUES, run.queue), ALL_QUEUES, Replay.SAFE)
        addresses = [told[position].address for position in run.positions]
        yield CommandCall(("HDEL", key, *addresses), key, Replay.SAFE)
    return len(tasks)


def list_endings(queue: str, *, seconds: float, most: int = MAX_TASKS) -> Plan[list[StoredEnding]]:
    """Return about `most` outbox entries that are at least this many seconds old, by Redis' clock.

    If there are fewer than `most`, return all of them. Entries whose time cannot be read count as old.
    """
    key = queue_keys(queue).outbox
    now_seconds, microseconds = yield CommandCall(("TIME",), key, Replay.SAFE)
    latest = int(now_seconds) + int(microseconds) / 1e6 - seconds
    found: list[StoredEnding] = []
    cursor: bytes | int = b"0"
    while len(found) < most:
        command = ("HSCAN", key, cursor, "COUNT", MAX_TASKS)
        cursor, values = yield CommandCall(command, key, Replay.SAFE)
        stored = read_endings(zip(values[::2], values[1::2], strict=True))
        found += [one for one in stored if _get_time(one) <= latest]
        if int(cursor) == 0:
            break
    return found


def make_callback_id(queue: str, address: bytes) -> str:
    """Return the id of the callback task for an outbox entry: a UUID derived from queue and address."""
    return str(uuid.uuid5(_NAMESPACE, f"{queue}\0{address.decode('ascii', 'replace')}"))


def _make_callback_task(queue: str, address: bytes, ending: TaskEnding) -> Task:
    callback = ending.callback
    payload = json.dumps(ending.arguments, ensure_ascii=False, separators=(",", ":"))
    return make_unchecked_task(
        callback.type,
        payload.encode("utf-8", "replace"),
        {
            "queue": callback.queue,
            "max_retry": callback.max_retry,
            "timeout": callback.timeout,
            "retention": callback.retention,
            "task_id": make_callback_id(queue, address),
            "once_for": ONCE_SECONDS,
        },
    )


def _get_time(stored: StoredEnding) -> float:
    try:
        return read_ended_at(stored.entry)
    except ValueError:
        return 0.0
