"""Event stream of a queue: it is written, bounded and read, and delays no other work."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq.sync
from pyasynq._broker.enqueueing.enqueue import enqueue_and_publish, split_runs
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._broker.task_events import (
    FIRST_MARK,
    NewEvents,
    decode_event,
    encode_event,
    publish_events,
    read_events,
)
from pyasynq._broker.waits.following import Follower
from pyasynq._engine.services.publisher import Publisher
from pyasynq._redis.driver import AsyncDriver
from pyasynq.app import App
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import (
    InvalidOptionError,
    RedisOutOfMemoryError,
    RedisPermissionError,
    RedisUnavailableError,
    ReplyLostError,
    SkipRetry,
)
from pyasynq.events import EventsDropped, LeaseLost, Outcome, TaskFinished, TaskRecovered, TaskSettled
from pyasynq.inspector import Inspector
from pyasynq.task import Task
from tests.contract.enqueueing import composed
from tests.contract.test_task_waits import until
from tests.factories import NOW, Tasks, registered
from tests.fix_consumer import consuming
from tests.fix_engine import QUICK, Recorder, Running, do_nothing, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq.info import TaskEvent
    from tests.fix_broker import Perform
    from tests.fix_drivers import OwnServer
    from tests.fix_proxy import Proxy
    from tests.invariants import RedisClient

STREAM = "asynq:{default}:x:events"
PUBLISHING = ServerConfig(concurrency=10, shutdown_timeout=5, publish_events=True)


def event_bytes(kind: str = "started", at: Instant = NOW, **facts: Any) -> bytes:
    """Return an event as a worker publishes it."""
    return encode_event(kind, "default", at, **facts)


def kinds_in(redis_client: RedisClient, stream: str = STREAM) -> list[str]:
    """Return the kinds of a stream's events, oldest first."""
    return [json.loads(fields[b"event"])["kind"] for _, fields in redis_client.xrange(stream)]


def test_events_are_appended_and_read_in_order(perform: Perform, redis_client: RedisClient) -> None:
    """With the time at which they happened; the stream goes a day after the last one."""
    events = [event_bytes(task_id=name, type="t", seconds=0.5) for name in "abc"]
    perform(publish_events("default", events, max_length=10))
    found = perform(read_events("default", FIRST_MARK))
    assert ["a", "b", "c"] == [event.task_id for event in found.events]
    first = found.events[0]
    assert ("started", "default", NOW.to_datetime(), "t", 0.5) == (
        first.kind,
        first.queue,
        first.at,
        first.type,
        first.seconds,
    )
    assert (found.mark.position, True, False) == (found.events[-1].position, found.mark.seen, found.full)
    assert 86_395 <= redis_client.ttl(STREAM) <= 86_400
    perform(publish_events("default", [event_bytes(task_id="d")], max_length=10))
    assert ["d"] == [event.task_id for event in perform(read_events("default", found.mark)).events]
    assert [] == perform(read_events("default", perform(read_events("default", None)).mark)).events


def test_the_oldest_events_go_when_a_stream_is_long(perform: Perform, redis_client: RedisClient) -> None:
    """Roughly: whole blocks of the stream go."""
    perform(publish_events("default", [event_bytes(task_id=str(n)) for n in range(2_500)], max_length=1_000))
    assert 1_000 <= redis_client.xlen(STREAM) <= 1_100
    [newest] = redis_client.xrevrange(STREAM, count=1)
    assert "2499" == json.loads(newest[1][b"event"])["task_id"]


def test_many_events_are_read_in_pieces(perform: Perform) -> None:
    """500 at a time, none of them twice."""
    perform(publish_events("default", [event_bytes(task_id=str(n)) for n in range(1_201)], max_length=5_000))
    seen, mark, sizes = [], FIRST_MARK, []
    while True:
        found = perform(read_events("default", mark))
        seen += [event.task_id for event in found.events]
        sizes.append(len(found.events))
        mark = found.mark
        if not found.full:
            break
    assert [str(n) for n in range(1_201)] == seen
    assert [501, 500, 200] == sizes


