"""History of a task, as its page tells it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pyasynq.task import AttemptInfo, TaskInfo, TaskState
from pyasynq.web.pages.task_story import build_machine, build_steps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def attempt(outcome: str, minutes: int) -> AttemptInfo:
    """Return an attempt of three seconds."""
    ended = NOON + timedelta(minutes=minutes)
    return AttemptInfo(ended - timedelta(seconds=3), ended, "server-1", outcome, "no paper\nsecond line")


def task(state: TaskState, *attempts: AttemptInfo) -> TaskInfo:
    """Return a task that failed last at ten past noon."""
    return TaskInfo(
        id="1",
        queue="labels",
        type="label.print",
        payload=b"",
        state=state,
        max_retry=1,
        retried=1,
        timeout=None,
        deadline=None,
        next_process_at=None,
        retention=timedelta(0),
        last_failed_at=NOON + timedelta(minutes=10),
        attempts=attempts,
    )


def test_a_step_says_how_the_attempt_ended() -> None:
    """Its symbol is that of the list of attempts."""
    story = build_steps(task(TaskState.ARCHIVED, attempt("crashed", 5), attempt("archived", 10)))
    assert ["archived", "archived", "lost"] == [step.symbol for step in story]
    assert ["Failed, archived", "Worker lost"] == [step.text for step in story[1:]]
    assert "after 3 s, no paper" == story[1].note


@pytest.mark.parametrize(
    ("state", "attempts", "note"),
    [
        (TaskState.ARCHIVED, [attempt("retried", 5), attempt("archived", 10)], "last 12:05:00"),
        (TaskState.ARCHIVED, [], ""),
        (TaskState.PENDING, [], "last 12:10:00"),
        (TaskState.COMPLETED, [attempt("retried", 7)], "last 12:07:00"),
    ],
)
def test_the_diagram_has_the_time_of_the_last_retry(
    state: TaskState, attempts: list[AttemptInfo], note: str
) -> None:
    """The failure that has archived a task was not retried."""
    boxes = {box.name: box.note for box in build_machine(task(state, *attempts), UTC).boxes}
    assert note == boxes["retry"]
