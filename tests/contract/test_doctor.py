"""The doctor finds each kind of damage, repairs it, and touches nothing that is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.doctor import Doctor, Finding, FindingKind
from tests.contract.damages import DAMAGES, Damage
from tests.contract.test_invariants import sound
from tests.invariants import check_invariants
from tests.run_async import run_async
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.invariants import RedisClient

UNREPAIRABLE = {
    FindingKind.UNSERVED_QUEUE,
    FindingKind.UNSERVED_TYPE,
    FindingKind.LIMITS_IGNORED,
    FindingKind.EVICTION,
    FindingKind.CLOCK_SKEW,
    FindingKind.SLOW_SCRIPT,
    FindingKind.WRONG_TYPE,
}

pytestmark = pytest.mark.usefixtures("damage_allowed")
each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def doctor_of(url: str, **settings: Any) -> Doctor:
    """Return a doctor that looks for all it knows, and does not wait between two looks."""
    settings = {"pause": 0, "unowned_locks": True} | settings
    return Doctor(url, **settings)


def settings_for(damage: Damage) -> dict[str, Any]:
    """Return what the doctor is told."""
    return {"archive_max_size": 1} if damage.kind is FindingKind.ARCHIVE_OVER_CAP else {}


async def examine(url: str, **settings: Any) -> list[Finding]:
    """Return what there is to find."""
    async with doctor_of(url, **settings) as doctor:
        return [one for one in await doctor.examine() if one.kind is not FindingKind.SLOW_SCRIPT]


@run_async
async def test_a_sound_database_has_no_findings(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """A task in each state, with every key that may exist together with it."""
    sound(redis_client, tasks)
    before = snapshot(redis_client)
    assert [] == await examine(redis_url)
    assert before == snapshot(redis_client)


@pytest.mark.sample(20, by_script=True)
@each_damage
@run_async
async def test_each_damage_is_found_and_repaired_and_nothing_else_is_touched(
    redis_client: RedisClient, redis_url: str, tasks: Tasks, damage: Damage
) -> None:
    """The examination changes nothing; after the repair nothing is found, and all is sound."""
    sound(redis_client, tasks)
    before = snapshot(redis_client)
    damage.make(redis_client, tasks)
    damaged = snapshot(redis_client)
    async with doctor_of(redis_url, **settings_for(damage)) as doctor:
        besides = {FindingKind.SLOW_SCRIPT, FindingKind.UNSERVED_QUEUE} - {damage.kind}
        findings = [one for one in await doctor.examine() if one.kind not in besides]
        assert [(damage.queue, damage.kind, set(damage.subjects))] == [
            (one.queue, one.kind, set(one.subjects)) for one in findings
        ]
        assert damaged == snapshot(redis_client)
        [repaired] = await doctor.repair(findings)
    after = snapshot(redis_client)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if damage.kind in UNREPAIRABLE:
        assert ("", ()) == (repaired.repair, repaired.repaired)
        assert damaged == after
        return
    assert repaired.is_repaired
    assert set(damage.changed) == changed - {"asynq:servers"}
    check_invariants(redis_client)
    assert [] == [one for one in await examine(redis_url) if one.kind not in besides]