def test_a_reader_is_told_when_events_may_be_missing(perform: Perform, redis_client: RedisClient) -> None:
    """The last event it saw is gone, so others may be gone too; the kept events follow."""
    perform(publish_events("default", [event_bytes(task_id="a")], max_length=10))
    mark = perform(read_events("default", FIRST_MARK)).mark
    redis_client.xtrim(STREAM, maxlen=0, approximate=False)
    assert [] == perform(read_events("default", mark)).events
    perform(publish_events("default", [event_bytes(task_id="b")], max_length=10))
    found = perform(read_events("default", mark))
    assert [("missed", ""), ("started", "b")] == [(event.kind, event.task_id) for event in found.events]
    assert mark.position == found.events[0].position
    assert [] == perform(read_events("default", found.mark)).events


def test_a_message_that_is_not_an_event_is_passed_over(
    perform: Perform, redis_client: RedisClient, damage_allowed: None
) -> None:
    """Somebody else's entries, and events of a kind that is not known yet."""
    for data in (
        b"",
        b"[]",
        b"{}",
        b'{"kind":"x"}',
        b'{"kind":"x","at":"y"}',
        b'{"kind":"x","at":1e30}',
        b"\xff",
    ):
        redis_client.xadd(STREAM, {"event": data})
        assert decode_event("default", "1-1", data) is None
    redis_client.xadd(STREAM, {"other": b'{"kind":"x","at":1}'})
    redis_client.xadd(STREAM, {"event": b'{"kind":"of tomorrow","at":1,"more":2}'})
    assert ["of tomorrow"] == [event.kind for event in perform(read_events("default", FIRST_MARK)).events]


def test_an_event_is_small_json() -> None:
    """Empty fields are left out; this is a promise to other readers of the stream."""
    assert (
        b'{"kind":"retried","queue":"q","at":2000000000.25,"task_id":"a","retried":0,"error":"\xc3\xa9"}'
        == (encode_event("retried", "q", NOW, task_id="a", type="", retried=0, error="é"))
    )
    assert b"?" in encode_event("retried", "q", NOW, error="\ud800")


