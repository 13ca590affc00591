from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.leases import PoisonTask, archive_poison, quarantine
from pyasynq._broker.settle import Settled
from pyasynq.task import TaskState
from tests.contract.settling import CUTOFF, failed_bytes
from tests.factories import NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

EXPIRED = NOW.seconds - 60
LIMITS: Any = {"max_size": 9_999, "cutoff": CUTOFF}


def poison(task_id: str, **changes: Any) -> PoisonTask:
    """Return a task to archive, as it was seen."""
    task = PoisonTask(task_id, TOKEN, EXPIRED, failed_bytes(task_id, 0), NOW.ceiling, b"died with it")
    return task._replace(**changes)


def archived(perform: Perform, *tasks: PoisonTask, **arguments: Any) -> Settled:
    """Archive poison at NOW."""
    return perform(archive_poison("default", tasks, **(LIMITS | {"now": NOW} | arguments)))


def test_h06_poison_is_archived_with_a_clean_slate(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HDEL, HSET or ZADD: a run by hand starts without crashes."""
    tasks.active("a", lease=EXPIRED, crashes=2)
    assert Settled(frozenset(), 0) == archived(perform, poison("a"))
    assert {"msg": failed_bytes("a", 0), "state": b"archived", "x:trace": b"died with it"} == tasks.fields(
        "a"
    )
    assert {"a": NOW.ceiling} == tasks.scores("archived")
    assert [] == tasks.ids("active") == list(tasks.scores("lease"))


def test_h06_poison_counts_as_failed(perform: Perform, tasks: Tasks) -> None:
    """On the day on which it is archived."""
    tasks.active("a", "b", lease=EXPIRED)
    archived(perform, poison("a"), poison("b"))
    assert {"processed": 2, "processed_today": 2, "failed": 2, "failed_today": 2} == tasks.counts()


@pytest.mark.parametrize("changes", [{"token": "server/2"}, {"token": ""}, {"lease_score": EXPIRED + 1}])
def test_h04_poison_that_somebody_has_again_stays(
    perform: Perform, tasks: Tasks, changes: dict[str, Any]
) -> None:
    """It is tested again in the same call."""
    tasks.active("a", lease=EXPIRED)
    assert {"a"} == archived(perform, poison("a", **changes)).refused
    assert ["a"] == tasks.ids("active")
    assert {} == tasks.counts()


def test_h04_poison_whose_lease_has_not_ended_stays(perform: Perform, tasks: Tasks) -> None:
    """The cutoffs are those of `recover`; a worker known to be dead has none."""
    tasks.active("own", lease=NOW.seconds - 4)
    tasks.active("go", token="", lease=NOW.seconds - 29)
    seen = [poison("own", lease_score=NOW.seconds - 4), poison("go", token="", lease_score=NOW.seconds - 29)]
    assert {"own", "go"} == archived(perform, *seen).refused
    assert {"go"} == archived(perform, *seen, own_slack=None).refused
    assert frozenset() == archived(perform, seen[1], foreign_slack=29).refused


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: this lease lies in the future of Redis."""
    tasks.active("a", lease=EXPIRED)
    assert {"a"} == archived(perform, poison("a"), now=None).refused


def test_room_is_made_for_poison(perform: Perform, tasks: Tasks) -> None:
    """The archive is trimmed first, as for every task that is archived."""
    tasks.put(TaskState.ARCHIVED, "old", score=1)
    tasks.put(TaskState.ARCHIVED, "older", "new")
    tasks.active("a", "b", lease=EXPIRED)
    assert 2 == archived(perform, poison("a"), poison("b"), max_size=3).trimmed
    assert 3 == len(tasks.ids("archived"))


def test_poison_beyond_one_call_goes_in_several(redis_client: RedisClient, tasks: Tasks) -> None:
    """No call archives more than there is room for."""
    tasks.active("a", "b", "c", lease=EXPIRED)
    perform = BlockingPerformer(redis_client)
    assert 1 == archived(perform, poison("a"), poison("b"), poison("c"), max_size=2).trimmed
    assert 2 == len(perform.calls)


def test_totals_start_again_together(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """`processed` and `failed` start again together, as in every script that counts failures."""
    redis_client.mset({tasks.keys.processed: 2**63 - 1, tasks.keys.failed: 7})
    tasks.active("a", lease=EXPIRED)
    archived(perform, poison("a"))
    assert (1, 1) == (tasks.counts()["processed"], tasks.counts()["failed"])


@pytest.mark.usefixtures("damage_allowed")
def test_an_archive_that_is_far_too_full_is_trimmed_in_several_calls(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """1,000 a call."""
    redis_client.zadd(tasks.keys.archived, {f"{number}": 1 for number in range(2_000)})
    tasks.active("a", lease=EXPIRED)
    perform = BlockingPerformer(redis_client)
    assert 2_000 == archived(perform, poison("a"), cutoff=10).trimmed
    assert ["a"] == tasks.ids("archived")


def test_h21_w22_an_expired_task_with_an_undecodable_message_is_archived_as_it_is(
    perform: Perform, tasks: Tasks
) -> None:
    """An empty message leaves the stored bytes untouched."""
    tasks.active("bad", lease=EXPIRED, extra={"msg": b"\xff\xff"})
    archived(perform, poison("bad", message=b"", trace=b"reason"))
    assert {"msg": b"\xff\xff", "state": b"archived", "x:trace": b"reason"} == tasks.fields("bad")


def test_h21_w22_a_taken_task_with_an_undecodable_message_is_quarantined(
    perform: Perform, tasks: Tasks
) -> None:
    """Its bytes stay and the reason is stored; the current owner of the task is not disturbed."""
    tasks.active("bad", extra={"msg": b"\xff\xff"})
    tasks.active("other", token="server/2", extra={"msg": b"\xff\xff"})
    for task_id, refused in (("bad", frozenset()), ("other", {"other"})):
        plan = quarantine("default", claim(task_id), reason="not a message", now=NOW, **LIMITS)
        assert refused == perform(plan).refused
    assert {"msg": b"\xff\xff", "state": b"archived", "x:trace": b"not a message"} == tasks.fields("bad")
    assert {"bad": NOW.ceiling} == tasks.scores("archived")


def test_traces_count_for_how_much_one_call_carries(redis_client: RedisClient, tasks: Tasks) -> None:
    """Three of them fill a call of four megabytes as three messages would."""
    tasks.active("a", "b", "c", lease=EXPIRED)
    perform = BlockingPerformer(redis_client)
    archived(perform, *(poison(task_id)._replace(trace=bytes(1_900_000)) for task_id in "abc"))
    assert 2 == len(perform.calls)
    assert ["a", "b", "c"] == sorted(tasks.ids("archived"))
