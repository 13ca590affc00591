"""The doctor repairs what the real Asynq leaves behind by its known defects."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.doctor import Doctor, Finding, FindingKind
from tests.interop.filled import filled_pair
from tests.interop.steps import SLOTS, WAIT, Step
from tests.invariants import check_invariants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.database import Database
    from tests.interop.go_side import GoSide

K = FindingKind
LEASES = "asynq:{default}:lease"
QUARTER = 91 * 86_400
_OF_THE_MACHINE = {K.SLOW_SCRIPT, K.UNSERVED_QUEUE}
"""No server serves the queues here while the doctor looks, and time was advanced."""


class Stock:
    """Asynq at work: clients, inspectors, and servers that are led step by step."""

    def __init__(self, side: GoSide, database: Database) -> None:
        self.side = side
        self.database = database
        self.redis = database.client

    def do(self, operation: str, **arguments: Any) -> str:
        """Perform a step; return why Asynq refused it."""
        return self.side.do(Step(operation, arguments)).refusal

    def enqueue(self, task_id: str, **options: Any) -> str:
        """Enqueue a task; return why Asynq refused it."""
        options["task_id"] = task_id
        return self.do("enqueue", task_type="t", payload=task_id.encode(), options=options)

    def take(self) -> None:
        """Let a worker have the next task."""
        assert isinstance(self.side.do(Step("take", {"slot": SLOTS[0]})).value, tuple)

    def finish(self, kind: str) -> None:
        """End the attempt."""
        self.do("finish", slot=SLOTS[0], kind=kind, text="why", result=None)


@pytest.fixture
def stock(go_side: GoSide, databases: tuple[Database, Database]) -> Iterator[Stock]:
    """Asynq on an empty database."""
    with closing(databases[0]):
        databases[0].clear()
        go_side.begin()
        yield Stock(go_side, databases[0])
        databases[0].clear()


def w02_conflict_of_ids(stock: Stock) -> None:
    """The lock that the refused enqueue took stays."""
    stock.enqueue("a")
    assert "conflict" == stock.enqueue("a", unique=600)


def w03_reclaimed_group(stock: Stock) -> None:
    """A group that is given back is not named."""
    stock.enqueue("a", group="g")
    stock.database.age(WAIT)
    stock.do("aggregate", refuse=True)
    stock.database.age(3 * WAIT)
    stock.do("recover")


def w04_forwarded_member(stock: Stock) -> None:
    """A failed task that joins its group again does not name it."""
    stock.enqueue("a", group="g", max_retry=5)
    stock.do("run_task", queue="default", task_id="a")
    stock.take()
    stock.finish("fail")
    stock.database.age(WAIT)
    stock.do("forward")


def w06_done_without_a_lease(stock: Stock) -> None:
    """The task is taken from the active ones and stays in no place."""
    stock.enqueue("a")
    stock.take()
    stock.redis.zrem(LEASES, "a")
    stock.finish("succeed")


def w07_ghost_that_was_taken(stock: Stock) -> None:
    """An id whose task was deleted stays among the active ones, with a hash that has a state only."""
    stock.enqueue("a")
    stock.enqueue("b")
    stock.redis.delete("asynq:{default}:t:a")
    assert stock.side.do(Step("take", {"slot": SLOTS[0]})).value is None


def w09_unique_member(stock: Stock) -> None:
    """The hash of a member does not name its lock."""
    stock.enqueue("a", group="g", unique=600)


def w09_deletion_by_the_hundred(stock: Stock) -> None:
    """The locks of pending tasks that are deleted together stay."""
    stock.enqueue("a", unique=600)
    stock.do("delete_all", queue="default", state="pending", group="")


def w10_trimmed_archive(stock: Stock) -> None:
    """What an inspector trims from the archive keeps its hash."""
    stock.enqueue("a")
    stock.do("archive_task", queue="default", task_id="a")
    stock.enqueue("b")
    stock.database.age(QUARTER)
    stock.do("archive_task", queue="default", task_id="b")


def w12_removed_queue(stock: Stock) -> None:
    """Tasks of groups outlive their queue."""
    stock.enqueue("a", group="g")
    stock.do("remove_queue", queue="default", force=True)


def w13_run_by_hand(stock: Stock) -> None:
    """A task that is run by hand does not say since when it waits."""
    stock.enqueue("a", process_in=600)
    stock.do("run_task", queue="default", task_id="a")


def w13_archived_while_pending(stock: Stock) -> None:
    """An archived task says since when it was pending."""
    stock.enqueue("a")
    stock.do("archive_task", queue="default", task_id="a")


def w15_result_of_a_task_that_is_gone(stock: Stock) -> None:
    """A result makes a hash without a task."""
    stock.enqueue("a")
    stock.take()
    stock.redis.lrem("asynq:{default}:active", 0, "a")
    stock.redis.zrem(LEASES, "a")
    stock.redis.delete("asynq:{default}:t:a")
    stock.do("finish", slot=SLOTS[0], kind="succeed", text="", result=b"r")


def h07_active_without_a_lease(stock: Stock) -> None:
    """No recoverer of Asynq's sees a task whose lease is gone."""
    stock.enqueue("a")
    stock.take()
    stock.redis.zrem(LEASES, "a")
    stock.finish("vanish")
    stock.do("recover")


DEFECTS: dict[Callable[[Stock], None], set[FindingKind]] = {
    w02_conflict_of_ids: {K.LEAKED_LOCK},
    w03_reclaimed_group: {K.STRANDED_GROUP},
    w04_forwarded_member: {K.STRANDED_GROUP},
    w06_done_without_a_lease: {K.ORPHAN},
    w07_ghost_that_was_taken: {K.GHOST},
    w09_unique_member: {K.WRONG_LOCK},
    w09_deletion_by_the_hundred: {K.LEAKED_LOCK},
    w10_trimmed_archive: {K.ORPHAN, K.STALE_FIELDS},
    w12_removed_queue: {K.UNREGISTERED_QUEUE},
    w13_run_by_hand: {K.STALE_FIELDS},
    w13_archived_while_pending: {K.STALE_FIELDS},
    w15_result_of_a_task_that_is_gone: {K.BLANK_TASK},
    h07_active_without_a_lease: {K.ACTIVE_WITHOUT_LEASE},
}


async def examine(doctor: Doctor) -> list[Finding]:
    """Return what there is to find in the data."""
    return [one for one in await doctor.examine() if one.kind not in _OF_THE_MACHINE]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_what_a_defect_of_asynq_leaves_is_found_and_repaired(
    stock: Stock, defect: Callable[[Stock], None]
) -> None:
    """After the repair all invariants hold again."""
    defect(stock)

    async def repair() -> None:
        async with Doctor(stock.database.url, pause=0, unowned_locks=True) as doctor:
            findings = await examine(doctor)
            assert DEFECTS[defect] == {one.kind for one in findings}
            assert all(one.is_repaired for one in await doctor.repair(findings))
            assert [] == await examine(doctor)

    asyncio.run(repair())
    check_invariants(stock.redis)


def test_keys_of_a_healthy_asynq_are_not_findings(peer_program: Path, server_url: str) -> None:
    """Tasks in every state, filled by Asynq and by pyasynq."""

    async def look(url: str) -> list[Finding]:
        async with Doctor(url, pause=0) as doctor:
            return await examine(doctor)

    with filled_pair(peer_program, server_url) as pair:
        for one in pair:
            assert [] == asyncio.run(look(one.database.url))
