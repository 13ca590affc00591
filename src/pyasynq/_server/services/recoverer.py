"""Takes back the tasks of workers that died, and archives those that kill their workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.aggregation_sets import reclaim_stale_sets
from pyasynq._broker.leases import (
    PoisonTask,
    RecoverTask,
    archive_poison,
    list_expired,
    list_unleased,
    recover,
)
from pyasynq._server.service import Service
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message
from pyasynq.events import (
    ArchiveTrimmed,
    MessageQuarantined,
    SetsReclaimed,
    TaskPoisoned,
    TaskRecovered,
)
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._broker.leases import ExpiredTask
    from pyasynq._broker.plan import Plan
    from pyasynq._broker.server_facts import ServerFacts
    from pyasynq._server.parts import Parts
    from pyasynq._wire.messages import TaskMessage

UNKNOWN_SERVER = "unknown"


class Recoverer(Service):
    """Looks every three seconds for leases that ended long enough ago, and for active tasks without one.

    After Redis was away or has been restarted it waits for one full lease: live workers have lost their
    leases too, and are about to renew them.
    """

    name = "recoverer"

    def __init__(self, parts: Parts, facts: ServerFacts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._archive_max_age = int(seconds_of("archive_max_age", parts.config.archive_max_age))
        self._quiet_until = parts.clock.monotonic() + max(0, parts.settings.lease - facts.uptime_seconds)
        if not facts.uptime_seconds:
            self._quiet_until = parts.clock.monotonic() + parts.settings.lease
        self._disconnect_seen = parts.driver.last_disconnect
        self._was_away = False
        self._unleased: dict[tuple[str, str], str] = {}
        """Tokens of the active tasks that had no lease at the last sweep."""
        self._next_sweep = 0.0

    async def round(self) -> float:
        """Recover or archive what is due in all queues."""
        try:
            seen = await self._look()
        except Exception:
            self._was_away = True
            raise
        if not self._is_quiet():
            for queue, tasks in seen:
                await self._take_back(queue, tasks)
            await self._reclaim_sets()
        return self._parts.settings.recoverer_interval

    def _is_quiet(self) -> bool:
        """Return whether Redis has come back too recently; it has just answered."""
        now = self._parts.clock.monotonic()
        disconnect = self._parts.driver.last_disconnect
        # Breaks during the wait do not prolong it: where a proxy cuts idle connections, recovery must go on.
        if self._was_away or (disconnect != self._disconnect_seen and now >= self._quiet_until):
            self._quiet_until = now + self._parts.settings.lease
        self._was_away = False
        self._disconnect_seen = disconnect
        return now < self._quiet_until

    async def _look(self) -> list[tuple[str, Sequence[ExpiredTask]]]:
        settings = self._parts.settings
        now = self._parts.clock.redis_now()
        seen = await self._ask_all(
            lambda queue: list_expired(
                queue,
                own_slack=settings.own_slack,
                foreign_slack=settings.foreign_slack,
                now=now,
            ),
        )
        # This one walks over all active tasks, so it is done no more often than its grace asks for.
        if self._parts.clock.monotonic() >= self._next_sweep:
            seen += self._lingering(await self._ask_all(list_unleased))
            self._next_sweep = self._parts.clock.monotonic() + settings.unleased_grace
        return seen

    async def _ask_all(
        self, plan_of: Callable[[str], Plan[list[ExpiredTask]]]
    ) -> list[tuple[str, Sequence[ExpiredTask]]]:
        """Return what each queue that has any answers."""
        queues = self._parts.queues
        answers = await self._parts.driver.run_batch([plan_of(queue) for queue in queues])
        found: list[tuple[str, Sequence[ExpiredTask]]] = []
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            if answer:
                found.append((queue, answer))
        return found

    def _lingering(
        self, unleased: list[tuple[str, Sequence[ExpiredTask]]]
    ) -> list[tuple[str, Sequence[ExpiredTask]]]:
        """Return the tasks that had no lease at the last sweep either, with the same token."""
        before, self._unleased = self._unleased, {}
        lingering: list[tuple[str, Sequence[ExpiredTask]]] = []
        for queue, tasks in unleased:
            strangers = [task for task in tasks if self._parts.roster.get(queue, task.id) is None]
            self._unleased.update({(queue, task.id): task.token for task in strangers})
            again = [task for task in strangers if before.get((queue, task.id)) == task.token]
            if again:
                lingering.append((queue, again))
        return lingering

    async def _take_back(self, queue: str, tasks: Sequence[ExpiredTask]) -> None:
        back: list[RecoverTask] = []
        poison: list[PoisonTask] = []
        servers: dict[str, tuple[str, int, str]] = {}
        for task in tasks:
            reason = ""
            crashes = task.crashes + 1
            server = task.token.partition("/")[0] or UNKNOWN_SERVER
            try:
                message = decode_task_message(task.message) if task.message else None
            except UndecodableMessageError as error:
                message, reason = None, error.reason
            servers[task.id] = server, crashes, reason
            if reason:
                poison.append(self._quarantined(task, reason))
            elif message is not None and crashes >= max(1, self._parts.crash_limit(message.type)):
                poison.append(self._poisoned(task, message, server))
            else:
                back.append(RecoverTask(task.id, task.token, task.lease_score))
        if back:
            await self._recover(queue, back, servers)
        if poison:
            await self._archive(queue, poison, servers)

    async def _reclaim_sets(self) -> None:
        """Put tasks whose aggregation was broken off back into their groups."""
        parts = self._parts
        now = parts.clock.redis_now()
        results = await parts.driver.run_batch([reclaim_stale_sets(queue, now=now) for queue in parts.queues])
        for queue, result in zip(parts.queues, results, strict=True):
            if isinstance(result, Exception):
                raise result
            if result.sets:
                self.events.emit(SetsReclaimed(queue, result.sets, result.members))

    async def _recover(
        self,
        queue: str,
        tasks: Sequence[RecoverTask],
        servers: dict[str, tuple[str, int, str]],
    ) -> None:
        settings = self._parts.settings
        recovered = await self._parts.driver.run(
            recover(
                queue,
                tasks,
                own_slack=settings.own_slack,
                foreign_slack=settings.foreign_slack,
                now=self._parts.clock.redis_now(),
            ),
        )
        for task in recovered:
            self.events.emit(TaskRecovered(queue, task.id, task.crashes, servers[task.id][0]))

    async def _archive(
        self,
        queue: str,
        tasks: Sequence[PoisonTask],
        servers: dict[str, tuple[str, int, str]],
    ) -> None:
        parts = self._parts
        settled = await parts.driver.run(
            archive_poison(
                queue,
                tasks,
                max_size=parts.config.archive_max_size,
                cutoff=parts.redis_time.now().seconds - self._archive_max_age,
                own_slack=parts.settings.own_slack,
                foreign_slack=parts.settings.foreign_slack,
                now=parts.clock.redis_now(),
            ),
        )
        for task_id in _kept(tasks, settled.refused):
            server, crashes, reason = servers[task_id]
            if reason:
                self.events.emit(MessageQuarantined(queue, task_id, reason))
            else:
                self.events.emit(TaskPoisoned(queue, task_id, crashes, server))
        if settled.trimmed:
            self.events.emit(ArchiveTrimmed(queue, settled.trimmed))

    def _poisoned(self, task: ExpiredTask, message: TaskMessage, server: str) -> PoisonTask:
        now = self._parts.redis_time.now().seconds
        crashes = task.crashes + 1
        times = "once" if crashes == 1 else f"{crashes} times"
        message.error_msg = f"poison: its worker crashed {times} while running it, last on server {server}"
        message.last_failed_at = now
        return PoisonTask(task.id, task.token, task.lease_score, encode_task_message(message), now, b"")

    def _quarantined(self, task: ExpiredTask, reason: str) -> PoisonTask:
        now = self._parts.redis_time.now().seconds
        trace = reason.encode("utf-8", "replace")
        return PoisonTask(task.id, task.token, task.lease_score, b"", now, trace)


def _kept(tasks: Iterable[PoisonTask], refused: frozenset[str]) -> list[str]:
    return [task.id for task in tasks if task.id not in refused]
