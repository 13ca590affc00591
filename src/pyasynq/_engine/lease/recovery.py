"""Recovery of the tasks of dead workers: put back, or archived as poison."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import chunks
from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover
from pyasynq._broker.outbox import deliver_endings
from pyasynq._broker.settle import Settled
from pyasynq._broker.stored import check_task_id
from pyasynq._error_signature import poison_error
from pyasynq._wire.history import HistoryEntry, encode_attempt
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message
from pyasynq.errors import PyasynqError
from pyasynq.events import (
    ArchiveTrimmed,
    LeaseLapsed,
    MessageQuarantined,
    TaskPoisoned,
    TaskRecovered,
    WorkerDied,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.leases import ExpiredTask, Recovered
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._redis.plan import Plan
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.events import Events

UNKNOWN_SERVER = "unknown"
_NO_SIGN = "its lease ended, and there was no sign of its worker"
_CRASHES_BEFORE_BEGIN = 3
"""Number of crashes at which a task whose handler never started is archived, at a crash limit of 0 or 1."""
_LIMITS_WITHOUT_PROOF = 3
"""Multiple of a task's crash limit at which it is archived without proof that it causes the crashes."""
_LIMITS_OF_LAPSES = 10
"""Multiple of a task's crash limit at which it is archived because its leases lapse without an extension.

Leases also lapse because of a bad network. If a task kills its worker at once, its lease lapses each time.
"""
_CALL_BYTES = 512
"""Estimated size in bytes of the arguments for one task, without its message."""


class _Crash(NamedTuple):
    """Task whose worker crashed or was lost, as events report it.

    Attributes:
        losses: number of crashes, or of lapses.
        has_lapsed: whether its lease was never extended, so that a crash is not certain.
        message: None if it cannot be read.
        reason: why it cannot be read; empty if it can.
    """

    server: str
    losses: int
    has_lapsed: bool
    message: TaskMessage | None
    reason: str

    @property
    def task_type(self) -> str:
        """The task's type; empty if that is not known."""
        return "" if self.message is None else self.message.type


