"""The board of queues, and tasks that may kill their worker."""

from __future__ import annotations

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask
from pyasynq._clock import Instant
from pyasynq._server.board import QueueBoard, QueueView
from pyasynq._server.roster import Roster
from pyasynq._server.suspects import SuspectWatch, suspect_threshold
from tests.attempts import attempt


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
    """Two queues that nobody has asked yet."""
    return QueueBoard(["one", "two"])


def test_an_empty_queue_is_watched_asked_once_more_and_then_left_alone(board: QueueBoard) -> None:
    """Until Redis reports a change or the safety poll is due."""
    view = board.views[0]
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert [view] == board.to_watch()
    board.watched(view, changes=0)
    assert view in board.worth_asking(100.0)
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert [] == board.to_watch()
    assert view not in board.worth_asking(104.0)
    assert board.changed(view.pending_key)
    assert view in board.worth_asking(104.0)


def test_the_safety_poll_asks_and_watches_anew(board: QueueBoard) -> None:
    """A watch that has gone deaf does not stay so."""
    view = board.views[0]
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=0.0)
    board.watched(view, changes=0)
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert view in board.worth_asking(105.0)
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=110.0)
    assert [view] == board.to_watch()


def test_a_queue_that_cannot_be_watched_is_polled_after_every_answer(board: QueueBoard) -> None:
    """Also after it was asked for another reason; rounds in between do not put the poll off."""
    view = board.views[0]
    for now in (100.0, 101.0):
        board.ask_all_again()
        board.answered(view, EMPTY, changes=0, now=100.0, look_at=now + 5)
        assert [view] == board.to_watch()
        board.unwatchable(view, look_at=now + 1)
        board.unwatchable(view, look_at=now + 2)
        assert view not in board.worth_asking(now + 0.9)
        assert view in board.worth_asking(now + 1)


@pytest.mark.parametrize("key", ["asynq:{one}:pending", "asynq:{one}:paused"])
def test_an_answer_that_is_older_than_a_change_says_nothing(board: QueueBoard, key: str) -> None:
    """No wake-up is lost between question and answer."""
    view = board.views[0]
    assert board.changed(key)
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert view in board.worth_asking(100.0)
    board.watched(view, changes=0)
    assert not view.armed


def test_h19_a_queue_with_tasks_for_others_is_left_to_them_first(board: QueueBoard) -> None:
    """What comes into it while it is empty is asked for late, and watched again only then."""
    view, other = board.views
    for one in (view, other):
        board.answered(one, EMPTY, changes=0, now=100.0, look_at=105.0)
        board.watched(one, changes=0)
        board.answered(one, EMPTY, changes=0, now=100.0, look_at=105.0)
    view.give_way(2.0, until=160.0)
    assert board.changed(view.pending_key, 101.0)
    assert ([], [], 103.0) == (board.worth_asking(102.9), board.to_watch(), board.next_look())
    assert [view] == board.due(103.0)
    board.watched(view, changes=1)
    assert [view] == board.worth_asking(103.0)
    assert board.changed(other.pending_key, 103.0)
    assert [view, other] == board.worth_asking(103.0)


def test_h19_the_courtesy_is_over_after_a_while_and_not_for_a_queue_that_is_being_emptied(
    board: QueueBoard,
) -> None:
    """Then the next change is asked about at once."""
    view = board.views[0]
    view.give_way(2.0, until=160.0)
    assert board.changed(view.pending_key, 101.0)
    assert view in board.worth_asking(101.0)
    board.answered(view, EMPTY, changes=1, now=101.0, look_at=199.0)
    assert board.changed(view.pending_key, 160.0)
    assert view in board.worth_asking(160.0)


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
    watch.took([suspect])
    assert watch.blocked([suspect], 105.0)
    assert not watch.blocked([suspect], 110.0)
    watch.took([suspect])
    assert not watch.blocked([], 105.0)


def test_h06_a_waiting_suspect_stops_the_taking_until_all_others_are_old() -> None:
    """Then it is asked for."""
    watch = SuspectWatch(2, age=10.0)
    young, old = attempt("young"), attempt("old")
    young.started, old.started = 100.0, 80.0
    watch.waiting = QueueBoard(["one"]).views[0]
    assert watch.blocked([young, old], 105.0)
    assert not watch.blocked([old], 105.0)


def wake_in_vain(board: QueueBoard, view: QueueView, now: float) -> None:
    """Let Redis report a task of an empty queue that somebody else then gets."""
    board.changed(view.pending_key, now)
    board.answered(view, EMPTY, changes=view.changes, now=now, look_at=now + 5)
    if view in board.to_watch():
        board.watched(view, changes=view.changes)
        board.answered(view, EMPTY, changes=view.changes, now=now, look_at=now + 5)


def test_one_of_many_idle_servers_waits_before_it_watches_a_queue_again(board: QueueBoard) -> None:
    """One task wakes all those that watch, and only one of them gets it."""
    view = board.views[0]
    for _ in range(8):
        wake_in_vain(board, view, 100.0)
        assert view.armed
    rests = []
    for _ in range(10):
        wake_in_vain(board, view, 100.0)
        assert not view.armed
        assert [] == board.to_watch() == board.due(100.0)
        rests.append(view.look_at - 100.0)
        [due] = board.due(view.look_at)
        board.watched(due, changes=due.changes)
        assert view in board.worth_asking(100.0)
        board.answered(view, EMPTY, changes=view.changes, now=100.0, look_at=105.0)
        assert (True, 105.0) == (view.armed, view.look_at)
    assert 0.01 <= rests[0] <= 0.02
    assert 0.125 <= rests[-1] <= 0.25


def test_a_server_that_gets_a_task_watches_at_once_again(board: QueueBoard) -> None:
    """So there is always one that does, as long as it has room."""
    view = board.views[0]
    for _ in range(12):
        wake_in_vain(board, view, 100.0)
    task = DequeuedTask("a", b"", 0, 30)
    board.changed(view.pending_key, 100.0)
    board.answered(view, EMPTY._replace(tasks=[task]), changes=view.changes, now=100.0, look_at=105.0)
    assert [view] == board.to_watch()


def test_polls_that_find_nothing_are_no_vain_wakes(board: QueueBoard) -> None:
    """Whoever is never told is one of none."""
    view = board.views[0]
    for _ in range(50):
        board.answered(view, EMPTY, changes=view.changes, now=100.0, look_at=105.0)
        assert [view] == board.to_watch()
        assert 105.0 == view.look_at
