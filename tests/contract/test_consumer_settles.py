"""What the holders of attempts say about them: settled, put back, timed out, cancelled, lost."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.cancellation import request_cancelation
from pyasynq._wire.messages import decode_task_message
from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import (
    AttemptSettledError,
    InvalidOptionError,
    LeaseExpiredError,
    ServerStateError,
    SkipRetry,
    TaskCanceledError,
    TaskTimeoutError,
)
from pyasynq.events import LeaseLost, Outcome, SettleDelayed, TasksPutBack
from pyasynq.inspector import Inspector
from tests.contract.test_server_settles import BreakingDriver
from tests.fix_consumer import be_impatient, consuming
from tests.fix_engine import QUICK
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from pyasynq.consumer import Attempt
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.fix_consumer import Consuming
    from tests.fix_drivers import OwnServer

SHORT = dataclasses.replace(QUICK, lease=1, own_slack=0, heartbeat_interval=1_000, look_interval=1_000)
"""Leases that the server does not renew, and tasks that it does not recover."""


def message_of(tasks: Tasks, task_id: str = "a") -> Any:
    """Return a task's message."""
    return decode_task_message(tasks.fields(task_id)["msg"])


def break_calls(c: Consuming, *breaks: str) -> None:
    """Let the named plans fail, once each."""
    c.engine._driver.__class__ = BreakingDriver
    c.engine._driver.breaks = list(breaks)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("result", "stored"), [(b"\xff", b"\xff"), ("gr\u00fcn", b"gr\xc3\xbcn"), (None, None)]
)
@run_async
async def test_what_is_done_keeps_its_result_as_long_as_its_retention(
    redis_url: str, tasks: Tasks, result: Any, stored: bytes | None
) -> None:
    """Bytes, or text as UTF-8."""
    tasks.pending("a", retention=60)
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        await attempt.done(result)
    assert ["a"] == list(tasks.scores("completed"))
    assert stored == tasks.fields("a").get("result")


@run_async
async def test_headers_that_an_attempt_sets_are_those_of_the_next(redis_url: str, tasks: Tasks) -> None:
    """They are stored with the outcome; a task that is put back keeps its own."""
    tasks.pending("a", headers={"team": "maps", "old": "1"})
    async with consuming(redis_url) as c:
        async with c.consumer.take() as [attempt]:
            attempt.set_header("team", "ships")
            await attempt.requeue()
        assert {"team": "maps", "old": "1"} == dict(message_of(tasks).headers)
        async with c.consumer.take() as [attempt]:
            attempt.set_header("since", "180")
            attempt.set_header("old", None)
            attempt.set_header("missing", None)
            assert {"team": "maps", "since": "180"} == attempt.task.headers
            for name, value in (("x", 5), (5, "x"), ("x", "\ud800"), ("x", "y" * 2_000_000)):
                wrong: Any = name, value
                with pytest.raises(InvalidOptionError, match="headers"):
                    attempt.set_header(*wrong)
            await attempt.retry("not yet", delay=0)
    assert {"team": "maps", "since": "180"} == dict(message_of(tasks).headers)


@run_async
async def test_a_result_that_is_none_is_refused_and_the_attempt_goes_on(redis_url: str, tasks: Tasks) -> None:
    """Invalid delays and errors are refused too."""
    tasks.pending("a")
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        wrong: Any = 5
        with pytest.raises(TypeError, match="not int"):
            await attempt.done(wrong)
        with pytest.raises(TypeError, match="not int"):
            await attempt.write_result(wrong)
        for refused in (attempt.retry("no", delay=-1), attempt.retry(wrong), attempt.snooze(-1)):
            with pytest.raises(InvalidOptionError):
                await refused
        with pytest.raises(ServerStateError, match="renewed until it is settled"):
            await attempt.extend(60)
        await attempt.done()
    assert {} == tasks.fields("a")


@run_async
async def test_a_result_can_be_written_while_the_task_runs(redis_url: str, tasks: Tasks) -> None:
    """It stays when the end brings none. So does what was said of the progress."""
    tasks.pending("a", retention=60)
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        await attempt.write_result(b"half")
        assert b"half" == tasks.fields("a")["result"]
        attempt.progress(1, 2, "reading")
        await attempt.done()
    assert b"half" == tasks.fields("a")["result"]
    assert b"reading" in tasks.fields("a")["x:progress"]


