"""Reading what schedulers write about themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.inspecting.schedulers import scheduler_entries, scheduler_events
from pyasynq._wire.keys import SCHEDULERS_KEY, scheduler_history_key, scheduler_key
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry
from pyasynq.errors import InvalidOptionError
from pyasynq.info import SchedulerEvent
from tests.factories import NOW

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(entry_id: str = "e", *options: str, task_type: str = "t", payload: bytes = b"p") -> bytes:
    """Return the bytes of an entry."""
    return SchedulerEntry(
        id=entry_id,
        spec="@every 1h",
        task_type=task_type,
        task_payload=payload,
        enqueue_options=options,
        next_enqueue_time=THEN,
        prev_enqueue_time=None,
    ).encode()


def announce(client: RedisClient, scheduler_id: str, *entries: bytes, lapses: int = NOW.seconds) -> None:
    """Write the entries of a scheduler as Asynq does."""
    client.zadd(SCHEDULERS_KEY, {scheduler_key(scheduler_id): lapses})
    if entries:
        client.lpush(scheduler_key(scheduler_id), *entries)


def test_entries_come_in_the_order_of_registration(perform: Perform, redis_client: RedisClient) -> None:
    """Entries of all schedulers whose record has not lapsed; without entries it is an idle scheduler's."""
    announce(redis_client, "s1", entry("a"), entry("b"))
    announce(redis_client, "s2", entry("c"))
    announce(redis_client, "idle")
    announce(redis_client, "dead", entry("d"), lapses=NOW.seconds - 1)
    assert ["a", "b", "c"] == [found.id for found in perform(scheduler_entries(NOW))]


def test_an_entry_is_described(perform: Perform, redis_client: RedisClient) -> None:
    """Its options are read back; one that cannot be read is shown as text only."""
    texts = (
        'Queue("low")',
        "MaxRetry(3)",
        'TaskID("x")',
        "Timeout(1m0s)",
        "Unique(1h0m0s)",
        "Retention(24h0m0s)",
        'Header(["k","v"])',
        'Header(["l","w"])',
        "Nonsense(1)",
    )
    announce(redis_client, "s", entry("a", *texts))
    [found] = perform(scheduler_entries(NOW))
    assert ("a", "@every 1h", texts) == (found.id, found.spec, found.options)
    assert (THEN, None) == (found.next_enqueue_at, found.previous_enqueue_at)
    assert ("t", b"p") == (found.task.type, found.task.payload)
    assert {
        "queue": "low",
        "max_retry": 3,
        "task_id": "x",
        "timeout": timedelta(minutes=1),
        "unique": timedelta(hours=1),
        "retention": timedelta(days=1),
        "headers": {"k": "v", "l": "w"},
    } == found.task.options


def test_an_entry_without_payload_has_none(perform: Perform, redis_client: RedisClient) -> None:
    """On the wire, nil and empty are alike; the scheduler made it of nil far more likely."""
    announce(redis_client, "s", entry(payload=b""))
    [found] = perform(scheduler_entries(NOW))
    assert (None, {}) == (found.task.payload, found.task.options)


def test_records_that_cannot_be_read_are_left_out(perform: Perform, redis_client: RedisClient) -> None:
    """One bad entry hides no others."""
    announce(redis_client, "s", b"\xff", entry(task_type=" "), entry("good"))
    assert ["good"] == [found.id for found in perform(scheduler_entries(NOW))]


def event(task_id: str) -> bytes:
    """Return the bytes of an event."""
    return SchedulerEnqueueEvent(task_id=task_id, enqueue_time=THEN).encode()


def test_the_newest_events_come_first(perform: Perform, redis_client: RedisClient) -> None:
    """Page by page; what cannot be read is left out, an unknown entry has none."""
    redis_client.zadd(scheduler_history_key("e"), {event(f"t{number}"): number for number in range(5)})
    redis_client.zadd(scheduler_history_key("e"), {b"\xff": 9})
    pages = [perform(scheduler_events("e", page=page, page_size=2)) for page in (1, 2, 3, 4)]
    assert [["t4"], ["t3", "t2"], ["t1", "t0"], []] == [[one.task_id for one in page] for page in pages]
    assert SchedulerEvent("t4", THEN) == pages[0][0]
    assert [] == perform(scheduler_events("nope", page=1, page_size=30))


def test_pages_of_events_begin_with_one(perform: Perform) -> None:
    """Pages of events count from 1, as pages of tasks do."""
    with pytest.raises(InvalidOptionError, match=r"^page="):
        perform(scheduler_events("e", page=0, page_size=1))
