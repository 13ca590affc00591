"""The peer does what the tests of interoperability need of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq
from tests.interop.go_peer import GoError, GoPeer, bytes_of, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient


@pytest.fixture
def redis_client(go_peer: GoPeer, redis_url: str) -> Iterator[RedisClient]:
    """A look behind the peer."""
    import redis  # noqa: PLC0415 - as in the other tests, by a fixture

    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def worker(go_peer: GoPeer) -> str:
    """A worker that is led step by step."""
    go_peer.start_worker(server="w", queues=["default", "low"], retry_delay=25)
    return "w"


def enqueue(peer: GoPeer, task_id: str, **options: Any) -> Any:
    """Enqueue a task of a known id."""
    return peer.enqueue(task=task("t", b"payload", task_id=task_id, **options))


def state(peer: GoPeer, task_id: str) -> str:
    """Return where a task is."""
    return str(peer.task_info(queue="default", id=task_id)["state"])


def test_the_peer_is_asynq_0_26(go_peer: GoPeer) -> None:
    """The version in its own build information."""
    assert "v0.26.0" == go_peer.versions()["github.com/hibiken/asynq"]


def test_a_task_of_the_peer_is_read_by_the_inspector(go_peer: GoPeer, redis_url: str) -> None:
    """One queue for both."""
    info = go_peer.enqueue(task=task("größe", b"\x00\xff", queue="low", task_id="a", headers={"k": "v"}))
    assert ("pending", b"\x00\xff") == (info["state"], bytes_of(info["payload"]))
    with pyasynq.sync.Inspector(redis_url) as inspector:
        ours = inspector.task_info("low", "a")
    assert ("größe", b"\x00\xff", {"k": "v"}) == (ours.type, ours.payload, ours.headers)


def test_errors_of_asynq_have_kinds(go_peer: GoPeer) -> None:
    """Callers can tell errors apart by kind, without comparing messages."""
    enqueue(go_peer, "a")
    with pytest.raises(GoError) as refused:
        enqueue(go_peer, "a")
    assert "conflict" == refused.value.kind
    with pytest.raises(GoError) as refused:
        go_peer.task_info(queue="default", id="b")
    assert "task not found" == refused.value.kind


@pytest.mark.parametrize(
    ("kind", "ends_as"),
    [
        ("fail", "retry"),
        ("skip", "archived"),
        ("panic", "retry"),
        ("succeed", "completed"),
        ("vanish", "active"),
    ],
)
def test_a_worker_takes_and_ends_when_told(go_peer: GoPeer, worker: str, kind: str, ends_as: str) -> None:
    """A real server of Asynq; only its turns are given to it."""
    enqueue(go_peer, "a", retention=60)
    enqueue(go_peer, "b")
    assert "a" == go_peer.take(server=worker)["attempt"]["id"]
    assert ("active", "pending") == (state(go_peer, "a"), state(go_peer, "b"))
    go_peer.finish(server=worker, id="a", outcome={"kind": kind, "text": "why"})
    assert (ends_as, "pending") == (state(go_peer, "a"), state(go_peer, "b"))
    assert "b" == go_peer.take(server=worker)["attempt"]["id"]
    go_peer.finish(server=worker, id="b", outcome={"kind": "revoke"})
    assert go_peer.take(server=worker) is None


def test_a_task_whose_deadline_is_over_fails_untouched(go_peer: GoPeer, worker: str) -> None:
    """Asynq does not call the handler."""
    enqueue(go_peer, "a", deadline=1_000)
    assert {"attempt": None} == go_peer.take(server=worker)
    assert "retry" == state(go_peer, "a")


def test_a_worker_that_is_stopped_puts_its_task_back(go_peer: GoPeer, worker: str) -> None:
    """Requeue, by a real shutdown."""
    enqueue(go_peer, "a")
    go_peer.take(server=worker)
    go_peer.stop_server(server=worker)
    assert "pending" == state(go_peer, "a")


def test_rounds_of_the_background_parts(go_peer: GoPeer, worker: str, redis_client: RedisClient) -> None:
    """Forwarder, janitor and recoverer, each once."""
    rounds = {"queues": ["default", "low"], "retry_delay": 25}
    prefix = "asynq:{default}"
    for task_id in "abc":
        enqueue(go_peer, task_id, retention=60)
        go_peer.take(server=worker)
        outcome = {"a": "fail", "b": "succeed", "c": "vanish"}[task_id]
        go_peer.finish(server=worker, id=task_id, outcome={"kind": outcome})
    for name in ("retry", "completed", "lease"):
        for member in redis_client.zrange(f"{prefix}:{name}", 0, -1):
            redis_client.zadd(f"{prefix}:{name}", {member: time.time() - 100})
    go_peer.forward(**rounds)
    assert ("pending", "completed", "active") == tuple(state(go_peer, one) for one in "abc")
    go_peer.delete_expired(**rounds)
    assert 0 == redis_client.exists(f"{prefix}:t:b")
    go_peer.recover(**rounds)
    assert ("pending", "retry") == tuple(state(go_peer, one) for one in "ac")


def test_aggregators_look_when_told(go_peer: GoPeer, redis_client: RedisClient) -> None:
    """The first look comes after seven seconds, as Asynq has it."""
    go_peer.start_aggregators(queue="default", count=4, grace_period=25, max_delay=75, max_size=2)
    for task_id in "abc":
        enqueue(go_peer, task_id, group="g")
    go_peer.aggregate()
    pending = redis_client.lrange("asynq:{default}:pending", 0, -1)
    [info] = go_peer.list_tasks(queue="default", state="pending")
    assert [info["id"].encode()] == pending
    assert ("aggregate:g", b"t=payload\nt=payload") == (info["type"], bytes_of(info["payload"]))
    enqueue(go_peer, "d", group="g")
    go_peer.aggregate(refuse=True)
    assert 1 == redis_client.zcard("asynq:{default}:aggregation_sets")
    go_peer.aggregate()
    assert {} == go_peer.groups(queue="default")


def test_a_server_of_its_own_runs_freely(go_peer: GoPeer) -> None:
    """Handlers are scripted by type, or wait to be told."""
    go_peer.start_server(
        server="s",
        config={
            "concurrency": 4,
            "task_check_interval": 0.01,
            "shutdown_timeout": 1,
            "script": {"quick": {"kind": "succeed"}},
        },
    )
    go_peer.enqueue(task=task("quick", task_id="q"))
    enqueue(go_peer, "a")
    assert "a" == go_peer.next_attempt(server="s", timeout=10)["id"]
    [server] = go_peer.servers()
    assert ("active", {"default": 1}) == (server["status"], server["queues"])
    assert go_peer.acquire(server="s", id="a", scope="one", tokens=1)
    go_peer.release(server="s", id="a", scope="one", tokens=1)
    go_peer.cancel(queue="default", id="a")
    assert go_peer.has_ended(server="s", id="a", timeout=10)
    go_peer.stop_server(server="s")
    with pytest.raises(GoError):
        go_peer.task_info(queue="default", id="q")


def test_a_scheduler_fires(go_peer: GoPeer, redis_client: RedisClient) -> None:
    """The entries of the scheduler are listed too."""
    go_peer.new_scheduler(scheduler="s", heartbeat_interval=0.2)
    entry = go_peer.register_entry(
        scheduler="s", spec="@every 1s", task=task("tick"), options={"queue": "low"}
    )
    go_peer.start_scheduler(scheduler="s")
    while not go_peer.scheduler_events(entry_id=entry):
        pass
    listed: list[Any] = []
    while not listed:
        listed = go_peer.scheduler_entries()
    assert [(entry, "@every 1s", ['Queue("low")'])] == [(e["id"], e["spec"], e["options"]) for e in listed]
    go_peer.stop_scheduler(scheduler="s")
    assert [] == go_peer.scheduler_entries()
