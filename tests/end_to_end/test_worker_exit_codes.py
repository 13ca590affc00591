"""How a worker process ends when it cannot start, and when handlers cannot be stopped."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.fix_worker import QUICK, RedisProcess, Worker, active, enqueue, pending
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient

OLD_INFO = b"redis_version:6.0.16\r\nuptime_in_seconds:100\r\nmaxmemory_policy:noeviction\r\n"


def start_error(url: str) -> str:
    """Return the one line that a worker writes that cannot start."""
    with Worker(url) as worker:
        assert 1 == worker.end()
    lines = [line for line in worker.lines if not line.startswith("INFO")]
    assert "Traceback" not in worker.text
    [line] = lines
    return line


@contextmanager
def old_server() -> Iterator[str]:
    """Answer like Redis 6.0, as far as a worker asks before it refuses."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while received := connection.recv(65_536):
                words = received.split(b"\r\n")
                for word in words:
                    if word.upper() == b"INFO":
                        connection.sendall(b"$%d\r\n%s\r\n" % (len(OLD_INFO), OLD_INFO))
                    elif word.upper() == b"TIME":
                        connection.sendall(b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n")
                    elif word.upper() in {b"CLIENT", b"SELECT"}:
                        connection.sendall(b"+OK\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_wrong_password_is_told_in_one_line(own_redis: RedisProcess) -> None:
    """Exit code 1; neither password is shown."""
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("requirepass", "right")
    line = start_error(own_redis.url.replace("unix://", "unix://:wrong@"))
    with redis.Redis.from_url(own_redis.url, password="right") as client:
        client.config_set("requirepass", "")
    assert "WRONGPASS" in line or "password" in line
    assert "right" not in line
    assert ":wrong" not in line


def test_a_server_that_is_too_old_is_told_in_one_line() -> None:
    """Exit code 1; the line names the version that is needed."""
    with old_server() as url:
        line = start_error(url)
    assert "6.0.16" in line
    assert "6.2" in line


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["swallow", "wait-in-thread", "block"])
def test_h26_a_handler_that_cannot_be_stopped_ends_its_worker_with_code_4(
    redis_url: str, redis_client: RedisClient, kind: str
) -> None:
    """Other running tasks are put back; the stuck task keeps its lease, whose end will count as a crash."""
    with Worker(
        redis_url, engine=QUICK, overdue_limit=0.5, shutdown_timeout=0.1, cancel_timeout=0.1
    ) as worker:
        [innocent] = enqueue(redis_url, "wait")
        worker.wait_for(f"started {innocent}")
        [stuck] = enqueue(redis_url, kind, timeout=1)
        worker.wait_for(f"started {stuck}")
        assert 4 == worker.end()
    assert [] == worker.all("ended (.*)")
    assert not redis_client.keys("asynq:servers*")
    assert [innocent] == pending(redis_client)
    assert {stuck} == active(redis_client)
    assert redis_client.zscore("asynq:{default}:lease", stuck)


def test_h26_overdue_handlers_in_all_slots_end_their_worker_with_code_4(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Long before the limit, since the worker can do nothing else; both keep their leases."""
    config: dict[str, Any] = {"concurrency": 2, "shutdown_timeout": 0.1, "cancel_timeout": 0.1}
    ids = enqueue(redis_url, "swallow", "wait-in-thread", timeout=1)
    with Worker(redis_url, engine={"stuck_grace": 0.25}, **config) as worker:
        assert 4 == worker.end()
    assert set(ids) == active(redis_client)


def test_h26_a_blocked_event_loop_is_reported_with_its_stack_and_loses_no_lease(
    redis_url: str, redis_client: RedisClient
) -> None:
    """It blocks for longer than a lease, and its task is settled by its own attempt, once."""
    with ExitStack() as stack:
        other = stack.enter_context(Worker(redis_url, engine=QUICK))
        other.stop_taking(redis_client)
        worker = stack.enter_context(Worker(redis_url, engine=QUICK))
        [task_id] = enqueue(redis_url, "block")
        worker.wait_for(f"started {task_id}")
        worker.wait_for("the event loop has not run for")
        first = redis_client.zscore("asynq:{default}:lease", task_id)
        assert first is not None
        wait_until(lambda: (redis_client.zscore("asynq:{default}:lease", task_id) or 0) >= first + 2)
        worker.say("release")
        wait_until(lambda: not redis_client.keys("asynq:{default}:t:*"))
        assert 0 == worker.terminate()
        assert "in block" in worker.text
        assert "is lost" not in worker.text
    assert "pending again" not in worker.text + other.text