@run_async
async def test_what_failed_is_retried_as_by_a_server(redis_url: str, tasks: Tasks) -> None:
    """Error, traceback, a spent retry, and the delay of the config or of the call."""
    tasks.pending("a", "b")
    config = ConsumerConfig(retry_delay=lambda retried, error, task: 100)
    async with consuming(redis_url, config) as c, c.consumer.take(limit=2) as [a, b]:
        before = int(time.time())
        await a.retry(ValueError("broken"))
        await b.retry("what they said", delay=timedelta(seconds=200))
        after = time.time() + 1
        assert before + 100 <= tasks.scores("retry")["a"] <= after + 100
        assert before + 200 <= tasks.scores("retry")["b"] <= after + 200
        assert Outcome.RETRIED is (await c.finished("a")).outcome
    assert ("ValueError: broken", 1) == (message_of(tasks).error_msg, message_of(tasks).retried)
    assert ("what they said", 1) == (message_of(tasks, "b").error_msg, message_of(tasks, "b").retried)


@run_async
async def test_what_failed_once_too_often_is_archived(redis_url: str, tasks: Tasks) -> None:
    """So is what is not to be retried, and what is archived by its holder, with his reason."""
    tasks.pending("last", retry=1, retried=1)
    tasks.pending("skip", "told")
    async with consuming(redis_url) as c, c.consumer.take(limit=3) as [last, skip, archived]:
        await last.retry("again")
        await skip.retry(SkipRetry("no use"), delay=5)
        await archived.archive("useless")
    assert {"last", "skip", "told"} == set(tasks.scores("archived"))
    assert "useless" == message_of(tasks, "told").error_msg


@run_async
async def test_snooze_and_requeue_spend_nothing_and_cancel_deletes(redis_url: str, tasks: Tasks) -> None:
    """A snoozed task is due later, a requeued one is in front again."""
    tasks.pending("sleepy", "back", "gone", "behind", retry=0, retention=60)
    before = tasks.fields("back")["msg"]
    async with consuming(redis_url) as c, c.consumer.take(limit=3) as [sleepy, back, gone]:
        began = int(time.time())
        await sleepy.snooze(50)
        await back.requeue()
        await gone.cancel("not wanted")
        assert began + 50 <= tasks.scores("retry")["sleepy"] <= time.time() + 51
    assert 0 == message_of(tasks, "sleepy").retried
    assert ["back", "behind"] == tasks.ids("pending")
    assert before == tasks.fields("back")["msg"]
    assert {} == tasks.fields("gone")


@run_async
async def test_an_attempt_is_settled_once(redis_url: str, tasks: Tasks) -> None:
    """Later calls are refused with an error."""
    tasks.pending("a")
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        first = asyncio.create_task(attempt.done())
        await asyncio.sleep(0)
        for late in (attempt.requeue, attempt.done):
            with pytest.raises(AttemptSettledError, match="'a' of queue 'default' was settled before"):
                await late()
        await first
        with pytest.raises(AttemptSettledError):
            await attempt.retry("late")
        assert None is attempt.cancelled is await attempt.wait_cancelled()


@run_async
async def test_what_a_block_leaves_unsettled_goes_back_to_the_front(redis_url: str, tasks: Tasks) -> None:
    """In its old order, as if it had not been taken, and before the block has ended."""
    tasks.pending("a", "b", "c", "d", retry=0)
    async with consuming(redis_url) as c:
        async with c.consumer.take(limit=3) as attempts:
            await attempts[1].done()
        assert ["a", "c", "d"] == tasks.ids("pending")
    assert b"1" not in {tasks.fields(one).get("x:crashes") for one in "acd"}


@run_async
async def test_an_exception_fails_what_the_block_was_at_and_puts_the_rest_back(
    redis_url: str, tasks: Tasks
) -> None:
    """A task that breaks its block does not stay in front for ever, and its neighbours do not pay for it."""
    tasks.pending("good", "bad", "next", "after")
    async with consuming(redis_url) as c:

        async def work() -> None:
            async with c.consumer.take(limit=4) as attempts:
                for attempt in attempts:
                    if attempt.id == "bad":
                        raise ValueError("broken")
                    await attempt.done()

        with pytest.raises(ValueError, match="broken"):
            await work()
        assert ["next", "after"] == tasks.ids("pending")
        assert ["bad"] == list(tasks.scores("retry"))
    assert "ValueError: broken" in message_of(tasks, "bad").error_msg


