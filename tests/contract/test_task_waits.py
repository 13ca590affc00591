"""Waits for the end of a task, by any process: woken by Redis, and by polls as a fallback."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq.sync
from pyasynq._broker.waits import task_waits_async, watched_task
from pyasynq._broker.waits.endings import classify_missing
from pyasynq._redis.key_watcher import ServerWatcher, Watcher
from pyasynq._wire.messages import encode_task_message, new_task_message
from pyasynq.client import Client
from pyasynq.errors import (
    ClientClosedError,
    InvalidOptionError,
    RedisUnavailableError,
    ResultNotKeptError,
    TaskDeletedError,
    TaskFailedError,
    TaskNotFoundError,
    UndecodableMessageError,
    UnknownTaskStateError,
    WaitTimeoutError,
)
from pyasynq.task import FinishedTask, TaskEnd, TaskState
from tests.factories import NOW, Tasks
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_drivers import OwnServer
    from tests.fix_proxy import Proxy
    from tests.invariants import RedisClient

WATCHER = "pyasynq-watcher"


def complete_as_go_does(
    tasks: Tasks, task_id: str, result: bytes | None = b"done", retention: int = 60
) -> None:
    """Do what Asynq's MarkAsComplete does, after its ResultWriter."""
    message = new_task_message(
        id=task_id,
        queue=tasks.keys.queue,
        type="email:deliver",
        payload=b"{}",
        retry=25,
        retention=retention,
        completed_at=NOW.seconds,
    )
    key = tasks.keys.task(task_id)
    with tasks.client.pipeline() as transaction:
        if result is not None:
            transaction.hset(key, "result", result)
        transaction.lrem(tasks.keys.active, 0, task_id)
        transaction.zrem(tasks.keys.lease, task_id)
        transaction.zadd(tasks.keys.completed, {task_id: NOW.seconds + retention})
        transaction.hset(key, mapping={"msg": encode_task_message(message), "state": "completed"})
        transaction.hdel(key, "x:attempt")
        transaction.execute()


def vanish(tasks: Tasks, task_id: str) -> None:
    """Do what Asynq's Done does."""
    with tasks.client.pipeline() as transaction:
        transaction.lrem(tasks.keys.active, 0, task_id)
        transaction.lrem(tasks.keys.pending, 0, task_id)
        transaction.zrem(tasks.keys.lease, task_id)
        transaction.delete(tasks.keys.task(task_id))
        transaction.execute()


def archive(tasks: Tasks, task_id: str, error: str) -> None:
    """Do what Asynq's Archive does."""
    vanish(tasks, task_id)
    tasks.put(TaskState.ARCHIVED, task_id, error_msg=error, retention=60)


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first looks only a push can end a wait."""
    monkeypatch.setattr(watched_task, "_SAFETY_POLL", 3600.0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what gives no sign."""
    while not condition():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)


async def watched(redis_client: RedisClient, keys: int = 1) -> None:
    """Wait until Redis watches this many keys."""
    await until(lambda: redis_client.info("stats")["tracking_total_keys"] >= keys)


