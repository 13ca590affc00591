"""Finding the task of an attempt again by its token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.find_attempt import FoundAttempt, find_attempt
from tests.factories import LEASE_SCORE, NOW, TOKEN, message_bytes

if TYPE_CHECKING:
    from pyasynq._broker.verdicts import Verdict
    from tests.factories import Tasks
    from tests.fix_broker import Perform

GRACE = 30


def find(perform: Perform, **changes: Any) -> FoundAttempt | Verdict | None:
    """Look for the attempt that `tasks.active("a")` makes, at NOW."""
    arguments: dict[str, Any] = {"token": TOKEN, "lease_end": LEASE_SCORE, "now": NOW}
    return perform(find_attempt("default", "a", **(arguments | changes)))


@pytest.mark.parametrize("crashes", [0, 2])
def test_an_attempt_is_found_with_its_message_and_its_lease(
    perform: Perform, tasks: Tasks, crashes: int
) -> None:
    """The answer has the time at which Redis looked."""
    tasks.active("a", crashes=crashes)
    assert FoundAttempt(message_bytes("a"), crashes, LEASE_SCORE, NOW) == find(perform)


@pytest.mark.parametrize("lease_end", [LEASE_SCORE - 600, LEASE_SCORE + 600])
def test_a_lease_that_was_moved_meanwhile_is_still_the_attempts(
    perform: Perform, tasks: Tasks, lease_end: int
) -> None:
    """As long as no worker of Go can have taken the task: until its grace after the end that was known."""
    tasks.active("a", lease=LEASE_SCORE)
    moved = find(perform, lease_end=lease_end)
    if lease_end > LEASE_SCORE:
        assert moved is not None
    else:
        assert moved is None


@pytest.mark.parametrize(("age", "found"), [(GRACE - 1, True), (GRACE, True), (GRACE + 1, False)])
def test_h05_a_later_lease_is_somebody_elses_once_go_may_have_the_task(
    perform: Perform, tasks: Tasks, age: int, found: bool
) -> None:
    """Go leaves our token where it is."""
    tasks.active("a", lease=NOW.seconds + 1)
    assert found is (find(perform, lease_end=NOW.seconds - age) is not None)


@pytest.mark.parametrize(("left", "found"), [(1, True), (0, False), (-1, False)])
def test_a_lease_that_has_lapsed_is_lost(perform: Perform, tasks: Tasks, left: int, found: bool) -> None:
    """The task has not been recovered yet."""
    tasks.active("a", lease=NOW.seconds + left)
    assert found is (find(perform) is not None)


def test_a_task_that_another_attempt_has_is_not_found(perform: Perform, tasks: Tasks) -> None:
    """Nor one that a worker of Go has, which writes no token."""
    tasks.active("a", token="server/2")
    assert None is find(perform)
    tasks.active("a", token="")
    tasks.client.hdel(tasks.keys.task("a"), "x:attempt")
    assert None is find(perform)
    tasks.client.lrem(tasks.keys.active, 1, "a")


@pytest.mark.parametrize("field", ["state", "msg"])
@pytest.mark.usefixtures("damage_allowed")
def test_what_is_not_active_or_no_task_is_not_found(perform: Perform, tasks: Tasks, field: str) -> None:
    """A matching token does not help if the task is not active or has no message."""
    tasks.active("a")
    tasks.client.hset(tasks.keys.task("a"), "state", "pending")
    if field == "msg":
        tasks.client.hset(tasks.keys.task("a"), "state", "active")
        tasks.client.hdel(tasks.keys.task("a"), "msg")
    assert None is find(perform)


@pytest.mark.usefixtures("damage_allowed")
def test_without_a_lease_nothing_is_found(perform: Perform, tasks: Tasks) -> None:
    """The end of its lease is unknown; the same applies to a lease without an end."""
    tasks.active("a", lease=None)
    assert None is find(perform)
    tasks.client.zadd(tasks.keys.lease, {"a": "inf"})
    assert None is find(perform, lease_end=10**12)


def test_nothing_is_found_where_nothing_is(perform: Perform, tasks: Tasks) -> None:
    """No task of this id."""
    assert [] == tasks.ids("active")
    assert None is find(perform)
