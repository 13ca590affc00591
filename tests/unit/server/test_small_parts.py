"""Attempts, roster, board of queues, suspects, overdue handlers, Redis' time, log records, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._background.signals import SignalWatch
from pyasynq._clock import Instant
from pyasynq._engine.lease.roster import Roster
from pyasynq._engine.lease.stuck_rule import OverdueRule
from pyasynq._engine.run.attempt import Attempt, Phase
from pyasynq._engine.settings import EngineSettings
from pyasynq._redis.facts import RedisFacts, check_clock, check_eviction
from pyasynq.config import ServerConfig
from pyasynq.context import TaskFieldsFilter, context, current_task
from pyasynq.errors import ServerStateError, TaskCanceledError, TaskTimeoutError
from pyasynq.events import Events, RedisWarning
from tests.attempts import attempt
from tests.fake_clock import FakeClock
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@pytest.mark.parametrize(
    ("seconds", "fields"),
    [
        (10, {"timeout": 10}),
        (5, {"timeout": 10, "deadline": 1_005}),
        (10, {"timeout": 10, "deadline": 2_000}),
        (7, {"deadline": 1_007}),
        (1_800, {}),
        (-3, {"deadline": 997}),
    ],
)
def test_an_attempts_time_is_the_earlier_of_timeout_and_deadline(seconds: float, fields: Any) -> None:
    """Thirty minutes when there is neither."""
    one = attempt(**fields)
    one.begin(monotonic=50.0, unix_time=1_000.0)
    assert 50.0 + seconds == one.deadline
    assert 1_000.0 + seconds == one.deadline_at


@pytest.mark.parametrize("fields", [{"deadline": 1_790_000_000_000}, {"timeout": 10**15}])
def test_a_deadline_that_no_datetime_can_show_is_shown_as_the_last_that_one_can(fields: Any) -> None:
    """Such as one in milliseconds; the server's record and `context().deadline` name it."""
    one = attempt(**fields)
    one.begin(monotonic=50.0, unix_time=1_000.0)
    assert one.deadline > 10**12
    assert one.deadline_at is not None
    assert 9999 == datetime.fromtimestamp(one.deadline_at, UTC).year


@pytest.mark.parametrize(
    ("waited", "since"),
    [
        (2.5, b"997500000000"),
        (0.0, b"1001000000000"),
        (None, None),
        (None, b""),
        (None, b"-1"),
        (None, b"1e9"),
        (None, b"9" * 10_000),
    ],
)
def test_a_wait_is_from_pending_to_the_start_of_the_handler(
    waited: float | None, since: bytes | None
) -> None:
    """0 if the producer's clock is ahead; None for what is not a time in nanoseconds."""
    one = attempt()
    one.pending_since = since
    assert one.waited is None
    one.begin(monotonic=50.0, unix_time=1_000.0)
    assert waited == one.waited


def test_a_lease_is_valid_until_its_local_end() -> None:
    """Counted on the monotonic clock, from before the call."""
    one = attempt()
    assert one.has_lease(29.9)
    assert not one.has_lease(30.0)


def test_the_first_cause_of_a_cancellation_stays() -> None:
    """Later ones change nothing, nor do causes after the end."""
    one = attempt()
    first = TaskTimeoutError()
    assert one.cancel(first, monotonic=1.0)
    assert not one.cancel(TaskCanceledError(), monotonic=2.0)
    assert first is one.cause
    ended = attempt()
    ended.phase = Phase.SETTLING
    assert not ended.cancel(first, monotonic=1.0)


def test_an_attempt_that_has_not_begun_is_not_cancelled_as_a_task() -> None:
    """Its coroutine must take its first step, or the attempt would not be settled."""

    async def main() -> None:
        one = attempt()
        one.task = asyncio.create_task(asyncio.sleep(0))
        one.cancel(TaskCanceledError(), monotonic=1.0)
        await one.task

    asyncio.run(main())


def test_threads_see_a_cancellation_before_and_after_they_ask() -> None:
    """The event is one for all threads of the attempt."""
    one = attempt()
    event = one.cancel_event()
    assert event is one.cancel_event()
    assert not event.is_set()
    one.cancel(TaskCanceledError(), monotonic=1.0)
    assert event.is_set()
    late = attempt()
    late.cancel(TaskCanceledError(), monotonic=1.0)
    assert late.cancel_event().is_set()


def test_the_roster_keeps_a_task_that_was_taken_again() -> None:
    """Striking off an older attempt does not strike off the newer one."""
    roster = Roster(["default"])
    older, newer = attempt(), attempt()
    roster.add(older)
    roster.add(newer)
    roster.remove(older)
    assert newer is roster.get("default", "a")


@pytest.mark.parametrize(
    ("stuck", "overdue"),
    [
        (False, []),
        (False, [9.0]),
        (True, [600.0]),
        (False, [11.0]),
        (True, [11.0, 12.0]),
        (False, [11.0, -5.0]),
    ],
)
def test_h26_a_worker_is_stuck_by_one_hopeless_handler_or_by_all_slots(
    stuck: bool, overdue: list[float]
) -> None:
    """Two slots, a limit of ten minutes, ten seconds of grace."""
    rule = OverdueRule(ServerConfig(concurrency=2), EngineSettings())
    attempts = []
    for seconds in overdue:
        one = attempt()
        one.phase = Phase.RUNNING
        one.deadline = 1_000.0 - seconds
        attempts.append(one)
    assert stuck is rule.is_stuck(attempts, 1_000.0)


