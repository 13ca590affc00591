"""Repairs of findings. Each checks again, and writes only if nothing has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.doctoring.counters import raise_counter
from pyasynq._broker.doctoring.groups import list_known_groups, look_at_groups, mend_groups
from pyasynq._broker.doctoring.keys import (
    drop_lapsed_records,
    expire_endless,
    has_tasks,
    look_at_lock,
    register,
    release_lock,
    trim_archive,
)
from pyasynq._broker.doctoring.tasks import judge, settle_damaged
from pyasynq._broker.doctoring.ticks import reset_tick
from pyasynq._broker.inspecting.removal import remove_empty_queue
from pyasynq._broker.outbox import StoredEnding, deliver_endings
from pyasynq._redis.facts import read_redis_facts
from pyasynq._wire.constants import STATISTICS_SECONDS
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import QueueNotEmptyError

from ._checks import group_kind
from ._diagnosis import diagnose
from ._findings import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._pace import Pace

_LOCK_SECONDS: Final = 86_400
_RECORD_SECONDS: Final = 60
GROUP_KINDS: Final = frozenset(
    {FindingKind.STRANDED_GROUP, FindingKind.EMPTY_GROUP, FindingKind.ORPHAN_SET, FindingKind.EMPTY_SET}
)
_LOCKS: Final = frozenset({FindingKind.LEAKED_LOCK, FindingKind.ENDLESS_LOCK})
_ENDS: Final = {
    FindingKind.ENDLESS_COUNTER: STATISTICS_SECONDS,
    FindingKind.ENDLESS_RECORD: _RECORD_SECONDS,
    FindingKind.OLD_HISTORY: STATISTICS_SECONDS,
}


class Repairs:
    """Repairs of findings. If `archive_max_size` is None, archives are not trimmed."""

    def __init__(self, pace: Pace, *, archive_max_size: int | None) -> None:
        self._pace = pace
        self._archive_max_size = archive_max_size

    async def repair(self, queue: str, kind: FindingKind, evidence: Mapping[bytes, bytes]) -> Iterable[bytes]:
        """Repair the subjects of one finding; return the repaired ones."""
        of_keys = {
            **dict.fromkeys(GROUP_KINDS, self._mend),
            **dict.fromkeys(_LOCKS, self._unlock),
            FindingKind.WRONG_COUNTER: self._count,
            FindingKind.FUTURE_TICK: self._reset_ticks,
            FindingKind.UNTOLD_ENDING: self._tell_endings,
        }
        if repair := of_keys.get(kind):
            return await repair(queue, kind, evidence)
        if seconds := _ENDS.get(kind):
            return [key for key in evidence if await self._pace.run(expire_endless(key, seconds=seconds))]
        if kind is FindingKind.DEAD_SERVER:
            for index in sorted(set(evidence.values())):
                await self._pace.run(drop_lapsed_records(index.decode()))
            return evidence
        if kind in {FindingKind.ARCHIVE_OVER_CAP, FindingKind.UNREGISTERED_QUEUE, FindingKind.REMOVED_QUEUE}:
            return evidence if await self._repair_queue(queue, kind) else ()
        return await self._settle(queue, kind, evidence)

    async def _settle(self, queue: str, kind: FindingKind, evidence: Mapping[bytes, bytes]) -> list[bytes]:
        keys = queue_keys(queue)
        _, sets = await self._pace.run(list_known_groups(queue))
        settlements = []
        for facts in await self._pace.run(judge(queue, evidence)):
            diagnosis = diagnose(facts, keys, seen_in=evidence[facts.id], sets=sets)
            if diagnosis and diagnosis.kind is kind and diagnosis.settlement:
                settlements.append(diagnosis.settlement)
        return await self._pace.run(settle_damaged(queue, settlements))

    async def _mend(self, queue: str, kind: FindingKind, evidence: Mapping[bytes, bytes]) -> list[bytes]:
        keys = queue_keys(queue)
        # A name that is listed as an aggregation set but cannot be the key of one has nothing to check again.
        still = [key for key, group in evidence.items() if not group]
        again = await self._pace.run(look_at_groups(queue, [key for key in evidence if evidence[key]]))
        still += [facts.key for facts in again if group_kind(facts, keys) is kind]
        await self._pace.run(mend_groups(queue, {key: evidence[key] for key in still}))
        return still

    async def _count(self, queue: str, _: FindingKind, counters: Mapping[bytes, bytes]) -> list[bytes]:
        """Raise counters that are too low to the minimum that the doctor found; return the repaired ones.

        The minimum stays right meanwhile, because counters only grow.
        """
        return [
            key
            for key, least in counters.items()
            if await self._pace.run(raise_counter(queue, key, int(least) if least else None))
        ]

    async def _reset_ticks(self, queue: str, _: FindingKind, ticks: Mapping[bytes, bytes]) -> list[bytes]:
        now = (await self._pace.run(read_redis_facts())).redis_now.seconds
        return [
            field
            for field, value in ticks.items()
            if await self._pace.run(reset_tick(queue, field, value, now))
        ]

    async def _tell_endings(
        self, queue: str, _: FindingKind, entries: Mapping[bytes, bytes]
    ) -> Iterable[bytes]:
        told = []
        for address, entry in entries.items():
            if await self._pace.run(deliver_endings(queue, [StoredEnding(address, entry)])):
                told.append(address)
        return told

    async def _unlock(self, queue: str, kind: FindingKind, evidence: Mapping[bytes, bytes]) -> list[bytes]:
        repaired = []
        for facts in await self._pace.run_all([look_at_lock(queue, lock) for lock in evidence]):
            keeps = kind is FindingKind.ENDLESS_LOCK and facts.message
            seconds = _LOCK_SECONDS if keeps else None
            if facts.digest == evidence[facts.key] and await self._pace.run(
                release_lock(queue, facts, seconds=seconds)
            ):
                repaired.append(facts.key)
        return repaired

    async def _repair_queue(self, queue: str, kind: FindingKind) -> bool:
        if kind is FindingKind.ARCHIVE_OVER_CAP:
            if self._archive_max_size is None:
                return False
            await self._pace.run(trim_archive(queue, max_size=self._archive_max_size))
        elif kind is FindingKind.UNREGISTERED_QUEUE:
            if not await self._pace.run(has_tasks(queue)):
                return False
            await self._pace.run(register(queue))
        else:
            try:
                await self._pace.run(remove_empty_queue(queue))
            except QueueNotEmptyError:
                return False
        return True
