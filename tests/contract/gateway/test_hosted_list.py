"""Tasks of the kind `list` end to end: an instance of the service, and workers that only speak Redis."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from pyasynq.task import TaskInfo, TaskState
from tests.fix_list_worker import ListWorker
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq.gateway.hosted.lists.list_bridge import ListBridge
    from pyasynq.gateway.hosted.lists.list_types import ListTypes
    from tests.fix_service import Visitor
    from tests.invariants import RedisClient

PAGE = Path(__file__).parents[3] / "docs" / "lists.md"


@pytest.fixture
def worker(redis_client: RedisClient) -> ListWorker:
    """A worker, which does not live yet."""
    return ListWorker(redis_client)


@asynccontextmanager
async def listing(url: str, **fields: Any) -> AsyncIterator[Visitor]:
    """Run an instance with one type of the kind `list`."""
    kind = {"kind": "list", "shards": 2, "retention": "1h", "max_retry": 5, "retry": ["1h"], **fields}
    async with serving(url, {"resize": kind}) as visitor:
        await visitor.service.start()
        yield visitor


async def enqueue(visitor: Visitor, task_id: str = "a", **options: Any) -> None:
    """Enqueue a task."""
    body = {"type": "resize", "payload": {"n": 7}, "options": {"task_id": task_id, **options}}
    answer = await visitor.ask("POST", "/v1/tasks", body)
    assert 201 == answer.status_code, answer.text


async def take(worker: ListWorker) -> tuple[bytes, dict[str, Any]]:
    """Take an entry, in a thread."""
    taken = await asyncio.to_thread(worker.take)
    assert taken is not None
    return taken


async def wait_until(visitor: Visitor, state: TaskState, task_id: str = "a") -> TaskInfo:
    """Return a task when it is in a state."""
    while True:
        task = await visitor.operator.task("resize", task_id)
        if task.state is state:
            return task
        await asyncio.sleep(0.02)


async def until_no_leases(client: RedisClient, shard: int = 0) -> None:
    """Wait until all entries of a shard have ended."""
    while client.hlen(f"asynq:x:list:{{resize:{shard}}}:leases"):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.02)


def lists_of(visitor: Visitor) -> ListTypes:
    """Return the types of the kind `list` of an instance."""
    lists = visitor.service._lists
    assert lists is not None
    return lists


async def bridge_of(visitor: Visitor) -> ListBridge:
    """Return the bridge of the type, which runs."""
    await lists_of(visitor)._run_types()
    return lists_of(visitor)._bridges["resize"]


async def listening(visitor: Visitor) -> int:
    """Return how many workers listen, as the service tells."""
    return int((await visitor.ask("GET", "/v1/task-types/resize")).json()["listening"])


async def until_read(client: RedisClient, shard: int = 0) -> None:
    """Wait until all replies of a shard were read."""
    while client.llen(f"asynq:x:list:{{resize:{shard}}}:replies"):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.02)


async def release_all(visitor: Visitor, client: RedisClient) -> None:
    """Delete the tasks, and what lists have of them, at the end of a test."""
    await lists_of(visitor).close()
    for key in client.scan_iter(match="asynq:x:list:*"):
        client.delete(key)


@pytest.mark.parametrize(
    ("act", "fields", "state", "retried", "error"),
    [
        ("complete", {"result": {"double": 14}}, TaskState.COMPLETED, 0, ""),
        ("fail", {"error": "no disk"}, TaskState.RETRY, 1, "no disk"),
        ("fail", {"error": "busy", "spend": False, "delay": 60}, TaskState.RETRY, 0, "busy"),
        ("fail", {"error": "never", "retry": False}, TaskState.ARCHIVED, 0, "never"),
        ("snooze", {"delay": 600}, TaskState.RETRY, 0, ""),
    ],
)
@run_async
async def test_a_reply_settles_the_task(
    redis_url: str,
    worker: ListWorker,
    act: str,
    fields: dict[str, Any],
    state: TaskState,
    retried: int,
    error: str,
) -> None:
    """With the same words as an item of a batch over HTTP."""
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        entry, task = await take(worker)
        assert ("a", "resize", {"n": 7}, 1, 5) == (
            *(task["id"], task["type"], task["payload"]),
            *(task["attempt"], task["max_retry"]),
        )
        assert entry.startswith(b'{"token":"' + task["token"].encode())
        worker.reply(entry, act, **fields)
        settled = await wait_until(visitor, state)
        assert (retried, error) == (settled.retried, settled.last_error)
        if act == "complete":
            assert b'{"double": 14}' == settled.result
        await until_no_leases(worker.client)
        assert 0 == worker.client.exists(worker.held, f"{worker.list}:replies", worker.list)
    worker.end()


@run_async
async def test_tasks_stay_pending_until_a_worker_listens(redis_url: str, worker: ListWorker) -> None:
    """No retry is spent, and no server serves the queue."""
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        bridge = await bridge_of(visitor)
        await bridge._sweep(bridge._shards[0])
        assert TaskState.PENDING is (await visitor.operator.task("resize", "a")).state
        assert (0, ()) == (await listening(visitor), lists_of(visitor)._served.names)
        worker.beat()
        await wait_until(visitor, TaskState.ACTIVE)
        assert 1 == await listening(visitor)
        entry, _ = await take(worker)
        visitor.service.measure()
        assert (
            'pyasynq_service_list_workers{queue="resize"} 1' in visitor.service.metrics.render()[1].decode()
        )
        worker.reply(entry, "complete")
        await wait_until(visitor, TaskState.COMPLETED)
    worker.end()


@run_async
async def test_workers_get_as_many_tasks_as_they_take_at_once(
    redis_url: str, redis_client: RedisClient
) -> None:
    """On both shards; the rest is pending, so that no time of theirs is spent."""
    workers = [ListWorker(redis_client, shard=0, size=2), ListWorker(redis_client, shard=1)]
    async with listing(redis_url) as visitor:
        for worker in workers:
            worker.beat()
        for number in range(5):
            await enqueue(visitor, f"t{number}")
        taken = [await take(one) for one in (workers[0], workers[0], workers[1])]
        assert {"t0", "t1", "t2"} == {task["id"] for _, task in taken}
        assert ["pending"] * 2 == [
            (await visitor.operator.task("resize", one)).state.value for one in ("t3", "t4")
        ]
        workers[1].reply(taken[2][0], "complete")
        assert "t3" == (await take(workers[1]))[1]["id"]
        await release_all(visitor, redis_client)


@run_async
async def test_max_run_holds(redis_url: str, redis_client: RedisClient) -> None:
    """A task runs from its lease to its reply, even if workers are free."""
    worker = ListWorker(redis_client, size=3)
    async with listing(redis_url, max_run=1) as visitor:
        worker.beat()
        for number in range(2):
            await enqueue(visitor, f"t{number}")
        entry, first = await take(worker)
        bridge = await bridge_of(visitor)
        await bridge._sweep(bridge._shards[0])
        assert ("t0", 0) == (first["id"], redis_client.llen(worker.list))
        worker.reply(entry, "complete")
        assert "t1" == (await take(worker))[1]["id"]
        await release_all(visitor, redis_client)


@run_async
async def test_a_dead_worker_costs_a_crash_and_poison_is_archived(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The task comes back to the front; at the third death it is archived."""
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        workers = [ListWorker(redis_client) for _ in range(3)]
        for crashes, worker in enumerate(workers):
            _, task = await take(worker)
            assert (crashes, 1) == ((await visitor.operator.task("resize", "a")).crashes, task["attempt"])
            worker.die()
        archived = await wait_until(visitor, TaskState.ARCHIVED)
        await until_no_leases(redis_client)
        assert "its worker died, or has not replied" in str(archived.attempts)
        assert 0 == redis_client.exists(*(one.held for one in workers), f"{workers[0].list}:workers")


