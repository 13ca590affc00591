"""Queues that a limit keeps from giving more."""

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

TASK = DequeuedTask("a", b"", 0, 30)
FULL = Dequeued([], 0, False, False, 30, Instant(10), DequeueRules.PLAIN, LimitedBy.CONCURRENCY, 20.0)
TAKEN = FULL._replace(tasks=[TASK])
RATED = Dequeued([], 0, False, False, 30, Instant(10), DequeueRules.PLAIN, LimitedBy.RATE, 0.25)
EMPTY = Dequeued([], 0, True, False, 30, Instant(10))


@pytest.fixture
def board() -> QueueBoard:
    """A queue with a limit, and one without."""
    settings = {"one": Queue(max_run=1), "two": Queue()}
    return QueueBoard(settings, settings.__getitem__)


def answer(
    board: QueueBoard, queue: ServedQueue, reply: Dequeued, *, now: float = 100.0, changes: int | None = None
) -> None:
    """Let Redis answer a question of this moment; the safety poll is five seconds later."""
    changes = queue.state.changes if changes is None else changes
    board.answered(queue, reply, changes=changes, now=now, look_at=now + 5.0)


def test_each_queue_is_asked_on_its_own_terms(board: QueueBoard) -> None:
    """The limits of the server, until Redis says that others are stored."""
    one, two = board.queues
    assert (True, DequeueTerms(DequeueRules.LIMITED, QueueLimits(1))) == (one.state.is_limited, one.terms)
    assert (False, DequeueTerms()) == (two.state.is_limited, two.terms)
    answer(board, two, EMPTY._replace(rules=DequeueRules.LIMITED, empty=False))
    assert (True, DequeueRules.LIMITED) == (two.state.is_limited, two.terms.rules)
    assert two in board.to_ask(100.0), "nothing was taken, so it is asked again at once"
    answer(board, two, EMPTY)
    answer(board, one, EMPTY)
    assert [True, False] == [one.state.is_limited, two.state.is_limited]


def test_a_held_queue_is_not_empty_and_not_asked(board: QueueBoard) -> None:
    """Burst must not end, and the slots go to the others."""
    one, two = board.queues
    answer(board, one, FULL)
    answer(board, two, EMPTY)
    assert not board.all_empty
    assert [] == board.to_ask(100.0)
    assert [two] == board.to_watch()


def test_a_queue_without_a_slot_is_watched_asked_once_more_and_left_alone(board: QueueBoard) -> None:
    """After a short gap, in which an attempt of this server may end; then until a lease ends or changes."""
    queue = board.queues[0]
    answer(board, queue, TAKEN)
    assert [] == board.to_watch_again(100.0049)
    assert [queue] == board.to_watch_again(100.01)
    assert (Key.LEASE, Key.PAUSED, Key.LIMITS) == queue.state.watched_keys
    board.watched(queue, changes=0)
    assert queue in board.to_ask(100.01)
    answer(board, queue, FULL, now=100.02)
    assert [] == board.to_watch_again(105.0)
    assert 105.02 == queue.state.look_at
    assert board.changed(queue.keys[Key.LEASE])
    assert [queue] == board.to_watch_again(100.04), (
        "the change came; the gap since the last vain question has passed"
    )


def test_a_lapsing_lease_is_not_slept_over(board: QueueBoard) -> None:
    """The end of a lease is not reported."""
    queue = board.queues[0]
    board.watched(queue, changes=0)
    queue.state = queue.state._replace(watch=Watch.HOLDERS)
    answer(board, queue, FULL._replace(wait=1.5))
    assert 101.5 == queue.state.look_at


def test_vain_questions_come_ever_more_seldom(board: QueueBoard) -> None:
    """Up to a quarter of a second, while others are quicker; a server that got a task starts again."""
    queue, gaps = board.queues[0], []
    for _ in range(8):
        answer(board, queue, FULL)
        gaps.append(queue.state.look_at - 100.0)
    for gap, longest in zip(gaps, (0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25, 0.25), strict=True):
        assert longest / 2 <= gap <= longest + 1e-9
    answer(board, queue, TAKEN)
    assert queue.state.look_at - 100.0 <= 0.01


def test_an_attempt_that_ends_frees_its_slot_for_the_next_question(board: QueueBoard) -> None:
    """At once: the question follows the outcome in the same pipeline."""
    queue = board.queues[0]
    answer(board, queue, FULL)
    board.slot_freed("two")
    assert queue.state.look_at > 0
    board.slot_freed("one")
    assert queue in board.to_ask(100.0)


def test_an_answer_that_is_older_than_a_change_of_leases_is_checked(board: QueueBoard) -> None:
    """No wake-up is lost between question and answer."""
    queue = board.queues[0]
    answer(board, queue, FULL)
    board.watched(queue, changes=0)
    board.changed(queue.keys[Key.LEASE])
    answer(board, queue, FULL, changes=0)
    assert queue.state.look_at <= 100.25


def test_new_tasks_of_a_held_queue_wake_no_server(board: QueueBoard) -> None:
    """They are held back as well; but when the queue is empty later, it must be watched again."""
    queue = board.queues[0]
    queue.state = queue.state._replace(watch=Watch.TASKS)
    answer(board, queue, FULL)
    look_at = queue.state.look_at
    assert not board.changed(queue.keys[Key.PENDING])
    assert look_at == queue.state.look_at
    answer(board, queue, EMPTY)
    assert [queue] == board.to_watch()


def test_a_queue_without_tokens_is_left_alone_until_its_turn(board: QueueBoard) -> None:
    """Redis has said when that is, and is told when this server comes."""
    queue = board.queues[1]
    answer(board, queue, RATED)
    assert 10_250_000 == queue.terms.held_turn
    board.slot_freed("two")
    board.changed(queue.keys[Key.LEASE])
    assert [] == [one for one in board.to_ask(100.24) if one is queue]
    assert [] == board.to_watch_again(100.25), "there is nothing to watch"
    assert queue in board.to_ask(100.25)
    answer(board, queue, RATED._replace(wait=60.0))
    assert 105.0 == queue.state.look_at, "settings may change meanwhile"
