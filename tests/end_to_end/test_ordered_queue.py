"""An ordered queue whose workers are killed, as in `tests.chaos.ordered`, with short leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.ordered import faults, run
from tests.chaos.ordered_worker import Deed

if TYPE_CHECKING:
    from pathlib import Path

EARLY = "task 1 was begun before task 0 had ended"
QUICK = {"lease": 2, "heartbeat_interval": 0.3, "own_slack": 0, "look_interval": 0.2}


@pytest.mark.long
def test_tasks_end_in_the_order_of_enqueue_though_a_worker_is_killed(redis_url: str, tmp_path: Path) -> None:
    """Three processes serve the queue; the kill meets the head."""
    result = run(redis_url, tmp_path, tasks=120, kills=1, victim_seconds=0.3, engine=QUICK)
    assert [] == result.violations
    assert (1, 2) == (len(result.stalls), result.failures)
    assert result.handovers >= 1


@pytest.mark.parametrize(
    ("expected", "journal"),
    [
        ([], "b0 e0 b1 f1 b1 e1"),
        ([], "b0 b0 e0 b0 e0 b1 e1"),
        ([EARLY], "b0 b1 e1"),
        (
            ["task 1 was begun before task 0 had ended", "task 0: end, while task 1 was the head"],
            "b0 b1 e0 e1",
        ),
        (["task 2: begin, while task 0 was the head"], "b0 b2 e0 b1 e1"),
        (["the last task that was begun is 1 of 2"], "b0 e0 b1"),
        (["the last task that was begun is 0 of 2"], "b0 e0"),
        (["3 times a task was begun again without having failed, after 2 kills"], "b0 b0 b0 b0 e0 b1 e1"),
    ],
)
def test_the_judge_sees_what_is_out_of_order(expected: list[str], journal: str) -> None:
    """A proof that cannot fail proves nothing."""
    words = {"b": "begin", "e": "end", "f": "fail"}
    deeds = [Deed(words[text[0]], int(text[1]), 1) for text in journal.split()]
    assert expected == list(faults(deeds, 2, 2))
