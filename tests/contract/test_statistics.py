"""What servers count of their attempts, when they write it, and how an inspector shows it."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq.sync
from pyasynq import Archive, Cancel, SkipRetry, Snooze
from pyasynq._broker.inspecting.marks import MAX_MARKS
from pyasynq._wire.keys import MARKS_KEY
from pyasynq.config import ServerConfig
from pyasynq.errors import InvalidOptionError
from pyasynq.events import HeartbeatWritten, RoundFailed, RoundFinished
from pyasynq.inspector import Inspector
from pyasynq.task import Task
from tests.factories import TOKEN, Tasks
from tests.fix_consumer import consuming
from tests.fix_engine import QUICK, do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.telemetry import AttemptCounts
    from tests.fix_drivers import OwnServer
    from tests.fix_engine import Running
    from tests.invariants import RedisClient

SLOW_BEATS = dataclasses.replace(QUICK, heartbeat_interval=1_000)
"""Only the end of the server writes."""


def an_hour_ago() -> datetime:
    """Return a time for which minutes are kept, or with a step anything else."""
    return datetime.now(UTC) - timedelta(hours=1)


async def totals(url: str, *queues: str, step: int = 600) -> dict[str, AttemptCounts]:
    """Return the counts of each type, whatever the queue."""
    async with Inspector(url) as inspector:
        found = await inspector.attempt_series(*(queues or ("default",)), since=an_hour_ago(), step=step)
    return {series.type: series.total for series in found}


async def ended(running: Running, attempts: int) -> None:
    """Wait until this many attempts have ended."""
    engine = running.server._engine
    assert engine is not None
    while sum(engine.outcomes().values()) < attempts:
        await running.recorder.wait(RoundFinished, new=True)


async def end_as_it_says(task: Task) -> Any:
    """End in the way that the payload names."""
    match task.payload:
        case b"fail":
            raise ValueError("no")
        case b"skip":
            raise SkipRetry("no")
        case b"archive":
            return Archive("no")
        case b"cancel":
            return Cancel()
        case b"snooze":
            return Snooze(60)
        case b"hang":
            await asyncio.sleep(60)
    return None


@run_async
async def test_each_outcome_is_counted_by_type_with_its_run_and_its_wait(redis_url: str) -> None:
    """At the latest when the server ends; each attempt is in both histograms."""
    async with serving(redis_url, end_as_it_says, settings=SLOW_BEATS) as running:
        for payload in (b"", b"", b"fail", b"skip", b"archive", b"cancel", b"snooze"):
            await running.client.enqueue(Task("work", payload))
        await running.client.enqueue("other", task_id="last")
        await ended(running, 8)
    found = await totals(redis_url)
    assert {"work", "other"} == found.keys()
    work = found["work"]
    assert (2, 1, 2, 1, 1) == (work.succeeded, work.retried, work.archived, work.snoozed, work.revoked)
    assert (7, 7, 7, 3) == (work.ended, work.run.total, work.wait.total, work.failed)
    assert (1, 0) == (found["other"].succeeded, found["other"].failed)


@run_async
async def test_a_timeout_counts_as_one_and_as_a_failure(redis_url: str) -> None:
    """A timeout is in both counts, and its duration is measured."""
    async with serving(redis_url, end_as_it_says, settings=SLOW_BEATS) as running:
        await running.client.enqueue(Task("slow", b"hang"), task_id="a", timeout=1, max_retry=0)
        await running.finished("a")
    slow = (await totals(redis_url))["slow"]
    assert (1, 1, 0) == (slow.timed_out, slow.archived, slow.succeeded)
    assert slow.run.seconds >= 1


@run_async
async def test_counts_are_written_behind_a_heartbeat(redis_url: str) -> None:
    """While the server runs; what was written is not written again."""
    async with serving(redis_url, do_nothing) as running:
        await running.client.enqueue("work", task_id="a")
        await running.finished("a")
        await running.recorder.wait(HeartbeatWritten, new=True)
        await running.next_round("statistics")
        assert 1 == (await totals(redis_url))["work"].succeeded
        await running.recorder.wait(HeartbeatWritten, new=True)
        await running.next_round("statistics")
    assert 1 == (await totals(redis_url))["work"].succeeded


@run_async
async def test_a_server_without_attempts_writes_nothing(redis_url: str, redis_client: RedisClient) -> None:
    """However many heartbeats there are."""
    async with serving(redis_url, do_nothing) as running:
        await running.next_round("statistics")
        await running.next_round("statistics")
    assert [] == redis_client.keys("*:x:stats:*")


@run_async
async def test_a_server_that_is_told_not_to_counts_nothing(redis_url: str, redis_client: RedisClient) -> None:
    """There is no service for it either."""
    async with serving(redis_url, do_nothing, ServerConfig(statistics=False)) as running:
        await running.client.enqueue("work", task_id="a")
        await running.finished("a")
        await running.recorder.wait(HeartbeatWritten, new=True)
    assert [] == redis_client.keys("*:x:stats:*")
    assert [] == [one for one in running.recorder.of(RoundFinished) if one.service == "statistics"]


@pytest.mark.long
@run_async
async def test_a_busy_type_is_measured_in_samples_whose_number_is_right(redis_url: str) -> None:
    """Each success is in both histograms once, although few were measured."""
    async with serving(redis_url, do_nothing, settings=SLOW_BEATS) as running:
        await running.client.enqueue_many([Task("work") for _ in range(2_000)])
        await ended(running, 2_000)
    work = (await totals(redis_url))["work"]
    assert (2_000, 2_000, 2_000) == (work.succeeded, work.run.total, work.wait.total)


@run_async
async def test_the_attempts_of_a_consumer_are_counted(redis_url: str, tasks: Tasks) -> None:
    """A consumer's attempts appear in the statistics like those of a server."""
    tasks.pending("a", "b", type="work")
    async with consuming(redis_url) as c, c.consumer.take("default", limit=2) as attempts:
        await attempts[0].done()
        await attempts[1].archive("no")
    work = (await totals(redis_url))["work"]
    assert (1, 1) == (work.succeeded, work.archived)