@run_async
async def test_a_block_that_is_cancelled_puts_everything_back(redis_url: str, tasks: Tasks) -> None:
    """The program is going away; nothing has failed."""
    tasks.pending("a", "b")
    async with consuming(redis_url) as c:
        begun = asyncio.Event()

        async def work() -> None:
            async with c.consumer.take(limit=2) as attempts:
                for _ in attempts:
                    begun.set()
                    await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await begun.wait()
        working.cancel()
        await asyncio.wait({working})
    assert ["a", "b"] == tasks.ids("pending")


@run_async
async def test_leases_of_a_block_are_renewed_until_they_are_settled(redis_url: str, tasks: Tasks) -> None:
    """A lease of 2 seconds lasts for 4, and shows it."""
    tasks.pending("a")
    settings = dataclasses.replace(QUICK, lease=2)
    async with consuming(redis_url, settings=settings) as c, c.consumer.take() as [attempt]:
        first = attempt.lease_expires_at
        while attempt.lease_expires_at < first + timedelta(seconds=2):
            await c.next_round("heartbeater")
        assert attempt.lease_expires_at.timestamp() <= tasks.scores("lease")["a"]
        await attempt.done()
    assert {} == tasks.fields("a")


@pytest.mark.parametrize("when", ["before", "after"])
@run_async
async def test_h01_a_settle_that_fails_is_tried_until_it_is_confirmed(
    redis_url: str, tasks: Tasks, when: str
) -> None:
    """Whether or not the first try took effect; the holder waits for it."""
    tasks.pending("a")
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        break_calls(c, f"settle_done:{when}", f"settle_done:{when}")
        await attempt.done()
        assert {} == tasks.fields("a")
        assert 1 <= len(c.recorder.of(SettleDelayed))
        assert [] == c.recorder.of(LeaseLost)


@run_async
async def test_h01_a_settle_outlives_an_outage(own_server: OwnServer) -> None:
    """Redis is restarted on its data; a holder that stopped waiting has settled all the same."""
    own_server.stop()
    own_server.start("--appendonly", "yes", "--appendfsync", "always")
    async with consuming(own_server.url) as c:
        await c.enqueue("a", "b")
        a, b = await c.consumer.lease(limit=2)
        be_impatient(c)
        own_server.stop()
        waiting, hasty = asyncio.create_task(a.done()), asyncio.create_task(b.done())
        await c.recorder.wait(SettleDelayed)
        hasty.cancel()
        own_server.start("--appendonly", "yes", "--appendfsync", "always")
        await waiting
        with own_server.connect() as client:
            while client.exists("asynq:{default}:t:b"):
                await c.next_round("syncer")


@run_async
async def test_a_settle_that_is_never_confirmed_ends_with_the_error_when_the_consumer_closes(
    own_server: OwnServer,
) -> None:
    """Its holder does not wait for ever."""
    async with consuming(own_server.url) as c:
        await c.enqueue("a")
        [attempt] = await c.consumer.lease()
        be_impatient(c)
        own_server.stop()
        waiting = asyncio.create_task(attempt.done())
        await c.recorder.wait(SettleDelayed)
        await c.consumer.close()
        with pytest.raises(ConnectionError):
            await waiting


@pytest.mark.parametrize("taken", ["take", "lease"])
@run_async
async def test_h05_a_task_that_somebody_else_has_cannot_be_settled(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, taken: str
) -> None:
    """Nothing is written, and the holder is told."""
    tasks.pending("a")
    async with consuming(redis_url, settings=SHORT) as c:
        if taken == "take":
            async with c.consumer.take() as [attempt]:
                redis_client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
                with pytest.raises(LeaseExpiredError):
                    await attempt.done()
        else:
            [attempt] = await c.consumer.lease()
            redis_client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
            with pytest.raises(LeaseExpiredError):
                await attempt.done()
        await c.recorder.wait(LeaseLost)
    assert b"other/1" == tasks.fields("a")["x:attempt"]
    assert ["a"] == tasks.ids("active")


