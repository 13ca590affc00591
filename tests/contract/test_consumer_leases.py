"""Leases that only their holders renew, perhaps from another host: extended, lapsed, found again."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Literal

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.consumer import Consumer, ConsumerConfig
from pyasynq.context import context
from pyasynq.errors import (
    AttemptSettledError,
    ConfigurationError,
    InvalidOptionError,
    LeaseExpiredError,
    TaskCanceledError,
    TaskTimeoutError,
    UnknownAttemptError,
)
from pyasynq.events import LeaseLapsed, LeaseLost, Outcome, TaskPoisoned, TaskRecovered, TaskSettled
from pyasynq.inspector import Inspector
from tests.contract.test_consumer_settles import break_calls
from tests.fix_consumer import be_impatient, consuming
from tests.fix_engine import QUICK, is_watched, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from pyasynq.consumer import Attempt
    from pyasynq.task import Task
    from tests.factories import Tasks
    from tests.fix_drivers import OwnServer

NO_RECOVERY = dataclasses.replace(QUICK, look_interval=1_000)
RECOVERY = dataclasses.replace(QUICK, lease=1, own_slack=0)


def lasts(attempt: Attempt, seconds: float, since: float) -> bool:
    """Return whether a call since this Unix time set a lease to these seconds, give or take two."""
    return since + seconds - 2 <= attempt.lease_expires_at.timestamp() <= time.time() + seconds + 2


@run_async
async def test_a_lease_lasts_as_long_as_was_asked_and_is_not_renewed(redis_url: str, tasks: Tasks) -> None:
    """Heartbeats go by."""
    tasks.pending("a")
    async with consuming(redis_url) as c:
        since = time.time()
        [attempt] = await c.consumer.lease(duration=99.5)
        assert lasts(attempt, 99.5, since)
        end = tasks.scores("lease")["a"]
        assert attempt.lease_expires_at.timestamp() == end
        for _ in range(5):
            await c.next_round("heartbeater")
        assert end == tasks.scores("lease")["a"]
        await attempt.done()
    assert {} == tasks.fields("a")


@run_async
async def test_extend_moves_the_end_of_a_lease_either_way(redis_url: str, tasks: Tasks) -> None:
    """Counted from now; the receipt knows it."""
    tasks.pending("a")
    async with consuming(redis_url) as c:
        [attempt] = await c.consumer.lease(duration=20)
        before = attempt.receipt
        for seconds in (600, 5):
            since = time.time()
            await attempt.extend(seconds)
            assert lasts(attempt, seconds, since)
            assert attempt.lease_expires_at.timestamp() == tasks.scores("lease")["a"]
        assert before != attempt.receipt
        with pytest.raises(InvalidOptionError, match="max_lease"):
            await attempt.extend(100_000)
        await attempt.done()
        with pytest.raises(AttemptSettledError):
            await attempt.extend(5)
    assert {} == tasks.fields("a")


@run_async
async def test_h09_extend_prolongs_the_lock_of_a_unique_task(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """It must outlive the lease, so that the task is still the only one when it is recovered."""
    async with Client(redis_url) as client, consuming(redis_url) as c:
        await client.enqueue("t", b"1", unique=90)
        [attempt] = await c.consumer.lease(duration=20)
        [lock] = redis_client.keys("*:unique:*")
        before = redis_client.ttl(lock)
        await attempt.extend(600)
        assert before < 1_100 < redis_client.ttl(lock) <= 1_200
        await attempt.done()
        assert [] == redis_client.keys("*:unique:*")


@run_async
async def test_extend_does_not_go_beyond_the_deadline(redis_url: str, tasks: Tasks) -> None:
    """The time that the task's client gave it is all it has."""
    tasks.pending("a", timeout=50)
    async with consuming(redis_url) as c:
        since = time.time()
        [attempt] = await c.consumer.lease()
        await attempt.extend(600)
        assert lasts(attempt, 50.5, since)
        await attempt.requeue()