@run_async
async def test_a_task_that_is_recovered_is_counted_by_its_type(redis_url: str, tasks: Tasks) -> None:
    """By the server that recovers it, which then runs it; one that is poison as such."""
    tasks.active("back", lease=1, token=TOKEN, type="work")
    tasks.active("poison", lease=1, token=TOKEN, crashes=100, type="killer")
    async with serving(redis_url, do_nothing) as running:
        await running.finished("back")
    found = await totals(redis_url)
    assert (1, 1) == (found["work"].recovered, found["work"].succeeded)
    assert (1, 0) == (found["killer"].poisoned, found["killer"].ended)


@pytest.mark.usefixtures("impatient")
@run_async
async def test_counts_wait_for_redis_to_come_back(own_server: OwnServer) -> None:
    """What Redis has not seen goes along later, and once."""
    async with serving(own_server.url, do_nothing, settings=SLOW_BEATS) as running:
        engine = running.server._engine
        assert engine is not None
        [service] = [one for one in engine._started if one.name == "statistics"]
        # The rounds after the start and the only heartbeat must not see the task: what they write is lost.
        await running.recorder.wait(HeartbeatWritten)
        service.wake()
        await running.next_round("statistics")
        await running.client.enqueue("work", task_id="a")
        await running.finished("a")
        await running.settled()
        own_server.stop()
        # Counts on a connection whose end was not noticed would be lost with the reply.
        await running.recorder.wait(RoundFailed, new=True)
        service.wake()
        await running.recorder.wait(RoundFailed, lambda event: event.service == "statistics")
        own_server.start()
        await running.next_round("statistics")
    assert 1 == (await totals(own_server.url))["work"].succeeded


@run_async
async def test_more_types_than_are_kept_are_counted_together(redis_url: str) -> None:
    """The rarest of them; none is lost."""
    async with serving(redis_url, do_nothing, settings=SLOW_BEATS) as running:
        many = [Task(f"t{number:03}") for number in range(80) for _ in range(2 if number < 50 else 1)]
        await running.client.enqueue_many([*many, Task("x" * 300)])
        await ended(running, 131)
    found = await totals(redis_url)
    assert 51 == len(found)
    assert {f"t{number:03}" for number in range(50)} | {"_other"} == found.keys()
    assert 31 == found["_other"].succeeded


@run_async
async def test_series_of_many_queues_come_in_one_answer(redis_url: str) -> None:
    """In the order of the queues; one that does not exist has none."""
    config = ServerConfig(queues={"a": 1, "b": 1})
    async with serving(redis_url, do_nothing, config, settings=SLOW_BEATS) as running:
        for queue in "ab":
            await running.client.enqueue("work", queue=queue, task_id=queue)
            await running.finished(queue)
    async with Inspector(redis_url) as inspector:
        found = await inspector.attempt_series("b", "none", "a", since=an_hour_ago())
        assert [("b", 60), ("a", 60)] == [(series.queue, series.step) for series in found]
        assert [] == await inspector.attempt_series("a", since=an_hour_ago(), types=["none"])
        assert [] == await inspector.attempt_series("a", since=an_hour_ago(), types=[])
    with pyasynq.sync.Inspector(redis_url) as blocking:
        assert found == blocking.attempt_series("b", "none", "a", since=an_hour_ago())


