from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.results import write_result
from tests.factories import LEASE_SCORE, TOKEN, Tasks

if TYPE_CHECKING:
    from tests.fix_broker import Perform


def test_the_last_result_written_wins(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET."""
    tasks.active("a")
    assert perform(write_result("default", "a", TOKEN, b"\x00half", lease_score=LEASE_SCORE))
    assert perform(write_result("default", "a", TOKEN, b"all", lease_score=LEASE_SCORE))
    assert b"all" == tasks.fields("a")["result"]


@pytest.mark.parametrize("token", ["server/2", ""])
def test_h05_w15_a_result_is_written_only_by_the_attempt_that_runs_the_task(
    perform: Perform, tasks: Tasks, token: str
) -> None:
    """Fails if the script no longer calls HMGET.

    Asynq makes a hash of a result alone, which blocks the id.
    """
    tasks.active("a", token=token)
    assert not perform(write_result("default", "a", TOKEN, b"data", lease_score=LEASE_SCORE))
    assert not perform(write_result("default", "gone", TOKEN, b"data", lease_score=LEASE_SCORE))
    assert "result" not in tasks.fields("a")
    assert {} == tasks.fields("gone")


def test_h05_a_token_left_standing_on_a_waiting_task_writes_nothing(perform: Perform, tasks: Tasks) -> None:
    """Go's recoverer put the task back and left our field."""
    tasks.pending("a")
    tasks.client.hset(tasks.keys.task("a"), "x:attempt", TOKEN)
    assert not perform(write_result("default", "a", TOKEN, b"data", lease_score=LEASE_SCORE))
    tasks.client.hdel(tasks.keys.task("a"), "x:attempt")


def test_h05_a_result_is_not_written_over_a_task_that_go_runs(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZSCORE.

    Go's dequeue leaves our token, and only its later lease tells.
    """
    tasks.active("a", lease=LEASE_SCORE + 60)
    assert not perform(write_result("default", "a", TOKEN, b"late", lease_score=LEASE_SCORE))
    assert perform(write_result("default", "a", TOKEN, b"mine", lease_score=LEASE_SCORE + 60))
    assert b"mine" == tasks.fields("a")["result"]


def test_h02_a_result_is_written_without_a_lease(perform: Perform, tasks: Tasks) -> None:
    """A missing lease entry does not belong to another worker."""
    tasks.active("a", lease=None)
    assert perform(write_result("default", "a", TOKEN, b"mine", lease_score=LEASE_SCORE))
    tasks.client.zadd(tasks.keys.lease, {"a": LEASE_SCORE})
