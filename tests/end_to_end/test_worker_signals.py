"""Effects of signals on a worker process and its tasks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fix_worker import Monitor, Worker, active, enqueue, pending, task_field
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.fix_proxy import Proxy
    from tests.invariants import RedisClient


CONTAINER = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")


def _may_unshare() -> bool:
    return (
        shutil.which("unshare") is not None
        and not subprocess.run([*CONTAINER, "true"], check=False).returncode
    )


def test_tstp_stops_taking_and_what_runs_goes_on(redis_url: str, redis_client: RedisClient) -> None:
    """The record says so; TERM then ends the worker, and it leaves nothing behind."""
    with Worker(redis_url) as worker:
        [first] = enqueue(redis_url, "wait")
        worker.wait_for(f"started {first}")
        worker.send(signal.SIGTSTP)
        worker.wait_for("worker takes no more tasks")
        [second] = enqueue(redis_url, "mark")
        worker.say("release")
        worker.wait_for(f"ended {first}")
        wait_until(lambda: not active(redis_client))
        assert [second] == pending(redis_client)
        assert 0 == worker.terminate()
    assert [] == worker.all("ran (.*)")
    assert not redis_client.keys("asynq:servers*")


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_term_and_int_wait_for_what_runs(
    redis_url: str, redis_client: RedisClient, number: signal.Signals
) -> None:
    """Coroutines and threads end by themselves within the time: exit code 0, no record is left."""
    with Worker(redis_url) as worker:
        enqueue(redis_url, "wait", "wait-in-thread")
        worker.wait_for("started", times=2)
        worker.send(number)
        worker.wait_for("worker (stopping|takes no more tasks)")
        worker.say("release")
        assert 0 == worker.end()
    assert 2 == len(worker.all("ended (.*)"))
    assert not redis_client.keys("asynq:{default}:t:*")
    assert not redis_client.keys("asynq:servers*")
    assert not redis_client.zcard("asynq:workers")


def test_an_unfinished_coroutine_is_cancelled_cleans_up_and_its_task_goes_back_to_the_front(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Exit code 3; tasks come back in their order, unchanged, no retry spent, and in one call."""
    ids = enqueue(redis_url, *["wait"] * 5)
    before = {task_id: task_field(redis_client, task_id, "msg") for task_id in ids}
    with Worker(redis_url, concurrency=4, shutdown_timeout=0.1) as worker:
        worker.wait_for("started", times=4)
        with Monitor(redis_client) as monitor:
            assert 3 == worker.terminate()
    assert "worker stopping: waiting up to 100 ms for 4 tasks" in worker.text
    assert "4 tasks that did not finish are back at the front of the queue" in worker.text
    assert ids[:4] == sorted(worker.all("cleaned (.*)"), key=ids.index)
    assert ids == pending(redis_client)
    assert before == {task_id: task_field(redis_client, task_id, "msg") for task_id in ids}
    assert 1 == len(monitor.scripts_with("RPUSH asynq:{default}:pending "))
    assert not redis_client.keys("asynq:servers*")


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["wait-in-thread", "swallow"])
def test_a_handler_that_runs_on_ends_with_the_process_before_its_second_run(
    redis_url: str, redis_client: RedisClient, kind: str
) -> None:
    """Exit code 3; the task is back in front and its first run has not ended."""
    [task_id] = enqueue(redis_url, kind)
    with Worker(redis_url, shutdown_timeout=0.1, cancel_timeout=0.1) as first:
        first.wait_for("started")
        assert 3 == first.terminate()
        assert [] == first.all("ended (.*)")
    assert [task_id] == pending(redis_client)
    assert task_field(redis_client, task_id, "x:crashes") is None
    with Worker(redis_url, max_tasks=1) as second:
        second.wait_for("started")
        second.say("release")
        assert 0 == second.end()
    assert not redis_client.keys("asynq:{default}:t:*")


def test_term_ends_a_worker_whose_event_loop_is_blocked(redis_url: str, redis_client: RedisClient) -> None:
    """The heartbeat's thread puts the work back and ends the process with 3."""
    soon = {"exit_margin": 0.5, "loop_blocked_after": 0.25}
    [task_id] = enqueue(redis_url, "block")
    with Worker(redis_url, engine=soon, shutdown_timeout=0.1, cancel_timeout=0.1) as worker:
        worker.wait_for("started")
        assert 3 == worker.terminate()
    assert [task_id] == pending(redis_client)
    assert task_field(redis_client, task_id, "x:crashes") is None


@pytest.mark.parametrize("kind", ["wait", "block"])
def test_a_second_int_aborts_at_once(redis_url: str, redis_client: RedisClient, kind: str) -> None:
    """Even while the event loop is blocked. Nothing is put back: tasks come when their leases have lapsed."""
    [task_id] = enqueue(redis_url, kind)
    with Worker(redis_url, shutdown_timeout=60) as worker:
        worker.wait_for("started")
        # Two that come before Python looks are one.
        while not worker.has_ended:
            worker.send(signal.SIGINT)
        assert 130 == worker.end()
    assert {task_id} == active(redis_client)
    assert redis_client.zscore("asynq:{default}:lease", task_id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGTSTP])
def test_a_signal_that_comes_during_the_start_is_obeyed(
    redis_url: str, redis_client: RedisClient, proxy: Proxy, number: signal.Signals
) -> None:
    """Here while the worker waits for Redis' first reply; no task is taken."""
    [task_id] = enqueue(redis_url, "mark")
    proxy.hold()
    with Worker(proxy.url) as worker:
        proxy.wait(lambda proxy: proxy.connections > 0)
        worker.send(number)
        worker.wait_for("worker (stopping|takes no more tasks)")
        proxy.release()
        if number is signal.SIGTSTP:
            worker.wait_until_active(redis_client)
            worker.send(signal.SIGTERM)
        assert 0 == worker.end()
        assert "Traceback" not in worker.text
    assert [task_id] == pending(redis_client)


def test_a_stray_asyncio_task_cannot_keep_the_process_from_ending(
    redis_url: str, redis_client: RedisClient
) -> None:
    """One that a handler left behind and that swallows its cancellation; the exit code says so."""
    enqueue(redis_url, "stray")
    with Worker(redis_url) as worker:
        worker.wait_for("started")
        wait_until(lambda: not redis_client.keys("asynq:{default}:t:*"))
        assert 3 == worker.terminate(within=10)
    assert "what is left on the event loop did not end in time" in worker.text


@pytest.mark.skipif(not _may_unshare(), reason="this host does not let us make a PID namespace")
def test_a_worker_is_content_to_be_process_1(redis_url: str, redis_client: RedisClient) -> None:
    """There the kernel ignores signals without a handler."""
    [task_id] = enqueue(redis_url, "wait")
    with Worker(redis_url, prefix=CONTAINER, shutdown_timeout=0.1) as worker:
        worker.wait_for("started")
        [inside] = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        os.kill(int(inside), signal.SIGTSTP)
        worker.wait_for("worker takes no more tasks")
        os.kill(int(inside), signal.SIGTERM)
        assert 3 == worker.end()
    assert [task_id] == pending(redis_client)
