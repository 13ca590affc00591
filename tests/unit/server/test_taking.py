"""The board of queues, and tasks that may kill their worker."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask
from pyasynq._clock import Instant
from pyasynq._engine.lease.roster import Roster
from pyasynq._engine.take.poison_guard import SuspectWatch, suspect_threshold
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._engine.take.wake_herd import Rivals
from tests.attempts import attempt

if TYPE_CHECKING:
    from pyasynq._engine.take.queue_view import QueueView


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
def test_after_an_answer_that_is_older_than_a_change_the_queue_is_looked_at_again(
    board: QueueBoard, key: str
) -> None:
    """No wake-up is lost between question and answer, nor between look and answer."""
    view = board.views[0]
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=105.0)
    board.watched_empty(view, changes=0, look_at=105.0)
    assert board.changed(key)
    board.answered(view, EMPTY, changes=0, now=100.0, look_at=105.0)
    assert [view] == board.to_watch()
    board.watched_empty(view, changes=0, look_at=105.0)
    assert not view.armed
    board.watched(view, changes=0)
    assert not view.armed
    board.watched(view, changes=1)
    assert view in board.worth_asking(100.0)


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


SERVERS = 200


def rest(board: QueueBoard, view: QueueView) -> None:
    """Let a queue be empty and watched, on a board of one of many servers."""
    board.note_servers(SERVERS)
    board.answered(view, EMPTY, changes=view.changes, now=100.0, look_at=105.0)
    board.watched_empty(view, changes=view.changes, look_at=105.0)


def report(board: QueueBoard, view: QueueView) -> float:
    """Let Redis report a task; return after how many seconds the server looks for it."""
    assert board.changed(view.pending_key, 100.0)
    return view.look_at - 100.0 if view.deferred else 0.0


def lose(board: QueueBoard, view: QueueView) -> None:
    """Let somebody else have got the task, whether the server asks or looks for it."""
    if not view.deferred:
        board.answered(view, EMPTY, changes=view.changes, now=100.0, look_at=105.0)
    board.watched_empty(view, changes=view.changes, look_at=105.0)


def win(board: QueueBoard, view: QueueView) -> None:
    """Let the server get the task."""
    board.watched(view, changes=view.changes)
    task = DequeuedTask("a", b"", 0, 30)
    board.answered(view, EMPTY._replace(tasks=[task]), changes=view.changes, now=100.0, look_at=105.0)
    # To take the task is a change of the queue as well.
    report(board, view)
    lose(board, view)


def test_one_of_many_servers_leaves_a_task_to_others_for_a_random_while(board: QueueBoard) -> None:
    """One task wakes all those that watch, and one of them gets it: most look so late that it is gone."""
    view = board.views[0]
    rest(board, view)
    waits = []
    for _ in range(1_000):
        waits.append(report(board, view))
        assert (waits[-1] > 0) is view.deferred is (view not in board.worth_asking(100.0))
        assert [] == board.to_watch() == board.due(100.0)
        lose(board, view)
    assert 3 < sum(wait == 0 for wait in waits) < 60, "four of two hundred ask at once"
    assert 0.05 < sum(waits) / len(waits) < 0.15
    assert 0.2 < max(waits) <= 0.25


def test_a_look_that_shows_a_task_is_followed_by_the_question(board: QueueBoard) -> None:
    """Nobody else was quicker."""
    view = board.views[0]
    rest(board, view)
    while not report(board, view):
        lose(board, view)
    [due] = board.due(view.look_at)
    board.watched(due, changes=due.changes)
    assert view in board.worth_asking(100.0)


def test_where_servers_are_few_a_task_is_asked_for_at_once(board: QueueBoard) -> None:
    """As also where nobody knows yet how many there are."""
    view = board.views[0]
    rest(board, view)
    board.note_servers(4)
    for _ in range(100):
        assert 0 == report(board, view)
        assert view in board.worth_asking(100.0)
        lose(board, view)


def test_the_only_idle_server_of_many_soon_asks_at_once(board: QueueBoard) -> None:
    """All others are busy, so that nobody is in its way; when they are not any more, it waits again."""
    view = board.views[0]
    rest(board, view)
    for _ in range(100):
        report(board, view)
        win(board, view)
    for _ in range(50):
        assert 0 == report(board, view)
        win(board, view)
    waits = []
    for _ in range(100):
        waits.append(report(board, view))
        lose(board, view)
    assert max(waits) > 0.1


def test_no_server_gets_more_and_more_of_the_tasks() -> None:
    """As it would if whoever gets one looked sooner for the next."""
    servers = [Rivals() for _ in range(SERVERS)]
    got = [0] * SERVERS
    for _ in range(5_000):
        waits = [(server.told(SERVERS), random.random()) for server in servers]
        first = waits.index(min(waits))
        got[first] += 1
        for number, server in enumerate(servers):
            server.looked(found=number == first)
        servers[first].told(SERVERS)
        servers[first].looked(found=False)
    assert max(got) < 100
