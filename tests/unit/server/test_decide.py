"""What is done about an attempt that has ended."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pyasynq import control
from pyasynq._clock import Instant
from pyasynq._engine.run.outcome import (
    Archive,
    Complete,
    Decision,
    Done,
    Ending,
    Failed,
    Gone,
    LetGo,
    PutBack,
    Requeue,
    Retry,
    Snooze,
    Succeeded,
    Unhandled,
    cause_of,
    decide,
    outcome_of,
)
from pyasynq.errors import HandlerNotFoundError, RevokeTask, SkipRetry, TaskCanceledError
from pyasynq.events import Outcome

NOW = Instant(1_000, 250_000)


@dataclass(frozen=True)
class Facts:
    retry: int = 3
    retried: int = 0
    retention: int = 0


@dataclass
class FixedRules:
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


def decided(ending: Ending, facts: Facts | None = None, rules: FixedRules | None = None) -> Decision:
    """Return the decision at NOW."""
    return decide(facts or Facts(), ending, rules or FixedRules(), now=NOW)


def wrapped(cause: BaseException) -> BaseException:
    """Return an error that was raised from another one."""
    try:
        raise ValueError("outer") from cause
    except ValueError as error:
        return error


def test_a_success_without_retention_is_done() -> None:
    """The task is deleted."""
    assert Done() == decided(Succeeded(b"result"))


def test_a_success_with_retention_is_kept_with_its_result() -> None:
    """It expires the retention after its completion, in whole seconds."""
    assert Complete(1_000, 1_060, b"result") == decided(Succeeded(b"result"), Facts(retention=60))


def test_a_failure_is_retried_after_the_delay() -> None:
    """H13: the score is the first whole second that is not before the due time."""
    rules = FixedRules()
    assert Retry(1_000, 1_011, is_failure=True) == decided(Failed(ValueError()), Facts(retried=2), rules)
    assert [2] == rules.asked


def test_an_error_that_is_no_failure_spends_no_retry() -> None:
    """The user's `is_failure` decides."""
    assert Retry(1_000, 1_011, is_failure=False) == decided(
        Failed(ValueError()), rules=FixedRules(failure=False)
    )


def test_the_last_failure_archives() -> None:
    """With all retries spent the task is archived."""
    assert Archive(1_000) == decided(Failed(ValueError()), Facts(retry=3, retried=3))


def test_an_error_that_is_no_failure_archives_too_when_no_retry_is_left() -> None:
    """Asynq's order: exhaustion is looked at first."""
    assert Archive(1_000) == decided(Failed(ValueError()), Facts(retry=0), FixedRules(failure=False))


@pytest.mark.parametrize(
    "error",
    [SkipRetry(), wrapped(SkipRetry()), wrapped(wrapped(SkipRetry())), ExceptionGroup("", [SkipRetry()])],
)
def test_skip_retry_archives_at_once(error: BaseException) -> None:
    """Raised itself, as a cause, or in a group."""
    assert Archive(1_000) == decided(Failed(error))


@pytest.mark.parametrize("error", [RevokeTask(), wrapped(RevokeTask())])
def test_revoke_ends_the_task_without_a_trace(error: BaseException) -> None:
    """Neither retry nor archive nor retention."""
    assert Done() == decided(Failed(error), Facts(retry=0, retention=60))


def test_an_error_raised_while_handling_skip_retry_is_an_ordinary_failure() -> None:
    """Only `raise ... from` wraps; what merely happened before does not count."""
    error = ValueError("while cleaning up")
    error.__context__ = SkipRetry()
    assert isinstance(decided(Failed(error)), Retry)


def test_causes_that_go_in_a_circle_end() -> None:
    """A circle of causes is walked once."""
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert isinstance(decided(Failed(first)), Retry)


def test_an_attempt_that_the_server_broke_off_is_put_back() -> None:
    """Shutdown spends nothing."""
    assert Requeue() == decided(PutBack(), Facts(retry=0))


def test_a_task_that_is_somebody_elses_is_let_go() -> None:
    """Nothing is written without ownership."""
    assert LetGo() == decided(Gone())


def test_h19_a_type_without_handler_is_left_to_others_and_spends_nothing() -> None:
    """It comes back after a pause, for any server; also when no retry is left."""
    ending = Unhandled(HandlerNotFoundError("t"))
    assert Retry(1_000, 1_006, is_failure=False) == decided(ending, Facts(retry=0))


def test_without_a_delay_a_task_is_due_in_this_second() -> None:
    """Rounded up, it would not be retried at once but in the next second."""
    assert Retry(1_000, 1_000, is_failure=True) == decided(Failed(ValueError()), rules=FixedRules(seconds=0))


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0])
def test_a_delay_that_makes_no_sense_retries_at_once(seconds: float) -> None:
    """A settle is never lost to the user's arithmetic."""
    assert Retry(1_000, 1_000, is_failure=True) == decided(
        Failed(ValueError()), rules=FixedRules(seconds=seconds)
    )


