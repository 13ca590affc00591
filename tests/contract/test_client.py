from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import threading
import tracemalloc
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq.sync
from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.errors import (
    ClientClosedError,
    ConfigurationError,
    DuplicateTaskError,
    EnqueueManyError,
    InvalidOptionError,
    PayloadTooLargeError,
    RedisOutOfMemoryError,
    RedisUnavailableError,
    TaskIDConflictError,
    UnknownOptionError,
)
from pyasynq.task import EnqueueStatus, Task, TaskState
from tests.fix_proxy import Cut
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import redis

    from pyasynq.options import EnqueueOptions
    from pyasynq.task import TaskInfo
    from tests.factories import Tasks
    from tests.fix_drivers import ClientFace, OwnServer
    from tests.fix_proxy import Proxy

    MakeClient = Callable[..., ClientFace]

PENDING = "asynq:{default}:pending"


def script_calls(client: redis.Redis) -> int:
    """Return how many EVALSHA the server has run."""
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_a_task_is_enqueued_and_described(make_client: MakeClient, redis_url: str, tasks: Tasks) -> None:
    """The information matches Redis."""
    client = make_client(redis_url)
    info = client.enqueue("email:deliver", b"{}", max_retry=3, queue="default")
    assert ("email:deliver", b"{}", TaskState.PENDING, 3) == (
        info.type,
        info.payload,
        info.state,
        info.max_retry,
    )
    assert [info.id] == tasks.ids("pending")
    assert info.id == decode_task_message(tasks.fields(info.id)["msg"]).id


def test_the_options_of_the_call_win_over_those_of_the_task(make_client: MakeClient, redis_url: str) -> None:
    """Setting by setting; headers key by key."""
    task = Task("t", max_retry=1, timeout=10, headers={"a": "1", "b": "1"})
    info = make_client(redis_url).enqueue(task, max_retry=2, headers={"b": "2"})
    assert (2, timedelta(seconds=10), {"a": "1", "b": "2"}) == (info.max_retry, info.timeout, info.headers)


def test_a_scheduled_task_waits_for_its_time(make_client: MakeClient, redis_url: str, tasks: Tasks) -> None:
    """Its score is the process time."""
    at = datetime(2040, 1, 1, tzinfo=UTC)
    info = make_client(redis_url).enqueue("t", process_at=at)
    assert (TaskState.SCHEDULED, at) == (info.state, info.next_process_at)
    assert [info.id] == tasks.ids("scheduled")


def test_conflicts_and_duplicates_are_errors_of_their_own(make_client: MakeClient, redis_url: str) -> None:
    """Both carry what they are about."""
    client = make_client(redis_url)
    client.enqueue("t", b"1", task_id="a", unique=60)
    with pytest.raises(TaskIDConflictError) as conflict:
        client.enqueue("t", b"2", task_id="a")
    assert ("default", "a") == (conflict.value.queue, conflict.value.task_id)
    with pytest.raises(DuplicateTaskError) as duplicate:
        client.enqueue("t", b"1", unique=60)
    assert duplicate.value.unique_key.startswith("asynq:{default}:unique:t:")


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("t", "text"), {}, InvalidOptionError),
        ((" ",), {}, InvalidOptionError),
        ((Task("t"), b"x"), {}, InvalidOptionError),
        (("t",), {"max_rety": 1}, UnknownOptionError),
        (("t",), {"process_at": datetime(2040, 1, 1)}, InvalidOptionError),  # noqa: DTZ001 - that is the mistake
        (("t", b"x" * 101), {}, PayloadTooLargeError),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    make_client: MakeClient,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    """Redis is not running at this address, and no call is made."""
    client = make_client("redis://127.0.0.1:1", max_payload=100)
    with pytest.raises(error):
        client.enqueue(*arguments, **options)


@pytest.mark.parametrize(
    "settings", [{"max_payload": 0}, {"max_payload": True}, {"timeout": 0}, {"timeout": -1}]
)
def test_settings_that_cannot_work_are_refused(make_client: MakeClient, settings: dict[str, Any]) -> None:
    """When the client is made, not when it is used."""
    with pytest.raises(ConfigurationError):
        make_client("redis://h", **settings)


