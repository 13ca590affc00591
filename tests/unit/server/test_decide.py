"""What is done about an attempt that has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pyasynq import control
from pyasynq._clock import Instant
from pyasynq._engine.handlers.routes import AttemptRules
from pyasynq._engine.run.outcome import (
    DONE,
    LET_GO,
    Decision,
    Ending,
    Failed,
    Succeeded,
    Unfinished,
    decide,
    find_cause,
)
from pyasynq._wire.messages import new_task_message
from pyasynq.errors import HandlerNotFoundError, RevokeTask, SkipRetry, TaskCanceledError
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from pyasynq._wire.messages import TaskMessage

NOW = Instant(1_000, 250_000)


def message(*, retry: int = 3, retried: int = 0, retention: int = 0) -> TaskMessage:
    """Return a message with what a decision reads of it."""
    return new_task_message(id="id", type="t", retry=retry, retried=retried, retention=retention)


@dataclass
class FixedRules(AttemptRules):
    failure: bool = True
    seconds: float = 10.0
    asked: list[int] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def is_failure(self, error: BaseException) -> bool:
        del error
        return self.failure

    def delay(self, retried: int, error: BaseException) -> float:
        self.errors.append(error)
        self.asked.append(retried)
        return self.seconds


def decided(
    ending: Ending,
    message: TaskMessage = message(),  # noqa: B008 - read only
    rules: FixedRules | None = None,
    *,
    is_poison: bool = False,
) -> Decision:
    """Return the decision at NOW."""
    return decide(message, ending, rules or FixedRules(), now=NOW, is_poison=is_poison)


def retry(due_at: int, *, is_failure: bool = True) -> Decision:
    """Return the decision to try again."""
    return Decision("retry", Outcome.RETRIED, NOW, due_at, is_failure=is_failure)


def snooze(due_at: int) -> Decision:
    """Return the decision to run again, with nothing spent."""
    return Decision("snooze", Outcome.SNOOZED, NOW, due_at)


ARCHIVED = Decision("archive", Outcome.ARCHIVED, NOW)
REVOKED = Decision("done", Outcome.REVOKED, NOW)
REQUEUED = Decision("requeue", Outcome.REQUEUED, NOW)


def wrapped(cause: BaseException) -> BaseException:
    """Return an error that was raised from another one."""
    try:
        raise ValueError("outer") from cause
    except ValueError as error:
        return error


def test_a_success_without_retention_is_done() -> None:
    """The task is deleted."""
    assert DONE == decided(Succeeded(b"result"))


def test_a_success_with_retention_is_kept_with_its_result() -> None:
    """It expires the retention after its completion, in whole seconds."""
    kept = Decision("complete", Outcome.SUCCEEDED, NOW, 1_060, result=b"result")
    assert kept == decided(Succeeded(b"result"), message(retention=60))


def test_a_failure_is_retried_after_the_delay() -> None:
    """H13: the score is the first whole second that is not before the due time."""
    rules = FixedRules()
    assert retry(1_011) == decided(Failed(ValueError()), message(retried=2), rules)
    assert [2] == rules.asked


def test_an_error_that_is_not_a_failure_spends_no_retry() -> None:
    """The user's `is_failure` decides."""
    assert retry(1_011, is_failure=False) == decided(Failed(ValueError()), rules=FixedRules(failure=False))


def test_the_last_failure_archives() -> None:
    """A task whose retries are spent is archived."""
    assert ARCHIVED == decided(Failed(ValueError()), message(retry=3, retried=3))


def test_an_error_that_is_not_a_failure_archives_too_when_no_retry_is_left() -> None:
    """Asynq's order: exhaustion is looked at first."""
    assert ARCHIVED == decided(Failed(ValueError()), message(retry=0), FixedRules(failure=False))


@pytest.mark.parametrize(
    "error",
    [SkipRetry(), wrapped(SkipRetry()), wrapped(wrapped(SkipRetry())), ExceptionGroup("", [SkipRetry()])],
)
def test_skip_retry_archives_at_once(error: BaseException) -> None:
    """Raised itself, as a cause, or in a group."""
    assert ARCHIVED == decided(Failed(error))