@pytest.mark.parametrize(
    ("outcome", "ending", "facts"),
    [
        (Outcome.SUCCEEDED, Succeeded(None), Facts()),
        (Outcome.SUCCEEDED, Succeeded(None), Facts(retention=5)),
        (Outcome.REVOKED, Failed(RevokeTask()), Facts()),
        (Outcome.REVOKED, Failed(control.Cancel()), Facts()),
        (Outcome.SNOOZED, Failed(control.Snooze(5)), Facts()),
        (Outcome.RETRIED, Failed(ValueError()), Facts()),
        (Outcome.ARCHIVED, Failed(ValueError()), Facts(retry=0)),
        (Outcome.REQUEUED, PutBack(), Facts()),
        (Outcome.REQUEUED, Unhandled(ValueError()), Facts()),
        (Outcome.LET_GO, Gone(), Facts()),
    ],
)
def test_each_decision_has_its_word(outcome: Outcome, ending: Ending, facts: Facts) -> None:
    """The events' word for ending and decision together."""
    assert outcome is outcome_of(ending, decided(ending, facts))


@pytest.mark.parametrize(
    ("choice", "decision"),
    [("retry", Retry(1_000, 1_011, is_failure=True)), ("archive", Archive(1_000)), ("delete", Done())],
)
def test_h16_whoever_cancels_chooses_what_becomes_of_the_task(choice: str, decision: Decision) -> None:
    """Retry is the default, as in Asynq."""
    assert decision == decided(Failed(TaskCanceledError(choice)))


def test_h16_a_choice_that_a_handler_wraps_is_none() -> None:
    """Only the cause of a cancellation carries one."""
    error = ValueError()
    error.__cause__ = TaskCanceledError("delete")
    assert isinstance(decided(Failed(error)), Retry)


@pytest.mark.parametrize("facts", [Facts(), Facts(retry=0), Facts(retry=3, retried=3)])
def test_a_snooze_waits_and_does_not_run_out(facts: Facts) -> None:
    """Other than an error that is no failure in Asynq, which archives when no retry is left."""
    rules = FixedRules()
    assert Snooze(1_061) == decided(Failed(control.Snooze(60)), facts, rules)
    assert [] == rules.asked


def test_a_retry_by_the_handler_spends_one_and_runs_out() -> None:
    """It is a failure like any other, but for its delay; `is_failure` is not asked."""
    rules = FixedRules(failure=False)
    assert Retry(1_000, 1_031, is_failure=True) == decided(Failed(control.Retry(30)), rules=rules)
    assert [] == rules.asked
    assert Archive(1_000) == decided(Failed(control.Retry(30)), Facts(retry=0))


def test_a_retry_that_spends_nothing_does_not_run_out() -> None:
    """Nothing is spent, so nothing can be used up."""
    ending = Failed(control.Retry(after=30, spend=False))
    assert Retry(1_000, 1_031, is_failure=False) == decided(ending, Facts(retry=0))


def test_a_retry_without_a_delay_asks_for_one_with_the_error_behind_it() -> None:
    """`retry_delay` gets what was caught, not the wish."""
    rules = FixedRules()
    caught, wish = ValueError("caught"), control.Retry()
    wish.__context__ = caught
    assert Retry(1_000, 1_011, is_failure=True) == decided(Failed(wish), rules=rules)
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
    assert (behind if told in {"cause", "context"} else wish) is cause_of(wish)


def test_archive_by_the_handler_is_at_once() -> None:
    """Whatever retries are left, and whatever `is_failure` says."""
    assert Archive(1_000) == decided(Failed(control.Archive("no")), rules=FixedRules(failure=False))


def test_cancel_by_the_handler_forgets_the_task() -> None:
    """Without retention, as `RevokeTask` does."""
    assert Done() == decided(Failed(control.Cancel()), Facts(retry=0, retention=60))


SNOOZE, RETRY, ARCHIVE, CANCEL = (
    control.Snooze(60),
    control.Retry(30),
    control.Archive("no"),
    control.Cancel(),
)


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (wrapped(SNOOZE), Snooze(1_061)),
        (wrapped(wrapped(ARCHIVE)), Archive(1_000)),
        (ExceptionGroup("", [SNOOZE]), Snooze(1_061)),
        (BaseExceptionGroup("", [SNOOZE, BaseExceptionGroup("", [wrapped(SNOOZE)])]), Snooze(1_061)),
        (ExceptionGroup("", [SNOOZE, ValueError()]), Retry(1_000, 1_011, is_failure=True)),
        (ExceptionGroup("", [ValueError(), RETRY, SNOOZE]), Retry(1_000, 1_031, is_failure=True)),
        (ExceptionGroup("", [RETRY, ARCHIVE]), Archive(1_000)),
        (ExceptionGroup("", [RETRY, SkipRetry()]), Archive(1_000)),
        (ExceptionGroup("", [ARCHIVE, CANCEL, SNOOZE]), Done()),
        (ExceptionGroup("", [SkipRetry(), RevokeTask()]), Done()),
    ],
)
def test_what_ends_most_wins(error: BaseException, decision: Decision) -> None:
    """Wrapped as a cause or in groups; an error beside a Snooze is not hidden by it."""
    assert decision == decided(Failed(error))