@run_async
async def test_h06_a_lease_that_lapses_is_recovered_like_that_of_a_crashed_worker(
    redis_url: str, tasks: Tasks
) -> None:
    """It counts as a crash once it was extended, spends no retry, and its holder is told."""
    tasks.pending("a", retry=0)
    async with consuming(redis_url, settings=RECOVERY) as c:
        [attempt] = await c.consumer.lease(duration=1)
        await attempt.extend(1)
        assert isinstance(await attempt.wait_cancelled(), LeaseExpiredError)
        for late in (attempt.done(), attempt.extend(5), attempt.write_result(b"")):
            with pytest.raises(LeaseExpiredError):
                await late
        [again] = await asyncio.wait_for(c.consumer.lease(), 10)
        assert ("a", 1, 0) == (again.id, again.crashes, again.retried)
        assert [c.consumer.id] == [event.server_id for event in c.recorder.of(TaskRecovered)]
        assert 1 == len(c.recorder.of(LeaseLost))
        await again.done()


@run_async
async def test_a_lease_that_was_never_extended_lapses_without_a_crash(redis_url: str, tasks: Tasks) -> None:
    """Its holder may have hung up before it had the task; what it does at last forgets the lapses."""
    tasks.pending("a", retention=60)
    async with consuming(redis_url, settings=RECOVERY) as c, consuming(redis_url, settings=RECOVERY) as other:
        await c.consumer.lease(duration=1)
        [again] = await asyncio.wait_for(other.consumer.lease(duration=60), 10)
        lapsed = [*c.recorder.of(LeaseLapsed), *other.recorder.of(LeaseLapsed)]
        assert ("a", 0, [1]) == (again.id, again.crashes, [event.lapses for event in lapsed])
        assert "x:extended" not in tasks.fields("a")
        for _ in range(2):
            await again.extend(60)
        fields = tasks.fields("a")
        assert (fields["x:attempt"], b"1") == (fields["x:extended"], fields["x:lapses"])
        await again.done()
    assert "x:lapses" not in tasks.fields("a")


@run_async
async def test_h06_a_task_whose_leases_keep_lapsing_is_poison(redis_url: str, tasks: Tasks) -> None:
    """As if it had killed its workers, for all that is known."""
    tasks.pending("a")
    async with consuming(redis_url, ConsumerConfig(crash_limit=1), RECOVERY) as c:
        await c.consumer.lease(duration=1)
        assert "a" == (await asyncio.wait_for(c.recorder.wait(TaskPoisoned), 10)).task_id
    assert ["a"] == tasks.ids("archived")


@run_async
async def test_a_lapsed_lease_frees_its_place(redis_url: str, tasks: Tasks) -> None:
    """Holders that never come back do not fill the consumer up."""
    tasks.pending("a", "b")
    async with consuming(redis_url, ConsumerConfig(concurrency=1), NO_RECOVERY) as c:
        await c.consumer.lease(duration=1)
        [b] = await asyncio.wait_for(c.consumer.lease(), 10)
        assert "b" == b.id
        await b.done()
    assert ["a"] == tasks.ids("active")


@run_async
async def test_the_deadline_of_a_lease_is_settled_without_its_holder(redis_url: str, tasks: Tasks) -> None:
    """As timed out, with a retry spent; the holder hears of it when he comes back."""
    tasks.pending("a", timeout=1)
    async with consuming(redis_url) as c:
        [attempt] = await c.consumer.lease(duration=600)
        assert Outcome.RETRIED is (await c.finished("a")).outcome
        with pytest.raises(TaskTimeoutError):
            await attempt.done()
        with pytest.raises(TaskTimeoutError):
            await attempt.extend(5)
    message = decode_task_message(tasks.fields("a")["msg"])
    assert ("context deadline exceeded", 1) == (message.error_msg, message.retried)


