"""Aggregation of one set: read its tasks, call the user's function, and make one task of them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, TypeAlias

from pyasynq._backoff import Backoff
from pyasynq._broker.aggregation_sets import Finish, finish_set, quarantine_member, read_set
from pyasynq._broker.enqueueing.chunks import compose_checked
from pyasynq._broker.locks import find_holder
from pyasynq._checks import parse_seconds
from pyasynq._engine.handlers.routes import await_fully, received_task
from pyasynq._engine.queue_failures import is_reachable
from pyasynq._engine.settle.settle_batches import SUSPECT_BYTES
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import (
    ConfigurationError,
    DuplicateTaskError,
    RedisOutOfMemoryError,
    RedisUnavailableError,
    ReplyLostError,
    TaskIDConflictError,
    describe_value,
)
from pyasynq.events import (
    AggregationDeclined,
    AggregationLost,
    ArchiveTrimmed,
    MessageQuarantined,
    RoundFailed,
    TasksAggregated,
)
from pyasynq.options import check_unattended
from pyasynq.task import Task

if TYPE_CHECKING:
    from pyasynq._broker.aggregation_sets import AggregationSet, SetMember
    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._broker.registrar_async import AsyncRegistrar
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.handlers.group_routes import DeclaredAggregator
    from pyasynq._engine.handlers.threads import HandlerThreads
    from pyasynq._wire.messages import TaskMessage

AggregationEnding: TypeAlias = TasksAggregated | AggregationDeclined | AggregationLost

_WORTH_ANOTHER_TRY = (RedisUnavailableError, ReplyLostError, RedisOutOfMemoryError)
_MOST_BREAKS: Final = 3
"""Number of times that writing a large task may break the connection before its aggregation fails.