def test_ping_tells_whether_redis_is_there(make_client: MakeClient, redis_url: str) -> None:
    """Nothing is returned; what is wrong is raised, and names the address."""
    make_client(redis_url).ping()
    with pytest.raises(RedisUnavailableError, match=r"127\.0\.0\.1:1"):
        make_client("redis://127.0.0.1:1", timeout=0.1).ping()


def test_enqueue_many_takes_any_mix_and_keeps_the_order(
    make_client: MakeClient, redis_url: str, tasks: Tasks
) -> None:
    """A result for each task by position; invalid, conflicting and duplicate ones do not affect others."""
    mixed: list[Any] = [
        Task("t", task_id="a"),
        Task("t", max_retry=-1),
        Task("t", task_id="a"),
        Task("t", b"u", unique=60),
        Task("t", b"u", unique=60),
        "no task",
        Task("t", task_id="later", process_in=60),
        Task("t", b"x" * 101),
        Task("t", task_id="b"),
    ]
    results = make_client(redis_url, max_payload=100).enqueue_many(iter(mixed), on_error="return")
    expected = ["enqueued", "refused", "conflict", "enqueued", "duplicate", "refused", "enqueued", "refused"]
    assert [*expected, "enqueued"] == [result.status for result in results]
    assert [bool(result) for result in results] == [result.error is None for result in results]
    assert "max_retry" in str(results[1].error)
    assert "a" == results[2].task_id
    assert ["a", results[3].task_id, "b"] == tasks.ids("pending")


def test_enqueue_many_of_nothing_asks_nothing(make_client: MakeClient) -> None:
    """There is no server at this address."""
    assert [] == make_client("redis://127.0.0.1:1").enqueue_many([])


def test_shared_options_are_checked_once_and_win(
    make_client: MakeClient, redis_url: str, tasks: Tasks
) -> None:
    """A wrong one is the caller's mistake, not that of each task."""
    client = make_client(redis_url)
    with pytest.raises(UnknownOptionError):
        client.enqueue_many([Task("t")], timout=3)
    [result] = client.enqueue_many([Task("t", queue="other")], queue="default")
    assert [result.task_id] == tasks.ids("pending")


def test_an_async_iterable_is_read_as_it_is_sent(redis_url: str, redis_client: redis.Redis) -> None:
    """The first chunk is in the queue before the third is asked for."""
    seen = []

    async def tasks() -> AsyncIterator[Task]:
        for number in range(1200):
            if number % 500 == 0:
                seen.append(redis_client.llen(PENDING))
            yield Task("t")

    async def enqueue() -> int:
        async with Client(redis_url) as client:
            return sum(map(bool, await client.enqueue_many(tasks())))

    assert 1200 == asyncio.run(enqueue())
    assert 0 == seen[0]
    assert seen[1] <= 500 <= seen[2]


def test_many_tasks_of_a_generator_take_little_memory(
    make_client: MakeClient, redis_url: str, redis_client: redis.Redis
) -> None:
    """In addition to the results themselves, less than a third of what all of them would take."""
    client = make_client(redis_url)
    client.enqueue_many(Task("warm") for _ in range(1000))
    tracemalloc.start()
    try:
        results = client.enqueue_many(Task("t", b"%d" % number * 200) for number in range(20_000))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 20_000 == sum(map(bool, results))
    assert peak - after < 10_000_000
    redis_client.flushall()  # looking through this many tasks takes the invariants longer than they are worth


