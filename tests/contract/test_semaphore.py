"""The semaphore of Asynq's x/rate: one sorted set, which peers in Go read and write as well."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq import (
    ConfigurationError,
    InvalidOptionError,
    LeaseExpiredError,
    Semaphore,
    SemaphoreFullError,
    SemaphoreNotHeldError,
    ServerConfig,
    ServerStateError,
    context,
)
from pyasynq import sync as blocking
from pyasynq._broker.semaphore import acquire_token, release_token
from pyasynq._clock import Instant
from pyasynq._engine.run.attempt import Attempt
from pyasynq._wire.messages import TaskMessage
from pyasynq.context import current_task
from pyasynq.events import Outcome
from pyasynq.testing import task_context
from tests.contract.rights import replayed
from tests.factories import NOW
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq import Task
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

KEY = "asynq:sema:api"
LATER = NOW.seconds + 60


def tokens(client: RedisClient) -> dict[str, int]:
    """Return who holds a token, and until when."""
    return {member.decode(): int(score) for member, score in client.zrange(KEY, 0, -1, withscores=True)}


def acquire(perform: Perform, task_id: str, *, deadline: int = LATER, now: Instant = NOW) -> bool:
    """Ask for one of two tokens."""
    return perform(acquire_token("api", 2, task_id, deadline=deadline, now=now))


def test_as_many_tasks_get_a_token_as_there_are(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls ZCARD or ZADD; the score is the deadline."""
    assert [True, True, False] == [acquire(perform, task_id) for task_id in "abc"]
    assert {"a": LATER, "b": LATER} == tokens(redis_client)


