"""Recovery of the tasks of dead workers: put back, or archived as poison."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover
from pyasynq._broker.outbox import deliver_endings
from pyasynq._broker.stored import check_task_id
from pyasynq._wire.history import HistoryEntry, encode_attempt
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message
from pyasynq.errors import PyasynqError
from pyasynq.events import (
    ArchiveTrimmed,
    MessageQuarantined,
    TaskPoisoned,
    TaskRecovered,
    WorkerDied,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.leases import ExpiredTask
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.events import Events

UNKNOWN_SERVER = "unknown"
_CRASHES_BEFORE_BEGIN = 3
"""Archive a task after this many worker crashes, even if its handler is not known to have started."""
_LIMITS_WITHOUT_PROOF = 3
"""Multiple of a task's crash limit at which it is archived without proof that it causes the crashes."""


class _Crash(NamedTuple):
    """Task whose worker crashed, as events report it.

    Attributes:
        message: None if it cannot be read.
        reason: why it cannot be read; empty if it can.
    """

    server: str
    crashes: int
    message: TaskMessage | None
    reason: str

    @property
    def task_type(self) -> str:
        """The task's type; empty if that is not known."""
        return "" if self.message is None else self.message.type


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """Rules for when a task counts as left by a dead worker, and when as poison.

    Attributes:
        get_crash_limit: returns the number of crashes at which a task of a type is archived.
        archive_max_size: maximum number of archived tasks of a queue.
        archive_max_age: maximum age of archived tasks in seconds.
        own_slack: seconds after the end of its lease before a task of a pyasynq worker is recovered; None
            when its worker is known to be dead.
        foreign_slack: the same for tasks of workers in Go.
    """

    get_crash_limit: Callable[[str], int]
    archive_max_size: int
    archive_max_age: int
    own_slack: int | None
    foreign_slack: int