A broken connection is counted only if Redis then answers another call.
"""


class Aggregation:
    """Turns the members of an aggregation set into one task. The caller renews the set's deadline meanwhile.

    Attributes:
        can_be_cut: whether a cancellation stops the aggregation. False if the function runs in a thread, and
            after the call to Redis that ends the set.
        called_at: monotonic time at which the function was called; None while it does not run.
        thread_id: id of the thread that runs a plain function; 0 for none. Written by that thread, read by
            the loop.
    """

    def __init__(
        self,
        parts: Parts,
        one: AggregationSet,
        aggregator: DeclaredAggregator,
        threads: HandlerThreads,
        registrar: AsyncRegistrar,
    ) -> None:
        self._parts = parts
        self._set = one
        self._aggregator = aggregator
        self._threads = threads
        self._registrar = registrar
        self.can_be_cut = not aggregator.plain
        self.called_at: float | None = None
        self.thread_id = 0

    @property
    def aggregator(self) -> DeclaredAggregator:
        """The declared function of this group."""
        return self._aggregator

    def overdue_seconds(self, monotonic: float) -> float:
        """Return the seconds since the function's time limit has passed; negative before that."""
        if self.called_at is None:
            return float("-inf")
        return monotonic - self.called_at - self._parts.settings.aggregation_timeout

    async def run(self) -> AggregationEnding | None:
        """Aggregate the set; return the ending of the aggregation, or None if no member could be decoded.

        Members that cannot be decoded are archived unchanged (quarantine).

        Raises:
            PyasynqError: when Redis refuses, or the aggregate task cannot be enqueued.
            Exception: the error that the function raised. The set stays in Redis after any of these errors.
        """
        one = self._set
        members = await self._parts.driver.run(read_set(one))
        if members is None:
            return AggregationLost(one.queue, one.group)
        messages = await self._decode(members)
        if not messages:
            return None
        self.called_at = self._parts.clock.monotonic()
        try:
            task = await self._call([received_task(message) for message in messages])
        finally:
            self.called_at = None
        if task is None:
            return AggregationDeclined(one.queue, one.group, len(messages))
        if not isinstance(task, Task):
            raise ConfigurationError(
                f"an aggregator returns a Task or None, and this one returned {describe_value(type(task))}"
            )
        locks = [(message.id, message.unique_key) for message in messages if message.unique_key]
        return await self._finish(task, locks, len(messages))

    async def _decode(self, members: list[SetMember]) -> list[TaskMessage]:
        messages = []
        for member in members:
            try:
                messages.append(decode_task_message(member.message))
            except UndecodableMessageError as error:
                await self._quarantine(member.id, error.reason)
        return messages

    async def _quarantine(self, task_id: str, reason: str) -> None:
        parts, queue = self._parts, self._set.queue
        now = parts.redis_time.now()
        plan = quarantine_member(
            self._set,
            task_id,
            reason=reason,
            max_size=parts.config.archive_max_size,
            cutoff=now.seconds - int(parse_seconds("archive_max_age", parts.config.archive_max_age)),
            now=now,
        )
        trimmed = await parts.driver.run(plan)
        parts.events.emit(MessageQuarantined(queue, task_id, reason))
        if trimmed:
            parts.events.emit(ArchiveTrimmed(queue, trimmed))

    async def _call(self, tasks: list[Task]) -> object:
        if self._aggregator.plain:
            # Not awaited as handlers are: at shutdown the thread is left running, and its result is dropped.
            result, error = await self._threads.start(self._call_in_thread, tasks)
            if error is not None:
                raise error
            self.thread_id = 0
        else:
            result = self._aggregator.call(self._set.group, tasks)
        async with asyncio.timeout(self._parts.settings.aggregation_timeout):
            return await await_fully(result)

    def _call_in_thread(self, tasks: list[Task]) -> object:
        self.thread_id = threading.get_ident()
        return self._aggregator.call(self._set.group, tasks)

    async def _finish(self, task: Task, locks: list[tuple[str, str]], tasks: int) -> AggregationEnding:
        one, parts = self._set, self._parts
        check_unattended(task.options)
        limit = self._aggregator.max_payload
        aggregate = compose_checked(
            task,
            {"queue": one.queue},
            now=parts.redis_time.now(),
            max_payload=parts.config.max_payload if limit is None else limit,
            new_id=lambda: one.id,
        )
        self.can_be_cut = False
        finish = await self._write(aggregate, locks)
        if finish is Finish.LOST:
            return AggregationLost(one.queue, one.group)
        if finish is Finish.CONFLICT:
            raise TaskIDConflictError(one.queue, aggregate.id)
        if finish is Finish.DUPLICATE:
            holder = await self._parts.driver.run(find_holder(aggregate.lock))
            raise DuplicateTaskError(one.queue, aggregate.lock, holder)
        task_id = "" if finish is Finish.EXISTING_KEPT else aggregate.id
        return TasksAggregated(one.queue, one.group, tasks, task_id)

    async def _write(self, aggregate: Composed, locks: list[tuple[str, str]]) -> Finish:
        """Write the aggregate task, and retry until Redis confirms it.

        A short outage must not call the user's function twice.

        Raises:
            PyasynqError: when Redis refuses the task; for a large task, also when each write breaks the
                connection.
        """
        parts, again, breaks, backoff = self._parts, False, 0, Backoff()
        while True:
            plan = finish_set(
                self._set,
                aggregate,
                locks=locks,
                again=again,
                now=parts.clock.redis_now(),
            )
            try:
                return await self._registrar.run_one(plan, self._set.queue)
            except _WORTH_ANOTHER_TRY as error:
                if len(aggregate.encoded) >= SUSPECT_BYTES and isinstance(error, ReplyLostError):
                    breaks += await is_reachable(parts.driver, self._set.queue)
                if breaks >= _MOST_BREAKS:
                    raise
                again, rest = True, backoff.next()
                parts.events.emit(RoundFailed("aggregation", error, rest))
                await asyncio.sleep(rest)
