"""The board of queues, and tasks that may kill their worker."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask, DequeueRules
from pyasynq._broker.queue_readings import QueueReading
from pyasynq._clock import Instant
from pyasynq._engine.lease.roster import Roster
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.poison_guard import PoisonGuard, suspect_threshold
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._engine.take.queue_state import Herd, Key, QueuePhase, Watch
from pyasynq.limits import Queue
from tests.attempts import attempt

if TYPE_CHECKING:
    from pyasynq._engine.take.queue_board import ServedQueue


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


EMPTY = Dequeued([], 0, True, False, 30, Instant(0))


@pytest.fixture
def board() -> QueueBoard:
    """Two queues that have not been asked yet."""
    return QueueBoard(["one", "two"])


def test_an_empty_queue_is_watched_asked_once_more_and_then_left_alone(board: QueueBoard) -> None:
    """Until Redis reports a change or the safety poll is due."""
    queue = board.queues[0]
    board.answered(queue, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert [queue] == board.to_watch()
    board.watched(queue, changes=0)
    assert queue in board.to_ask(100.0)
    board.answered(queue, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert [] == board.to_watch()
    assert queue not in board.to_ask(104.0)
    assert board.changed(queue.keys[Key.PENDING])
    assert queue in board.to_ask(104.0)


def test_a_look_that_shows_a_task_ends_the_rest_and_the_watch(board: QueueBoard) -> None:
    """A watch that has gone deaf does not stay so. Changes reported since the look began are known."""
    queue = board.queues[0]
    board.answered(queue, EMPTY, changes=0, now=100.0, look_at=105.0)
    board.watched(queue, changes=0, may_rest=True)
    assert not board.looked(queue, has_tasks=False, changes=0)
    assert board.looked(queue, has_tasks=True, changes=0)
    assert queue in board.to_ask(105.0)
    board.answered(queue, EMPTY, changes=1, now=105.0, look_at=110.0)
    assert [queue] == board.to_watch()
    assert not board.looked(queue, has_tasks=True, changes=0)


def test_a_queue_that_a_look_shows_empty_is_watched_and_not_asked(board: QueueBoard) -> None:
    """A server with many queues starts in this way."""
    queue, other = board.queues
    assert board.looked(queue, has_tasks=False, changes=0)
    assert ([other], [queue]) == (board.to_ask(100.0), board.to_watch())
    board.watched(queue, changes=0)
    assert queue in board.to_ask(100.0), "a task came before the watch"


def test_a_queue_with_limits_is_asked_although_it_is_empty() -> None:
    """The first call stores what this server says of it, for other servers."""
    board = QueueBoard(["line"], lambda _: Queue(ordered=True))
    assert not board.looked(board.queues[0], has_tasks=False, changes=0)
    assert board.queues == board.to_ask(100.0)


def test_after_a_lost_connection_queues_are_watched_before_they_are_asked(board: QueueBoard) -> None:
    """The watch shows which of them have tasks."""
    queue = board.queues[0]
    for one in board.queues:
        board.answered(one, EMPTY, changes=0, now=100.0, look_at=105.0)
        board.watched(one, changes=0, may_rest=True)
    board.watch_lost(queue.keys[Key.PENDING])
    assert ([], [queue]) == (board.to_ask(100.0), board.to_watch())
    board.watched(queue, changes=0, may_rest=True)
    assert [queue] == board.to_watch(), "this watch was lost with the connection"


def test_only_queues_whose_reading_shows_work_are_worked_on(board: QueueBoard) -> None:
    """And those that could not be read: their errors are met by the calls for them."""
    one, two = board.queues
    assert [] == board.with_work(board.names, lambda _: True)
    one.reading, two.reading = QueueReading(Instant(100), pending=1), ValueError()
    assert ["one", "two"] == board.with_work(board.names, lambda reading: reading.has_tasks)
    assert ["two"] == board.with_work(board.names, lambda reading: reading.has_expired)


def test_a_queue_that_cannot_be_watched_is_polled_after_every_answer(board: QueueBoard) -> None:
    """Also after it was asked for another reason; rounds in between do not put the poll off."""
    queue = board.queues[0]
    for now in (100.0, 101.0):
        board.ask_all_again()
        board.answered(queue, EMPTY, changes=0, now=100.0, look_at=now + 5)
        assert [queue] == board.to_watch()
        board.unwatchable(queue, look_at=now + 1)
        board.unwatchable(queue, look_at=now + 2)
        assert queue not in board.to_ask(now + 0.9)
        assert queue in board.to_ask(now + 1)


@pytest.mark.parametrize("key", ["asynq:{one}:pending", "asynq:{one}:paused"])
def test_after_an_answer_that_is_older_than_a_change_the_queue_is_looked_at_again(
    board: QueueBoard, key: str
) -> None:
    """No wake-up is lost between question and answer, nor between look and answer."""
    queue = board.queues[0]
    board.answered(queue, EMPTY, changes=0, now=100.0, look_at=105.0)
    board.watched(queue, changes=0, may_rest=True)
    assert board.changed(key)
    board.answered(queue, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert [queue] == board.to_watch()
    board.watched(queue, changes=0, may_rest=True)
    assert Watch.NOTHING is queue.state.watch
    board.watched(queue, changes=0)
    assert Watch.NOTHING is queue.state.watch
    board.watched(queue, changes=1)
    assert queue in board.to_ask(100.0)


def test_h19_a_queue_with_tasks_for_others_is_left_to_them_first(board: QueueBoard) -> None:
    """A task that arrives while the queue is empty is asked for late; only then is it watched again."""
    queue, other = board.queues
    for one in (queue, other):
        board.answered(one, EMPTY, changes=0, now=100.0, look_at=105.0)
        board.watched(one, changes=0)
        board.answered(one, EMPTY, changes=0, now=100.0, look_at=105.0)
    board.give_head_start("one", 2.0, until=160.0)
    assert board.changed(queue.keys[Key.PENDING], 101.0)
    assert ([], [], 103.0) == (board.to_ask(102.9), board.to_watch(), board.next_look())
    assert [queue] == board.to_watch_again(103.0)
    board.watched(queue, changes=1)
    assert [queue] == board.to_ask(103.0)
    assert board.changed(other.keys[Key.PENDING], 103.0)
    assert [queue, other] == board.to_ask(103.0)


def test_h19_the_head_start_is_over_after_a_while_and_not_for_a_queue_that_is_being_emptied(
    board: QueueBoard,
) -> None:
    """Then the next change is asked about at once."""
    queue = board.queues[0]
    board.give_head_start("one", 2.0, until=160.0)
    assert board.changed(queue.keys[Key.PENDING], 101.0)
    assert queue in board.to_ask(101.0)
    board.answered(queue, EMPTY, changes=1, now=101.0, look_at=199.0)
    assert board.changed(queue.keys[Key.PENDING], 160.0)
    assert queue in board.to_ask(160.0)


def test_a_queue_that_failed_is_held_off_and_not_taken_for_empty(board: QueueBoard) -> None:
    """Burst must not end because Redis was away."""
    for queue in board.queues:
        board.failed(queue, look_at=101.0)
    assert [] == board.to_ask(100.0)
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
    """Limits of 0 and 1 archive at the first crash, so no task becomes a suspect."""
    assert threshold == suspect_threshold(limits)


def watch_with_a_suspect(crashes: int = 2) -> tuple[PoisonGuard, ServedQueue]:
    """Return a watch that has met a suspect at second 100, when its worker started."""
    watch = PoisonGuard(2, EngineSettings(), now=100.0, draw=0.0)
    queue = QueueBoard(["one"]).queues[0]
    watch.took([], queue, crashes)
    return watch, queue


@pytest.mark.parametrize(
    ("crashes", "due"), [(1, 110), (2, 110), (3, 120), (4, 140), (5, 180), (6, 200), (99, 200)]
)
def test_each_crash_without_proof_doubles_the_silence(crashes: int, due: float) -> None:
    """One second takes ten to be saved; more than ten seconds are never asked for. (D03)"""
    watch, _ = watch_with_a_suspect(crashes)
    assert pytest.approx(due) == watch.due(crashes, [], 100.0)
    assert pytest.approx(due) == watch.due(crashes, [], 105.0)


def test_workers_that_start_together_are_not_silent_together() -> None:
    """What kills all of them would prove each of their suspects to be poison. (D03)"""
    draws = (0.0, 0.5, 1.0)
    watches = [PoisonGuard(2, EngineSettings(), now=100.0, draw=draw) for draw in draws]
    for now in (100.0, 109.0):
        assert [110.0, 115.0, 120.0] == [pytest.approx(watch.due(2, [], now)) for watch in watches]


def test_a_silence_spends_what_was_saved() -> None:
    """Ten times as fast as it was saved, so the others have 90 % of the time; ten seconds are the most.

    Defect D03.
    """
    watch, _ = watch_with_a_suspect()
    assert pytest.approx(2.0) == watch.saved(120.0)
    assert pytest.approx(10.0) == watch.saved(1_000.0)
    watch.begin_silence(120.0)
    assert pytest.approx(1.5) == watch.saved(120.5)
    assert 0.0 == watch.saved(130.0)
    watch.end_silence(120.5)
    assert pytest.approx(1.6) == watch.saved(121.5)


def test_a_suspect_starts_along_with_an_attempt_that_never_ends() -> None:
    """A silence would not see the end of what has run for ten seconds; the next one comes a second later.

    Defect D03.
    """
    watch, _ = watch_with_a_suspect()
    old, young = attempt("old"), attempt("young")
    old.started, young.started = 90.0, 90.1
    assert (True, False) == (watch.never_ends([young, old], 100.0), watch.never_ends([young], 100.0))
    assert watch.due(2, [old], 100.0) <= 100.0
    assert ("", False) == (watch.advance(2, [old], 0, 100.0), watch.is_silent)
    assert watch.advance(2, [old], 0, 100.9) is None
    assert pytest.approx(101.0) == watch.due(2, [old], 100.0)


def test_a_silence_waits_for_the_end_of_what_runs_and_of_calls() -> None:
    """Then the suspect is taken alone. (D03)"""
    watch, _ = watch_with_a_suspect()
    young = attempt("young")
    young.started = 109.9
    assert (None, False) == (watch.advance(2, [young], 0, 109.5), watch.is_silent)
    assert (None, True) == (watch.advance(2, [young], 0, 110.0), watch.is_silent)
    assert watch.advance(2, [], 1, 110.1) is None
    assert "!" == watch.advance(2, [], 0, 110.2)


def test_a_quiet_period_without_an_end_lets_the_suspect_start_with_the_others() -> None:
    """When all that was saved is spent; a call under way is waited for. (D03)"""
    watch, _ = watch_with_a_suspect()
    young = attempt("young")
    young.started = 109.9
    assert watch.advance(2, [young], 0, 110.0) is None
    assert (None, True) == (watch.advance(2, [young], 1, 111.0), watch.is_silent)
    assert ("", False) == (watch.advance(2, [young], 0, 111.0), watch.is_silent)


def test_a_quiet_period_ends_with_its_suspect_or_without_demand() -> None:
    """While the suspect runs, nothing else is asked for. (D03)"""
    watch, queue = watch_with_a_suspect()
    alone = attempt("alone")
    alone.token = "server/7!"
    assert "!" == watch.advance(2, [], 0, 110.0)
    watch.took([alone], queue, 0)
    assert (None, True) == (watch.advance(None, [alone], 0, 110.5), watch.is_silent)
    assert (None, False) == (watch.advance(None, [], 0, 110.6), watch.is_silent)
    assert "!" == watch.advance(2, [], 0, 118.0)
    assert (None, True) == (watch.advance(None, [], 1, 118.1), watch.is_silent)
    assert (None, False) == (watch.advance(None, [], 0, 118.2), watch.is_silent)


def test_the_queues_with_suspects_take_turns() -> None:
    """The one that was asked last comes last; one without a suspect is forgotten. (D03)"""
    watch, one = watch_with_a_suspect()
    two = QueueBoard(["two"]).queues[0]
    watch.took([], two, 3)
    watch.took([], one, 4)
    assert [(two, 3), (one, 4)] == list(watch.waiting.items())
    watch.took([], two, 0)
    assert [one] == list(watch.waiting)
    assert watch.is_wary
    watch.took([], one, 0)
    assert not watch.is_wary


def test_the_suspect_of_a_silence_is_the_one_that_was_taken_alone() -> None:
    """Its token says so; it is forgotten with the silence. (D03)"""
    watch, queue = watch_with_a_suspect()
    alone = attempt("alone")
    alone.token = "server/7!"
    watch.begin_silence(110.0)
    seen = []
    for attempts in ([attempt("other")], [alone]):
        watch.took(attempts, queue, 0)
        seen.append(watch.alone)
    assert [None, alone] == seen
    watch.end_silence(110.5)
    assert (False, None) == (watch.is_wary, watch.alone)


SERVERS = 200


def rest(board: QueueBoard, queue: ServedQueue) -> None:
    """Let a queue be empty and watched, on a board of one of many servers."""
    board.note_servers(SERVERS)
    board.answered(queue, EMPTY, changes=queue.state.changes, now=100.0, look_at=105.0)
    board.watched(queue, changes=queue.state.changes, may_rest=True)


def report(board: QueueBoard, queue: ServedQueue) -> float:
    """Let Redis report a task; return after how many seconds the server looks for it."""
    assert board.changed(queue.keys[Key.PENDING], 100.0)
    return queue.state.look_at - 100.0 if queue.state.phase is QueuePhase.DEFERRED else 0.0


def lose(board: QueueBoard, queue: ServedQueue) -> None:
    """Let somebody else have got the task, whether the server asks or looks for it."""
    if queue.state.phase is not QueuePhase.DEFERRED:
        board.answered(queue, EMPTY, changes=queue.state.changes, now=100.0, look_at=105.0)
    board.watched(queue, changes=queue.state.changes, may_rest=True)


def win(board: QueueBoard, queue: ServedQueue) -> None:
    """Let the server get the task."""
    board.watched(queue, changes=queue.state.changes)
    task = DequeuedTask("a", b"", 0, 30)
    board.answered(queue, EMPTY._replace(tasks=[task]), changes=queue.state.changes, now=100.0, look_at=105.0)
    # To take the task is a change of the queue as well.
    report(board, queue)
    lose(board, queue)


def test_one_of_many_servers_leaves_a_task_to_others_for_a_random_while(board: QueueBoard) -> None:
    """One task wakes all those that watch, and one of them gets it: most look so late that it is gone."""
    queue = board.queues[0]
    rest(board, queue)
    waits = []
    for _ in range(1_000):
        waits.append(report(board, queue))
        is_deferred = queue.state.phase is QueuePhase.DEFERRED
        assert (waits[-1] > 0) is is_deferred is (queue not in board.to_ask(100.0))
        assert [] == board.to_watch() == board.to_watch_again(100.0)
        lose(board, queue)
    assert 3 < sum(wait == 0 for wait in waits) < 60, "four of two hundred ask at once"
    assert 0.05 < sum(waits) / len(waits) < 0.15
    assert 0.2 < max(waits) <= 0.25


def test_a_look_that_shows_a_task_is_followed_by_the_question(board: QueueBoard) -> None:
    """No other server was quicker."""
    queue = board.queues[0]
    rest(board, queue)
    while not report(board, queue):
        lose(board, queue)
    [due] = board.to_watch_again(queue.state.look_at)
    board.watched(due, changes=due.state.changes)
    assert queue in board.to_ask(100.0)


def test_where_servers_are_few_a_task_is_asked_for_at_once(board: QueueBoard) -> None:
    """The same applies while their number is unknown."""
    queue = board.queues[0]
    rest(board, queue)
    board.note_servers(4)
    for _ in range(100):
        assert 0 == report(board, queue)
        assert queue in board.to_ask(100.0)
        lose(board, queue)


def test_the_only_idle_server_of_many_soon_asks_at_once(board: QueueBoard) -> None:
    """All others are busy, so no other server is ahead of it; when they are free, it waits again."""
    queue = board.queues[0]
    rest(board, queue)
    for _ in range(100):
        report(board, queue)
        win(board, queue)
    for _ in range(50):
        assert 0 == report(board, queue)
        win(board, queue)
    waits = []
    for _ in range(100):
        waits.append(report(board, queue))
        lose(board, queue)
    assert max(waits) > 0.1


def test_no_server_gets_more_and_more_of_the_tasks() -> None:
    """The same would happen if a server that gets one asked sooner for the next."""
    herds = [Herd()] * SERVERS
    got = [0] * SERVERS
    for _ in range(1_000):
        reports = [herd.report(SERVERS, random.random()) for herd in herds]
        waits = [(wait, random.random()) for _, wait in reports]
        first = waits.index(min(waits))
        got[first] += 1
        herds = [herd.answered(found=number == first) for number, (herd, _) in enumerate(reports)]
        herds[first] = herds[first].report(SERVERS, random.random())[0].answered(found=False)
    assert max(got) < 30, "the mean is 5"


def test_questions_to_the_board_change_nothing(board: QueueBoard) -> None:
    """Whatever is known of the queues, and however late it is."""
    empty, told = board.queues
    board.answered(empty, EMPTY, changes=0, now=100.0, look_at=105.0)
    board.watched(empty, changes=0, may_rest=True)
    board.failed(told, look_at=101.0)
    before = [queue.state for queue in board.queues]
    for now in (100.0, 110.0):
        for _ in range(2):
            asked = (board.to_ask(now), board.to_watch_again(now), board.to_watch(), board.next_look())
        assert asked == (board.to_ask(now), board.to_watch_again(now), board.to_watch(), board.next_look())
    assert (board.all_empty, board.limited_queues(), board.is_ordered("one")) == (False, frozenset(), False)
    assert before == [queue.state for queue in board.queues]


def test_a_removed_queue_is_known_until_its_attempts_have_ended(board: QueueBoard) -> None:
    """It is neither asked nor watched; what it was told before does not make it ask one that comes again."""
    one, two = board.queues
    board.remove("two")
    assert ["one"] == list(board.names) == [queue.name for queue in board.to_ask(0.0)]
    assert not board.changed(two.keys[Key.PENDING])
    assert ["one", "two"] == list(board.known)
    assert [] == board.forget_removed(["two"])
    assert [two] == board.forget_removed([])
    assert {"one": one} == board.known
    board.slot_freed("two")
    board.give_head_start("two", 1.0, until=1.0)
    assert not board.is_ordered("two")


def test_an_order_holds_until_redis_says_otherwise(board: QueueBoard) -> None:
    """A queue that is added again, or changed, may still be ordered for all servers."""
    board.add("line", Queue(ordered=True))
    assert {"line"} == board.limited_queues()
    board.change("line", Queue(priority=4))
    assert board.is_ordered("line")
    board.remove("line")
    assert board.is_ordered("line")
    assert board.all_plain
    board.add("line", Queue())
    assert board.is_ordered("line")
    assert {"one": 1, "two": 1, "line": 1} == board.priorities
    line = board.queue("line")
    plain = Dequeued([], 0, True, False, 30, Instant(0), DequeueRules.PLAIN)
    board.answered(line, plain, changes=line.state.changes, now=1.0, look_at=9.0)
    assert not board.is_ordered("line")
    assert board.all_plain


def test_a_queue_that_is_added_is_asked_if_tasks_of_it_are_wanted(board: QueueBoard) -> None:
    """A consumer asks the queues of those who wait; all of them, if somebody waits for any."""
    board.only(["one", "new"])
    board.add("new", Queue())
    assert ["one", "new"] == [queue.name for queue in board.to_ask(0.0)]
    board.only([])
    assert math.inf == board.next_look()
    board.only(None)
    assert 3 == len(board.to_ask(0.0))
