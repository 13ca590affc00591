"""Ordered queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask, DequeueRules, DequeueTerms, LimitedBy
from pyasynq._clock import Instant
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._engine.take.queue_state import Key, Watch
from pyasynq.limits import Queue, QueueLimits

if TYPE_CHECKING:
    from pyasynq._engine.take.queue_board import ServedQueue

HELD = Dequeued([], 0, False, False, 30, Instant(10), DequeueRules.ORDERED, LimitedBy.ORDER)
TAKEN = HELD._replace(tasks=[DequeuedTask("a", b"", 0, 30)])
EMPTY = Dequeued([], 0, True, False, 30, Instant(10), DequeueRules.ORDERED)


@pytest.fixture
def board() -> QueueBoard:
    """A queue that this server declares as ordered, and one that it does not."""
    settings = {"one": Queue(ordered=True), "two": Queue()}
    return QueueBoard(settings, settings.__getitem__)


@pytest.fixture
def queue(board: QueueBoard) -> ServedQueue:
    """The ordered one."""
    return board.queues[0]


def answer(board: QueueBoard, queue: ServedQueue, reply: Dequeued, *, changes: int | None = None) -> None:
    """Let Redis answer a question of second 100; the safety poll is five seconds later."""
    changes = queue.state.changes if changes is None else changes
    board.answered(queue, reply, changes=changes, now=100.0, look_at=105.0)


def test_a_queue_is_asked_as_an_ordered_one_if_somebody_said_so(board: QueueBoard) -> None:
    """This server, or any other."""
    one, two = board.queues
    assert DequeueTerms(DequeueRules.ORDERED, QueueLimits(ordered=True)) == one.terms
    assert [True, False] == [board.is_ordered("one"), board.is_ordered("two")]
    answer(board, two, HELD._replace(limited_by=LimitedBy.NOTHING))
    assert DequeueTerms(DequeueRules.ORDERED) == two.terms
    assert {"one", "two"} == board.limited_queues()
    answer(board, two, EMPTY._replace(rules=DequeueRules.PLAIN))
    assert {"one"} == board.limited_queues()


def test_an_inspectors_word_wins_over_the_servers(board: QueueBoard, queue: ServedQueue) -> None:
    """And the server's counts again when nothing is stored any more."""
    answer(board, queue, EMPTY._replace(rules=DequeueRules.UNORDERED, empty=False))
    assert (DequeueRules.UNORDERED, True) == (queue.state.rules, queue.state.is_limited)
    assert not board.is_ordered("one")
    for rules in (DequeueRules.LIMITED, DequeueRules.PLAIN):
        answer(board, queue, EMPTY._replace(rules=DequeueRules.UNORDERED))
        answer(board, queue, EMPTY._replace(rules=rules))
        assert DequeueRules.ORDERED is queue.state.rules


def test_while_its_own_task_is_the_head_the_server_asks_and_watches_nothing(
    board: QueueBoard, queue: ServedQueue
) -> None:
    """Its own changes are also reported to it; only the end of its task counts, or the safety poll."""
    queue.state = queue.state._replace(watch=Watch.HOLDERS)
    answer(board, queue, TAKEN)
    for key in (Key.ACTIVE, Key.RETRY, Key.PENDING, Key.LIMITS):
        assert not board.changed(queue.keys[key])
    assert Watch.NOTHING is queue.state.watch
    assert [] == board.to_watch_again(104.9)
    assert [queue] == board.to_watch_again(105.0)
    board.slot_freed("one")
    assert queue in board.to_ask(100.0)


def test_a_change_between_question_and_answer_does_not_matter_to_the_owner_of_the_head(
    board: QueueBoard, queue: ServedQueue
) -> None:
    """The report of its own dequeue may overtake the reply."""
    board.changed(queue.keys[Key.ACTIVE])
    answer(board, queue, TAKEN, changes=0)
    assert 105.0 == queue.state.look_at


def test_a_head_of_others_is_watched_after_a_gap(board: QueueBoard, queue: ServedQueue) -> None:
    """The lists that hold the queue; then it is asked once more, and left alone until one of them changes."""
    answer(board, queue, HELD)
    assert (Key.ACTIVE, Key.RETRY, Key.PAUSED, Key.LIMITS) == queue.state.watched_keys
    assert 100.01 <= queue.state.look_at <= 100.02
    assert [queue] == board.to_watch_again(100.02)
    board.watched(queue, changes=0)
    answer(board, queue, HELD)
    assert 105.0 == queue.state.look_at
    assert not board.changed(queue.keys[Key.PENDING])
    assert board.changed(queue.keys[Key.RETRY])
    assert queue.state.look_at <= 100.04


@pytest.mark.parametrize("key", ["asynq:{one}:active", "asynq:{one}:retry"])
def test_no_end_of_a_head_is_lost_between_question_and_answer(
    board: QueueBoard, queue: ServedQueue, key: str
) -> None:
    """The answer is older than the report."""
    assert board.changed(key)
    queue.state = queue.state._replace(watch=Watch.HOLDERS)
    answer(board, queue, HELD, changes=0)
    assert queue.state.look_at <= 100.02


@pytest.mark.parametrize("key", ["asynq:{two}:active", "asynq:{two}:retry"])
def test_queues_without_order_do_not_care_for_these_lists(board: QueueBoard, key: str) -> None:
    """The forwarder watches `retry` over the same connection."""
    two = board.queues[1]
    answer(board, two, EMPTY._replace(rules=DequeueRules.PLAIN))
    assert not board.changed(key)
    assert two.state.is_empty