def test_a_failing_chunk_fails_its_own_tasks_only(make_client: MakeClient, own_server: OwnServer) -> None:
    """Redis is full when the second chunk comes, and has room again for the third."""
    client = make_client(own_server.url)
    client.enqueue("to connect, and to register the queue")
    with own_server.connect() as other:

        def errors() -> int:
            number: int = other.info("stats")["total_error_replies"]
            return number

        before = errors()

        def tasks() -> Iterator[Task]:
            # Each time the chunk before is on its way to Redis, which has to take it first.
            for number in range(1500):
                if number == 500:
                    wait_until(lambda: other.llen(PENDING) == 501, "the first chunk has been taken")
                    other.config_set("maxmemory", 1)
                if number == 1000:
                    wait_until(lambda: errors() > before, "the second is refused")
                    other.config_set("maxmemory", 0)
                yield Task("t", task_id=str(number))

        results = client.enqueue_many(tasks(), on_error="return")
    assert all(results[:500])
    assert {EnqueueStatus.REFUSED} == {result.status for result in results[500:1000]}
    assert all(isinstance(result.error, RedisOutOfMemoryError) for result in results[500:1000])
    assert [str(number) for number in range(500, 1000)] == [result.task_id for result in results[500:1000]]
    assert all(results[1000:])


def test_enqueue_many_raises_while_redis_is_away(make_client: MakeClient) -> None:
    """A list of refusals, which callers do not look at, would lose the tasks silently. (D06)"""
    client = make_client("redis://127.0.0.1:1", timeout=0.1)
    with pytest.raises(
        EnqueueManyError, match=r"2 of 2 tasks were not .*: 2 RedisUnavailableError"
    ) as raised:
        client.enqueue_many([Task("t"), Task("t")])
    assert ["refused", "refused"] == [result.status for result in raised.value.results]
    assert {RedisUnavailableError} == {type(error) for error in raised.value.exceptions}
    assert not any(client.enqueue_many([Task("t")], on_error="return"))


@pytest.mark.parametrize("with_middleware", [False, True], ids=["plain", "middleware"])
def test_an_argument_that_is_not_a_task_raises_when_the_others_are_enqueued(
    make_client: MakeClient, redis_url: str, redis_client: redis.Redis, *, with_middleware: bool
) -> None:
    """The error is a group, of which `except*` takes a part, and each part has all results. (D06)"""
    client = make_client(redis_url)
    if with_middleware:
        client.client.use(lambda task, call_next: call_next(task))
    parts = []
    try:
        client.enqueue_many([Task("t"), "no task", 7, Task("t")])
    except* InvalidOptionError as group:
        parts.append(group)
    [part] = parts
    assert isinstance(part, EnqueueManyError)
    assert ["enqueued", "refused", "refused", "enqueued"] == [result.status for result in part.results]
    assert 2 == redis_client.llen(PENDING)
    copied = pickle.loads(pickle.dumps(part))
    assert (str(part), len(part.results)) == (str(copied), len(copied.results))


def test_a_task_that_exists_is_not_lost(make_client: MakeClient, redis_url: str) -> None:
    """Enqueueing the same ids again is how an interrupted import goes on. (D06)"""
    client = make_client(redis_url)
    tasks = [Task("t", task_id="one"), Task("t", unique=60)]
    client.enqueue_many(tasks)
    assert ["conflict", "duplicate"] == [result.status for result in client.enqueue_many(tasks)]
    with pytest.raises(InvalidOptionError, match="on_error"):
        client.enqueue_many(tasks, on_error="ignore")


def test_threads_with_a_loop_each_share_a_client(redis_url: str, redis_client: redis.Redis) -> None:
    """Each loop keeps its connections, and a wait in one does not end those in another. (D56)"""
    client = Client(redis_url, client_name="shared")
    before: int = redis_client.info("stats")["total_connections_received"]
    outcomes: list[object] = []
    together = threading.Barrier(3)

    async def work() -> None:
        info = await client.enqueue("t", retention=60)
        together.wait(20)
        try:
            waiting = asyncio.create_task(client.wait("default", info.id, timeout=60))
            for _ in range(50):
                await client.enqueue("t")
                await asyncio.sleep(0)
            outcomes.append(waiting.done())
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        except Exception as error:  # noqa: BLE001 - it is looked at
            outcomes.append(error)
        together.wait(20)

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [False] * 3 == outcomes
    after: int = redis_client.info("stats")["total_connections_received"]
    assert after - before <= 15
    asyncio.run(client.close())