class _Decision(NamedTuple):
    """Decisions about the recovered tasks of one queue.

    Attributes:
        crashes: the crash of each task, by task id.
    """

    queue: str
    back: list[RecoverTask]
    poison: list[PoisonTask]
    crashes: dict[str, _Crash]


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
    """Counts a crash or lapse in each task, puts it back or archives it as poison, and emits events."""

    def __init__(
        self, rules: RecoveryRules, driver: AsyncDriver, events: Events, redis_time: RedisTime
    ) -> None:
        self._rules = rules
        self._driver = driver
        self._events = events
        self._redis_time = redis_time

    async def requeue(
        self, found: Sequence[tuple[str, Sequence[ExpiredTask]]], *, were_only_one: bool = False
    ) -> list[int | Exception]:
        """Recover the tasks that have not changed since they were read.

        Calls for several queues share a pipeline. A dead worker of 1,000 queues may leave tasks in hundreds
        of them. A busy worker that waited for one reply after the other would need many seconds.

        Args:
            found: queues and their tasks; at most one crash or lapse is counted for each task.
            were_only_one: whether the dead worker is known to have had one task.

        Returns:
            number of recovered tasks, or the error, of each queue in `found`.
        """
        results: list[int | Exception] = []
        for chunk in chunks(found, size_of=_estimate_size):
            results += await self._requeue_together(
                [self._decide(queue, tasks, were_only_one=were_only_one) for queue, tasks in chunk]
            )
        return results

    def _decide(self, queue: str, tasks: Sequence[ExpiredTask], *, were_only_one: bool) -> _Decision:
        """Decide which tasks of a queue go back, and which are poison."""
        decision = _Decision(queue, [], [], {})
        for task in tasks:
            reason = ""
            server = task.token.partition("/")[0] or UNKNOWN_SERVER
            try:
                check_task_id(task.id, task.message)
                message = decode_task_message(task.message) if task.message else None
            except UndecodableMessageError as error:
                message, reason = None, error.reason
            crash = self._judge(task, server, message, reason)
            decision.crashes[task.id] = crash
            is_proved = were_only_one or task.ran_alone
            if reason:
                decision.poison.append(self._make_quarantined_task(task, reason))
            elif message is not None and self._is_poison(task, message, crash, is_proved=is_proved):
                decision.poison.append(self._make_poison_task(task, message, crash, is_proved=is_proved))
            else:
                record = self._record(server, _NO_SIGN if crash.has_lapsed else "")
                back = RecoverTask(task.id, task.token, task.lease_score, record, crash.has_lapsed)
                decision.back.append(back)
        return decision

    async def _requeue_together(self, decisions: Sequence[_Decision]) -> list[int | Exception]:
        """Carry out decisions in one pipeline.

        Return for each decision the number of recovered and archived tasks, or the error.
        """
        plans: list[Plan[list[Recovered] | Settled]] = []
        for decision in decisions:
            if decision.back:
                plans.append(self._plan_recovery(decision))
            if decision.poison:
                plans.append(self._plan_archive(decision))
        answers = iter(await self._driver.run_batch(plans))
        results: list[int | Exception] = []
        for decision in decisions:
            recovered: list[str] = []
            archived: list[str] = []
            failure: Exception | None = None
            for answer in islice(answers, bool(decision.back) + bool(decision.poison)):
                if isinstance(answer, Exception):
                    failure = answer
                elif isinstance(answer, Settled):
                    archived = await self._report_archived(decision, answer)
                else:
                    recovered = self._report_recovered(decision, answer)
            if self._events.wants(WorkerDied):
                self._report_deaths(decision, recovered, archived)
            results.append(failure or len(recovered) + len(archived))
        return results

    def _judge(self, task: ExpiredTask, server: str, message: TaskMessage | None, reason: str) -> _Crash:
        """Return the loss to count in a task: a crash of its worker, or a lapse of its lease.

        With a crash limit of 0 or 1 a lapse counts as a crash: the task may have run, and must not run again.
        """
        is_strict = message is not None and self._rules.get_crash_limit(message.type) <= 1
        has_lapsed = task.was_unanswered and not is_strict
        losses = 1 + (task.lapses if has_lapsed else task.crashes)
        return _Crash(server, losses, has_lapsed, message, reason)

    def _report_deaths(self, decision: _Decision, recovered: Sequence[str], archived: Sequence[str]) -> None:
        for task_id in (*recovered, *archived):
            server, losses, has_lapsed, message, _ = decision.crashes[task_id]
            is_archived = task_id in archived
            if message is not None and (is_archived or not has_lapsed):
                facts = message.type, message.retried, message.retry
                death = WorkerDied(decision.queue, task_id, *facts, losses, server, archived=is_archived)
                self._events.emit(death)

    def _is_poison(self, task: ExpiredTask, message: TaskMessage, crash: _Crash, *, is_proved: bool) -> bool:
        limit = self._rules.get_crash_limit(message.type)
        crashes = crash.losses
        if crash.has_lapsed:
            return crashes >= _LIMITS_OF_LAPSES * limit
        if limit > 1:
            # Any task that ran alongside the poison task crashed as well.
            return crashes >= (limit if is_proved else _LIMITS_WITHOUT_PROOF * limit)
        # A task that was only taken did not run. This limit is needed for servers whose own limit makes them
        # confirm no starts.
        return crashes >= (_CRASHES_BEFORE_BEGIN if task.was_only_taken else 1)

    def _plan_recovery(self, decision: _Decision) -> Plan[list[Recovered]]:
        return recover(
            decision.queue,
            decision.back,
            own_slack=self._rules.own_slack,
            foreign_slack=self._rules.foreign_slack,
            now=self._driver.clock.redis_now(),
        )

    def _report_recovered(self, decision: _Decision, recovered: Sequence[Recovered]) -> list[str]:
        for task in recovered:
            crash = decision.crashes[task.id]
            event = LeaseLapsed if crash.has_lapsed else TaskRecovered
            self._events.emit(event(decision.queue, task.id, task.losses, crash.server, crash.task_type))
        return [task.id for task in recovered]

    def _plan_archive(self, decision: _Decision) -> Plan[Settled]:
        return archive_poison(
            decision.queue,
            decision.poison,
            max_size=self._rules.archive_max_size,
            cutoff=self._redis_time.now().seconds - self._rules.archive_max_age,
            own_slack=self._rules.own_slack,
            foreign_slack=self._rules.foreign_slack,
            now=self._driver.clock.redis_now(),
        )

    async def _report_archived(self, decision: _Decision, settled: Settled) -> list[str]:
        queue, archived = decision.queue, _list_archived(decision.poison, settled.refused)
        for task_id in archived:
            crash = decision.crashes[task_id]
            if crash.reason:
                self._events.emit(MessageQuarantined(queue, task_id, crash.reason))
            else:
                event = TaskPoisoned(queue, task_id, crash.losses, crash.server, crash.task_type)
                self._events.emit(event)
        if settled.trimmed:
            self._events.emit(ArchiveTrimmed(queue, settled.trimmed))
        if settled.endings:
            # If this fails, the outbox relay of any server of the queue delivers the callbacks.
            with suppress(PyasynqError):
                await self._driver.run(
                    deliver_endings(queue, settled.endings, now=self._driver.clock.redis_now())
                )
        return archived

    def _make_poison_task(
        self, task: ExpiredTask, message: TaskMessage, crash: _Crash, *, is_proved: bool
    ) -> PoisonTask:
        now = self._redis_time.now().seconds
        is_sure = is_proved or self._rules.get_crash_limit(message.type) <= 1
        company = "" if is_sure or crash.has_lapsed else " alongside other tasks"
        what = poison_error(crash.losses, has_lapsed=crash.has_lapsed)
        message.error_msg = f"{what}{company}, last on server {crash.server}"
        message.last_failed_at = now
        record = self._record(crash.server, message.error_msg)
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


def _estimate_size(found: tuple[str, Sequence[ExpiredTask]]) -> int:
    """Return about how many bytes the calls for the tasks of a queue take."""
    _, tasks = found
    return sum(_CALL_BYTES + len(task.message) for task in tasks)


def _list_archived(tasks: Iterable[PoisonTask], refused: frozenset[str]) -> list[str]:
    return [task.id for task in tasks if task.id not in refused]
