"""Workers of both kinds on one queue: killed, recovered, and left alone."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pyasynq import Task, sync
from tests.fix_worker import QUICK, Worker, active, enqueue, task_field
from tests.interop.go_peer import GoPeer, task
from tests.interop.sequences import COUNT, NIGHTLY
from tests.invariants import violations
from tests.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.invariants import RedisClient

_LEASES = "asynq:{default}:lease"
_GO_SLACK = 30
"""How long after the end of a lease Asynq leaves a task alone."""

_ROUND = {"queues": ["default"], "retry_delay": 0}


def _server(concurrency: int, **script: object) -> dict[str, object]:
    """Return the configuration of a server of Asynq that waits for nothing."""
    return {
        "concurrency": concurrency,
        "task_check_interval": 0.01,
        "delayed_task_check_interval": 0.05,
        "retry_delay": 0,
        "shutdown_timeout": 1,
        "script": script,
    }


def _end_leases(client: RedisClient, ids: list[str], seconds_ago: int) -> None:
    """Have the leases of a dead worker be over for so long."""
    over = int(time.time()) - seconds_ago
    assert 0 == client.zadd(_LEASES, dict.fromkeys(ids, over), xx=True)
    assert [over] * len(ids) == [client.zscore(_LEASES, one) for one in ids]


def _held(peer: GoPeer, server: str) -> str:
    """Wait until a handler in Go waits, and return its task."""
    attempt = peer.next_attempt(server=server, timeout=PATIENCE)
    return str(attempt["id"])


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("kill_after", range(10, 120, 10) if COUNT >= NIGHTLY else [60])
def test_nothing_is_lost_when_workers_of_both_kinds_are_killed(
    go_peer: GoPeer, peer_program: Path, redis_url: str, redis_client: RedisClient, kill_after: int
) -> None:
    """Clients and servers of both kinds; each task is done once, and the crashes spend no retry.

    Asynq does not clear the count of crashes of the tasks that it ends.
    """
    with (
        closing(GoPeer(peer_program, redis_url)) as go_victim,
        Worker(redis_url, engine=QUICK, concurrency=3) as our_victim,
    ):
        ids = enqueue(redis_url, *["wait"] * 3, retention=3_600, max_retry=0)
        our_victim.wait_for("started", times=3)
        ids += enqueue(redis_url, *["wait"] * 3, retention=3_600, max_retry=0)
        go_victim.start_server(server="victim", config=_server(3))
        held_in_go = [_held(go_victim, "victim") for _ in range(3)]
        assert set(ids[3:]) == set(held_in_go)
        succeed = {"kind": "succeed"}
        with (
            Worker(redis_url, engine=QUICK, concurrency=3) as survivor,
            sync.Client(redis_url) as client,
        ):
            survivor.say("release")
            survivor.wait_until_active(redis_client)
            go_peer.start_server(server="survivor", config=_server(3, mark=succeed, wait=succeed))
            for number in range(120):
                ids.append(client.enqueue(Task("mark", retention=3_600)).id)
                ids.append(go_peer.enqueue(task=task("mark", retention=3_600))["id"])
                if number == kill_after:
                    go_victim.kill()
                    our_victim.kill()
            _end_leases(redis_client, held_in_go, _GO_SLACK + 1)
            wait_until(lambda: redis_client.zcard("asynq:{default}:completed") == len(ids))
            done_here = survivor.all("ran (.*)")
            go_peer.stop_server(server="survivor")
    assert {one.encode() for one in ids} == set(redis_client.zrange("asynq:{default}:completed", 0, -1))
    assert 0 < len(done_here) < 240
    assert not [
        one for one in violations(redis_client) if not one.endswith("is completed and has an x:crashes")
    ]
    assert (b"246", None) == tuple(redis_client.mget("asynq:{default}:processed", "asynq:{default}:failed"))


def test_h08_a_python_recoverer_leaves_the_task_of_a_go_worker_until_asynqs_own_cutoff(
    go_peer: GoPeer, peer_program: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """In the same round, the task of a Python worker whose lease ended at the same time is recovered."""
    with (
        Worker(redis_url, engine=QUICK) as finder,
        closing(GoPeer(peer_program, redis_url)) as go_victim,
    ):
        finder.stop_taking(redis_client)
        [in_go] = enqueue(redis_url, "wait")
        go_victim.start_server(server="s", config=_server(1))
        assert in_go == _held(go_victim, "s")
        with Worker(redis_url) as our_victim:
            [here] = enqueue(redis_url, "wait")
            our_victim.wait_for("started")
            our_victim.kill()
        go_victim.kill()
        _end_leases(redis_client, [here, in_go], _GO_SLACK - 2)
        finder.wait_for("pending again")
        assert ({in_go}, b"1") == (active(redis_client), task_field(redis_client, here, "x:crashes"))
        _end_leases(redis_client, [in_go], _GO_SLACK + 1)
        finder.wait_for("pending again", times=2)
    go_peer.start_server(server="s", config=_server(1))
    assert in_go == _held(go_peer, "s"), "it is put in front"
    go_peer.end_attempt(server="s", id=in_go, outcome={"kind": "succeed"})
    assert here == _held(go_peer, "s")
    go_peer.end_attempt(server="s", id=here, outcome={"kind": "succeed"})
    go_peer.stop_server(server="s")
    assert not redis_client.keys("asynq:{default}:t:*")


@pytest.mark.usefixtures("damage_allowed")
def test_a_go_recoverer_takes_the_task_of_a_killed_python_worker(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """By Asynq's rule: the crash spends a retry. Go runs it again, and a Python client gets its result.

    Asynq does not clear the token of the dead attempt, which it does not know.
    """
    with Worker(redis_url) as victim:
        [task_id] = enqueue(redis_url, "wait", max_retry=1, retention=60)
        victim.wait_for("started")
        victim.kill()
    go_peer.recover(**_ROUND)
    assert {task_id} == active(redis_client), "its lease is not over"
    _end_leases(redis_client, [task_id], _GO_SLACK + 1)
    # A recoverer of Asynq looks when its server starts, and every minute after that.
    go_peer.start_server(server="s", config=_server(1))
    attempt = go_peer.next_attempt(server="s", timeout=PATIENCE)
    assert (task_id, 1) == (attempt["id"], attempt["retried"])
    assert "asynq: task lease expired" == go_peer.task_info(queue="default", id=task_id)["last_error"]
    go_peer.end_attempt(server="s", id=task_id, outcome={"kind": "succeed", "result": b"from Go"})
    with sync.Client(redis_url) as client:
        assert b"from Go" == client.result("default", task_id, PATIENCE)
    go_peer.stop_server(server="s")
    assert [f"default: {task_id} is completed and has an x:attempt"] == violations(redis_client)


def test_h21_w22_a_message_that_stops_gos_recovery_is_archived_by_a_python_server(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """A worker in Go takes it, cannot decode it, and leaves it active; its recoverer then finds nothing."""
    prefix = "asynq:{default}"
    enqueue(redis_url, "wait")
    redis_client.hset(f"{prefix}:t:bad", mapping={"msg": b"\xff", "state": "pending", "pending_since": 1})
    redis_client.rpush(f"{prefix}:pending", "bad")
    go_peer.start_server(server="s", config=_server(1))
    good = _held(go_peer, "s")
    assert {good, "bad"} == active(redis_client)
    go_peer.end_attempt(server="s", id=good, outcome={"kind": "succeed"})
    go_peer.stop_server(server="s")
    _end_leases(redis_client, ["bad"], _GO_SLACK + 1)
    go_peer.recover(**_ROUND)
    assert {"bad"} == active(redis_client)
    with Worker(redis_url, engine=QUICK) as worker:
        wait_until(lambda: redis_client.zscore(f"{prefix}:archived", "bad"))
        assert 0 == worker.terminate()
    assert b"\xff" == task_field(redis_client, "bad", "msg")


def test_leases_of_living_workers_are_respected_by_both(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """Each kind renews its own, and neither recoverer takes what the other's worker runs."""
    with Worker(redis_url, engine=QUICK, concurrency=1) as worker:
        [here] = enqueue(redis_url, "wait", max_retry=0)
        worker.wait_for("started")
        go_peer.start_server(server="s", config=_server(1))
        [in_go] = enqueue(redis_url, "wait", max_retry=0)
        assert in_go == _held(go_peer, "s")
        # A worker in Go renews every five seconds; here its lease lasts six.
        _end_leases(redis_client, [in_go], -6)
        before = redis_client.zscore(_LEASES, here)
        wait_until(lambda: redis_client.zscore(_LEASES, in_go) > time.time() + 20)
        assert before < redis_client.zscore(_LEASES, here)
        go_peer.recover(**_ROUND)
        assert {here, in_go} == active(redis_client)
        worker.say("release")
        go_peer.end_attempt(server="s", id=in_go, outcome={"kind": "succeed"})
        wait_until(lambda: redis_client.get("asynq:{default}:processed") == b"2")
        go_peer.stop_server(server="s")
    assert not redis_client.exists("asynq:{default}:failed", "asynq:{default}:archived")


@pytest.mark.timeout(240)
@pytest.mark.skipif(COUNT < NIGHTLY, reason="only on nightly runs: it waits for a whole lease and its slack")
def test_a_go_task_is_recovered_after_its_lease_and_thirty_seconds(
    peer_program: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """The test waits in real time, with the default settings of the engine."""
    with (
        Worker(redis_url) as finder,
        closing(GoPeer(peer_program, redis_url)) as victim,
    ):
        finder.stop_taking(redis_client)
        [task_id] = enqueue(redis_url, "wait")
        victim.start_server(server="s", config=_server(1))
        assert task_id == _held(victim, "s")
        lease_end = redis_client.zscore(_LEASES, task_id)
        victim.kill()
        wait_until(lambda: active(redis_client) == set(), seconds=90)
        late = time.time() - lease_end
    assert _GO_SLACK <= late < _GO_SLACK + 10