def test_what_the_tasks_raise_is_raised_when_earlier_chunks_have_arrived(
    make_client: MakeClient, redis_url: str, redis_client: redis.Redis
) -> None:
    """The state shows how much of it is still in flight."""

    def tasks() -> Iterator[Task]:
        yield from [Task("t")] * 1_100
        raise LookupError("no more")

    with pytest.raises(LookupError):
        make_client(redis_url).enqueue_many(tasks())
    assert 1_000 == redis_client.llen(PENDING)


def test_after_close_the_client_says_so(make_client: MakeClient, redis_url: str) -> None:
    """Closing twice is harmless."""
    client = make_client(redis_url)
    client.enqueue("t")
    client.close()
    client.close()
    for use in (lambda: client.enqueue("t"), lambda: client.enqueue_many([]), client.ping):
        with pytest.raises(ClientClosedError):
            use()


def test_a_client_that_was_never_closed_gives_a_warning(redis_url: str) -> None:
    """Also without the cycle collector; one that never connected holds nothing and warns of nothing."""
    idle = pyasynq.sync.Client(redis_url)
    del idle
    used = pyasynq.sync.Client(redis_url)
    used.enqueue("t")
    with pytest.warns(ResourceWarning, match=r"unclosed <pyasynq\.sync\.client\.Client of Redis at"):
        del used


def test_an_async_client_that_was_never_closed_gives_a_warning(redis_url: str) -> None:
    """One warning and no error in the log, although its loop is closed by then."""

    async def use() -> Client:
        client = Client(redis_url)
        await client.enqueue("t")
        return client

    client = asyncio.run(use())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert ["unclosed <pyasynq.client.Client"] == [str(one.message)[:31] for one in caught]


def test_a_client_is_used_from_two_event_loops_in_turn(redis_url: str, redis_client: redis.Redis) -> None:
    """It connects again in the second, and the socket of the first is closed by then, without a warning."""
    client = Client(redis_url, client_name="wanderer")

    async def enqueue() -> TaskInfo:
        return await client.enqueue("t")

    def connections() -> int:
        return sum(one["name"] == "wanderer" for one in redis_client.client_list())

    first, of_first = asyncio.run(enqueue()), connections()
    second = asyncio.run(enqueue())
    assert first.id != second.id
    assert 2 == redis_client.llen(PENDING)
    # In a cluster, there is one for each node that the client needs.
    wait_until(lambda: 0 < connections() <= of_first, "the end of the first connections")
    asyncio.run(client.close())
    gc.collect()


def test_many_threads_may_share_a_blocking_client(redis_url: str, redis_client: redis.Redis) -> None:
    """Each thread has its own answers, and they travel together: far fewer scripts than tasks."""
    before = script_calls(redis_client)
    with pyasynq.sync.Client(redis_url) as client:
        found: list[str] = []

        def work(thread: int) -> None:
            for number in range(50):
                found.append(client.enqueue("t", task_id=f"{thread}:{number}").id)  # noqa: PERF401

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {f"{thread}:{number}" for thread in range(20) for number in range(50)} == set(found)
    assert 1000 == redis_client.llen(PENDING)
    assert script_calls(redis_client) - before < 600


def test_a_hundred_calls_at_once_travel_together(redis_url: str, redis_client: redis.Redis) -> None:
    """The first leaves alone, the others together; one more script call loads it."""

    async def enqueue() -> None:
        async with Client(redis_url) as client:
            await client.ping()
            infos = await asyncio.gather(
                *[client.enqueue("t", str(number).encode()) for number in range(100)]
            )
            assert [str(number).encode() for number in range(100)] == [info.payload for info in infos]

    before = script_calls(redis_client)
    asyncio.run(enqueue())
    assert 100 == redis_client.llen(PENDING)
    assert script_calls(redis_client) - before <= 5


