"""The board's view of an ordered queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask, LimitedBy, Rules, Terms
from pyasynq._clock import Instant
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq.limits import Queue, QueueLimits

if TYPE_CHECKING:
    from pyasynq._engine.take.queue_view import QueueView

HELD = Dequeued([], 0, False, False, 30, Instant(10), Rules.ORDERED, LimitedBy.ORDER)
TAKEN = HELD._replace(tasks=[DequeuedTask("a", b"", 0, 30)])
EMPTY = Dequeued([], 0, True, False, 30, Instant(10), Rules.ORDERED)


@pytest.fixture
def board() -> QueueBoard:
    """A queue that this server declares as ordered, and one that it does not."""
    settings = {"one": Queue(ordered=True), "two": Queue()}
    return QueueBoard(settings, settings.__getitem__)


@pytest.fixture
def view(board: QueueBoard) -> QueueView:
    """The ordered one."""
    return board.views[0]


def answer(board: QueueBoard, view: QueueView, reply: Dequeued, *, changes: int | None = None) -> None:
    """Let Redis answer a question of second 100; the safety poll is five seconds later."""
    changes = view.changes if changes is None else changes
    board.answered(view, reply, changes=changes, now=100.0, look_at=105.0)


def test_a_queue_is_asked_as_an_ordered_one_if_somebody_said_so(board: QueueBoard) -> None:
    """This server, or any other."""
    one, two = board.views
    assert Terms(Rules.ORDERED, QueueLimits(ordered=True)) == one.terms
    assert [True, False] == [board.is_ordered("one"), board.is_ordered("two")]
    answer(board, two, HELD._replace(limited_by=LimitedBy.NOTHING))
    assert Terms(Rules.ORDERED) == two.terms
    assert {"one", "two"} == board.limited_queues()
    answer(board, two, EMPTY._replace(rules=Rules.PLAIN))
    assert {"one"} == board.limited_queues()


def test_an_inspectors_word_wins_over_the_servers(board: QueueBoard, view: QueueView) -> None:
    """And the server's counts again when nothing is stored any more."""
    answer(board, view, EMPTY._replace(rules=Rules.UNORDERED, empty=False))
    assert (Rules.UNORDERED, True) == (view.rules, view.limited)
    assert not board.is_ordered("one")
    for rules in (Rules.LIMITED, Rules.PLAIN):
        answer(board, view, EMPTY._replace(rules=Rules.UNORDERED))
        answer(board, view, EMPTY._replace(rules=rules))
        assert Rules.ORDERED is view.rules


def test_while_its_own_task_is_the_head_the_server_asks_and_watches_nothing(
    board: QueueBoard, view: QueueView
) -> None:
    """What it changes itself is reported to it too; only the end of its task counts, or the safety poll."""
    view.leases_armed = True
    answer(board, view, TAKEN)
    for key in (view.active_key, view.retry_key, view.pending_key, view.limits_key):
        assert not board.changed(key)
    assert not view.leases_armed
    assert [] == board.due(104.9)
    assert [view] == board.due(105.0)
    board.slot_freed("one")
    assert view in board.worth_asking(100.0)


def test_a_change_between_question_and_answer_does_not_matter_to_the_owner_of_the_head(
    board: QueueBoard, view: QueueView
) -> None:
    """The report of its own dequeue may overtake the reply."""
    board.changed(view.active_key)
    answer(board, view, TAKEN, changes=0)
    assert 105.0 == view.look_at


def test_a_head_of_others_is_watched_after_a_gap(board: QueueBoard, view: QueueView) -> None:
    """The lists that hold the queue; then it is asked once more, and left alone until one of them changes."""
    answer(board, view, HELD)
    assert (view.active_key, view.retry_key, view.paused_key, view.limits_key) == view.watched_keys
    assert 100.01 <= view.look_at <= 100.02
    assert [view] == board.due(100.02)
    board.watched(view, changes=0)
    answer(board, view, HELD)
    assert 105.0 == view.look_at
    assert not board.changed(view.pending_key)
    assert board.changed(view.retry_key)
    assert view.look_at <= 100.04


@pytest.mark.parametrize("key", ["asynq:{one}:active", "asynq:{one}:retry"])
def test_no_end_of_a_head_is_lost_between_question_and_answer(
    board: QueueBoard, view: QueueView, key: str
) -> None:
    """The answer is older than the report."""
    assert board.changed(key)
    view.leases_armed = True
    answer(board, view, HELD, changes=0)
    assert view.look_at <= 100.02


@pytest.mark.parametrize("key", ["asynq:{two}:active", "asynq:{two}:retry"])
def test_queues_without_order_do_not_care_for_these_lists(board: QueueBoard, key: str) -> None:
    """The forwarder watches `retry` over the same connection."""
    two = board.views[1]
    answer(board, two, EMPTY._replace(rules=Rules.PLAIN))
    assert not board.changed(key)
    assert two.empty
