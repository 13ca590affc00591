"""Attempts, roster, board of queues, suspects, overdue handlers, Redis' time, log records, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.server_facts import ServerFacts
from pyasynq._clock import Instant
from pyasynq._server.attempt import Attempt, Phase
from pyasynq._server.board import QueueBoard
from pyasynq._server.log_records import install_task_fields
from pyasynq._server.overdue import OverdueRule
from pyasynq._server.redis_time import RedisTime
from pyasynq._server.roster import Roster
from pyasynq._server.settings import EngineSettings
from pyasynq._server.signals import SignalWatch
from pyasynq._server.start_checks import check_server
from pyasynq._server.suspects import SuspectWatch, suspect_threshold
from pyasynq._wire.messages import new_task_message
from pyasynq.config import ServerConfig
from pyasynq.context import context, current_task
from pyasynq.errors import ServerStateError, TaskCanceledError, TaskTimeoutError
from pyasynq.events import Events, ServerWarning
from tests.fake_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator


def attempt(task_id: str = "a", queue: str = "default", *, crashes: int = 0, **fields: Any) -> Attempt:
    """Return an attempt that was just taken."""
    message = new_task_message(id=task_id, queue=queue, type="t", **fields)
    return Attempt(None, queue, message, "server/1", crashes=crashes, lease_until=30.0)  # type: ignore[arg-type]


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
    """Its coroutine must take its first step, or nobody would settle."""

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


def test_w17_the_roster_keeps_equal_ids_of_two_queues_apart() -> None:
    """Striking one off leaves the other; a cancel request means both."""
    roster = Roster(["one", "two"])
    first, second = attempt(queue="one"), attempt(queue="two")
    roster.add(first)
    roster.add(second)
    assert [first, second] == roster.with_id("a")
    roster.remove(first)
    assert [second] == roster.with_id("a") == roster.snapshot()
    assert roster.get("one", "a") is None


def test_the_roster_keeps_a_task_that_was_taken_anew() -> None:
    """Striking off an older attempt does not strike off the newer one."""
    roster = Roster(["default"])
    older, newer = attempt(), attempt()
    roster.add(older)
    roster.add(newer)
    roster.remove(older)
    assert newer is roster.get("default", "a")


@pytest.fixture
def board() -> QueueBoard:
    """Two queues that nobody has asked yet."""
    return QueueBoard(["one", "two"])


def test_an_empty_queue_is_watched_asked_once_more_and_then_left_alone(board: QueueBoard) -> None:
    """Until Redis reports a change or the safety poll is due."""
    view = board.views[0]
    board.answered(view, empty=True, changes=0, look_at=105.0)
    assert [view] == board.to_watch()
    board.watched(view, changes=0)
    assert view in board.worth_asking(100.0)
    board.answered(view, empty=True, changes=0, look_at=105.0)
    assert [] == board.to_watch()
    assert view not in board.worth_asking(104.0)
    assert board.changed(view.pending_key)
    assert view in board.worth_asking(104.0)


def test_the_safety_poll_asks_and_watches_anew(board: QueueBoard) -> None:
    """A watch that has gone deaf does not stay so."""
    view = board.views[0]
    board.answered(view, empty=True, changes=0, look_at=0.0)
    board.watched(view, changes=0)
    board.answered(view, empty=True, changes=0, look_at=105.0)
    assert view in board.worth_asking(105.0)
    board.answered(view, empty=True, changes=0, look_at=110.0)
    assert [view] == board.to_watch()


@pytest.mark.parametrize("key", ["asynq:{one}:pending", "asynq:{one}:paused"])
def test_an_answer_that_is_older_than_a_change_says_nothing(board: QueueBoard, key: str) -> None:
    """No wake-up is lost between question and answer."""
    view = board.views[0]
    assert board.changed(key)
    board.answered(view, empty=True, changes=0, look_at=105.0)
    assert view in board.worth_asking(100.0)
    board.watched(view, changes=0)
    assert not view.armed


def test_a_queue_that_failed_is_held_off_and_not_taken_for_empty(board: QueueBoard) -> None:
    """Burst must not end because Redis was away."""
    for view in board.views:
        board.failed(view, look_at=101.0)
    assert [] == board.worth_asking(100.0)
    assert not board.all_empty
    assert 101.0 == board.next_look()


def test_keys_of_others_are_not_the_boards_business(board: QueueBoard) -> None:
    """The forwarder's keys come over the same connection."""
    assert not board.changed("asynq:{one}:scheduled")


@pytest.mark.parametrize(
    ("threshold", "limits"),
    [(2, [3]), (1, [2, 3]), (0, [1]), (0, [0]), (2, [0, 1, 3]), (0, []), (4, [5, 9])],
)
def test_h06_a_suspect_is_one_crash_below_the_smallest_limit_that_leaves_a_second_run(
    threshold: int, limits: list[int]
) -> None:
    """Limits of 0 and 1 archive at the first crash, so there is nobody to suspect."""
    assert threshold == suspect_threshold(limits)


def test_h06_nothing_is_taken_beside_a_young_suspect() -> None:
    """Until it has ended or is ten seconds old."""
    watch = SuspectWatch(2, age=10.0)
    suspect = attempt(crashes=2)
    suspect.started = 100.0
    watch.took(suspect)
    assert watch.blocked([suspect], 105.0)
    assert not watch.blocked([suspect], 110.0)
    watch.took(suspect)
    assert not watch.blocked([], 105.0)


def test_h06_a_waiting_suspect_stops_the_taking_until_all_others_are_old() -> None:
    """Then it is asked for."""
    watch = SuspectWatch(2, age=10.0)
    young, old = attempt("young"), attempt("old")
    young.started, old.started = 100.0, 80.0
    watch.waiting = QueueBoard(["one"]).views[0]
    assert watch.blocked([young, old], 105.0)
    assert not watch.blocked([old], 105.0)


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
    events.subscribe(ServerWarning, lambda warning: warned.append(warning.code))
    clock = FakeClock(1_000)
    facts = ServerFacts("redis", (7, 0, 0), "noeviction", 100, Instant.from_timestamp(1_000 - skew))
    check_server(facts, clock, EngineSettings(), events)
    assert codes == warned


@pytest.mark.parametrize(
    ("codes", "policy"),
    [([], "noeviction"), ([], ""), (["eviction"], "allkeys-lru"), (["eviction"], "volatile-ttl")],
)
def test_h22_every_policy_that_evicts_is_warned_about(codes: list[str], policy: str) -> None:
    """A server that does not say is not accused."""
    events = Events()
    warned: list[str] = []
    events.subscribe(ServerWarning, lambda warning: warned.append(warning.code))
    facts = ServerFacts("redis", (7, 0, 0), policy, 100, Instant(1_000))
    check_server(facts, FakeClock(1_000), EngineSettings(), events)
    assert codes == warned


def test_context_outside_of_a_handler_says_so() -> None:
    """There is no task."""
    with pytest.raises(ServerStateError, match="outside of a handler"):
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
    uninstall = install_task_fields([handler])
    yield received
    uninstall()
    assert [] == handler.filters
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


def test_signals_reach_the_server_and_are_given_back() -> None:
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


def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    """Python allows nothing else."""
    before = signal.getsignal(signal.SIGTERM)

    def elsewhere() -> None:
        with SignalWatch(Stopped(), owns_process=False):
            assert before is signal.getsignal(signal.SIGTERM)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
