"""Newest events of several queues: merged, filtered and paged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pyasynq.sync
from pyasynq._broker.inspecting.cursors import encode_cursor, list_tag
from pyasynq.errors import InvalidOptionError
from tests.contract.test_task_events import event_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.info import EventPage
    from tests.invariants import RedisClient


@pytest.fixture
def inspector(redis_url: str) -> Iterator[pyasynq.sync.Inspector]:
    """An inspector."""
    with pyasynq.sync.Inspector(redis_url) as inspector:
        yield inspector


def stream(queue: str) -> str:
    """Return the key of the events of a queue."""
    return f"asynq:{{{queue}}}:x:events"


def add(client: RedisClient, queue: str, position: str, kind: str = "started", type: str = "t") -> None:  # noqa: A002 - the term of tasks
    """Add an event to the stream of a queue; the id of its task is its place."""
    data = event_bytes(kind, task_id=f"{queue}@{position}", type=type)
    client.xadd(stream(queue), {"event": data}, id=position)
    client.expire(stream(queue), 86_400)


def ids(page: EventPage) -> list[str]:
    """Return the ids of the tasks of a page's events."""
    return [event.task_id for event in page.events]


def test_the_events_of_all_queues_are_merged(
    inspector: pyasynq.sync.Inspector, redis_client: RedisClient
) -> None:
    """Newest first; of two events with the same position, by queue."""
    redis_client.sadd("asynq:queues", "a", "b")
    for queue, position in (("a", "5-0"), ("a", "7-0"), ("b", "5-0"), ("b", "6-0"), ("c", "9-0")):
        add(redis_client, queue, position)
    page = inspector.recent_events()
    assert ["a@7-0", "b@6-0", "b@5-0", "a@5-0"] == ids(page)
    assert ("", 4) == (page.cursor, page.looked_at)
    assert ["c@9-0"] == ids(inspector.recent_events("c", "none"))
    assert ("a", "7-0", "started") == (page.events[0].queue, page.events[0].position, page.events[0].kind)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_pages_have_each_event_once(
    inspector: pyasynq.sync.Inspector, redis_client: RedisClient, limit: int
) -> None:
    """Also where events of several queues have the same position."""
    for number in range(8):
        for queue in "abc":
            add(redis_client, queue, f"{number // 3 + 1}-{number % 3}")
    for number in range(9):
        add(redis_client, "a", f"100-{number}")
    expected = ids(inspector.recent_events(*"abc", limit=500))
    assert 33 == len(expected)
    found, cursor, looked_at = [], "", 0
    while True:
        page = inspector.recent_events(*"abc", limit=limit, cursor=cursor)
        assert len(page.events) == limit or not page.cursor
        found += ids(page)
        looked_at += page.looked_at
        cursor = page.cursor
        if not cursor:
            break
    assert expected == found
    assert 33 == looked_at


def test_a_filter_examines_many_events(inspector: pyasynq.sync.Inspector, redis_client: RedisClient) -> None:
    """A page without a match tells where to continue. Dropped events pass every filter."""
    add(redis_client, "a", "1-0", "archived", "u")
    add(redis_client, "a", "1-1", "dropped", "")
    for number in range(600):
        add(redis_client, "a", f"2-{number}")
    first = inspector.recent_events("a", kinds=["archived"])
    assert ([], 500) == (ids(first), first.looked_at)
    second = inspector.recent_events("a", kinds=["archived"], cursor=first.cursor)
    assert (["a@1-1", "a@1-0"], 102, "") == (ids(second), second.looked_at, second.cursor)
    assert ["a@1-1"] == ids(inspector.recent_events("a", types=["v"], cursor=first.cursor))
    found = inspector.recent_events("a", types=["t"], limit=2)
    assert (["a@2-599", "a@2-598"], 2) == (ids(found), found.looked_at)
    assert ["a@2-597"] == ids(inspector.recent_events("a", types=["t"], limit=1, cursor=found.cursor))


@pytest.mark.usefixtures("damage_allowed")
def test_entries_of_others_are_left_out(inspector: pyasynq.sync.Inspector, redis_client: RedisClient) -> None:
    """They count as examined; a page without events tells where to continue."""
    add(redis_client, "a", "1-0")
    for number in range(4):
        redis_client.xadd(stream("a"), {"other": "x"}, id=f"2-{number}")
    first = inspector.recent_events("a", limit=1)
    assert ([], 2) == (ids(first), first.looked_at)
    second = inspector.recent_events("a", limit=1, cursor=first.cursor)
    assert ([], 2) == (ids(second), second.looked_at)
    third = inspector.recent_events("a", limit=1, cursor=second.cursor)
    assert (["a@1-0"], 1, "") == (ids(third), third.looked_at, third.cursor)


def test_nothing_precedes_the_first_position(
    inspector: pyasynq.sync.Inspector, redis_client: RedisClient
) -> None:
    """No stream has an event 0-0, and Redis refuses a negative one."""
    add(redis_client, "b", "0-1")
    for queue in "ab":
        add(redis_client, queue, "1-0")
    tag = list_tag("events")
    assert ["b@0-1"] == ids(inspector.recent_events("a", "b", cursor=encode_cursor(tag, ("1-0", "a"))))
    assert [] == ids(inspector.recent_events("b", cursor=encode_cursor(tag, ("0-0", "a"))))


def test_wrong_arguments_are_errors(inspector: pyasynq.sync.Inspector) -> None:
    """Each names the argument."""
    with pytest.raises(InvalidOptionError, match=r"^kinds=<str>.*did you mean 'succeeded'"):
        inspector.recent_events(kinds=["suceeded"])
    with pytest.raises(InvalidOptionError, match=r"^types=<str>"):
        inspector.recent_events(types="t")
    with pytest.raises(InvalidOptionError, match=r"^queue="):
        inspector.recent_events(" ")
    with pytest.raises(InvalidOptionError, match=r"^limit=0"):
        inspector.recent_events(limit=0)
    with pytest.raises(InvalidOptionError, match=r"^limit=501: must be at most 500"):
        inspector.recent_events(limit=501)
    for cursor in ("x", encode_cursor(list_tag("events"), ("later", "a")), encode_cursor("", ("1-0", "a"))):
        with pytest.raises(InvalidOptionError, match=r"^cursor=<str>"):
            inspector.recent_events(cursor=cursor)