@run_async
async def test_h05_extend_finds_that_a_lease_is_lost(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Nothing is moved."""
    tasks.pending("a")
    async with consuming(redis_url) as c:
        [attempt] = await c.consumer.lease(duration=20)
        end = tasks.scores("lease")["a"]
        redis_client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
        with pytest.raises(LeaseExpiredError):
            await attempt.extend(600)
    assert end == tasks.scores("lease")["a"]


@run_async
async def test_an_extend_that_fails_leaves_the_lease_as_it_was(own_server: OwnServer) -> None:
    """The holder may try again, or settle."""
    own_server.stop()
    own_server.start("--appendonly", "yes", "--appendfsync", "always")
    async with consuming(own_server.url) as c:
        await c.enqueue("a")
        [attempt] = await c.consumer.lease(duration=100)
        before = attempt.lease_expires_at
        be_impatient(c)
        own_server.stop()
        with pytest.raises(ConnectionError):
            await attempt.extend(600)
        assert before == attempt.lease_expires_at
        own_server.start("--appendonly", "yes", "--appendfsync", "always")
        await attempt.done()


@run_async
async def test_a_receipt_finds_the_attempt_in_the_same_consumer(redis_url: str, tasks: Tasks) -> None:
    """Another request of the same gateway settles it, once."""
    tasks.pending("a")
    async with consuming(redis_url) as c:
        [attempt] = await c.consumer.lease()
        again = await c.consumer.find("default", "a", attempt.receipt)
        await again.done()
        with pytest.raises(AttemptSettledError, match="before, as 'done'"):
            await attempt.retry("oops")


@run_async
async def test_a_receipt_finds_the_attempt_in_another_consumer(redis_url: str, tasks: Tasks) -> None:
    """Which extends and settles it; the first one, which knows nothing of it, does no harm."""
    tasks.pending("a", retried=1)
    async with consuming(redis_url, settings=NO_RECOVERY) as one, consuming(redis_url) as two:
        [attempt] = await one.consumer.lease(duration=1)
        first, second = await asyncio.gather(
            *(two.consumer.find("default", "a", attempt.receipt) for _ in range(2))
        )
        assert ("a", b"{}", 1) == (first.id, first.task.payload, first.retried)
        assert attempt.deadline.replace(microsecond=0) == first.deadline
        since = time.time()
        await first.extend(60)
        assert lasts(second, 60, since)
        assert isinstance(await attempt.wait_cancelled(), LeaseExpiredError)
        await second.retry("not yet")
    assert [] == one.recorder.of(LeaseLost)
    assert ["a"] == list(tasks.scores("retry"))
    assert 2 == decode_task_message(tasks.fields("a")["msg"]).retried


@pytest.mark.parametrize("has_lapsed", [False, True])
@run_async
async def test_a_lease_that_another_consumer_has_extended_is_settled_through_the_first(
    redis_url: str, tasks: Tasks, has_lapsed: bool
) -> None:
    """Requests of one worker reach the instances of a gateway in turn; old receipts name the same lease."""
    tasks.pending("a")
    async with consuming(redis_url, settings=NO_RECOVERY) as one, consuming(redis_url) as two:
        [attempt] = await one.consumer.lease(duration=1 if has_lapsed else 5)
        before = attempt.receipt
        elsewhere = await two.consumer.find("default", "a", before)
        await elsewhere.extend(600)
        if has_lapsed:
            await attempt.wait_cancelled()
        again = await one.consumer.find("default", "a", before)
        assert elsewhere.lease_expires_at == again.lease_expires_at
        await again.done()
    assert {} == tasks.fields("a")
    assert [] == one.recorder.of(LeaseLost)


@run_async
async def test_a_consumer_does_not_warn_of_a_lease_whose_task_was_settled_through_another_one(
    redis_url: str, tasks: Tasks
) -> None:
    """Redis knows how the holder settled it; a lease of which nothing is known is told as lost."""
    tasks.pending("a", "b")
    async with consuming(redis_url, settings=NO_RECOVERY) as one, consuming(redis_url) as two:
        attempts = [*await one.consumer.lease(duration=1), *await one.consumer.lease(duration=1)]
        found = await two.consumer.find("default", attempts[0].id, attempts[0].receipt)
        await found.done()
        for attempt in attempts:
            assert isinstance(await attempt.wait_cancelled(), LeaseExpiredError)
        await one.recorder.wait(LeaseLost, lambda event: event.task_id == attempts[1].id)
    assert [attempts[1].id] == [event.task_id for event in one.recorder.of(LeaseLost)]


@run_async
async def test_leases_outlive_the_consumer_that_gave_them(redis_url: str, tasks: Tasks) -> None:
    """A gateway is restarted while its workers work: they settle through the next one."""
    tasks.pending("a")
    async with consuming(redis_url) as one:
        [attempt] = await one.consumer.lease(duration=60)
    assert ["a"] == tasks.ids("active")
    with pytest.raises(LeaseExpiredError):
        await attempt.done()
    async with consuming(redis_url) as two:
        again = await two.consumer.find("default", "a", attempt.receipt)
        await again.done(b"result")
    assert {} == tasks.fields("a")


@run_async
async def test_the_deadline_goes_with_the_receipt(redis_url: str, tasks: Tasks) -> None:
    """A holder that finds the attempt after it settles it as timed out."""
    tasks.pending("a", timeout=1)
    async with consuming(redis_url) as one:
        [attempt] = await one.consumer.lease(duration=60)
    async with consuming(redis_url) as two:
        await asyncio.sleep(max(0.0, attempt.deadline.timestamp() - time.time()))
        found = asyncio.create_task(two.consumer.find("default", "a", attempt.receipt))
        assert Outcome.RETRIED is (await two.finished("a")).outcome
        await asyncio.wait({found})


@run_async
async def test_a_lease_ends_at_the_deadline_of_its_task(redis_url: str, tasks: Tasks) -> None:
    """In Redis and in the receipt; tasks of the same take that have more time keep their lease. (D13)"""
    tasks.pending("short", timeout=5)
    tasks.pending("long", timeout=500)
    since = time.time()
    async with consuming(redis_url) as c:
        attempts = await c.consumer.lease(limit=2, duration=60)
        assert {"short", "long"} == {one.id for one in attempts}
        for attempt in attempts:
            assert lasts(attempt, since, 5 if attempt.id == "short" else 60)
            assert attempt.lease_expires_at.timestamp() == tasks.scores("lease")[attempt.id]
            await attempt.requeue()


@pytest.mark.parametrize("elsewhere", [False, True])
@run_async
async def test_a_settle_that_is_sent_again_is_answered_as_the_first(
    redis_url: str, tasks: Tasks, elsewhere: bool
) -> None:
    """Any consumer may get it, from a worker that missed the first answer. (D13)"""
    tasks.pending("a")
    async with consuming(redis_url) as one, consuming(redis_url) as two:
        [attempt] = await one.consumer.lease()
        await asyncio.gather(attempt.done(b"1"), attempt.done(b"1"))
        again = await (two if elsewhere else one).consumer.find("default", "a", attempt.receipt)
        assert ("done", "a", "default") == (again.verdict, again.id, again.queue)
        await again.done(b"1")
        for other in (again.retry("oops"), again.requeue(), again.extend(5), again.write_result(b"")):
            with pytest.raises(AttemptSettledError, match="before, as 'done'") as caught:
                await other
            assert "done" == caught.value.verdict
        with pytest.raises(AttemptSettledError):
            assert again.task.type


@run_async
async def test_the_second_of_two_consumers_to_settle_gets_the_answer_of_the_first(
    redis_url: str, tasks: Tasks
) -> None:
    """Although both held the attempt when they were asked. (D13)"""
    tasks.pending("a", "b")
    async with consuming(redis_url) as one, consuming(redis_url) as two:
        for attempt in await one.consumer.lease(limit=2):
            same = await two.consumer.find("default", attempt.id, attempt.receipt)
            await attempt.archive("no more")
            if attempt.id == "a":
                await same.archive("no more")
            else:
                with pytest.raises(AttemptSettledError, match="as 'archive'"):
                    await same.done()


@run_async
async def test_the_holder_hears_of_a_timeout_in_any_consumer(redis_url: str, tasks: Tasks) -> None:
    """From `find`, after the attempt was settled without it. (D13)"""
    tasks.pending("a", timeout=1)
    async with consuming(redis_url) as one, consuming(redis_url) as two:
        [attempt] = await one.consumer.lease()
        await one.recorder.wait(TaskSettled)
        with pytest.raises(TaskTimeoutError):
            await attempt.done()
        for c in (one, two):
            with pytest.raises(TaskTimeoutError):
                await c.consumer.find("default", "a", attempt.receipt)


@pytest.mark.parametrize("outcome", ["retry", "archive", "delete"])
@run_async
async def test_the_holder_hears_of_a_cancellation_in_any_consumer(
    redis_url: str, tasks: Tasks, outcome: Literal["retry", "archive", "delete"]
) -> None:
    """It also learns the outcome of its task. (D13)"""
    tasks.pending("a")
    async with consuming(redis_url) as one, consuming(redis_url) as two, Inspector(redis_url) as inspector:
        [attempt] = await one.consumer.lease()
        await inspector.cancel("a", "default", outcome)
        await one.recorder.wait(TaskSettled)
        with pytest.raises(TaskCanceledError):
            await attempt.done()
        for c in (one, two):
            with pytest.raises(TaskCanceledError) as caught:
                await c.consumer.find("default", "a", attempt.receipt)
            assert outcome == caught.value.outcome


@run_async
async def test_a_lost_lease_is_told_and_an_unknown_one_too(redis_url: str, tasks: Tasks) -> None:
    """They are two errors, and both say that the task is not the holder's. (D13)"""
    tasks.pending("a")
    async with consuming(redis_url, settings=RECOVERY) as c:
        [attempt] = await c.consumer.lease(duration=1)
        [again] = await asyncio.wait_for(c.consumer.lease(), 10)
        with pytest.raises(LeaseExpiredError, match="lease expired"):
            await c.consumer.find("default", "a", attempt.receipt)
        await again.done()
        tasks.client.delete(tasks.keys.verdicts)
        with pytest.raises(UnknownAttemptError, match="unknown: settled or lost more than 60 s ago"):
            await c.consumer.find("default", "a", again.receipt)


@pytest.mark.parametrize(
    "receipt",
    ["", "a/1", "/1/2", "s/1/x/2", "s/1/2/-3", "s/1/" + "9" * 5_000, "s/1/999999999999", "s/1/²", 7, None],
)
@run_async
async def test_a_text_that_is_not_a_receipt_is_refused(redis_url: str, receipt: str) -> None:
    """It came from outside, perhaps."""
    async with consuming(redis_url) as c:
        with pytest.raises(InvalidOptionError, match="receipt of an attempt"):
            await c.consumer.find("default", "a", receipt)
        with pytest.raises(ConfigurationError, match="does not serve"):
            await c.consumer.find("other", "a", "s/1/2/3")
        with pytest.raises(LeaseExpiredError):
            await c.consumer.find("default", "a", "s/1/2/3")


@run_async
async def test_a_call_whose_reply_is_lost_hands_out_what_it_took(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Once: the one who waits gets it."""
    async with consuming(redis_url) as c:
        waiting = asyncio.create_task(c.consumer.lease(limit=2))
        queue = c.engine._intake.board.queues[0]
        while not is_watched(queue):
            await c.next_round("deadlines")
        break_calls(c, "dequeue:after")
        tasks.pending("a")
        [attempt] = await asyncio.wait_for(waiting, 10)
        assert "a" == attempt.id
        await attempt.done()
    assert 0 == redis_client.exists(tasks.keys.lease)


@run_async
async def test_two_consumers_and_a_server_share_a_queue(redis_url: str, redis_client: redis.Redis) -> None:
    """Three hundred tasks, each of which runs once."""
    runs: list[str] = []

    async def handle(task: Task) -> None:
        del task
        await asyncio.sleep(0.001)
        runs.append(context().task_id)

    async def consume(consumer: Consumer) -> None:
        while True:
            async with consumer.take(limit=5, wait=0.5) as attempts:
                if not attempts:
                    return
                for attempt in attempts:
                    await asyncio.sleep(0.001)
                    runs.append(attempt.id)
                    await attempt.done()

    async with consuming(redis_url) as one, consuming(redis_url) as two:
        ids = [f"t{place}" for place in range(300)]
        await one.enqueue(*ids)
        async with serving(redis_url, handle) as running:
            await asyncio.gather(consume(one.consumer), consume(two.consumer))
            await running.settled()
    assert sorted(ids) == sorted(runs)
    assert 300 == int(redis_client.get("asynq:{default}:processed") or 0)
