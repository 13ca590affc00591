"""Verdicts: what a settle or a recovery keeps about leased attempts, and about no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.find_attempt import find_attempt, find_verdict
from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover
from pyasynq._broker.settle import Claim, settle_done
from pyasynq._broker.verdicts import LEASED, Verdict, make_note
from tests.contract.settling import DoneTask, every_settle
from tests.factories import LEASE_SCORE, NOW, TOKEN, claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.contract.settling import Settle
    from tests.factories import Tasks
    from tests.fix_broker import Perform

LEASED_TOKEN = TOKEN + LEASED


def settle_leased(perform: Perform, ids: Sequence[str], verdict: Verdict = Verdict.DONE) -> None:
    """Settle leased attempts as done, with a verdict."""
    done = [DoneTask(one, LEASED_TOKEN, LEASE_SCORE, "") for one in ids]
    perform(settle_done("default", done, now=NOW, note=make_note(verdict, NOW)))


def get_verdict(
    perform: Perform, task_id: str, *, later: int = 0, token: str = LEASED_TOKEN
) -> Verdict | None:
    """Return the verdict that is known this many seconds after NOW."""
    return perform(find_verdict("default", task_id, token, now=NOW.plus(later)))


@every_settle
def test_every_settle_keeps_the_verdict_of_leased_attempts(
    perform: Perform, tasks: Tasks, settle: Settle
) -> None:
    """In the call that settles, under token and id; for 10 minutes when the holder had no part in it.

    Defect D13.
    """
    tasks.active("a", "b c", token=LEASED_TOKEN, retention=60)
    note = make_note(Verdict.TIMED_OUT, NOW)
    claims = [Claim(one, LEASED_TOKEN, LEASE_SCORE) for one in ("a", "b c")]

    perform(settle(claims, note=note))

    for task_id in ("a", "b c"):
        assert Verdict.TIMED_OUT is get_verdict(perform, task_id, later=599)
        assert get_verdict(perform, task_id, later=600) is None
    assert get_verdict(perform, "a", token="other/1" + LEASED) is None


@every_settle
def test_attempts_of_workers_leave_no_verdict(perform: Perform, tasks: Tasks, settle: Settle) -> None:
    """A worker knows itself how its attempts ended. (D13)"""
    tasks.active("a", retention=60)
    perform(settle([claim("a")]))
    assert not tasks.client.exists(tasks.keys.verdicts)


def test_what_the_holder_said_is_kept_for_60_seconds(perform: Perform, tasks: Tasks) -> None:
    """Long enough for a settle that is sent again. (D13)"""
    tasks.active("a", token=LEASED_TOKEN)
    settle_leased(perform, ["a"])
    assert Verdict.DONE is get_verdict(perform, "a", later=59)
    assert get_verdict(perform, "a", later=60) is None


def test_a_refused_settle_changes_no_verdict(perform: Perform, tasks: Tasks) -> None:
    """The second settle finds the answer of the first. (D13)"""
    tasks.active("a", token=LEASED_TOKEN)
    settle_leased(perform, ["a"], Verdict.CANCEL)
    settle_leased(perform, ["a"], Verdict.DONE)
    assert 1 == tasks.client.zcard(tasks.keys.verdicts)
    assert Verdict.CANCEL is get_verdict(perform, "a")


def test_recovery_keeps_that_a_lease_was_lost(perform: Perform, tasks: Tasks) -> None:
    """Whether the task runs again or is archived as poison; attempts of workers leave nothing. (D13)"""
    tasks.active("a", "b", token=LEASED_TOKEN)
    tasks.active("worker", "poison")
    back = [RecoverTask("a", LEASED_TOKEN, LEASE_SCORE), RecoverTask("worker", TOKEN, LEASE_SCORE)]
    poison = [
        PoisonTask("b", LEASED_TOKEN, LEASE_SCORE, b"", NOW.seconds, b""),
        PoisonTask("poison", TOKEN, LEASE_SCORE, b"", NOW.seconds, b""),
    ]

    perform(recover("default", back, own_slack=None, now=NOW))
    perform(archive_poison("default", poison, max_size=9, cutoff=0, own_slack=None, now=NOW))

    assert Verdict.LOST is get_verdict(perform, "a", later=599)
    assert Verdict.LOST is get_verdict(perform, "b")
    assert 2 == tasks.client.zcard(tasks.keys.verdicts)


def test_a_queue_keeps_at_most_20_000_verdicts(perform: Perform, tasks: Tasks) -> None:
    """The ones that end first go first; each call deletes 100 old ones besides, and the key has an end.

    Defect D13.
    """
    old = {f"old{LEASED} done {number}": NOW.seconds - 600 + number // 150 for number in range(300)}
    tasks.client.zadd(tasks.keys.verdicts, old)
    tasks.active("a", "b", token=LEASED_TOKEN)
    settle_leased(perform, ["a"], Verdict.TIMED_OUT)
    assert 201 == tasks.client.zcard(tasks.keys.verdicts)
    assert 600 < tasks.client.ttl(tasks.keys.verdicts) <= 660

    many = {f"many{LEASED} done {number}": NOW.seconds + 60 for number in range(20_100)}
    tasks.client.zadd(tasks.keys.verdicts, many)
    settle_leased(perform, ["b"], Verdict.TIMED_OUT)
    assert 20_000 == tasks.client.zcard(tasks.keys.verdicts)
    assert Verdict.TIMED_OUT is get_verdict(perform, "a")
    assert Verdict.TIMED_OUT is get_verdict(perform, "b")


@pytest.mark.parametrize("token", [TOKEN, LEASED_TOKEN])
def test_a_valid_lease_goes_before_a_verdict(perform: Perform, tasks: Tasks, token: str) -> None:
    """A task that was put back and taken again has another token. (D13)"""
    tasks.active("a", token=token)
    tasks.client.zadd(tasks.keys.verdicts, {f"{LEASED_TOKEN} done a": NOW.seconds + 60})
    tasks.client.expire(tasks.keys.verdicts, 60)
    plan = find_attempt("default", "a", token=token, lease_end=LEASE_SCORE, now=NOW)
    found = perform(plan)
    assert found is not None
    assert not isinstance(found, Verdict)