@pytest.mark.parametrize("error", [RevokeTask(), wrapped(RevokeTask())])
def test_revoke_ends_the_task_without_a_trace(error: BaseException) -> None:
    """Neither retry nor archive nor retention."""
    assert REVOKED == decided(Failed(error), message(retry=0, retention=60))


def test_an_error_raised_while_handling_skip_retry_is_an_ordinary_failure() -> None:
    """Only `raise ... from` wraps; what merely happened before does not count."""
    error = ValueError("while cleaning up")
    error.__context__ = SkipRetry()
    assert "retry" == decided(Failed(error)).action


def test_causes_that_go_in_a_circle_end() -> None:
    """A circle of causes is walked once."""
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert "retry" == decided(Failed(first)).action


def test_an_attempt_that_the_server_broke_off_is_put_back() -> None:
    """Shutdown spends nothing."""
    assert REQUEUED == decided(Unfinished(), message(retry=0))


def test_a_task_that_is_somebody_elses_is_let_go() -> None:
    """Nothing is written without ownership."""
    assert LET_GO == decided(Unfinished(is_lost=True))


@pytest.mark.parametrize(("is_poison", "decision"), [(False, REQUEUED), (True, ARCHIVED)])
def test_a_crash_puts_back_or_archives_at_its_limit(is_poison: bool, decision: Decision) -> None:
    """The decision is that of the recoverer, and the number of retries does not matter."""
    assert decision == decided(Unfinished(crash="killed"), message(retry=0), is_poison=is_poison)


def test_only_a_crash_is_poison() -> None:
    """Whatever was broken off for another reason is put back."""
    assert REQUEUED == decided(Unfinished(), is_poison=True)


def test_a_decision_knows_the_seconds_until_the_next_attempt() -> None:
    """From the end of the attempt; none when there is no next attempt, or none is planned."""
    assert 10.75 == retry(1_011).delay
    assert 0.0 == retry(1_000).delay
    assert 60.75 == snooze(1_061).delay
    assert [None] * 3 == [decision.delay for decision in (DONE, REQUEUED, ARCHIVED)]


def test_h19_a_type_without_handler_is_left_to_others_and_spends_nothing() -> None:
    """It comes back after a pause, for any server; also when no retry is left."""
    ending = Failed(HandlerNotFoundError("t"), is_unhandled=True)
    left = Decision("retry", Outcome.REQUEUED, NOW, 1_006)
    assert left == decided(ending, message(retry=0))


def test_without_a_delay_a_task_is_due_in_this_second() -> None:
    """Rounded up, it would not be retried at once but in the next second."""
    assert retry(1_000) == decided(Failed(ValueError()), rules=FixedRules(seconds=0))


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0])
def test_a_delay_that_makes_no_sense_retries_at_once(seconds: float) -> None:
    """A settle is never lost to the user's arithmetic."""
    assert retry(1_000) == decided(Failed(ValueError()), rules=FixedRules(seconds=seconds))


@pytest.mark.parametrize(
    ("outcome", "ending", "facts"),
    [
        (Outcome.SUCCEEDED, Succeeded(None), message()),
        (Outcome.SUCCEEDED, Succeeded(None), message(retention=5)),
        (Outcome.REVOKED, Failed(RevokeTask()), message()),
        (Outcome.REVOKED, Failed(control.Cancel()), message()),
        (Outcome.SNOOZED, Failed(control.Snooze(5)), message()),
        (Outcome.RETRIED, Failed(ValueError()), message()),
        (Outcome.ARCHIVED, Failed(ValueError()), message(retry=0)),
        (Outcome.REQUEUED, Unfinished(), message()),
        (Outcome.REQUEUED, Failed(ValueError(), is_unhandled=True), message()),
        (Outcome.LET_GO, Unfinished(is_lost=True), message()),
    ],
)
def test_each_decision_has_its_word(outcome: Outcome, ending: Ending, facts: TaskMessage) -> None:
    """The events' word for ending and decision together."""
    assert outcome is decided(ending, facts).outcome


@pytest.mark.parametrize(
    ("choice", "decision"),
    [("retry", retry(1_011)), ("archive", ARCHIVED), ("delete", REVOKED)],
)
def test_h16_the_request_to_cancel_chooses_the_outcome_of_the_task(choice: str, decision: Decision) -> None:
    """Retry is the default, as in Asynq."""
    assert decision == decided(Failed(TaskCanceledError(choice)))