def test_a_holder_that_asks_again_moves_its_deadline_unless_all_are_taken(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Asynq's semaphore treats a holder in the same way."""
    acquire(perform, "a")
    assert acquire(perform, "a", deadline=LATER + 5)
    assert {"a": LATER + 5} == tokens(redis_client)
    acquire(perform, "b")
    assert not acquire(perform, "a", deadline=LATER + 9)
    assert {"a": LATER + 5, "b": LATER} == tokens(redis_client)


@pytest.mark.parametrize(("expected", "after"), [(False, 0), (True, 1)])
def test_a_token_lapses_in_the_second_after_its_deadline(
    perform: Perform, redis_client: RedisClient, expected: bool, after: int
) -> None:
    """Fails if the script no longer calls ZREMRANGEBYSCORE: what a crash has left is taken by others."""
    for task_id in "ab":
        acquire(perform, task_id)
    assert expected is acquire(perform, "c", now=Instant(LATER + after, 999_999), deadline=LATER + 60)
    assert ("c" in tokens(redis_client)) is expected


def test_a_token_is_given_back(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls ZREM; who holds none is told."""
    acquire(perform, "a")
    assert perform(release_token("api", "a"))
    assert {} == tokens(redis_client)
    assert not perform(release_token("api", "a"))


def test_w29_a_lost_reply_changes_no_answer(perform: Perform, redis_client: RedisClient) -> None:
    """The call that is sent again finds what the first one did."""
    acquire(perform, "b")
    assert perform(replayed(acquire_token("api", 2, "a", deadline=LATER, now=NOW)))
    assert not perform(replayed(acquire_token("api", 2, "c", deadline=LATER, now=NOW)))
    assert not perform(replayed(acquire_token("api", 2, "a", deadline=LATER + 1, now=NOW)))
    assert perform(replayed(release_token("api", "a")))
    assert {"b": LATER} == tokens(redis_client)


def test_a_token_is_given_back_by_the_attempt_that_took_it(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls ZSCORE: the deadline tells the attempts at a task apart. (D29)"""
    acquire(perform, "a")
    acquire(perform, "a", deadline=LATER + 5)
    assert not perform(release_token("api", "a", deadline=LATER))
    assert {"a": LATER + 5} == tokens(redis_client)
    assert perform(release_token("api", "a", deadline=LATER + 5))
    assert {} == tokens(redis_client)


@run_async
async def test_an_attempt_that_lost_its_lease_leaves_the_token_of_the_next_one(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Its block ends after the second attempt at the task has begun, in the same process or another one.

    Defect D29.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    later = int(now.timestamp()) + 120
    semaphore, other = (Semaphore(redis_url, scope="api", max_tokens=2) for _ in range(2))
    with task_context(task_id="a", deadline=now + timedelta(seconds=60)):
        assert await semaphore.acquire()
        for one in (semaphore, other):
            with task_context(task_id="a", deadline=now + timedelta(seconds=120)):
                assert await one.acquire()
        with pytest.raises(SemaphoreNotHeldError):
            await semaphore.release()
    assert {"a": later} == tokens(redis_client)
    # With a deadline of the task's own, that of both attempts is the same.
    attempt = Attempt(cast("Any", None), "default", TaskMessage(type="t", id="a", deadline=later), "token")
    attempt.begin(monotonic=0.0, unix_time=now.timestamp())
    context_of_attempt = current_task.set(attempt)
    assert await semaphore.acquire()
    attempt.cause = LeaseExpiredError()
    with pytest.raises(SemaphoreNotHeldError):
        await semaphore.release()
    current_task.reset(context_of_attempt)
    assert {"a": later} == tokens(redis_client)
    await semaphore.close()
    await other.close()


def test_h15_tokens_lapse_by_the_clock_of_redis(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls TIME."""
    redis_client.zadd(KEY, {"lapsed": 1_700_000_000})
    perform(acquire_token("api", 2, "a", deadline=LATER))
    assert ["a"] == list(tokens(redis_client))


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("scope", {"scope": " "}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": True}),
        ("timeout", {"timeout": 0}),
    ],
)
def test_a_semaphore_that_cannot_work_is_refused(option: str, settings: dict[str, Any]) -> None:
    """Where it is made, and by name."""
    with pytest.raises(InvalidOptionError, match=f"^{option}="):
        Semaphore("redis://localhost", **{"scope": "api", "max_tokens": 1, **settings})


@run_async
async def test_outside_of_handlers_the_holder_and_its_deadline_are_given(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Outside of a handler, the caller gives what the handler's context would know."""
    semaphore = Semaphore(redis_url, scope="api", max_tokens=1)
    until = datetime.now(UTC) + timedelta(minutes=1)
    assert await semaphore.acquire(task_id="a", deadline=until)
    assert not await semaphore.acquire(task_id="b", deadline=until)
    assert {"a": -int(-until.timestamp() // 1)} == tokens(redis_client)
    await semaphore.release(task_id="a")
    with pytest.raises(SemaphoreNotHeldError, match="'a' holds no token"):
        await semaphore.release(task_id="a")
    with pytest.raises(ServerStateError):
        await semaphore.acquire()
    with pytest.raises(InvalidOptionError, match="time zone"):
        await semaphore.acquire(task_id="a", deadline=datetime(2030, 1, 1))  # noqa: DTZ001
    await semaphore.close()
    await semaphore.close()


@run_async
async def test_a_handler_holds_a_token_for_the_time_of_a_block(
    redis_url: str, redis_client: RedisClient
) -> None:
    """In the name of its task, until its deadline; without one its task fails as the server decides."""
    semaphore = Semaphore(redis_url, scope="api", max_tokens=1)
    held: list[dict[str, int]] = []

    async def handle(task: Task) -> None:
        del task
        async with semaphore:
            held.append(tokens(redis_client))
            deadline = context().deadline
            assert deadline is not None
            assert deadline.timestamp() <= held[-1][context().task_id] < deadline.timestamp() + 1

    config = ServerConfig(is_failure=lambda error: not isinstance(error, SemaphoreFullError))
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", task_id="a", timeout=60)
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        assert {} == tokens(redis_client)
        redis_client.zadd(KEY, {"other": LATER})
        await running.client.enqueue("t", task_id="b", timeout=60)
        finished = await running.finished("b")
    assert (Outcome.RETRIED, 0) == (finished.outcome, finished.retried)
    assert isinstance(finished.error, SemaphoreFullError)
    assert [["a"]] == [list(one) for one in held]
    await semaphore.close()


@run_async
async def test_a_task_without_a_deadline_gets_no_token(redis_url: str, redis_client: RedisClient) -> None:
    """Nothing would ever take it back after a crash. Tasks of other producers may have neither."""
    semaphore = Semaphore(redis_url, scope="api", max_tokens=1)
    errors: list[Exception] = []

    async def handle(task: Task) -> None:
        del task
        context()._task.deadline_at = None
        try:
            await semaphore.acquire()
        except ConfigurationError as error:
            errors.append(error)

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
    assert "neither timeout nor deadline" in str(errors[0])
    assert {} == tokens(redis_client)
    await semaphore.close()


@run_async
async def test_a_token_that_cannot_be_given_back_is_a_warning(
    redis_url: str, redis_client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The work is done, and the token lapses at the deadline."""
    semaphore = Semaphore(redis_url, scope="api", max_tokens=1)

    async def handle(task: Task) -> None:
        del task
        async with semaphore:
            redis_client.delete(KEY)

    with caplog.at_level(logging.WARNING, "pyasynq"):
        async with serving(redis_url, handle) as running:
            await running.client.enqueue("t", task_id="a")
            assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
    assert ["a token was not given back: semaphore 'api': task 'a' holds no token"] == caplog.messages
    await semaphore.close()


@run_async
async def test_plain_handlers_use_the_blocking_twin(redis_url: str, redis_client: RedisClient) -> None:
    """In their threads, where the context is the task's as well."""
    semaphore = blocking.Semaphore(redis_url, scope="api", max_tokens=1)
    held: list[str] = []

    def handle(task: Task) -> None:
        del task
        with semaphore:
            held.extend(tokens(redis_client))

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
    assert ["a"] == held
    semaphore.close()