@run_async
async def test_heartbeats_that_end_in_an_outage_of_redis_cost_no_crash(
    redis_url: str, worker: ListWorker
) -> None:
    """As in a fail-over of a cluster. A worker that does not beat after it is dead."""
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        entry, _ = await take(worker)
        bridge = await bridge_of(visitor)
        shard = bridge._shards[0]
        for task in bridge._tending:
            task.cancel()
        await asyncio.wait(bridge._tending)
        shard.swept_at -= 20
        worker.die()
        for _ in range(3):
            await bridge._sweep(shard)
        assert [entry] == worker.client.lrange(worker.held, 0, -1)
        worker.beat()
        await bridge._sweep(shard)
        assert {} == shard.forgotten_at
        worker.die()
        await bridge._sweep(shard)
        assert 0 == (await visitor.operator.task("resize", "a")).crashes
        await bridge._sweep(shard)
        assert 1 == (await visitor.operator.task("resize", "a")).crashes


@run_async
async def test_a_reply_after_its_worker_counted_as_dead_changes_nothing(
    redis_url: str, redis_client: RedisClient
) -> None:
    """It was only slow: its token is old. A second reply to the new one does nothing either."""
    slow, other = ListWorker(redis_client), ListWorker(redis_client)
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        old, _ = await take(slow)
        slow.die()
        new, task = await take(other)
        assert old != new
        slow.reply(old, "fail", error="too late", retry=False)
        await until_read(redis_client)
        assert TaskState.ACTIVE is (await visitor.operator.task("resize", "a")).state
        other.reply(new, "complete", result=1)
        other.reply(new, "fail", error="twice")
        done = await wait_until(visitor, TaskState.COMPLETED)
        await until_read(redis_client)
        assert (b"1", 0, 1) == (done.result, done.retried, task["attempt"])
    other.end()


