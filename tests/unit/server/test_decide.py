"""What is done about an attempt that has ended."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pyasynq._clock import Instant
from pyasynq._server.outcome import (
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
    Succeeded,
    Unhandled,
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

    def is_failure(self, error: BaseException) -> bool:
        del error
        return self.failure

    def delay(self, retried: int, error: BaseException) -> float:
        del error
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


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0])
def test_a_delay_that_makes_no_sense_retries_at_once(seconds: float) -> None:
    """A settle is never lost to the user's arithmetic."""
    assert Retry(1_000, 1_001, is_failure=True) == decided(
        Failed(ValueError()), rules=FixedRules(seconds=seconds)
    )


@pytest.mark.parametrize(
    ("outcome", "ending", "facts"),
    [
        (Outcome.SUCCEEDED, Succeeded(None), Facts()),
        (Outcome.SUCCEEDED, Succeeded(None), Facts(retention=5)),
        (Outcome.REVOKED, Failed(RevokeTask()), Facts()),
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
