"""Recoverer service: puts back the tasks of dead workers, and archives poison tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.aggregation_sets import reclaim_stale_sets
from pyasynq._broker.leases import list_expired, list_unleased
from pyasynq._checks import parse_seconds
from pyasynq._engine.lease.recovery import Recovery, RecoveryRules
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq.events import SetsReclaimed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._broker.leases import ExpiredTask
    from pyasynq._broker.queue_readings import QueueReading
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._redis.plan import Plan


class QuietTime:
    """Period of one lease after Redis has come back, in which nothing is recovered.

    It starts at most once in two leases, so that a Redis that keeps restarting does not prolong it.

    Args:
        lease: seconds of a lease.
        until: monotonic time at which the first quiet time ends.
    """

    def __init__(self, lease: float, until: float) -> None:
        self._lease = lease
        self._until = until
        self._next = 0.0

    def begin(self, now: float) -> None:
        """Start a quiet time, unless one started too recently."""
        if now >= self._next:
            self._until = now + self._lease
            self._next = now + 2 * self._lease

    def holds(self, now: float) -> bool:
        """Return whether nothing may be recovered now."""
        return now < self._until


class Recoverer(Service):
    """Recovers tasks whose leases ended long enough ago, and active tasks without a lease.

    It calls Redis for the queues whose reading shows such a task; the look, every three seconds, wakes it.
    After a restart, a failover or an outage longer than `tolerated_outage` it waits for one full lease: live
    workers have also lost their leases, and are about to renew them. Such a quiet time starts at most once in
    two leases (one minute). After a shorter outage, or a call that fails, all live workers still have leases:
    the call is repeated after a jittered back-off.
    """

    name = "recoverer"

    def __init__(self, parts: Parts, queues: Callable[[], Sequence[str]], uptime_seconds: float) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._queues = queues
        self._failures = QueueFailures(self, parts.clock)
        """Queues whose active tasks or leases could not be read."""
        self._refused = QueueFailures(self, parts.clock)
        """Queues that could be read, and whose tasks could not be put back."""
        self._unread_since: dict[str, float] = {}
        """Monotonic time since which active tasks or leases cannot be read, by queue."""
        self._recovery = Recovery(
            RecoveryRules(
                get_crash_limit=parts.crash_limit,
                archive_max_size=parts.config.archive_max_size,
                archive_max_age=int(parse_seconds("archive_max_age", parts.config.archive_max_age)),
                own_slack=parts.settings.own_slack,
                foreign_slack=parts.settings.foreign_slack,
            ),
            parts.driver,
            parts.events,
            parts.redis_time,
        )
        now, lease = parts.clock.monotonic(), parts.settings.lease
        self._quiet = QuietTime(lease, now + max(0, lease - uptime_seconds))
        self._quiet_queues: dict[str, float] = {}
        """Queues that were unreachable for a while, with the end of their quiet time."""
        self._restart_seen: float | None = None
        self._was_away = False
        self._unleased: dict[tuple[str, str], str] = {}
        """Tokens of the active tasks that had no lease at the last sweep."""
        self._next_sweep = 0.0
        self._readings: dict[str, QueueReading | Exception | None] = {}
        """The readings that were already used: each one causes one call, and another if that call fails."""
        self._outages: dict[str, int] = {}
        """Number of outages of each queue at the last round."""

    async def enter(self) -> None:
        """Read the time of the last restart of Redis: only later restarts affect leases."""
        self._restart_seen = self._last_restart

    async def round(self) -> float:
        """Recover or archive the due tasks of the queues."""
        queues = self._queues()
        if not self._note_outages(queues):
            return self._parts.settings.look_interval
        # A queue that the last look could not read is read here once a look has succeeded again.
        known = self._parts.board.known
        ready = self._refused.ready_among(self._failures.ready(queues))
        ready = [name for name in ready if known[name].is_reachable]
        read = self._list_newly_read(ready)
        if read:
            try:
                seen = await self._list_expired(read) + await self._sweep(ready)
            except Exception:
                self._readings = {}
                raise
            if not self._update_quiet_time():
                await self._put_back(ready, read, seen)
        return self._refused.get_rest(self._failures.get_rest(self._parts.settings.look_interval))

    def _note_outages(self, queues: Sequence[str]) -> bool:
        """Suspend recovery in queues that were away for long; return whether any queue can be read now."""
        known, before = self._parts.board.known, self._outages
        self._unread_since = {name: since for name, since in self._unread_since.items() if name in known}
        self._outages = {name: known[name].outages for name in queues}
        away = [name for name in queues if self._outages[name] > before.get(name, self._outages[name])]
        if away and len(away) == len(queues):
            self._was_away = True
        else:
            self._keep_quiet(away)
        return not queues or any(known[name].is_reachable for name in queues)

    def _keep_quiet(self, queues: Iterable[str]) -> None:
        """Recover nothing in these queues for one lease: live workers could not renew their leases either."""
        now = self._parts.clock.monotonic()
        until = dict.fromkeys(queues, now + self._parts.settings.lease)
        self._quiet_queues = {queue: end for queue, end in self._quiet_queues.items() if end > now} | until

    def _list_newly_read(self, queues: Sequence[str]) -> list[str]:
        """Return the queues with a new reading since the last call, or whose last call failed.

        Remember these readings as used.
        """
        readings = {name: self._parts.board.known[name].reading for name in queues}
        before, self._readings = self._readings, readings
        return [name for name, reading in readings.items() if reading is not before.get(name)]

    def _others_work(self, queues: Sequence[str]) -> bool:
        """Return whether the last look (poll of all queues) could read any queue other than these."""
        known = self._parts.board.known
        return any(known[name].is_reachable for name in {*self._queues()}.difference(queues))

    async def _put_back(
        self,
        ready: Sequence[str],
        read: Sequence[str],
        seen: Sequence[tuple[str, Sequence[ExpiredTask]]],
    ) -> None:
        """Recover tasks and aggregation sets, except those of queues that may just have come back.

        Args:
            ready: queues that are not in a back-off.
            read: queues with a new reading, whose aggregation sets are recovered.
            seen: queues and their tasks that have no valid lease.
        """
        known, tolerated = self._parts.board.known, self._parts.settings.tolerated_outage
        now = self._parts.clock.monotonic()
        # The calls above may have waited out an outage that no queue look has noticed yet.
        fresh = {name for name in ready if now - known[name].read_at <= tolerated}
        found = [
            (queue, tasks) for queue, tasks in seen if queue in fresh and queue not in self._quiet_queues
        ]
        results = await self._recovery.requeue(found)
        failures = await self._reclaim_sets([queue for queue in read if queue in fresh])
        failures |= {
            queue: result
            for (queue, _), result in zip(found, results, strict=True)
            if isinstance(result, Exception)
        }
        for queue in read:
            if queue not in failures:
                self._refused.recover(queue)
        for queue, error in failures.items():
            self._refused.note(queue, error)
            self._readings.pop(queue, None)

    @property
    def _last_restart(self) -> float | None:
        return self._parts.driver.get_last_restart(self.node)

    def _update_quiet_time(self) -> bool:
        """Begin a quiet time if Redis has just come back; return whether recovery must still wait."""
        now = self._parts.clock.monotonic()
        restart = self._last_restart
        # Restarts during a quiet time do not prolong it: behind a proxy, connections may reach several
        # servers.
        if self._was_away or (restart != self._restart_seen and not self._quiet.holds(now)):
            self._quiet.begin(now)
        self._was_away = False
        self._restart_seen = restart
        return self._quiet.holds(now)

    async def _list_expired(self, read: Sequence[str]) -> list[tuple[str, Sequence[ExpiredTask]]]:
        settings, now = self._parts.settings, self._parts.clock.redis_now()
        own_slack, foreign_slack = settings.own_slack, settings.foreign_slack
        slack = min(own_slack, foreign_slack)
        queues = self._parts.board.with_work(read, lambda reading: reading.has_lapsed_lease(slack))
        # Failed queues are asked again, to notice when they work.
        queues += [name for name in read if name in self._unread_since and name not in queues]
        return await self._ask_all(
            queues,
            lambda queue: list_expired(queue, own_slack=own_slack, foreign_slack=foreign_slack, now=now),
        )

    async def _sweep(self, ready: Sequence[str]) -> list[tuple[str, Sequence[ExpiredTask]]]:
        """Return the tasks that have no lease now and had none at the last sweep.

        A sweep reads all active tasks, so it runs only once per grace period; otherwise return nothing.
        """
        now = self._parts.clock.monotonic()
        if now < self._next_sweep:
            return []
        queues = self._parts.board.with_work(ready, lambda reading: reading.may_have_unleased)
        lingering = self._find_lingering(await self._ask_all(queues, list_unleased))
        self._next_sweep = now + self._parts.settings.unleased_grace
        return lingering

    async def _ask_all(
        self, queues: Sequence[str], make_plan: Callable[[str], Plan[list[ExpiredTask]]]
    ) -> list[tuple[str, Sequence[ExpiredTask]]]:
        """Run a plan for each queue; return the non-empty answers."""
        if not queues:
            return []
        answers = await self._parts.driver.run_batch([make_plan(queue) for queue in queues])
        self._note_unread(queues, answers)
        found = self._failures.answers(queues, answers, others_work=self._others_work(queues))
        return [(queue, tasks) for queue, tasks in found if tasks]

    def _note_unread(self, queues: Sequence[str], answers: Sequence[list[ExpiredTask] | Exception]) -> None:
        """Suspend recovery in queues that could not be read for long: no lease could be renewed meanwhile."""
        now, tolerated = self._parts.clock.monotonic(), self._parts.settings.tolerated_outage
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, Exception):
                self._unread_since.setdefault(queue, now)
                self._readings.pop(queue, None)
            elif now - self._unread_since.pop(queue, now) > tolerated:
                self._keep_quiet([queue])

    def _find_lingering(
        self, unleased: list[tuple[str, Sequence[ExpiredTask]]]
    ) -> list[tuple[str, Sequence[ExpiredTask]]]:
        """Return the tasks that also had no lease at the last sweep, with the same token.

        Remember all tasks without a lease for the next sweep.
        """
        before, self._unleased = self._unleased, {}
        lingering: list[tuple[str, Sequence[ExpiredTask]]] = []
        for queue, tasks in unleased:
            strangers = [task for task in tasks if self._parts.roster.get(queue, task.id) is None]
            self._unleased.update({(queue, task.id): task.token for task in strangers})
            again = [task for task in strangers if before.get((queue, task.id)) == task.token]
            if again:
                lingering.append((queue, again))
        return lingering

    async def _reclaim_sets(self, read: Sequence[str]) -> dict[str, Exception]:
        """Put tasks whose aggregation was interrupted back into their groups; return errors by queue."""
        parts = self._parts
        now = parts.clock.redis_now()
        queues = parts.board.with_work(read, lambda reading: reading.has_stale_set)
        if not queues:
            return {}
        failures: dict[str, Exception] = {}
        results = await parts.driver.run_batch([reclaim_stale_sets(queue, now=now) for queue in queues])
        for queue, result in zip(queues, results, strict=True):
            if isinstance(result, Exception):
                failures[queue] = result
            elif result.sets:
                self.events.emit(SetsReclaimed(queue, result.sets, result.members))
        return failures
