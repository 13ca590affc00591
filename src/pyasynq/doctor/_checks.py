"""Checks of everything except tasks: groups, locks, counters, queues, servers, and Redis itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.doctoring.counters import find_wrong_counters
from pyasynq._broker.doctoring.groups import look_at_groups
from pyasynq._broker.doctoring.keys import (
    INDEXES,
    count_archived,
    get_last_event_time,
    get_record_lapse,
    get_time_to_live,
    has_tasks,
    is_registered,
    list_histories,
    list_lapsed_records,
    look_at_lock,
    measure_waiting_work,
    was_used,
)
from pyasynq._broker.doctoring.tasks import waiting_types
from pyasynq._broker.doctoring.ticks import find_ticks_after
from pyasynq._broker.doctoring.types import GLOBAL_TYPES, find_wrong_types, wrong_type
from pyasynq._broker.outbox import list_endings
from pyasynq._broker.schedules import TICK_SLACK_SECONDS
from pyasynq._broker.servers import list_server_keys, read_server
from pyasynq._broker.slow_scripts import list_slow_scripts
from pyasynq._broker.stored import decode_name
from pyasynq._broker.stored_limits import get_limits
from pyasynq._redis.facts import read_redis_facts
from pyasynq._wire.constants import SERVER_RECORD_SECONDS
from pyasynq._wire.engine_text import decode_engine, decode_served_types
from pyasynq._wire.keys import SCHEDULERS_KEY
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import RedisPermissionError, RedisReplyError

from ._findings import FindingKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyasynq._broker.doctoring.groups import GroupFacts
    from pyasynq._broker.doctoring.keys import LockFacts
    from pyasynq._broker.slow_scripts import SlowScript
    from pyasynq._clock import Instant
    from pyasynq._wire.keys import QueueKeys
    from pyasynq._wire.messages import ServerInfo

    from ._pace import Pace
    from ._survey import QueueSurvey

PATIENCE_SECONDS: Final = 60
"""Seconds after which overdue callbacks, expired records and unused histories are reported."""
MAX_SKEW_SECONDS: Final = 2.0
_ROUNDING_SECONDS: Final = 1.5
"""Maximum error of a clock comparison, in seconds: records have whole seconds, and sending takes time."""
SLOW_SCRIPT_MILLISECONDS: Final = 50
_SLOW_WITHIN_SECONDS: Final = 3_600


def group_kind(facts: GroupFacts, keys: QueueKeys) -> FindingKind | None:
    """Return the kind of damage of a group or an aggregation set; None if it is undamaged."""
    name = facts.key.removeprefix(keys.group_prefix.encode())
    if facts.is_set and not facts.members:
        return FindingKind.EMPTY_SET
    if facts.members and not facts.is_set and not facts.listed:
        is_set = facts.named != name and name.rpartition(b":")[0] == facts.named
        return FindingKind.ORPHAN_SET if is_set else FindingKind.STRANDED_GROUP
    return FindingKind.EMPTY_GROUP if facts.listed and not facts.members else None


def lock_kind(facts: LockFacts, *, unowned: bool) -> FindingKind | None:
    """Return the kind of damage of a lock; None if it is undamaged.

    A lock without an owner may be intended: `until="expiry"` keeps a lock after its task has ended. Such
    locks are reported only if the user asks for it (`unowned_locks`).
    """
    if facts.ttl == -2:
        return None
    if facts.ttl == -1:
        return FindingKind.ENDLESS_LOCK
    try:
        named = decode_task_message(facts.message).unique_key.encode() if facts.message else None
    except UndecodableMessageError:
        return None
    if named == facts.key:
        return FindingKind.LEAKED_LOCK if facts.state == "completed" else None
    return FindingKind.LEAKED_LOCK if unowned else None


class QueueChecks:
    """Checks of one surveyed queue. Each check returns kinds of damage, subjects and evidence."""

    def __init__(
        self, survey: QueueSurvey, pace: Pace, *, unowned_locks: bool, archive_max_size: int
    ) -> None:
        self._survey = survey
        self._pace = pace
        self._unowned_locks = unowned_locks
        self._archive_max_size = archive_max_size

    async def types(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check again the keys whose Redis type was wrong; the evidence is the wrong type."""
        survey = self._survey
        wrong = await self._pace.run(find_wrong_types(survey.keys.queue, sorted(survey.misfits)))
        prefix = survey.keys.prefix.encode()
        return [(FindingKind.WRONG_TYPE, prefix + name, kind) for name, kind in sorted(wrong.items())]

    async def groups(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check groups and aggregation sets; the evidence is the group of the members."""
        survey = self._survey
        found = [(FindingKind.EMPTY_SET, key, b"") for key in sorted(survey.no_sets)]
        for facts in await self._pace.run(look_at_groups(survey.keys.queue, sorted(survey.groups))):
            if kind := group_kind(facts, survey.keys):
                name = facts.key.removeprefix(survey.keys.group_prefix.encode())
                found.append((kind, facts.key, facts.named if kind is FindingKind.ORPHAN_SET else name))
        return found

    async def locks(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check locks; the evidence is a digest of the lock's owner and its task."""
        queue, found = self._survey.keys.queue, []
        locks = await self._pace.run_all([look_at_lock(queue, lock) for lock in self._survey.locks])
        for facts in locks:
            kind = lock_kind(facts, unowned=self._unowned_locks)
            found += [(kind, facts.key, facts.digest)] if kind else []
        return found

    async def counters(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check daily counters and totals; the evidence is the minimum value that a counter must have."""
        survey = self._survey
        wrong = await self._pace.run(find_wrong_counters(survey.keys.queue, survey.counters))
        found = [
            (FindingKind.WRONG_COUNTER, key, b"" if least is None else b"%d" % least)
            for key, least in sorted(wrong.items())
        ]
        return found + await endless(self._pace, survey.counters, FindingKind.ENDLESS_COUNTER)

    async def queue(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check a queue's archive size, its registration, and keys that remained after its removal."""
        survey, run = self._survey, self._pace.run
        name, found = survey.keys.queue, []
        if await run(count_archived(name)) > self._archive_max_size:
            found.append((FindingKind.ARCHIVE_OVER_CAP, survey.keys.archived.encode(), b""))
        if not await run(is_registered(name)):
            if await run(has_tasks(name)):
                found.append((FindingKind.UNREGISTERED_QUEUE, name.encode(), b""))
            elif not survey.has_tasks and survey.own_keys and await run(was_used(name)):
                left = set(survey.own_keys) - {survey.keys.outbox.encode()}
                found += [(FindingKind.REMOVED_QUEUE, key, b"") for key in sorted(left)]
        return found

    async def endings(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Find overdue completion callbacks in the outbox; the evidence is the entry of the ended task."""
        keys = self._survey.keys
        if keys.outbox.encode() not in self._survey.own_keys:
            return []
        old = await self._pace.run(list_endings(keys.queue, seconds=PATIENCE_SECONDS))
        return [(FindingKind.UNTOLD_ENDING, address, entry) for address, entry in sorted(old)]


async def endless(
    pace: Pace, keys: Iterable[bytes], kind: FindingKind
) -> list[tuple[FindingKind, bytes, bytes]]:
    """Return a finding of this kind for each of the keys that has no expiry; it has no evidence."""
    ordered = sorted(keys)
    times = await pace.run_all([get_time_to_live(key) for key in ordered])
    return [(kind, key, b"") for key, seconds in zip(ordered, times, strict=True) if seconds == -1]


class ServerChecks:
    """Checks of the running servers, and of Redis."""

    def __init__(self, pace: Pace, now: Instant) -> None:
        self._pace = pace
        self._now = now
        """Time by this host's clock."""
        self.skipped: list[str] = []
        self._redis_now = now
        self._servers: dict[str, ServerInfo] = {}

    async def redis(self) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check the settings of Redis, the clock of this host, and slow scripts."""
        found: list[tuple[FindingKind, bytes, bytes]] = []
        every = await self._pace.run_all([read_redis_facts(place) for place in self._pace.places])
        facts = every[0]
        self._redis_now = facts.redis_now
        policies = {one.maxmemory_policy for one in every}
        if "" in policies:
            self.skipped.append("whether Redis evicts tasks: this user may not use INFO")
        found += [
            (FindingKind.EVICTION, f"maxmemory-policy {policy}".encode(), b"")
            for policy in sorted(policies - {"", "noeviction"})
        ]
        skew = self._now.timestamp - facts.redis_now.timestamp
        if abs(skew) > MAX_SKEW_SECONDS:
            found.append((FindingKind.CLOCK_SKEW, b"this host", f"{skew:+.1f} s".encode()))
        try:
            slow = await self._slow_scripts(facts.redis_now)
        except RedisPermissionError:
            self.skipped.append("slow scripts: this user may not use SLOWLOG")
            slow = []
        except RedisReplyError:
            self.skipped.append("slow scripts: this server, or a proxy before it, does not know SLOWLOG")
            slow = []
        found += [
            (FindingKind.SLOW_SCRIPT, f"{one.name} ({one.milliseconds} ms, entry {one.number})".encode(), b"")
            for one in slow
        ]
        return found

    async def _slow_scripts(self, now: Instant) -> list[SlowScript]:
        found = await self._pace.run_all(
            [
                list_slow_scripts(
                    now, milliseconds=SLOW_SCRIPT_MILLISECONDS, seconds=_SLOW_WITHIN_SECONDS, at=place
                )
                for place in self._pace.places
            ]
        )
        return [one for some in found for one in some]

    async def types(self, keys: Iterable[bytes]) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check the Redis types of the keys that belong to no queue; the evidence is the wrong type."""
        names = [*(name.encode() for name in GLOBAL_TYPES), *keys]
        kinds = await self._pace.run_all([wrong_type(name) for name in names])
        return [(FindingKind.WRONG_TYPE, name, kind) for name, kind in zip(names, kinds, strict=True) if kind]

    async def records(self, keys: Iterable[bytes]) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check the records of servers and schedulers."""
        found = await endless(self._pace, keys, FindingKind.ENDLESS_RECORD)
        before = self._redis_now.seconds - PATIENCE_SECONDS
        for index in INDEXES:
            lapsed = await self._pace.run(list_lapsed_records(index, before=before))
            found += [(FindingKind.DEAD_SERVER, key, index.encode()) for key in lapsed]
        return found

    async def histories(
        self, histories: Iterable[bytes], records: Iterable[bytes]
    ) -> list[tuple[FindingKind, bytes, bytes]]:
        """Find histories without an expiry whose scheduler entry is in no scheduler's record.

        A history with an enqueue in the last minute is left out: a scheduler that has just started has no
        record yet.
        """
        schedulers = [decode_name(key) for key in records if key.startswith(SCHEDULERS_KEY.encode())]
        live = set[bytes]().union(*await self._pace.run_all([list_histories(key) for key in schedulers]))
        old = sorted(set(histories) - live)
        events = await self._pace.run_all([get_last_event_time(key) for key in old])
        before = self._redis_now.seconds - PATIENCE_SECONDS
        silent = [key for key, at in zip(old, events, strict=True) if at < before]
        return await endless(self._pace, silent, FindingKind.OLD_HISTORY)

    async def servers(self, misfits: Collection[bytes]) -> list[tuple[FindingKind, bytes, bytes]]:
        """Read the records of running servers, and compare their clocks with that of Redis.

        Records whose type is wrong, the `misfits`, are skipped.
        """
        found = []
        for key in await self._pace.run(list_server_keys(self._redis_now)):
            if key.encode() in misfits:
                continue
            info = await self._pace.run(read_server(key))
            lapse = await self._pace.run(get_record_lapse(key))
            if info is None or lapse is None:
                continue
            self._servers[key] = info
            lapses_at, left = lapse
            now = (await self._pace.run(read_redis_facts())).redis_now
            skew = lapses_at - (now.timestamp + left)
            if left <= SERVER_RECORD_SECONDS and abs(skew) > MAX_SKEW_SECONDS + _ROUNDING_SECONDS:
                found.append((FindingKind.CLOCK_SKEW, _name(info).encode(), f"{skew:+.1f} s".encode()))
        return found

    async def queue(self, queue: str) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check that servers serve a queue, its task types and its limits; call it after `servers`."""
        found = []
        serving = [info for info in self._servers.values() if queue in info.queues]
        if not serving:
            waited, overdue = await self._pace.run(measure_waiting_work(queue, self._redis_now))
            if max(waited, overdue) > SERVER_RECORD_SECONDS:
                found.append((FindingKind.UNSERVED_QUEUE, queue.encode(), b""))
        found += await self._unserved_types(queue, serving)
        strangers = [info for info in serving if not info.engine]
        if strangers and (_has_limits(serving, queue) or await self._is_limited(queue)):
            found += [(FindingKind.LIMITS_IGNORED, _name(info).encode(), b"") for info in strangers]
        return found

    async def _unserved_types(
        self, queue: str, serving: Sequence[ServerInfo]
    ) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check that all waiting types have handlers, if all servers of the queue publish theirs."""
        served = [decode_served_types(info.engine) for info in serving]
        if not served or None in served:
            return []
        waiting = await self._pace.run(waiting_types(queue, self._redis_now, SERVER_RECORD_SECONDS))
        unserved = sorted(name for name in waiting if not any(name in one for one in served if one))
        return [(FindingKind.UNSERVED_TYPE, name.encode(), b"") for name in unserved]

    async def ticks(self, survey: QueueSurvey) -> list[tuple[FindingKind, bytes, bytes]]:
        """Find last ticks of scheduler entries that are in the future; call it after `redis`.

        The evidence is the Unix time of the tick.
        """
        if survey.keys.ticks.encode() not in survey.own_keys:
            return []
        latest = self._redis_now.seconds + TICK_SLACK_SECONDS
        try:
            found = await self._pace.run(find_ticks_after(survey.keys.queue, latest))
        except (RedisPermissionError, RedisReplyError) as error:
            self.skipped.append(f"ticks of schedulers in queue {survey.keys.queue}: {error}")
            return []
        return [(FindingKind.FUTURE_TICK, field, value) for field, value in sorted(found.items())]

    async def _is_limited(self, queue: str) -> bool:
        return bool(await self._pace.run(get_limits(queue)))


def _has_limits(servers: Iterable[ServerInfo], queue: str) -> bool:
    described: Iterator[Mapping[str, object]] = (decode_engine(info.engine)[1] for info in servers)
    return any(limits.get(queue) for limits in described)


def _name(info: ServerInfo) -> str:
    return f"server {info.server_id} (process {info.pid} on {info.host})"