def test_calls_that_travel_together_keep_their_own_errors(redis_url: str, redis_client: redis.Redis) -> None:
    """A conflict in the batch is the conflict of one caller."""

    async def enqueue() -> list[Any]:
        async with Client(redis_url) as client:
            ids = ["a", "b", "a", "c"]
            calls = [client.enqueue("t", task_id=one) for one in ids]
            return await asyncio.gather(*calls, return_exceptions=True)

    first, _, conflict, last = asyncio.run(enqueue())
    assert ("a", "c") == (first.id, last.id)
    assert isinstance(conflict, TaskIDConflictError)


def test_a_cancelled_call_leaves_the_others_alone(proxy: Proxy, redis_client: redis.Redis) -> None:
    """Its batch was on its way: the task may be there, and the next caller has its answer."""

    async def enqueue() -> None:
        async with Client(proxy.url) as client:
            await client.ping()
            proxy.hold()
            cancelled = asyncio.create_task(client.enqueue("t", task_id="cancelled"))
            other = asyncio.create_task(client.enqueue("t", task_id="other"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            proxy.release()
            assert "other" == (await other).id

    asyncio.run(enqueue())
    assert redis_client.exists("asynq:{default}:t:other")


def test_closing_waits_for_calls_under_way(proxy: Proxy, redis_client: redis.Redis) -> None:
    """They are answered, although no more calls are allowed."""

    async def enqueue() -> str:
        client = Client(proxy.url)
        await client.ping()
        proxy.hold()
        call = asyncio.create_task(client.enqueue("t", task_id="a"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosedError):
            await client.enqueue("t")
        proxy.release()
        await closing
        return (await call).id

    assert "a" == asyncio.run(enqueue())
    assert 1 == redis_client.llen(PENDING)


def test_middleware_wraps_each_task_from_the_outside_in(
    make_client: MakeClient, redis_url: str, tasks: Tasks
) -> None:
    """It sees the call's options as the task's own, and may enqueue another task instead."""
    client = make_client(redis_url)
    seen = []

    def tag(name: str) -> Any:
        def blocking(task: Task, call_next: Any) -> Any:
            seen.append((name, task.options.get("max_retry")))
            options: EnqueueOptions = {**task.options, "headers": {**task.headers, name: "seen"}}
            return call_next(Task(task.type, task.payload, **options))

        async def waiting(task: Task, call_next: Any) -> Any:
            return await blocking(task, call_next)

        return waiting if isinstance(client.client, Client) else blocking

    client.client.use(tag("outer"))
    client.client.use(tag("inner"))
    info = client.enqueue("t", max_retry=7)
    assert [("outer", 7), ("inner", 7)] == seen
    assert {"outer": "seen", "inner": "seen"} == info.headers
    results = client.enqueue_many(
        [Task("t", task_id=info.id), Task("t", task_id="new"), "no task"], on_error="return"
    )
    assert ["conflict", "enqueued", "refused"] == [result.status for result in results]
    assert {"outer": "seen", "inner": "seen"} == decode_task_message(tasks.fields("new")["msg"]).headers


def test_middleware_that_raises_fails_its_own_task(make_client: MakeClient, redis_url: str) -> None:
    """`enqueue` raises it as it is; `enqueue_many` names it in the task's result."""
    client = make_client(redis_url)

    def blocking(task: Task, call_next: Any) -> Any:
        if task.type == "bad":
            raise LookupError("no tenant")
        return call_next(task)

    async def waiting(task: Task, call_next: Any) -> Any:
        return await blocking(task, call_next)

    client.client.use(waiting if isinstance(client.client, Client) else blocking)  # type: ignore[arg-type]
    with pytest.raises(LookupError):
        client.enqueue("bad")
    good, bad = client.enqueue_many([Task("good"), Task("bad")], on_error="return")
    assert good
    assert "LookupError: no tenant" in str(bad.error)


def test_w25_a_lost_reply_of_a_client_call_is_not_a_conflict(
    make_client: MakeClient, proxy: Proxy, tasks: Tasks
) -> None:
    """The same through the client's door."""
    client = make_client(proxy.url)
    client.enqueue("t", task_id="before")
    proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA")
    assert "a" == client.enqueue("t", task_id="a").id
    assert ["before", "a"] == tasks.ids("pending")
