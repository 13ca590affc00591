"""The doctor: examines a live Redis for damage, and repairs it."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from pyasynq._broker.doctoring.groups import list_known_groups
from pyasynq._broker.doctoring.keys import get_database_size, is_registered, scan_keys
from pyasynq._broker.doctoring.tasks import judge
from pyasynq._broker.doctoring.types import INDEX_TYPES, wrong_type
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.stored import decode_name
from pyasynq._checks import check_whole, parse_positive_seconds, parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._human_text import counted
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.constants import ARCHIVE_LIMIT
from pyasynq._wire.keys import (
    ALL_QUEUES,
    HOST_GATE_PREFIX,
    LIST_PREFIX,
    api_key_bucket_key,
    configuration_versions_key,
    operation_key,
    scheduler_history_key,
)
from pyasynq.errors import QueueNotFoundError, RedisReplyError

from ._checks import QueueChecks, ServerChecks
from ._diagnosis import diagnose
from ._findings import Finding, FindingKind, Severity, as_text, make_finding
from ._pace import Pace
from ._repairs import GROUP_KINDS, Repairs
from ._survey import QueueSurvey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq.options import Duration

Progress: TypeAlias = "Callable[[int, int], object]"
_Seen: TypeAlias = dict[tuple[str, FindingKind, bytes], bytes]

_KEY: Final = re.compile(rb"asynq:\{(.*?)\}:(.*)", re.DOTALL)
_RECORD: Final = (
    b"asynq:servers:{",
    b"asynq:workers:{",
    b"asynq:schedulers:{",
    operation_key("").encode(),
    configuration_versions_key("").encode(),
    api_key_bucket_key("").encode(),
    HOST_GATE_PREFIX.encode(),
)
_LIST: Final = LIST_PREFIX.encode()
_HISTORY: Final = scheduler_history_key("").encode()
_ORDER: Final = tuple(Severity)
_MEASURED: Final = {FindingKind.CLOCK_SKEW, FindingKind.WRONG_COUNTER}
"""Kinds whose evidence may change between the two checks of a finding."""


class Doctor:
    """Examines a live Redis for damage, and repairs it while workers run.

        async with Doctor("redis://localhost:6379/0") as doctor:
            findings = await doctor.examine()
            findings = await doctor.repair(findings)

    Args:
        url: as for `Client`.
        queues: names of the queues to examine; by default all of them, Redis and the servers.
        pause: seconds between the two checks that confirm each finding.
        archive_max_size: maximum number of archived tasks, as in `ServerConfig`. Without it, an archive
            above Asynq's 9,999 is found, but not trimmed.
        unowned_locks: also find locks whose task is gone or has another lock. Only if you never use
            `until="expiry"`, which leaves such locks on purpose.
        timeout: seconds that one call may take, with reconnecting.

    Attributes:
        skipped: what the last examination could not check, and why.

    Raises:
        InvalidOptionError: for invalid values.
    """

    def __init__(
        self,
        url: RedisSource = "redis://localhost:6379/0",
        *,
        queues: Sequence[str] = (),
        pause: Duration = 2.0,
        archive_max_size: int | None = None,
        unowned_locks: bool = False,
        timeout: Duration = 5.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if archive_max_size is not None:
            check_whole("archive_max_size", archive_max_size, 1)
        self._queues = frozenset(queues)
        self._pause = parse_seconds("pause", pause)
        self._archive_max_size = archive_max_size
        self._unowned_locks = unowned_locks
        self._clock = clock
        self._driver = AsyncDriver(
            parse_redis_url(url),
            client_name="pyasynq-doctor",
            timeout=parse_positive_seconds("timeout", timeout),
            clock=clock,
        )
        self._pace = Pace(self._driver)
        self.skipped: list[str] = []

    async def examine(self, *, progress: Progress | None = None) -> list[Finding]:
        """Look for damage; change nothing.

        Each suspicion is checked twice, with the pause in between, by scripts that read everything about it
        at one moment. It is reported if both results are the same. A healthy, busy Redis therefore gives no
        findings.

        Args:
            progress: called after each page with the number of keys examined, and their total.

        Returns:
            the findings, by queue, those about all of Redis first, and by severity.

        Raises:
            QueueNotFoundError: for a named queue that does not exist.
            PyasynqError: when Redis cannot be reached.
        When cancelled, it ends after the current call.
        """
        self.skipped = []
        surveys, records = await self._survey(progress)
        for survey in surveys.values():
            if not survey.is_blocked:
                await survey.walk()
        seen = await self._check(surveys.values(), records)
        if seen:
            await asyncio.sleep(self._pause)
            again = await self._check(surveys.values(), records)
            seen = {key: evidence for key, evidence in again.items() if _is_same(key, evidence, seen)}
        return _findings(seen)

    async def repair(
        self,
        findings: Iterable[Finding],
        *,
        progress: Progress | None = None,
        report: Callable[[Finding], object] | None = None,
    ) -> list[Finding]:
        """Repair findings of `examine`, from this or another doctor, while workers run.

        Each repair is a script that checks again, and writes only if nothing has changed. Damage that a
        repair uncovers is found by another examination.

        Args:
            findings: findings to repair.
            progress: called after each finding with the number of processed findings, and their total.
            report: called with each processed finding; `repaired` lists the repaired subjects.

        Returns:
            the findings; `repaired` lists the repaired subjects.

        Raises:
            PyasynqError: when Redis cannot be reached; earlier repairs are kept.
        When cancelled, it ends after the current call; earlier repairs are kept.
        """
        repairs = Repairs(self._pace, archive_max_size=self._archive_max_size)
        # Groups first, because the right place of a task depends on them.
        given = sorted(findings, key=lambda one: one.kind not in GROUP_KINDS)
        done = []
        for finding in given:
            if finding.is_repairable and finding._evidence:  # noqa: SLF001 - the doctor's own
                subjects = await repairs.repair(finding.queue, finding.kind, finding._evidence)  # noqa: SLF001
                repaired = {as_text(subject) for subject in subjects} | set(finding.repaired)
                ordered = tuple(subject for subject in finding.subjects if subject in repaired)
                done.append(replace(finding, repaired=ordered))
            else:
                done.append(finding)
            if report:
                report(done[-1])
            if progress:
                progress(len(done), len(given))
        return sorted(done, key=_position)

    async def _survey(self, progress: Progress | None) -> tuple[dict[str, QueueSurvey], list[bytes]]:
        """Read every key; return the survey of each queue, and the keys of records and histories."""
        surveys: dict[str, QueueSurvey] = {}
        missing = set(self._queues)
        records: list[bytes] = []
        for queue in sorted(self._queues) or await self._list_queues():
            surveys[queue] = QueueSurvey(queue, self._pace)
        async for names in self._pages(progress):
            by_queue: defaultdict[str, list[bytes]] = defaultdict(list)
            for name in names:
                if name.startswith((*_RECORD, _HISTORY, _LIST)):
                    records.append(name)
                elif match := _KEY.fullmatch(name):
                    by_queue[as_text(match[1])].append(match[2])
            for queue, some in by_queue.items():
                if not self._queues or queue in self._queues:
                    missing.discard(queue)
                    survey = surveys.setdefault(queue, QueueSurvey(queue, self._pace))
                    await survey.note(some)
        for queue in sorted(missing):
            if not await self._pace.run(is_registered(queue)):
                raise QueueNotFoundError(queue)
        return surveys, records

    async def _list_queues(self) -> list[str]:
        if await self._pace.run(wrong_type(ALL_QUEUES.encode())):
            return []
        return await self._pace.run(queue_names())

    async def _pages(self, progress: Progress | None) -> AsyncIterator[list[bytes]]:
        places = self._driver.places
        total = sum(await self._pace.run_all([get_database_size(place) for place in places]))
        looked_at = 0
        for place in places:
            cursor, names = await self._pace.run(scan_keys(b"0", "asynq:*", at=place))
            while cursor != b"0":
                yield names
                looked_at += len(names)
                if progress:
                    progress(min(looked_at, total), total)
                cursor, names = await self._pace.run(scan_keys(cursor, "asynq:*", at=place))
            yield names
            looked_at += len(names)
        if progress:
            progress(total, total)

    async def _check(self, surveys: Iterable[QueueSurvey], records: Sequence[bytes]) -> _Seen:
        seen: _Seen = {}

        def note(queue: str, found: Iterable[tuple[FindingKind, bytes, bytes]]) -> None:
            seen.update({(queue, kind, subject): evidence for kind, subject, evidence in found})

        servers = ServerChecks(self._pace, self._clock.now())
        of_redis = await servers.redis()
        misfits = await servers.types(records)
        wrong = {key for _, key, _ in misfits}
        blocked = {decode_name(key) for key in wrong} & INDEX_TYPES.keys()
        of_servers = [] if blocked else await servers.servers(wrong)
        if blocked:
            self._skip(f"servers and schedulers: wrong type of {', '.join(sorted(blocked))}")
        if not self._queues:
            sound = sorted(set(records) - wrong)
            histories = [key for key in sound if key.startswith(_HISTORY)]
            # Lists are left out: workers write their keys, and the service sets the expiry soon after.
            live = [key for key in sound if not key.startswith((_HISTORY, _LIST))]
            note("", of_redis + misfits + of_servers)
            if not blocked:
                note("", await servers.records(live))
                note("", await servers.histories(histories, live))
        for survey in surveys:
            queue = survey.keys.queue
            checks = QueueChecks(
                survey,
                self._pace,
                unowned_locks=self._unowned_locks,
                archive_max_size=self._archive_max_size or ARCHIVE_LIMIT,
            )
            note(queue, await checks.types())
            if survey.is_blocked or ALL_QUEUES in blocked:
                self._skip(f"the rest of queue {queue}: {survey.refusal or 'a key has a wrong type'}")
                continue
            try:
                note(queue, await self._check_queue(survey, checks))
                if not blocked:
                    note(queue, await servers.queue(queue))
                    note(queue, await servers.ticks(survey))
            except RedisReplyError as error:
                self._skip(f"the rest of queue {queue}: {error}")
        for what in servers.skipped:
            self._skip(what)
        return seen

    async def _check_queue(
        self, survey: QueueSurvey, checks: QueueChecks
    ) -> list[tuple[FindingKind, bytes, bytes]]:
        found = await checks.groups()
        orphan_sets = {key for kind, key, _ in found if kind is FindingKind.ORPHAN_SET}
        for check in (checks.locks, checks.counters, checks.queue, checks.endings):
            found += await check()
        return found + await self._judge(survey, orphan_sets)

    def _skip(self, what: str) -> None:
        if what not in self.skipped:
            self.skipped.append(what)

    async def _judge(
        self, survey: QueueSurvey, orphan_sets: set[bytes]
    ) -> list[tuple[FindingKind, bytes, bytes]]:
        """Check each suspicious task atomically; return damage, id and collection of each damaged task.

        Only the damaged tasks remain in the survey. Tasks that could not be checked are noted in `skipped`.
        """
        found = []
        suspects, survey.suspects = survey.suspects, {}
        _, sets = await self._pace.run(list_known_groups(survey.keys.queue))
        judged = await self._pace.run(judge(survey.keys.queue, suspects))
        if len(judged) < len(suspects):
            tasks = counted(len(suspects), "task")
            look = "looks" if len(suspects) == 1 else "look"
            what = f"{tasks} of queue {survey.keys.queue} that {look} damaged"
            self.skipped.append(f"{what}: its lists change too fast")
        for facts in judged:
            seen_in = suspects[facts.id]
            if diagnosis := diagnose(facts, survey.keys, seen_in=seen_in, sets={*sets, *orphan_sets}):
                found.append((diagnosis.kind, facts.id, seen_in))
                survey.suspects[facts.id] = seen_in
        return found

    async def close(self) -> None:
        """Close the connections; further calls raise `ClientClosedError`. Closing twice is harmless."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        """Return the doctor; the first call connects."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    def __del__(self) -> None:
        """Warn about a doctor that has connections and was never closed."""
        driver = getattr(self, "_driver", None)
        if driver is not None and driver.abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<pyasynq.doctor.Doctor of Redis at {self._driver.target.address}>"


def _is_same(key: tuple[str, FindingKind, bytes], evidence: bytes, seen: _Seen) -> bool:
    return key in seen and (key[1] in _MEASURED or seen[key] == evidence)


def _findings(seen: _Seen) -> list[Finding]:
    grouped: defaultdict[tuple[str, FindingKind], dict[bytes, bytes]] = defaultdict(dict)
    for (queue, kind, subject), evidence in seen.items():
        grouped[queue, kind][subject] = evidence
    findings = [
        make_finding(queue, kind, dict(sorted(evidence.items())), _detail(kind, evidence))
        for (queue, kind), evidence in grouped.items()
    ]
    return sorted(findings, key=_position)


def _position(finding: Finding) -> tuple[str, int, str]:
    return finding.queue, _ORDER.index(finding.severity), finding.kind


def _detail(kind: FindingKind, evidence: Mapping[bytes, bytes]) -> str:
    if kind not in {FindingKind.CLOCK_SKEW, FindingKind.WRONG_TYPE}:
        return ""
    return as_text(b", ".join(evidence.values()))