class Recovery:
    """Counts a crash in each task, puts it back or archives it as poison, and emits events."""

    def __init__(
        self, rules: RecoveryRules, driver: AsyncDriver, events: Events, redis_time: RedisTime
    ) -> None:
        self._rules = rules
        self._driver = driver
        self._events = events
        self._redis_time = redis_time

    async def take_back(
        self, queue: str, tasks: Sequence[ExpiredTask], *, were_only_one: bool = False
    ) -> int:
        """Recover the tasks that have not changed since they were read; return how many.

        Args:
            queue: queue of all these tasks.
            tasks: at most one crash is counted for each.
            were_only_one: whether the dead worker is known to have had one task.
        """
        back: list[RecoverTask] = []
        poison: list[PoisonTask] = []
        told: dict[str, _Crash] = {}
        for task in tasks:
            reason = ""
            crashes = task.crashes + 1
            server = task.token.partition("/")[0] or UNKNOWN_SERVER
            try:
                check_task_id(task.id, task.message)
                message = decode_task_message(task.message) if task.message else None
            except UndecodableMessageError as error:
                message, reason = None, error.reason
            told[task.id] = _Crash(server, crashes, message, reason)
            is_proved = were_only_one or task.ran_alone
            if reason:
                poison.append(self._make_quarantined_task(task, reason))
            elif message is not None and self._is_poison(task, message, crashes, is_proved=is_proved):
                poison.append(self._make_poison_task(task, message, server, is_proved=is_proved))
            else:
                record = self._record(server, "")
                back.append(RecoverTask(task.id, task.token, task.lease_score, record))
        recovered = await self._recover(queue, back, told) if back else []
        archived = await self._archive(queue, poison, told) if poison else []
        if self._events.wants(WorkerDied):
            self._tell_of_deaths(queue, recovered, archived, told)
        return len(recovered) + len(archived)

    def _tell_of_deaths(
        self,
        queue: str,
        recovered: Sequence[str],
        archived: Sequence[str],
        told: Mapping[str, _Crash],
    ) -> None:
        for task_id in (*recovered, *archived):
            server, crashes, message, _ = told[task_id]
            if message is not None:
                facts = message.type, message.retried, message.retry
                self._events.emit(
                    WorkerDied(queue, task_id, *facts, crashes, server, archived=task_id in archived)
                )

    def _is_poison(self, task: ExpiredTask, message: TaskMessage, crashes: int, *, is_proved: bool) -> bool:
        limit = self._rules.get_crash_limit(message.type)
        if limit > 1:
            # Any task that ran alongside the poison task crashed as well.
            return crashes >= (limit if is_proved else _LIMITS_WITHOUT_PROOF * limit)
        # A task that was only taken did not run. Its server may have another limit and confirm no starts, so
        # there
        # is a limit here too.
        return crashes >= (_CRASHES_BEFORE_BEGIN if task.was_only_taken else 1)

    async def _recover(
        self,
        queue: str,
        tasks: Sequence[RecoverTask],
        told: Mapping[str, _Crash],
    ) -> list[str]:
        recovered = await self._driver.run(
            recover(
                queue,
                tasks,
                own_slack=self._rules.own_slack,
                foreign_slack=self._rules.foreign_slack,
                now=self._driver.clock.redis_now(),
            ),
        )
        for task in recovered:
            crash = told[task.id]
            self._events.emit(TaskRecovered(queue, task.id, task.crashes, crash.server, crash.task_type))
        return [task.id for task in recovered]

    async def _archive(
        self,
        queue: str,
        tasks: Sequence[PoisonTask],
        told: Mapping[str, _Crash],
    ) -> list[str]:
        settled = await self._driver.run(
            archive_poison(
                queue,
                tasks,
                max_size=self._rules.archive_max_size,
                cutoff=self._redis_time.now().seconds - self._rules.archive_max_age,
                own_slack=self._rules.own_slack,
                foreign_slack=self._rules.foreign_slack,
                now=self._driver.clock.redis_now(),
            ),
        )
        archived = _list_archived(tasks, settled.refused)
        for task_id in archived:
            crash = told[task_id]
            if crash.reason:
                self._events.emit(MessageQuarantined(queue, task_id, crash.reason))
            else:
                event = TaskPoisoned(queue, task_id, crash.crashes, crash.server, crash.task_type)
                self._events.emit(event)
        if settled.trimmed:
            self._events.emit(ArchiveTrimmed(queue, settled.trimmed))
        if settled.endings:
            # A failure is mended by the outbox relay of any server of the queue.
            with suppress(PyasynqError):
                await self._driver.run(
                    deliver_endings(queue, settled.endings, now=self._driver.clock.redis_now())
                )
        return archived

    def _make_poison_task(
        self, task: ExpiredTask, message: TaskMessage, server: str, *, is_proved: bool
    ) -> PoisonTask:
        now = self._redis_time.now().seconds
        crashes = task.crashes + 1
        times = "once" if crashes == 1 else f"{crashes} times"
        is_sure = is_proved or self._rules.get_crash_limit(message.type) <= 1
        company = "" if is_sure else " alongside other tasks"
        message.error_msg = (
            f"poison: its worker crashed {times} while running it{company}, last on server {server}"
        )
        message.last_failed_at = now
        record = self._record(server, message.error_msg)
        return PoisonTask(
            task.id, task.token, task.lease_score, encode_task_message(message), now, b"", record
        )

    def _record(self, server: str, error: str) -> HistoryEntry:
        """Return the history entry of an attempt that ends now because its worker died."""
        now = self._redis_time.now().timestamp
        return encode_attempt("crashed", error, server=server, started_at=None, ended_at=now)

    def _make_quarantined_task(self, task: ExpiredTask, reason: str) -> PoisonTask:
        now = self._redis_time.now().seconds
        trace = reason.encode("utf-8", "replace")
        return PoisonTask(task.id, task.token, task.lease_score, b"", now, trace)


def _list_archived(tasks: Iterable[PoisonTask], refused: frozenset[str]) -> list[str]:
    return [task.id for task in tasks if task.id not in refused]