@pytest.mark.parametrize("is_taken", [False, True])
@run_async
async def test_a_cancelled_task_is_withdrawn(
    redis_url: str, redis_client: RedisClient, is_taken: bool
) -> None:
    """From the list, before a worker takes it; after that its reply is refused."""
    worker = ListWorker(redis_client)
    async with listing(redis_url) as visitor:
        worker.beat()
        await enqueue(visitor)
        await wait_until(visitor, TaskState.ACTIVE)
        entry = (await take(worker))[0] if is_taken else b""
        answer = await visitor.ask("POST", "/v1/tasks/resize/a:cancel", {"outcome": "archive"})
        assert answer.status_code in {200, 202, 204}, answer.text
        await wait_until(visitor, TaskState.ARCHIVED)
        await until_no_leases(redis_client)
        assert 0 == redis_client.llen(worker.list)
        if is_taken:
            worker.reply(entry, "complete")
            await until_read(redis_client)
            assert TaskState.ARCHIVED is (await visitor.operator.task("resize", "a")).state
    worker.end()


@run_async
async def test_a_task_that_times_out_is_withdrawn(redis_url: str, redis_client: RedisClient) -> None:
    """It waits for a worker that takes nothing more."""
    worker = ListWorker(redis_client)
    async with listing(redis_url, timeout=2) as visitor:
        worker.beat()
        await enqueue(visitor)
        task = await wait_until(visitor, TaskState.RETRY)
        await until_no_leases(redis_client)
        assert (1, 0) == (task.retried, redis_client.llen(worker.list))
    worker.end()


@pytest.mark.parametrize(
    "reply",
    [
        b"\xff",
        b'{"token":7}',
        b"[" * 100_000,
        b'{"token":"TOKEN","act":"complete","resultt":1}',
        b'{"token":"TOKEN","act":"extend","lease":60}',
        b"x" * 4_000_001,
    ],
)
@run_async
async def test_a_wrong_reply_is_a_crash(
    redis_url: str, redis_client: RedisClient, caplog: pytest.LogCaptureFixture, reply: bytes
) -> None:
    """Its value is in no log. A worker that says nothing useful must not block its task."""
    worker = ListWorker(redis_client)
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        entry, task = await take(worker)
        worker.push_reply(entry, reply.replace(b"TOKEN", task["token"].encode()))
        again, _ = await take(worker)
        found = await visitor.operator.task("resize", "a")
        assert (1, 0) == (found.crashes, found.retried)
        assert "its worker died, or has not replied" in str(found.attempts)
        worker.reply(again, "complete")
        await wait_until(visitor, TaskState.COMPLETED)
    worker.end()
    assert task["token"] not in caplog.text


