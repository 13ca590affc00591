"""What Asynq itself does where `intended.py` names no weak point of it, but a section of the wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from tests.interop.go_peer import GoError, GoPeer, bytes_of, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient


@pytest.fixture
def client(go_peer: GoPeer, redis_url: str) -> Iterator[RedisClient]:
    """A look behind the peer."""
    import redis  # noqa: PLC0415 - as in the other tests, by a fixture

    with redis.Redis.from_url(redis_url) as client:
        yield client


def enqueue(peer: GoPeer, task_id: str, **options: Any) -> None:
    """Enqueue a task of a known id."""
    peer.enqueue(task=task("t", b"payload", task_id=task_id, **options))


def test_asynq_says_of_an_unknown_queue_that_it_has_no_groups(go_peer: GoPeer) -> None:
    """This is the only question about a queue that does not check whether the queue exists."""
    assert not go_peer.groups(queue="unknown")
    for question, more in (
        (go_peer.queue_info, {}),
        (go_peer.task_info, {"id": "a"}),
        (go_peer.history, {"days": 2}),
        (go_peer.list_tasks, {"state": "pending", "group": "", "page": 1, "page_size": 30}),
    ):
        with pytest.raises(GoError) as refused:
            question(queue="unknown", **more)
        assert "queue not found" == refused.value.kind


def test_asynq_says_only_in_lists_that_a_task_is_orphaned(go_peer: GoPeer, client: RedisClient) -> None:
    """One task asked for by its id is never said to be; pyasynq looks at its lease."""
    go_peer.start_worker(server="w", queues=["default"], retry_delay=25)
    enqueue(go_peer, "a")
    assert go_peer.take(server="w")["attempt"]
    client.zadd("asynq:{default}:lease", {"a": 1_700_000_000})
    [listed] = go_peer.list_tasks(queue="default", state="active", group="", page=1, page_size=30)
    assert (True, False) == (listed["is_orphaned"], go_peer.task_info(queue="default", id="a")["is_orphaned"])


def test_asynq_replaces_the_payload_of_scheduled_tasks_only(go_peer: GoPeer, redis_url: str) -> None:
    """Pyasynq also that of tasks in retry or in the archive; neither that of pending ones."""
    enqueue(go_peer, "scheduled", process_in=3_600)
    enqueue(go_peer, "archived")
    enqueue(go_peer, "pending")
    go_peer.archive_task(queue="default", id="archived")
    go_peer.update_payload(queue="default", id="scheduled", payload=b"new")
    assert b"new" == bytes_of(go_peer.task_info(queue="default", id="scheduled")["payload"])
    for task_id in ("archived", "pending"):
        with pytest.raises(GoError, match="not in scheduled state"):
            go_peer.update_payload(queue="default", id=task_id, payload=b"new")
    with sync.Inspector(redis_url) as inspector:
        inspector.update_payload("default", "archived", b"new")
        assert b"new" == inspector.task_info("default", "archived").payload


def test_asynq_looks_at_groups_in_the_order_of_a_set(go_peer: GoPeer, client: RedisClient) -> None:
    """Redis returns the members of a set in any order, so the order of the aggregates is not guaranteed."""
    for name in ("b", "a"):
        enqueue(go_peer, name, group=name)
    assert b"set" == client.type("asynq:{default}:groups")
    assert {"a", "b"} == set(go_peer.groups(queue="default"))