@pytest.mark.parametrize(
    ("hours", "step"), [(1, 60), (1.9, 60), (3, 600), (71, 600), (73, 86_400), (24 * 400, 86_400)]
)
@run_async
async def test_a_series_is_as_fine_as_its_beginning_allows(redis_url: str, hours: float, step: int) -> None:
    """Unless a step is asked for."""
    async with serving(redis_url, do_nothing, settings=SLOW_BEATS) as running:
        await running.client.enqueue("work", task_id="a")
        await running.finished("a")
    since = datetime.now(UTC) - timedelta(hours=hours)
    async with Inspector(redis_url) as inspector:
        [series] = await inspector.attempt_series("default", since=since)
        assert (step, 1) == (series.step, series.total.succeeded)


@pytest.mark.parametrize("arguments", [{"since": datetime(2026, 1, 1)}, {"step": 61}, {"until": 5}])  # noqa: DTZ001
@run_async
async def test_what_cannot_be_a_series_is_refused(redis_url: str, arguments: Any) -> None:
    """A time without a zone, or a step that is not kept."""
    async with Inspector(redis_url) as inspector:
        with pytest.raises(InvalidOptionError):
            await inspector.attempt_series("default", **{"since": an_hour_ago(), **arguments})


@run_async
async def test_a_time_to_come_costs_nothing(redis_url: str) -> None:
    """A series ends now at the latest: the minutes of the next millennium would be half a billion keys."""
    async with Inspector(redis_url) as inspector:
        until = datetime(3314, 4, 27, tzinfo=UTC)
        assert [] == await inspector.attempt_series("default", since=an_hour_ago(), until=until, step=60)


@run_async
async def test_removing_a_queue_removes_its_statistics(redis_url: str, redis_client: RedisClient) -> None:
    """They are found with the other keys of its name."""
    async with serving(redis_url, do_nothing) as running:
        await running.client.enqueue("work", task_id="a")
        await running.finished("a")
    assert 3 == len(redis_client.keys("*:x:stats:*"))
    async with Inspector(redis_url) as inspector:
        await inspector.remove_queue("default")
    assert [] == redis_client.keys("*:x:stats:*")


# Marks.


@run_async
async def test_a_mark_is_kept_listed_and_removed(redis_url: str, redis_client: RedisClient) -> None:
    """Marks are listed by time, with the user who set them."""
    now = datetime.now(UTC)
    async with Inspector(redis_url) as inspector:
        late = await inspector.add_mark("deploy b", by="ann")
        early = await inspector.add_mark("deploy a", at=now - timedelta(hours=2))
        assert [early, late] == await inspector.marks(now - timedelta(hours=3))
        assert [early] == await inspector.marks(now - timedelta(hours=3), now - timedelta(hours=1))
        assert ("deploy b", "ann", "") == (late.text, late.by, early.by)
        assert redis_client.ttl(MARKS_KEY) > 80 * 86_400
        assert (True, False) == (await inspector.remove_mark(late.id), await inspector.remove_mark(late.id))
        assert [early] == await inspector.marks(now - timedelta(hours=3))


@run_async
async def test_only_the_newest_thousand_marks_are_kept(redis_url: str, redis_client: RedisClient) -> None:
    """The oldest one goes with the next mark."""
    redis_client.zadd(MARKS_KEY, {f"mark {number}": number for number in range(MAX_MARKS)})
    async with Inspector(redis_url) as inspector:
        await inspector.add_mark("deploy")
    assert (MAX_MARKS, None) == (redis_client.zcard(MARKS_KEY), redis_client.zscore(MARKS_KEY, "mark 0"))


@pytest.mark.parametrize("text", ["", " ", "x" * 201, 5])
@run_async
async def test_a_text_that_cannot_be_a_mark_is_refused(redis_url: str, text: Any) -> None:
    """Before anything is sent."""
    async with Inspector(redis_url) as inspector:
        with pytest.raises(InvalidOptionError, match="text"):
            await inspector.add_mark(text)


@pytest.mark.parametrize(
    "damage", [b"x", b"[]", b"null", b'{"at":1e999}', b'{"at":true,"id":1}', b'{"at":1}']
)
@run_async
async def test_what_is_not_a_mark_is_left_out(
    redis_url: str, redis_client: RedisClient, damage: bytes
) -> None:
    """Marks are listed all the same."""
    redis_client.zadd(MARKS_KEY, {damage: 5})
    async with Inspector(redis_url) as inspector:
        mark = await inspector.add_mark("deploy")
        assert [mark] == await inspector.marks(datetime.fromtimestamp(1, UTC))