@run_async
async def test_a_lease_that_was_not_stored_by_the_service_settles_nothing(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A worker may write its keys; the tasks of other types are not its own."""
    worker = ListWorker(redis_client)
    async with listing(redis_url) as visitor:
        worker.beat()
        redis_client.hset(f"{worker.list}:leases", mapping={"forged": "x", "t" * 22: b"\xff"})
        worker.client.rpush(f"{worker.list}:replies", b'{"token":"forged","act":"complete"}')
        await until_no_leases(redis_client)
        await enqueue(visitor)
        worker.reply((await take(worker))[0], "complete")
        await wait_until(visitor, TaskState.COMPLETED)
    worker.end()


@run_async
async def test_keys_of_wrong_types_stop_nothing_else(redis_url: str, redis_client: RedisClient) -> None:
    """A worker's own heartbeat and list."""
    worker, odd = ListWorker(redis_client), ListWorker(redis_client)
    redis_client.sadd(f"{odd.list}:workers", odd.name)
    redis_client.rpush(f"{odd.list}:alive:{odd.name}", "x")
    async with listing(redis_url) as visitor:
        await enqueue(visitor)
        entry, _ = await take(worker)
        odd.beat()
        redis_client.set(odd.held, "x")
        worker.reply(entry, "complete")
        await wait_until(visitor, TaskState.COMPLETED)
    odd.end()
    worker.end()
    redis_client.delete(odd.held)


@run_async
async def test_another_instance_settles_what_a_dead_one_passed_on(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The lease of an entry is in Redis, so any instance renews it."""
    worker = ListWorker(redis_client)
    async with listing(redis_url) as first:
        await enqueue(first)
        entry, task = await take(worker)
        # As a kill: it stops, and says nothing to anyone.
        await lists_of(first).close()
        async with listing(redis_url) as second:
            bridge = await bridge_of(second)
            shard = bridge._shards[0]
            await bridge._sweep(shard)
            assert {task["token"]} == bridge._renewed_at.keys()
            worker.reply(entry, "complete", result=5)
            assert b"5" == (await wait_until(second, TaskState.COMPLETED)).result
    worker.end()


@run_async
async def test_an_entry_whose_lease_has_lapsed_is_withdrawn(
    redis_url: str, redis_client: RedisClient
) -> None:
    """No instance ran meanwhile, and the task was put back: its worker must not run it twice."""
    worker = ListWorker(redis_client)
    async with listing(redis_url) as visitor:
        worker.beat()
        await enqueue(visitor)
        await wait_until(visitor, TaskState.ACTIVE)
        bridge = await bridge_of(visitor)
        while not redis_client.hlen(f"{worker.list}:leases"):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)
        token, lease, _ = (await bridge._shards[0].list.sweep()).leases[0]
        opened = bridge._open(lease)
        async with bridge._served.using("resize") as consumer:
            await (await consumer.find("resize", opened.task_id, opened.receipt)).requeue()
        await bridge._renew(bridge._shards[0], token, lease)
        entry, _ = await take(worker)
        assert token not in entry.decode()
        worker.reply(entry, "complete")
        await wait_until(visitor, TaskState.COMPLETED)
    worker.end()


@run_async
async def test_a_type_of_another_kind_is_left_alone(redis_url: str, redis_client: RedisClient) -> None:
    """And one whose shards are fewer is still looked at on all."""
    worker = ListWorker(redis_client, shard=1)
    async with listing(redis_url, managed="api") as visitor:
        changed = await visitor.ask("PATCH", "/v1/task-types/resize", {"shards": 1})
        assert 200 == changed.status_code, changed.text
        await lists_of(visitor)._run_types()
        await enqueue(visitor)
        worker.reply((await take(worker))[0], "complete")
        await wait_until(visitor, TaskState.COMPLETED)
        await visitor.ask("PATCH", "/v1/task-types/resize", {"kind": "worker", "shards": None})
        await lists_of(visitor)._run_types()
        assert {} == lists_of(visitor).listening
    worker.end()


@pytest.mark.single_server("its worker speaks to one server")
@run_async
async def test_the_access_list_of_the_page_is_enough_for_a_worker(
    redis_url: str, redis_client: RedisClient
) -> None:
    """And for no other type's lists."""
    [line] = re.findall(r"^ACL SETUSER .*$", PAGE.read_text("utf-8"), re.MULTILINE)
    redis_client.execute_command(*line.split())
    with redis.Redis.from_url(redis_url, username="resize-worker", password="PASSWORD") as client:
        worker = ListWorker(client)
        async with listing(redis_url) as visitor:
            await enqueue(visitor)
            entry, _ = await take(worker)
            assert [entry] == client.lrange(worker.held, 0, -1)
            worker.reply(entry, "complete")
            await wait_until(visitor, TaskState.COMPLETED)
        for other in ("asynq:{resize}:pending", "asynq:x:list:{resizes:0}"):
            with pytest.raises(NoPermissionError):
                client.rpush(other, "x")
    redis_client.srem(f"{worker.list}:workers", worker.name)
    redis_client.execute_command("ACL", "DELUSER", "resize-worker")
