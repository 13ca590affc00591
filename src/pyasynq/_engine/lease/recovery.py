"""Putting the tasks of dead workers back, and archiving those that kill their workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover
from pyasynq._broker.stored import check_task_id
from pyasynq._wire.history import HistoryEntry, encode_attempt
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message
from pyasynq.events import ArchiveTrimmed, MessageQuarantined, TaskPoisoned, TaskRecovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.leases import ExpiredTask
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.events import Events

UNKNOWN_SERVER = "unknown"
_CRASHES_BEFORE_BEGIN = 3
"""At how many crashes a task is archived although its handler is never known to have begun."""
_LIMITS_WITHOUT_PROOF = 3
"""At how many times its limit a task is archived although no crash was proved to be its own."""


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """When a task counts as left behind, and when as poison.

    Attributes:
        crash_limit_of: returns at how many crashes a task of a type is archived.
        archive_max_size: how many archived tasks a queue keeps.
        archive_max_age: for how many seconds.
        own_slack: seconds after the end of its lease that a task of a pyasynq worker is left alone; None
            when its worker is known to be dead.
        foreign_slack: the same for tasks of workers in Go.
    """

    crash_limit_of: Callable[[str], int]
    archive_max_size: int
    archive_max_age: int
    own_slack: int | None
    foreign_slack: int


class Recovery:
    """Counts the crash in each task, and puts it back or archives it as poison; tells events of both."""

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
        """Take tasks back that are as they were seen; return how many.

        Args:
            queue: of all of these tasks.
            tasks: at most one crash is counted for each.
            were_only_one: whether the dead worker is known to have had one task.
        """
        back: list[RecoverTask] = []
        poison: list[PoisonTask] = []
        servers: dict[str, tuple[str, int, str]] = {}
        for task in tasks:
            reason = ""
            crashes = task.crashes + 1
            server = task.token.partition("/")[0] or UNKNOWN_SERVER
            try:
                check_task_id(task.id, task.message)
                message = decode_task_message(task.message) if task.message else None
            except UndecodableMessageError as error:
                message, reason = None, error.reason
            servers[task.id] = server, crashes, reason
            is_proved = were_only_one or task.ran_alone
            if reason:
                poison.append(self._quarantined(task, reason))
            elif message is not None and self._is_poison(task, message, crashes, is_proved=is_proved):
                poison.append(self._poisoned(task, message, server, is_proved=is_proved))
            else:
                record = self._record(server, "")
                back.append(RecoverTask(task.id, task.token, task.lease_score, record))
        taken = await self._recover(queue, back, servers) if back else 0
        return taken + (await self._archive(queue, poison, servers) if poison else 0)

    def _is_poison(self, task: ExpiredTask, message: TaskMessage, crashes: int, *, is_proved: bool) -> bool:
        limit = self._rules.crash_limit_of(message.type)
        if limit > 1:
            # Any task that ran alongside the killer was there as well.
            return crashes >= (limit if is_proved else _LIMITS_WITHOUT_PROOF * limit)
        # One that was only taken did not run. Its server may know another limit and confirm nothing, so
        # not for ever.
        return crashes >= (_CRASHES_BEFORE_BEGIN if task.was_only_taken else 1)

    async def _recover(
        self,
        queue: str,
        tasks: Sequence[RecoverTask],
        servers: dict[str, tuple[str, int, str]],
    ) -> int:
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
            self._events.emit(TaskRecovered(queue, task.id, task.crashes, servers[task.id][0]))
        return len(recovered)

    async def _archive(
        self,
        queue: str,
        tasks: Sequence[PoisonTask],
        servers: dict[str, tuple[str, int, str]],
    ) -> int:
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
        archived = _kept(tasks, settled.refused)
        for task_id in archived:
            server, crashes, reason = servers[task_id]
            if reason:
                self._events.emit(MessageQuarantined(queue, task_id, reason))
            else:
                self._events.emit(TaskPoisoned(queue, task_id, crashes, server))
        if settled.trimmed:
            self._events.emit(ArchiveTrimmed(queue, settled.trimmed))
        return len(archived)

    def _poisoned(
        self, task: ExpiredTask, message: TaskMessage, server: str, *, is_proved: bool
    ) -> PoisonTask:
        now = self._redis_time.now().seconds
        crashes = task.crashes + 1
        times = "once" if crashes == 1 else f"{crashes} times"
        is_sure = is_proved or self._rules.crash_limit_of(message.type) <= 1
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
        """Return the attempt that ends now because its worker did, for the task's attempts."""
        now = self._redis_time.now().timestamp
        return encode_attempt("crashed", error, server=server, started_at=None, ended_at=now)

    def _quarantined(self, task: ExpiredTask, reason: str) -> PoisonTask:
        now = self._redis_time.now().seconds
        trace = reason.encode("utf-8", "replace")
        return PoisonTask(task.id, task.token, task.lease_score, b"", now, trace)


def _kept(tasks: Iterable[PoisonTask], refused: frozenset[str]) -> list[str]:
    return [task.id for task in tasks if task.id not in refused]
