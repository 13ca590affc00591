"""What a supervisor does for a child that it has reaped, on a real Redis."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyasynq._engine.supervisor.child_facts import ChildFacts
from pyasynq._engine.supervisor.known_death import recover_known_death
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.options import DEFAULT_QUEUE
from tests.factories import Tasks
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.invariants import RedisClient

PID = 42
HOST = "host"


def facts_of(url: str, **crash_limits: int) -> ChildFacts:
    """Return that of the server `dead`."""
    return ChildFacts.of("dead", HOST, url, ServerConfig(queues={DEFAULT_QUEUE: 1, "other": 1}), crash_limits)


@run_async
async def test_h06_h08_only_its_own_tasks_are_pending_again_in_all_its_queues(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Although their leases last; with the crash counted. Its record is gone."""
    now = redis_client.time()[0]
    other = Tasks(redis_client, "other")
    tasks.active("a", "b", token="dead/1", lease=now + 30)
    tasks.active("alive", token="alive/1", lease=now + 30)
    tasks.active("go", token="", lease=now + 30)
    other.active("c", token="dead/2", lease=now + 20, crashes=1)
    record = f"asynq:servers:{{{HOST}:{PID}:dead}}"
    redis_client.set(record, "x", ex=60)
    redis_client.zadd("asynq:servers", {record: now + 60})
    assert 3 == await recover_known_death(facts_of(redis_url), PID, time.monotonic())
    assert {"a", "b"} == set(tasks.ids("pending"))
    assert {"alive", "go"} == set(tasks.ids("active")) == set(tasks.scores("lease"))
    assert ["c"] == other.ids("pending")
    assert (b"1", b"2") == (tasks.fields("a")["x:crashes"], other.fields("c")["x:crashes"])
    assert not redis_client.exists("asynq:servers", record)


@run_async
async def test_h08_a_task_that_a_peer_took_over_stays_with_it(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """A Go worker leaves our token where it is; its lease ends later than any that the dead one asked for."""
    now = redis_client.time()[0]
    died_at = time.monotonic() - 20
    tasks.active("go", token="dead/1", lease=now + 29)
    tasks.active("own", token="dead/2", lease=now + 9)
    assert 1 == await recover_known_death(facts_of(redis_url), PID, died_at)
    assert ["go"] == tasks.ids("active")
    assert ["own"] == tasks.ids("pending")


@run_async
async def test_a_task_that_its_process_ran_alone_is_to_blame(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The supervisor saw the process die, and it had no other task in any queue. (D03)"""
    now = redis_client.time()[0]
    tasks.active("third", token="dead/1", lease=now + 30, crashes=2)
    tasks.active("alive", token="alive/1", lease=now + 30, crashes=2)
    assert 1 == await recover_known_death(facts_of(redis_url), PID, time.monotonic())
    assert {"third"} == set(tasks.scores("archived"))


@run_async
async def test_a_task_of_another_queue_is_company(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Either of the two may have killed their process. (D03)"""
    now = redis_client.time()[0]
    other = Tasks(redis_client, "other")
    tasks.active("a", token="dead/1", lease=now + 30, crashes=2)
    other.active("b", token="dead/2", lease=now + 30, crashes=2)
    assert 2 == await recover_known_death(facts_of(redis_url), PID, time.monotonic())
    assert (["a"], ["b"]) == (tasks.ids("pending"), other.ids("pending"))


@run_async
async def test_h06_poison_is_archived_at_the_limit_of_its_type(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The crash limit is the server's, unless the type has one."""
    now = redis_client.time()[0]
    tasks.active("second", token="dead/1", lease=now + 30, crashes=1)
    tasks.active("third", token="dead/1!", lease=now + 30, crashes=2)
    tasks.active("first", token="dead/1", lease=now + 30, type="bad")
    assert 3 == await recover_known_death(facts_of(redis_url, bad=1), PID, time.monotonic())
    assert ["second"] == tasks.ids("pending")
    assert {"first", "third"} == set(tasks.scores("archived"))
    message = decode_task_message(tasks.fields("first")["msg"])
    assert "poison: its worker crashed once while running it, last on server dead" == message.error_msg