@run_async
async def test_a_wait_is_ended_by_redis_when_a_go_worker_completes_the_task(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """No poll, and nothing that the worker does for it."""
    tasks.active("a", token="", retention=60)
    async with Client(redis_url) as client:
        waiting = asyncio.create_task(client.wait("default", "a"))
        reading = asyncio.create_task(client.result("default", "a"))
        await watched(redis_client)
        complete_as_go_does(tasks, "a", b"42")
        ended = await waiting
        assert ("default", "a", TaskEnd.COMPLETED) == (ended.queue, ended.id, ended.end)
        assert ended.info is not None
        assert (b"42", timedelta(seconds=60)) == (ended.info.result, ended.info.retention)
        assert b"42" == await reading


@run_async
async def test_a_task_that_has_ended_before_needs_no_wait(redis_url: str, tasks: Tasks) -> None:
    """One look tells; each end has its word and its error."""
    tasks.active("a", "none")
    complete_as_go_does(tasks, "a")
    complete_as_go_does(tasks, "none", None)
    tasks.put(TaskState.ARCHIVED, "b", error_msg="timeout after 30 s")
    tasks.put(TaskState.ARCHIVED, "c")
    async with Client(redis_url) as client:
        assert TaskEnd.COMPLETED is (await client.wait("default", "a")).end
        assert (b"done", None) == (
            await client.result("default", "a"),
            await client.result("default", "none"),
        )
        ended = await client.wait("default", "b")
        assert ended.info is not None
        assert (TaskEnd.ARCHIVED, "timeout after 30 s") == (ended.end, ended.info.last_error)
        with pytest.raises(
            TaskFailedError, match=r"'b' .*'default' failed for good: timeout after 30 s"
        ) as failed:
            await client.result("default", "b")
        assert ("default", "b", "timeout after 30 s") == (
            failed.value.queue,
            failed.value.task_id,
            failed.value.error,
        )
        with pytest.raises(TaskFailedError, match=r"it was archived by hand$"):
            await client.result("default", "c")
        assert FinishedTask("default", "nope", TaskEnd.GONE, None) == await client.wait("default", "nope")
        with pytest.raises(TaskNotFoundError, match="id=nope"):
            await client.result("default", "nope")


@run_async
async def test_a_task_without_retention_that_vanishes_is_gone(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """Whether it succeeded or was deleted, Redis does not tell; its result is refused at once."""
    tasks.active("a")
    async with Client(redis_url) as client:
        waiting = asyncio.create_task(client.wait("default", "a"))
        await watched(redis_client)
        with pytest.raises(ResultNotKeptError, match=r"keeps no result: .*result_ttl=60"):
            await client.result("default", "a")
        vanish(tasks, "a")
        assert FinishedTask("default", "a", TaskEnd.GONE, None) == await waiting


@run_async
async def test_a_task_that_vanishes_sooner_than_its_retention_allows_was_deleted(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """It was there and unfinished a moment ago, so it cannot have been completed and expired since."""
    tasks.active("a", retention=60)
    async with Client(redis_url) as client:
        waiting = asyncio.create_task(client.wait("default", "a"))
        reading = asyncio.create_task(client.result("default", "a"))
        await watched(redis_client)
        vanish(tasks, "a")
        assert TaskEnd.DELETED is (await waiting).end
        with pytest.raises(TaskDeletedError, match=r"'a' in queue 'default' was deleted"):
            await reading


@run_async
async def test_a_task_of_a_short_retention_may_have_been_completed_unseen(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """One second counts from the second in which it ended, because the fraction is unknown."""
    tasks.active("a", retention=1)
    async with Client(redis_url) as client:
        waiting = asyncio.create_task(client.wait("default", "a"))
        reading = asyncio.create_task(client.result("default", "a"))
        await watched(redis_client)
        vanish(tasks, "a")
        assert TaskEnd.GONE is (await waiting).end
        with pytest.raises(
            ResultNotKeptError, match=r"is gone: it succeeded more than 1 s ago, or it was deleted"
        ):
            await reading


@run_async
async def test_a_wait_goes_on_while_the_task_is_retried(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """Each change is looked at; only an end ends it."""
    tasks.active("a", retention=60)
    async with Client(redis_url) as client:
        reading = asyncio.create_task(client.result("default", "a"))
        for state in (TaskState.RETRY, TaskState.PENDING, TaskState.ACTIVE):
            await watched(redis_client)
            vanish_quietly = redis_client.pipeline()
            vanish_quietly.lrem(tasks.keys.active, 0, "a").zrem(tasks.keys.lease, "a")
            vanish_quietly.zrem(tasks.keys.retry, "a").lrem(tasks.keys.pending, 0, "a")
            vanish_quietly.execute()
            if state is TaskState.ACTIVE:
                tasks.client.hdel(tasks.keys.task("a"), "pending_since")
                tasks.active("a", retention=60)
            else:
                tasks.client.hdel(tasks.keys.task("a"), "x:attempt")
                tasks.put(state, "a", retention=60, error_msg="once", retried=1)
        await watched(redis_client)
        assert not reading.done()
        complete_as_go_does(tasks, "a", b"at last")
        assert b"at last" == await reading


@run_async
async def test_a_wait_that_takes_too_long_says_so(redis_url: str, tasks: Tasks) -> None:
    """With an error of its own that is a TimeoutError too; the task stays as it is."""
    tasks.pending("a", retention=60)
    before = tasks.fields("a")
    async with Client(redis_url) as client:
        with pytest.raises(
            WaitTimeoutError, match=r"'a' in queue 'default' has not ended within 0\.05 s"
        ) as late:
            await client.wait("default", "a", 0.05)
        assert isinstance(late.value, TimeoutError)
        assert ("default", "a", 0.05) == (late.value.queue, late.value.task_id, late.value.seconds)
        with pytest.raises(WaitTimeoutError):
            await client.result("default", "a", timedelta(milliseconds=10))
    assert before == tasks.fields("a")


@run_async
async def test_a_timeout_of_zero_looks_once(redis_url: str, tasks: Tasks) -> None:
    """`timeout=0` is for a page that shows the present state."""
    tasks.pending("a", retention=60)
    tasks.active("b")
    complete_as_go_does(tasks, "b")
    async with Client(redis_url) as client:
        with pytest.raises(WaitTimeoutError, match="within 0 s"):
            await client.result("default", "a", 0)
        assert b"done" == await client.result("default", "b", 0)


@run_async
async def test_a_look_without_redis_is_an_error_and_a_wait_goes_on(redis_url: str) -> None:
    """This address is never contacted."""
    async with Client("redis://127.0.0.1:1", timeout=0.05) as client:
        with pytest.raises(RedisUnavailableError):
            await client.wait("default", "a", 0)
        with pytest.raises(WaitTimeoutError) as late:
            await client.wait("default", "a", 0.3)
        assert isinstance(late.value.__cause__, RedisUnavailableError)


@run_async
async def test_arguments_that_cannot_be_are_refused(redis_url: str) -> None:
    """Before anything is asked."""
    async with Client(redis_url) as client:
        for arguments in ((" ", "a"), ("default", ""), ("default", "a", -1)):
            with pytest.raises(InvalidOptionError):
                await client.wait(*arguments)


@run_async
async def test_nothing_is_left_of_a_wait_that_was_cancelled_or_timed_out(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key, no poll, and after a while no connection and no asyncio task either."""
    monkeypatch.setattr(task_waits_async, "_LINGER", 0.05)
    tasks.pending("a", "b", retention=60)
    async with Client(redis_url) as client:
        cancelled = asyncio.create_task(client.wait("default", "a"))
        await watched(redis_client)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(WaitTimeoutError):
            await client.wait("default", "b", 0.01)
        [home] = client._waits._per_loop.all()
        assert {} == home._watched
        await until(lambda: home._runner is None)
        await until(lambda: all(one["name"] != WATCHER for one in redis_client.client_list()))
        await until(lambda: 1 == len(asyncio.all_tasks()))
        # And it begins again.
        waiting = asyncio.create_task(client.wait("default", "a"))
        await asyncio.sleep(0)
        vanish(tasks, "a")
        assert (await waiting).end in {TaskEnd.DELETED, TaskEnd.GONE}


@pytest.mark.long
@run_async
async def test_thousands_of_waits_share_one_connection_and_write_nothing(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """Several callers that wait for the same task each get their own answer."""
    ids = [f"t{number}" for number in range(2_000)]
    with redis_client.pipeline(transaction=False) as pipeline:
        for task_id in ids:
            Tasks(pipeline).active(task_id, retention=60)
        pipeline.execute()
    changes = redis_client.info("persistence")["rdb_changes_since_last_save"]
    async with Client(redis_url) as client:
        waits = [asyncio.create_task(client.result("default", task_id)) for task_id in ids * 2]
        await watched(redis_client, len(ids))
        assert 1 == sum(one["name"] == WATCHER for one in redis_client.client_list())
        assert changes == redis_client.info("persistence")["rdb_changes_since_last_save"]
        for task_id in ids:
            complete_as_go_does(tasks, task_id, task_id.encode())
        assert [task_id.encode() for task_id in ids * 2] == await asyncio.gather(*waits)


@run_async
async def test_a_client_that_is_closed_waits_for_a_connection_that_is_being_closed(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last wait was a while ago, so its connection was on its way out."""
    monkeypatch.setattr(task_waits_async, "_LINGER", 0.0)
    closing, go_on = asyncio.Event(), asyncio.Event()
    close = Watcher.close

    async def slow(watcher: Watcher) -> None:
        closing.set()
        await go_on.wait()
        await close(watcher)

    monkeypatch.setattr(Watcher, "close", slow)
    tasks.active("a", retention=60)
    complete_as_go_does(tasks, "a")
    async with Client(redis_url) as client:
        assert b"done" == await client.result("default", "a")
        await closing.wait()
        asyncio.get_running_loop().call_soon(go_on.set)


@run_async
async def test_a_task_that_changes_all_the_time_is_not_looked_at_all_the_time(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """Results that are written again and again, for one; its end is noticed all the same."""
    tasks.active("a", retention=60)
    async with Client(redis_url) as client:
        reading = asyncio.create_task(client.result("default", "a"))
        await watched(redis_client)
        redis_client.config_resetstat()
        began = time.monotonic()
        for number in range(300):
            redis_client.hset(tasks.keys.task("a"), "result", number)
            await asyncio.sleep(0.001)
        seconds = time.monotonic() - began
        looks = redis_client.info("commandstats")["cmdstat_hget"]["calls"]
        assert looks <= 15 + 1.5 * seconds / 0.05
        complete_as_go_does(tasks, "a")
        assert b"done" == await reading


@run_async
async def test_one_wait_that_ends_does_not_disturb_another_for_the_same_task(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """The second one still gets the push."""
    tasks.active("a", retention=60)
    async with Client(redis_url) as client:
        staying = asyncio.create_task(client.result("default", "a"))
        with pytest.raises(WaitTimeoutError):
            await client.wait("default", "a", 0.02)
        await watched(redis_client)
        complete_as_go_does(tasks, "a")
        assert b"done" == await staying


@run_async
async def test_a_cut_connection_is_made_again_and_nothing_is_missed(
    proxy: Proxy, redis_client: RedisClient, tasks: Tasks, no_polls: None
) -> None:
    """Changes during the outage are found after it, because all tasks are read then."""
    tasks.active("a", retention=60)
    async with Client(proxy.url) as client:
        reading = asyncio.create_task(client.result("default", "a"))
        await watched(redis_client)
        proxy.refuse()
        proxy.cut_all()
        complete_as_go_does(tasks, "a")
        proxy.refuse(False)
        assert b"done" == await reading


@run_async
async def test_pushes_that_are_lost_are_made_up_for_by_the_poll(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is silently dead tells nothing."""
    monkeypatch.setattr(ServerWatcher, "_invalidate", lambda *_: None)
    tasks.active("a", retention=60)
    async with Client(redis_url) as client:
        reading = asyncio.create_task(client.result("default", "a"))
        await watched(redis_client)
        complete_as_go_does(tasks, "a")
        assert b"done" == await reading


@run_async
async def test_a_connection_that_does_not_answer_holds_up_no_caller(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are looked at without it; when it answers at last, it is used again."""
    answer = asyncio.Event()
    armed = Watcher.arm
    calls: list[tuple[str, ...]] = []

    async def slow_arm(self: Watcher, *keys: str) -> bool:
        calls.append(keys)
        if len(calls) == 1:
            await answer.wait()
        return await armed(self, *keys)

    monkeypatch.setattr(Watcher, "arm", slow_arm)
    monkeypatch.setattr(task_waits_async, "_ARM_PATIENCE", 0.01)
    tasks.active("a", "b", retention=60)
    async with Client(redis_url) as client:
        reading = asyncio.create_task(client.result("default", "a"))
        other = asyncio.create_task(client.result("default", "b"))
        await until(lambda: bool(calls))
        complete_as_go_does(tasks, "a")
        assert b"done" == await reading
        assert 1 == len(calls)
        answer.set()
        await until(lambda: len(calls) > 1)
        complete_as_go_does(tasks, "b")
        assert b"done" == await other


@pytest.mark.parametrize("refused", ["HELLO", "CLIENT"])
def test_where_redis_does_not_tell_of_changes_waits_poll(
    own_server: OwnServer, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    """A proxy that speaks RESP2 only: quickly at first, then ever more slowly; one warning says so."""
    own_server.stop()
    own_server.start("--rename-command", refused, "")
    with own_server.connect() as redis_client:
        tasks = Tasks(redis_client)
        tasks.active("a", retention=60)

        async def wait() -> bytes | None:
            async with Client(own_server.url) as client:
                with pytest.raises(WaitTimeoutError):
                    await client.result("default", "a", 0.2)
                reading = asyncio.create_task(client.result("default", "a"))
                await asyncio.sleep(0)
                complete_as_go_does(tasks, "a")
                return await reading

        assert b"done" == asyncio.run(wait())
    told = [record.message for record in caplog.records if "does not report changes" in record.message]
    assert 1 == len(told)
    assert told[0].endswith("waits for tasks poll instead")


def test_what_vanished_was_deleted_only_if_it_cannot_have_been_completed_and_expired() -> None:
    """A retention is counted from the whole second in which the task ended."""
    assert TaskEnd.DELETED is classify_missing(60, 58.9)
    assert TaskEnd.GONE is classify_missing(60, 59.0)
    assert TaskEnd.GONE is classify_missing(1, 0.0)
    assert TaskEnd.GONE is classify_missing(0, 0.0)
    assert TaskEnd.GONE is classify_missing(None, 0.0)


def test_the_first_changes_are_looked_at_at_once_and_more_of_them_together() -> None:
    """Twenty times a second, counted from the last look."""
    task = watched_task.WatchedTask("default", "a", "k")
    task.checked = 100.0
    assert [100.01] * 10 == [task.note_change(100.01) for _ in range(10)]
    assert pytest.approx(100.05) == task.note_change(100.01)
    assert 101.0 == task.note_change(101.0)


def test_polls_without_pushes_come_further_and_further_apart() -> None:
    """From 50 ms to a second; with pushes one a second, together with those of others."""
    task = watched_task.WatchedTask("default", "a", "k")
    rests = [task.next_poll(0.0, told=False) for _ in range(12)]
    assert [0.05, 0.075] == [pytest.approx(rest) for rest in rests[:2]]
    assert rests == sorted(rests)
    assert [1.0] * 3 == rests[-3:]
    assert 10.75 == task.next_poll(9.9, told=True)
    assert pytest.approx(0.05) == task.next_poll(0.0, told=False)


def test_a_restart_of_redis_is_waited_out(own_server: OwnServer) -> None:
    """The task ends after it; no other call is needed."""
    durable = ("--appendonly", "yes")
    own_server.stop()
    own_server.start(*durable)

    async def wait() -> bytes | None:
        async with Client(own_server.url, timeout=0.5) as client:
            with own_server.connect() as redis_client:
                Tasks(redis_client).active("a", retention=60)
                reading = asyncio.create_task(client.result("default", "a"))
                await watched(redis_client)
            own_server.stop()
            await asyncio.sleep(0)
            own_server.start(*durable)
            with await asyncio.to_thread(own_server.connect) as redis_client:
                complete_as_go_does(Tasks(redis_client), "a")
            return await reading

    assert b"done" == asyncio.run(wait())


@run_async
async def test_a_task_that_cannot_be_understood_ends_the_wait(
    redis_url: str, tasks: Tasks, redis_client: RedisClient, damage_allowed: None
) -> None:
    """Waiting longer would not help; others are not affected."""
    tasks.put(TaskState.ARCHIVED, "a")
    redis_client.hset(tasks.keys.task("a"), "msg", b"\xff")
    tasks.pending("b")
    redis_client.hset(tasks.keys.task("b"), "state", "frozen")
    async with Client(redis_url) as client:
        with pytest.raises(UndecodableMessageError):
            await client.wait("default", "a")
        with pytest.raises(UnknownTaskStateError, match="'frozen'"):
            await client.wait("default", "b")


@run_async
async def test_closing_the_client_ends_its_waits(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """At once, with the error of a closed client."""
    tasks.pending("a")
    client = Client(redis_url)
    waiting = asyncio.create_task(client.wait("default", "a"))
    await watched(redis_client)
    await client.close()
    with pytest.raises(ClientClosedError):
        await waiting
    with pytest.raises(ClientClosedError):
        await client.wait("default", "a")


def test_one_client_waits_in_several_loops_one_after_the_other(redis_url: str, tasks: Tasks) -> None:
    """A client that has waited in one event loop can wait in another one."""
    tasks.active("a")
    complete_as_go_does(tasks, "a")
    client = Client(redis_url)
    for _ in range(2):
        assert b"done" == asyncio.run(client.result("default", "a"))
    asyncio.run(client.close())


def test_threads_wait_too(redis_url: str, redis_client: RedisClient, tasks: Tasks, no_polls: None) -> None:
    """Any number of them over one connection; the errors are the same."""
    tasks.active("a", "b", retention=60)
    tasks.put(TaskState.ARCHIVED, "c", error_msg="no")
    with pyasynq.sync.Client(redis_url) as client:
        results: dict[str, Any] = {}

        def read(task_id: str) -> None:
            results[task_id] = client.result("default", task_id, 30)

        threads = [threading.Thread(target=read, args=(task_id,)) for task_id in "ab"]
        for thread in threads:
            thread.start()
        asyncio.run(watched(redis_client, 2))
        for task_id in "ab":
            complete_as_go_does(tasks, task_id, task_id.encode())
        for thread in threads:
            thread.join()
        assert {"a": b"a", "b": b"b"} == results
        assert 1 == sum(one["name"] == WATCHER for one in redis_client.client_list())
        with pytest.raises(TaskFailedError):
            client.result("default", "c")
        tasks.pending("d", retention=60)
        with pytest.raises(WaitTimeoutError):
            client.wait("default", "d", 0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "pyasynq waits"]


def test_a_blocking_wait_that_begins_while_its_client_is_closed_leaves_no_thread(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes the client when the wait has just seen that it is open."""
    client = pyasynq.sync.Client(redis_url)
    monkeypatch.setattr(client._driver, "check_open", client.close)
    with pytest.raises(ClientClosedError):
        client.wait("default", "a", 0.1)
    assert not [thread for thread in threading.enumerate() if thread.name == "pyasynq waits"]


def test_closing_a_blocking_client_ends_the_waits_of_its_threads(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """No call hangs."""
    tasks.pending("a")
    client = pyasynq.sync.Client(redis_url)
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            client.wait("default", "a")
        except ClientClosedError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    asyncio.run(watched(redis_client))
    client.close()
    thread.join()
    assert 1 == len(seen)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_a_child_waits_by_itself(
    redis_url: str, tasks: Tasks, redis_client: RedisClient, in_child: Callable[[Callable[[], None]], int]
) -> None:
    """The parent's thread is not there, and its sockets are left alone."""
    tasks.active("a")
    complete_as_go_does(tasks, "a")
    with pyasynq.sync.Client(redis_url) as client:
        assert b"done" == client.result("default", "a")

        def wait() -> None:
            assert b"done" == client.result("default", "a")
            client.close()

        assert 0 == in_child(wait)
        assert b"done" == client.result("default", "a")


@pytest.fixture
def in_child() -> Callable[[Callable[[], None]], int]:
    """Runs a function in a forked child; returns the child's exit code."""

    def run(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return run