@run_async
async def test_h05_a_lease_that_a_renewal_finds_lost_is_told_to_its_holder(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A waiting caller is woken before anything is settled."""
    tasks.pending("a")
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        told = asyncio.create_task(attempt.wait_cancelled())
        redis_client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
        assert isinstance(await told, LeaseExpiredError)
        assert isinstance(attempt.cancelled, LeaseExpiredError)
        with pytest.raises(LeaseExpiredError):
            await attempt.requeue()
        with pytest.raises(LeaseExpiredError):
            await attempt.write_result(b"r")
    assert ["a"] == tasks.ids("active")


@run_async
async def test_the_deadline_of_an_attempt_in_a_block_is_told_and_settled_when_it_is_let_go(
    redis_url: str, tasks: Tasks
) -> None:
    """Whatever its holder says: it has timed out, as by a server."""
    tasks.pending("a", "b", timeout=1)
    async with consuming(redis_url) as c:
        began = int(time.time())
        async with c.consumer.take(limit=2) as attempts:
            a, b = attempts
            assert began + 1 <= a.deadline.timestamp() <= time.time() + 2
            assert isinstance(await a.wait_cancelled(), TaskTimeoutError)
            await b.wait_cancelled()
            # The holder may still be at it, so no other holder gets it yet.
            assert {"a", "b"} == set(tasks.ids("active"))
            with pytest.raises(TaskTimeoutError):
                await a.done()
        assert {"a", "b"} == set(tasks.scores("retry"))
    assert ("context deadline exceeded", 1) == (message_of(tasks).error_msg, message_of(tasks).retried)


@run_async
async def test_a_task_whose_time_is_over_is_not_handed_out(redis_url: str, tasks: Tasks) -> None:
    """It has timed out, as by a server."""
    tasks.pending("late", deadline=1_000)
    tasks.pending("good")
    async with consuming(redis_url) as c, c.consumer.take(limit=2) as [attempt]:
        assert "good" == attempt.id
        assert Outcome.RETRIED is (await c.finished("late")).outcome


@pytest.mark.parametrize(
    ("choice", "collection"), [("retry", "retry"), ("archive", "archived"), ("delete", None)]
)
@run_async
async def test_h16_a_request_to_cancel_reaches_the_holder_and_decides(
    redis_url: str, tasks: Tasks, perform: Perform, choice: str, collection: str | None
) -> None:
    """In a block when it is let go, in a lease at once; the holder's own word does not count."""
    tasks.pending("a", "b")
    async with consuming(redis_url) as c, c.consumer.take() as [attempt]:
        [leased] = await c.consumer.lease()
        for task_id in ("a", "b"):
            await asyncio.to_thread(perform, request_cancelation(task_id, "default", choice, now=None))
        for one in (attempt, leased):
            cause = await one.wait_cancelled()
            assert isinstance(cause, TaskCanceledError)
            assert choice == cause.outcome
            with pytest.raises(TaskCanceledError):
                await one.done()
    if collection is not None:
        assert {"a", "b"} == set(tasks.scores(collection))
    else:
        assert {} == tasks.fields("a") == tasks.fields("b")


@run_async
async def test_closing_waits_for_blocks_then_tells_them_then_puts_back(redis_url: str, tasks: Tasks) -> None:
    """Attempts that end in time are settled; a holder that does not react loses the task."""
    tasks.pending("quick", "told", "deaf")
    config = ConsumerConfig(shutdown_timeout=0.2, cancel_timeout=0.2)
    async with consuming(redis_url, config) as c:
        heard: list[BaseException | None] = []

        async def listen(attempt: Attempt) -> None:
            heard.append(await attempt.wait_cancelled())
            await attempt.done()

        async with c.consumer.take(limit=3) as attempts:
            quick, told, deaf = attempts
            waiting = asyncio.create_task(c.consumer.lease())
            listening = asyncio.create_task(listen(told))
            closing = asyncio.create_task(c.consumer.close())
            assert [] == await waiting
            await quick.done()
            await closing
            await listening
            assert isinstance(heard[0], LeaseExpiredError)
            with pytest.raises(LeaseExpiredError):
                await deaf.done()
        assert 1 == (await c.recorder.wait(TasksPutBack)).tasks
    assert ["deaf"] == tasks.ids("pending")
    assert {} == tasks.fields("quick") == tasks.fields("told")


@run_async
async def test_a_failed_attempt_is_remembered(redis_url: str) -> None:
    """The event names the holder, the outcome and the reason, as for a server's attempt."""
    async with consuming(redis_url) as c, Inspector(redis_url) as inspector:
        await c.enqueue("a")
        async with c.consumer.take() as [attempt]:
            await attempt.retry("broken", delay=60)
        [told] = (await inspector.task_info("default", "a")).attempts
    assert ("retried", "broken", c.consumer.id) == (told.outcome, told.error, told.server_id)