def test_enqueued_tasks_are_published_by_clients_that_were_told_to(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Events of the enqueued tasks, in their order; a conflict has none."""
    tasks.pending("b")
    [run] = split_runs([composed("a"), composed("b"), composed("c")])
    others = perform(registered(enqueue_and_publish(run, now=NOW, max_length=10), run.queue))
    assert {1: "conflict"} == {position: result.status for position, result in others.items()}
    events = [json.loads(fields[b"event"]) for _, fields in redis_client.xrange(STREAM)]
    assert ["a", "c"] == [event["task_id"] for event in events]
    assert {"kind": "enqueued", "queue": "default", "at": 2000000000.25, "type": "email:deliver"} == {
        name: value for name, value in events[0].items() if name != "task_id"
    }


def test_that_publishing_fails_changes_nothing_for_the_enqueued(
    perform: Perform, redis_client: RedisClient, damage_allowed: None
) -> None:
    """Something else stands where the stream should be."""
    redis_client.set(STREAM, "in the way")
    [run] = split_runs([composed("a")])
    assert not perform(registered(enqueue_and_publish(run, now=NOW, max_length=10), run.queue))
    redis_client.delete(STREAM)


def test_a_removed_queue_leaves_no_stream(perform: Perform, redis_client: RedisClient, tasks: Tasks) -> None:
    """Removing the queue deletes all of its keys, the stream of events included."""
    tasks.pending("a")
    perform(publish_events("default", [event_bytes()], max_length=10))
    perform(remove_queue("default", force=True, progress=None))
    assert [] == redis_client.keys("*")


def test_clients_publish_nothing_unless_told(redis_url: str, redis_client: RedisClient) -> None:
    """Asyncio, blocking and by an app; `True` or how many to keep."""
    with pyasynq.sync.Client(redis_url) as client:
        client.enqueue("t")
    assert 0 == redis_client.exists(STREAM)
    with pyasynq.sync.Client(redis_url, publish_events=True) as client:
        client.enqueue("t")
        client.enqueue_many([Task("t"), Task("t")])

    async def enqueue() -> None:
        async with Client(redis_url, publish_events=100) as client:
            await client.enqueue("t")
            await client.enqueue_many([Task("t")])
        async with App(redis_url, publish_events=True) as app:
            await app.enqueue("t")
            app.enqueue_sync("t")

    asyncio.run(enqueue())
    assert ["enqueued"] * 7 == kinds_in(redis_client)
    for wrong in (0, -1, "yes", 1.5):
        for make in (Client, pyasynq.sync.Client, App):
            with pytest.raises(InvalidOptionError, match=r"^publish_events="):
                make(redis_url, publish_events=wrong)  # type: ignore[arg-type]


def test_a_server_publishes_of_the_queues_that_it_is_told() -> None:
    """All or some, each with a length of its own; a queue that it does not serve is a mistake."""
    queues = {"a": 1, "b": 1}
    assert {} == ServerConfig().event_stream_lengths
    assert {"a": 10_000, "b": 10_000} == ServerConfig(queues=queues, publish_events=True).event_stream_lengths
    assert {"a": 5, "b": 5} == ServerConfig(queues=queues, publish_events=5).event_stream_lengths
    some = ServerConfig(queues=queues, publish_events={"a": 7, "b": False})
    assert {"a": 7} == some.event_stream_lengths
    with pytest.raises(InvalidOptionError, match=r"^publish_events=<str>"):
        ServerConfig(queues=queues, publish_events={"c": True})
    with pytest.raises(InvalidOptionError, match=r"^publish_events=0"):
        ServerConfig(queues=queues, publish_events=0)


async def handle(task: Task) -> bytes | None:
    """Do what the type says."""
    if task.type == "fail":
        raise ValueError("no such user")
    if task.type == "skip":
        raise SkipRetry
    return b"done"


async def take(redis_url: str, count: int, *queues: str, **arguments: Any) -> list[TaskEvent]:
    """Follow from the oldest event on until this many have come."""
    taken: list[TaskEvent] = []
    async with Inspector(redis_url) as inspector:
        async for event in inspector.follow(*queues, **arguments):
            taken.append(event)
            if len(taken) == count:
                break
    return taken


@run_async
async def test_a_follower_sees_what_happens_to_tasks(redis_url: str, redis_client: RedisClient) -> None:
    """From enqueue to end, with facts; an outcome is told when Redis has it."""
    async with (
        serving(redis_url, handle, PUBLISHING) as running,
        Client(redis_url, publish_events=True) as client,
    ):
        for kind in ("work", "fail", "skip"):
            await client.enqueue(kind, task_id=kind, retention=60)
            await running.finished(kind)
        events = await take(redis_url, 9, "default", after={"default": "0"})
        server_id = running.server.id
    by_task = {
        task_id: [event for event in events if event.task_id == task_id]
        for task_id in ("work", "fail", "skip")
    }
    assert ["enqueued", "started", "succeeded"] == [event.kind for event in by_task["work"]]
    assert ["enqueued", "started", "retried"] == [event.kind for event in by_task["fail"]]
    assert ["enqueued", "started", "archived"] == [event.kind for event in by_task["skip"]]
    retried = by_task["fail"][-1]
    assert ("fail", server_id, 0, 25) == (retried.type, retried.server_id, retried.retried, retried.max_retry)
    assert retried.error.startswith("ValueError: no such user")
    assert 0 < retried.seconds < 60
    assert [event.at for event in by_task["fail"]] == sorted(event.at for event in by_task["fail"])


@run_async
async def test_a_consumer_publishes_too(redis_url: str, redis_client: RedisClient, tasks: Tasks) -> None:
    """Outcomes of the tasks that it returns."""
    tasks.pending("a", "b", type="report")
    config = ConsumerConfig(publish_events=True)
    async with consuming(redis_url, config) as c, c.consumer.take("default", limit=2) as attempts:
        first, second = attempts
        await first.done()
        await second.retry(ValueError("no"))
    told = [json.loads(fields[b"event"]) for _, fields in redis_client.xrange(STREAM)]
    assert [("started", "a"), ("started", "b"), ("succeeded", "a"), ("retried", "b")] == [
        (event["kind"], event["task_id"]) for event in told
    ]


@run_async
async def test_nothing_is_published_unless_asked_for(redis_url: str, redis_client: RedisClient) -> None:
    """No service, no subscriber, no key."""
    async with serving(redis_url, do_nothing) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        assert running.server._engine is not None
        assert not [one for one in running.server._engine._started if isinstance(one, Publisher)]
    assert not redis_client.keys("*x:events")


@run_async
async def test_only_the_queues_that_are_named_are_published(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The others cost nothing."""
    config = ServerConfig(queues={"default": 1, "quiet": 1}, publish_events={"default": 50})
    async with serving(redis_url, do_nothing, config) as running:
        for queue in ("quiet", "default"):
            await running.client.enqueue("t", task_id=queue, queue=queue)
            await running.finished(queue)
    assert ["started", "succeeded"] == kinds_in(redis_client)
    assert 0 == redis_client.exists("asynq:{quiet}:x:events")


@run_async
async def test_the_last_events_are_published_at_shutdown(redis_url: str, redis_client: RedisClient) -> None:
    """The publisher ends after all that it tells of."""
    async with serving(redis_url, do_nothing, PUBLISHING) as running:
        for number in range(200):
            await running.client.enqueue("t", task_id=str(number))
        await running.finished("199")
    kinds = kinds_in(redis_client)
    assert (200, 200) == (kinds.count("started"), kinds.count("succeeded"))


async def publishing(redis_url: str, **settings: Any) -> tuple[Publisher, Running]:
    """Return the publisher of a server of its own, which the caller shuts down."""
    server = make_server(redis_url, PUBLISHING, replace(QUICK, **settings))
    running = Running(server, Client(redis_url), Recorder(server.events))
    await server.start(do_nothing)
    assert server._engine is not None
    [publisher] = [one for one in server._engine._started if isinstance(one, Publisher)]
    return publisher, running


@pytest.mark.parametrize(
    ("error", "sent_again"),
    [
        (RedisUnavailableError("redis", "gone"), True),
        (ReplyLostError("redis", "gone"), False),
        (RedisOutOfMemoryError("full"), False),
        (RedisPermissionError("no"), False),
    ],
    ids=lambda value: type(value).__name__,
)
@run_async
async def test_what_cannot_be_published_is_kept_or_counted(
    redis_url: str,
    redis_client: RedisClient,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    sent_again: bool,
) -> None:
    """Kept if Redis has not seen it; else the next event is told of the loss, and so is this process."""
    publisher, running = await publishing(redis_url)
    emit = running.server.events.emit
    publish = AsyncDriver.run_batch

    async def fail(self: AsyncDriver, plans: Any) -> Any:
        if any("publish_events" in plan.__qualname__ for plan in plans):
            monkeypatch.setattr(AsyncDriver, "run_batch", publish)
            return [error] * len(plans)
        return await publish(self, plans)

    monkeypatch.setattr(AsyncDriver, "run_batch", fail)
    try:
        emit(TaskRecovered("default", "a", 1, "s"))
        emit(TaskRecovered("default", "b", 1, "s"))
        if not sent_again:
            assert EventsDropped("default", 2) == await running.recorder.wait(EventsDropped)
        emit(TaskRecovered("default", "c", 1, "s"))
        await until(lambda: redis_client.xlen(STREAM) >= (3 if sent_again else 2))
    finally:
        await running.server.shutdown()
        await running.client.close()
    assert not publisher._buffer
    told = [json.loads(fields[b"event"]) for _, fields in redis_client.xrange(STREAM)]
    if sent_again:
        assert ["a", "b", "c"] == [event["task_id"] for event in told]
    else:
        assert [("dropped", 2), ("recovered", 1)] == [(event["kind"], event["count"]) for event in told]


@run_async
async def test_a_full_buffer_drops_and_counts(redis_url: str, redis_client: RedisClient) -> None:
    """While Redis is slow or unreachable, memory stays bounded and no caller waits."""
    _, running = await publishing(redis_url, event_buffer=3, events_at_once=2)
    for number in range(10):
        running.server.events.emit(TaskRecovered("default", str(number), 1, "s"))
    assert EventsDropped("default", 7) == await running.recorder.wait(EventsDropped)
    await running.server.shutdown()
    await running.client.close()
    told = [json.loads(fields[b"event"]) for _, fields in redis_client.xrange(STREAM)]
    assert [("dropped", 7), ("recovered", 1), ("recovered", 1), ("recovered", 1)] == sorted(
        (event["kind"], event["count"]) for event in told
    )


@run_async
async def test_an_outcome_that_redis_refuses_is_lost_and_not_a_success(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The task is another worker's by then."""
    _, running = await publishing(redis_url)
    emit = running.server.events.emit
    finished = TaskFinished("default", "a", "t", 0, 25, Outcome.SUCCEEDED, 0.1, None)
    emit(finished)
    emit(TaskSettled("default", "a", False))
    emit(finished._replace(task_id="b", outcome=Outcome.LET_GO))
    emit(TaskSettled("default", "c", True))
    await running.server.shutdown()
    await running.client.close()
    told = [json.loads(fields[b"event"]) for _, fields in redis_client.xrange(STREAM)]
    assert [("lost", "a"), ("lost", "b")] == [(event["kind"], event["task_id"]) for event in told]


@run_async
async def test_tasks_settle_while_nothing_can_be_published(
    redis_url: str, redis_client: RedisClient, damage_allowed: None
) -> None:
    """Something else stands where the stream should be: work goes on, a warning tells of it."""
    redis_client.set(STREAM, "in the way")
    async with serving(redis_url, do_nothing, PUBLISHING) as running:
        for number in range(20):
            await running.client.enqueue("t", task_id=str(number))
        await running.finished("19")
        await running.settled()
        assert 0 == redis_client.llen("asynq:{default}:active")
        await running.recorder.wait(EventsDropped)
        assert not running.recorder.of(LeaseLost)
    redis_client.delete(STREAM)


def test_a_follower_filters_by_kind_and_type(perform: Perform, redis_url: str) -> None:
    """Blocking as well; what was missed or dropped comes whatever the filter."""
    events = [
        event_bytes("started", task_id="a", type="t"),
        event_bytes("succeeded", task_id="a", type="t"),
        event_bytes("succeeded", task_id="b", type="u"),
        event_bytes("dropped", count=3),
        event_bytes("recovered", task_id="c"),
    ]
    perform(publish_events("default", events, max_length=10))
    with pyasynq.sync.Inspector(redis_url) as inspector:

        def seen(**filters: Any) -> list[tuple[str, str]]:
            found = inspector.follow("default", after={"default": "0"}, seconds=0, **filters)
            return [(event.kind, event.task_id) for event in found]

        assert 5 == len(seen())
        assert [("succeeded", "a"), ("succeeded", "b"), ("dropped", "")] == seen(kinds=["succeeded"])
        assert [("started", "a"), ("succeeded", "a"), ("dropped", "")] == seen(types=["t"])
        assert [("succeeded", "b"), ("dropped", "")] == seen(types=["u"], kinds={"succeeded", "started"})


def test_a_follower_goes_on_where_another_has_ended(perform: Perform, redis_url: str) -> None:
    """By the position of the last event; without one it begins with the present."""
    perform(publish_events("default", [event_bytes(task_id=name) for name in "abc"], max_length=10))
    with pyasynq.sync.Inspector(redis_url) as inspector:
        assert [] == list(inspector.follow("default", seconds=0.01))
        [_, second, _] = inspector.follow("default", after={"default": "0"}, seconds=0)
        rest = list(inspector.follow("default", after={"default": second.position}, seconds=0))
        assert ["c"] == [event.task_id for event in rest]


def test_wrong_arguments_of_follow_are_errors_at_once(redis_url: str) -> None:
    """The call itself raises, before the first event, and names the remedy."""
    with pyasynq.sync.Inspector(redis_url) as inspector:
        with pytest.raises(InvalidOptionError, match=r"^kinds=<str>.*did you mean 'succeeded'"):
            inspector.follow(kinds=["suceeded"])
        with pytest.raises(InvalidOptionError, match=r"^kinds=<str>: .*\['name'\]"):
            inspector.follow(kinds="started")
        with pytest.raises(InvalidOptionError, match=r"^types="):
            inspector.follow(types=[" "])
        with pytest.raises(InvalidOptionError, match=r"^queue="):
            inspector.follow(" ")
        with pytest.raises(InvalidOptionError, match=r"^after=<str>"):
            inspector.follow("default", after={"default": "yesterday"})
        with pytest.raises(InvalidOptionError, match=r"^after=<str>: must map queues to positions"):
            inspector.follow("default", after="0")  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match=r"^seconds=-1"):
            inspector.follow("default", seconds=-1)


@run_async
async def test_all_queues_are_followed_and_those_that_are_new(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first event of a new one."""
    monkeypatch.setattr("pyasynq._broker.waits.following._NEW_QUEUES_SECONDS", 0.01)
    seen: list[tuple[str, str]] = []
    redis_client.config_resetstat()
    async with Client(redis_url, publish_events=True) as client, Inspector(redis_url) as inspector:
        await client.enqueue("t", queue="old", task_id="before")
        following = inspector.follow()

        async def follow() -> None:
            async for event in following:
                seen.append((event.queue, event.task_id))
                if len(seen) == 2:
                    return

        task = asyncio.create_task(follow())
        await until(lambda: "cmdstat_xrange" in redis_client.info("commandstats"))
        await client.enqueue("t", queue="old", task_id="a")
        await client.enqueue("t", queue="new", task_id="b")
        await task
        await following.aclose()  # type: ignore[attr-defined] # it is an async generator
    assert {("old", "a"), ("new", "b")} == set(seen)


@run_async
async def test_a_follower_goes_on_when_the_connection_was_cut(
    proxy: Proxy, redis_url: str, redis_client: RedisClient
) -> None:
    """From where it was, so nothing is missed."""
    async with (
        Client(redis_url, publish_events=True) as client,
        Inspector(proxy.url, timeout=0.1) as inspector,
    ):
        await client.enqueue("t", task_id="a")
        following = inspector.follow("default", after={"default": "0"})
        assert "a" == (await anext(following)).task_id
        proxy.refuse()
        proxy.cut_all()
        next_one = asyncio.ensure_future(anext(following))
        await client.enqueue("t", task_id="b")
        proxy.on_refusal(3, lambda: proxy.refuse(False))
        assert "b" == (await next_one).task_id
        await following.aclose()  # type: ignore[attr-defined] # it is an async generator


def test_a_follower_rests_longer_while_nothing_happens() -> None:
    """And not at all while there is more to read; errors that do not pass are raised."""
    follower = Follower(["a"], kinds=(), types=(), after={})
    rests = []
    for _ in range(6):
        [plan] = follower.plans(0.0)
        plan.close()
        follower.take([read_nothing()], 0.0)
        rests.append(follower.rest())
    assert rests == sorted(rests)
    assert [0.1, 0.25] == [pytest.approx(rests[0]), pytest.approx(rests[-1])]
    follower.plans(0.0)[0].close()
    assert [] == follower.take([RedisUnavailableError("redis", "gone")], 0.0)
    assert 0 < follower.rest() <= 0.1
    follower.plans(0.0)[0].close()
    follower.take([read_nothing()._replace(full=True)], 0.0)
    assert 0.0 == follower.rest()
    follower.plans(0.0)[0].close()
    with pytest.raises(RedisPermissionError):
        follower.take([RedisPermissionError("no")], 0.0)


def read_nothing() -> Any:
    """Return the answer of a stream without news."""
    return NewEvents([], FIRST_MARK, full=False)


def test_events_are_not_written_into_a_full_redis(own_server: OwnServer) -> None:
    """They do not drain it; their publishers continue without events."""
    with own_server.connect() as redis_client:
        redis_client.config_set("maxmemory", 1)
        with pyasynq.sync.Client(own_server.url) as client:
            driver = client._driver
            with pytest.raises(RedisOutOfMemoryError):
                driver.run(publish_events("default", [event_bytes()], max_length=10))
        assert 0 == redis_client.exists(STREAM)