def test_h16_a_choice_that_a_handler_wraps_is_none() -> None:
    """Only the cause of a cancellation carries one."""
    error = ValueError()
    error.__cause__ = TaskCanceledError("delete")
    assert "retry" == decided(Failed(error)).action


@pytest.mark.parametrize("facts", [message(), message(retry=0), message(retry=3, retried=3)])
def test_a_snooze_waits_and_does_not_run_out(facts: TaskMessage) -> None:
    """Unlike Asynq, which archives even for an error that is not a failure when no retry is left."""
    rules = FixedRules()
    assert snooze(1_061) == decided(Failed(control.Snooze(60)), facts, rules)
    assert [] == rules.asked


def test_a_retry_by_the_handler_spends_one_and_runs_out() -> None:
    """It is a failure like any other, except its delay; ```````````` is not asked."""
    rules = FixedRules(failure=False)
    assert retry(1_031) == decided(Failed(control.Retry(30)), rules=rules)
    assert [] == rules.asked
    assert ARCHIVED == decided(Failed(control.Retry(30)), message(retry=0))


def test_a_retry_that_spends_nothing_does_not_run_out() -> None:
    """Nothing is spent, so nothing can be used up."""
    ending = Failed(control.Retry(after=30, spend=False))
    assert retry(1_031, is_failure=False) == decided(ending, message(retry=0))


def test_a_retry_without_a_delay_asks_for_one_with_the_error_behind_it() -> None:
    """`retry_delay` gets what was caught, not the wish."""
    rules = FixedRules()
    caught, wish = ValueError("caught"), control.Retry()
    wish.__context__ = caught
    assert retry(1_011) == decided(Failed(wish), rules=rules)
    assert [caught] == rules.errors


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("bare", "wish"),
        ("cause", "cause"),
        ("context", "context"),
        ("from None", "wish"),
        ("other", "other"),
    ],
)
def test_the_error_to_tell_is_the_one_behind_a_retry(error: str, told: str) -> None:
    """`raise Retry() from error`, or within `except`; not what `from None` hides, nor what others hide."""
    wish: BaseException = ValueError("other") if error == "other" else control.Retry()
    behind = KeyError(error)
    if error == "cause":
        wish.__cause__ = behind
    elif error != "bare":
        wish.__context__ = behind
    wish.__suppress_context__ = error in {"cause", "from None"}
    assert (behind if told in {"cause", "context"} else wish) is find_cause(wish)


def test_archive_by_the_handler_is_at_once() -> None:
    """Neither the retries that are left nor `is_failure` change that."""
    assert ARCHIVED == decided(Failed(control.Archive("no")), rules=FixedRules(failure=False))


def test_cancel_by_the_handler_forgets_the_task() -> None:
    """`Cancel` ignores retention, as Asynq's `RevokeTask` does."""
    assert REVOKED == decided(Failed(control.Cancel()), message(retry=0, retention=60))


SNOOZE, RETRY, ARCHIVE, CANCEL = (
    control.Snooze(60),
    control.Retry(30),
    control.Archive("no"),
    control.Cancel(),
)


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (wrapped(SNOOZE), snooze(1_061)),
        (wrapped(wrapped(ARCHIVE)), ARCHIVED),
        (ExceptionGroup("", [SNOOZE]), snooze(1_061)),
        (BaseExceptionGroup("", [SNOOZE, BaseExceptionGroup("", [wrapped(SNOOZE)])]), snooze(1_061)),
        (ExceptionGroup("", [SNOOZE, ValueError()]), retry(1_011)),
        (ExceptionGroup("", [ValueError(), RETRY, SNOOZE]), retry(1_031)),
        (ExceptionGroup("", [RETRY, ARCHIVE]), ARCHIVED),
        (ExceptionGroup("", [RETRY, SkipRetry()]), ARCHIVED),
        (ExceptionGroup("", [ARCHIVE, CANCEL, SNOOZE]), REVOKED),
        (ExceptionGroup("", [SkipRetry(), RevokeTask()]), REVOKED),
    ],
)
def test_what_ends_most_wins(error: BaseException, decision: Decision) -> None:
    """Wrapped as a cause or in groups; another error next to a Snooze is not hidden by it."""
    assert decision == decided(Failed(error))