def test_no_thread_sees_a_cancelled_attempt_as_overdue_since_ever() -> None:
    """The heartbeat's thread looks between any two steps, and ends the process of a stuck worker."""
    seen: list[float] = []

    class WatchedAttempt(Attempt):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in {"cause", "cancelled_at"}:
                seen.append(self.overdue_seconds(1_000.0))

    usual = attempt()
    one = WatchedAttempt(usual.home, usual.queue, usual.message, usual.token)
    one.begin(monotonic=995.0, unix_time=0.0)
    seen.clear()
    assert one.cancel(TaskCanceledError("no"), monotonic=1_000.0)
    assert (2, 0.0) == (len(seen), max(seen))


@pytest.mark.parametrize("reason", ["deadline", "lease"])
def test_an_attempt_that_was_refused_its_start_is_overdue_since_then(reason: str) -> None:
    """The task's deadline was an hour ago, or the lease lapsed before the start; nothing was cancelled."""
    one = attempt(deadline=6_400 if reason == "deadline" else 0)
    one.begin(monotonic=1_000.0, unix_time=10_000.0)
    one.cause = TaskCanceledError("refused")
    assert (0.0, 5.0) == (one.overdue_seconds(1_000.0), one.overdue_seconds(1_005.0))


def test_h15_redis_time_follows_its_replies_and_not_the_hosts_clock() -> None:
    """Carried forward by the monotonic clock."""
    clock = FakeClock(1_000)
    time = RedisTime(clock)
    time.learn(Instant(5_000, 500_000))
    clock.move(2.5)
    assert Instant(5_003, 0) == time.now()
    clock.redis = Instant(7)
    assert Instant(7) == time.now()


@pytest.mark.parametrize(("codes", "skew"), [([], 1.9), (["clock-skew"], 2.1), (["clock-skew"], -2.1)])
def test_h15_a_wrong_clock_is_warned_about(codes: list[str], skew: float) -> None:
    """More than two seconds, either way."""
    events = Events()
    warned: list[str] = []
    events.subscribe(RedisWarning, lambda warning: warned.append(warning.code))
    clock = FakeClock(1_000)
    facts = RedisFacts("redis", (7, 0, 0), "noeviction", 100, Instant.from_timestamp(1_000 - skew))
    check_clock(facts, clock, EngineSettings().max_clock_skew, events)
    assert codes == warned


@pytest.mark.parametrize(
    ("codes", "policy"),
    [([], "noeviction"), ([], ""), (["eviction"], "allkeys-lru"), (["eviction"], "volatile-ttl")],
)
def test_h22_every_policy_that_evicts_is_warned_about(codes: list[str], policy: str) -> None:
    """A server that does not say is not accused."""
    events = Events()
    warned: list[str] = []
    events.subscribe(RedisWarning, lambda warning: warned.append(warning.code))
    facts = RedisFacts("redis", (7, 0, 0), policy, 100, Instant(1_000))
    assert bool(codes) == check_eviction(facts, events)
    assert codes == warned


def test_context_outside_of_a_handler_says_so() -> None:
    """There is no task."""
    with pytest.raises(ServerStateError, match="outside a handler"):
        context()


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What a log handler with the task's fields receives from a logger of the user's."""
    received: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            received.append(record)

    handler = Keep()
    logger = logging.getLogger("somebody.elses")
    logger.addHandler(handler)
    handler.addFilter(TaskFieldsFilter())
    yield received
    logger.removeHandler(handler)


def test_records_of_any_logger_carry_the_task_inside_a_handler(records: list[logging.LogRecord]) -> None:
    """And empty fields outside, so that formats work everywhere."""
    logger = logging.getLogger("somebody.elses")
    token = current_task.set(attempt(retried=2))
    try:
        logger.warning("inside")
    finally:
        current_task.reset(token)
    logger.warning("outside")
    shown = [(record.task_id, record.task_type, record.queue, record.attempt) for record in records]  # type: ignore[attr-defined]
    assert [("a", "t", "default", 3), ("", "", "", 0)] == shown


class Stopped:
    """Counts what signals ask for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def request_shutdown(self) -> None:
        self.asked.append("shutdown")

    def request_stop(self) -> None:
        self.asked.append("stop")


@run_async
async def test_signals_reach_the_server_and_are_given_back() -> None:
    """TSTP stops, TERM shuts down, and afterwards everything is as before."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)]
    server = Stopped()
    with SignalWatch(server, owns_process=False):
        os.kill(os.getpid(), signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert ["stop", "shutdown", "shutdown"] == server.asked
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)]


@pytest.mark.parametrize("owns_process", [True, False])
@run_async
async def test_a_handler_that_somebody_installs_does_not_take_the_signal_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, owns_process: bool
) -> None:
    """In a program of somebody else it is called as well, even if it calls ours, and is there afterwards.

    Defect D64.
    """
    monkeypatch.setattr("pyasynq._background.signals._CHECK_SECONDS", 0.001)
    before = signal.getsignal(signal.SIGTERM)
    server, called = Stopped(), []
    with SignalWatch(server, owns_process=owns_process):
        ours: Any = signal.getsignal(signal.SIGTERM)

        def theirs(number: int, frame: FrameType | None) -> None:
            called.append(number)
            ours(number, frame)

        signal.signal(signal.SIGTERM, theirs)
        while signal.getsignal(signal.SIGTERM) != ours:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
    after = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)
    assert "shutdown" == server.asked[0]
    assert ([], before) == (called, after) if owns_process else ([signal.SIGTERM], theirs) == (called, after)
    [record] = caplog.records
    assert "the handler of SIGTERM was replaced by" in record.getMessage()


def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    """Python allows nothing else."""
    before = signal.getsignal(signal.SIGTERM)

    def elsewhere() -> None:
        with SignalWatch(Stopped(), owns_process=False):
            assert before is signal.getsignal(signal.SIGTERM)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
