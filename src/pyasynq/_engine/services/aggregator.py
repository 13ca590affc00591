"""Aggregator service: turns each due group into one task, by the user's functions."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyasynq._background.code_places import find_thread_place
from pyasynq._background.service import Service
from pyasynq._background.time_limits import report_place
from pyasynq._backoff import Backoff
from pyasynq._broker.aggregation_sets import release_sets, renew_sets
from pyasynq._broker.groups import check_groups, list_groups
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._checks import parse_seconds
from pyasynq._engine.aggregation import Aggregation
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq._wire.constants import AGGREGATION_SET_SECONDS
from pyasynq.errors import PyasynqError
from pyasynq.events import AggregationFailed, AggregationLost, AggregationOverdue, RoundFailed, ShutdownHung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyasynq._broker.aggregation_sets import AggregationSet
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.handlers.group_routes import DeclaredAggregator, GroupRoutes
    from pyasynq._engine.handlers.threads import HandlerThreads
    from pyasynq._redis.plan import Plan

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Run:
    """A running aggregation.

    Attributes:
        reported: seconds by which it was overdue at its last report.
    """

    one: AggregationSet
    aggregation: Aggregation
    task: asyncio.Task[None]
    reported: float = 0.0


class _Pause(NamedTuple):
    """A set whose aggregation failed, and the monotonic time at which it goes back into its group."""

    one: AggregationSet
    until: float


class Aggregator(Service):
    """Checks groups when the next one is due, or every few seconds; aggregates three of them in parallel.

    Each aggregator also has one reserved slot, so that a hanging aggregator does not block the others.
    A round only calls Redis: it renews the deadlines of running sets, and makes new sets. Aggregations
    run in asyncio tasks of their own. A group has one set at a time.

    Attributes:
        taking: False when no more aggregations start; running ones continue. Written by the engine.
        interval: longest pause, in seconds.
        on_stuck: called when calls that cannot be stopped hold a slot for too long, or all slots.
    """

    name = "aggregator"

    def __init__(self, parts: Parts, routes: GroupRoutes, threads: HandlerThreads) -> None:
        super().__init__(parts.events)
        self.taking = True
        self._parts = parts
        self._failures = QueueFailures(self, parts.clock)
        self._routes = routes
        self._threads = threads
        self._registrar = AsyncRegistrar(parts.driver)
        self.interval = min(parts.settings.aggregation_interval, routes.shortest_grace)
        self._running: dict[tuple[str, str], _Run] = {}
        self._pauses: dict[tuple[str, str], _Pause] = {}
        self._backoffs: dict[tuple[str, str], Backoff] = {}
        self._overdue_limit = parse_seconds("overdue_limit", parts.config.overdue_limit)
        self.on_stuck: Callable[[], None] = lambda: None

    async def round(self) -> float:
        """Report overdue calls, renew the deadlines of running sets, end pauses, start due aggregations."""
        self._watch_overdue()
        await self._renew()
        await self._end_pauses()
        if not self.taking:
            return self.interval
        rest = await self._begin()
        now = self._parts.clock.monotonic()
        return max(0.0, min([rest, *(pause.until - now for pause in self._pauses.values())]))

    async def leave(self) -> None:
        """Cancel running aggregations, and put the tasks back into their groups."""
        left = [run.one for run in self._running.values()]
        left += [pause.one for pause in self._pauses.values()]
        for run in self._running.values():
            if run.aggregation.called_at is not None:
                self.events.emit(_hung_aggregator(run))
            run.task.cancel()
        await self.wait_until_idle(parse_seconds("cancel_timeout", self._parts.config.cancel_timeout))
        try:
            await self._release(left)
        except PyasynqError as error:
            # The tasks of these sets go back into their groups at the sets' deadlines.
            self.events.emit(RoundFailed(self.name, error, AGGREGATION_SET_SECONDS))
        await self._registrar.close()

    async def wait_until_idle(self, timeout: float) -> None:
        """Wait until no aggregation runs, for at most `timeout` seconds."""
        tasks = [run.task for run in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    def _watch_overdue(self) -> None:
        """Report overdue calls, and request a restart of the worker when they make it useless."""
        now, settings = self._parts.clock.monotonic(), self._parts.settings
        overdue = {run: run.aggregation.overdue_seconds(now) for run in self._running.values()}
        for run, seconds in overdue.items():
            wait = settings.overdue_again if run.reported else settings.overdue_after
            if seconds >= run.reported + wait:
                run.reported = seconds
                self.events.emit(AggregationOverdue(run.one.queue, run.one.group, seconds))
        grace = min(self._overdue_limit, settings.stuck_grace)
        hanging = sum(seconds >= grace for seconds in overdue.values())
        if hanging >= settings.aggregations or max(overdue.values(), default=0.0) >= self._overdue_limit:
            self.on_stuck()

    async def _renew(self) -> None:
        sets = _group_by_queue(run.one for run in self._running.values())
        now = self._parts.clock.redis_now()
        for _, lost in await self._run_for_each(
            [*sets], lambda queue: renew_sets(queue, sets[queue], now=now)
        ):
            for one in lost:
                run = self._running.get((one.queue, one.group))
                # A thread cannot be stopped: it keeps its slot, and its result is refused. A set may also be
                # gone because its aggregation has just finished.
                if run is not None and run.one == one and run.aggregation.can_be_cut:
                    run.task.cancel()

    async def _end_pauses(self) -> None:
        now = self._parts.clock.monotonic()
        released = await self._release(pause.one for pause in self._pauses.values() if pause.until <= now)
        for one in released:
            del self._pauses[one.queue, one.group]

    async def _release(self, sets: Iterable[AggregationSet]) -> list[AggregationSet]:
        """Put the tasks of sets back into their groups; return the sets for which this succeeded."""
        by_queue = _group_by_queue(sets)
        now = self._parts.clock.redis_now()
        done = await self._run_for_each(
            [*by_queue], lambda queue: release_sets(queue, by_queue[queue], now=now)
        )
        return [one for queue, _ in done for one in by_queue[queue]]

    async def _run_for_each(
        self, queues: Sequence[str], make_plan: Callable[[str], Plan[_T]]
    ) -> list[tuple[str, _T]]:
        """Run a plan for each queue in one batch; return the results of the queues that could be asked."""
        queues = self._failures.ready_among(queues)
        results = await self._parts.driver.run_batch([make_plan(queue) for queue in queues])
        return self._failures.answers(queues, results)

    def _forget_vanished(self, found: list[tuple[str, list[str]]]) -> None:
        """Drop the back-offs of groups that no longer exist.

        The group of a set that is being aggregated, or that failed and is in a pause, still exists.
        """
        listed = {queue for queue, _ in found}
        present = {(queue, group) for queue, groups in found for group in groups}
        served = self._parts.board.settings
        for key in [
            key for key in self._backoffs if (key[0] in listed and key not in present) or key[0] not in served
        ]:
            if key not in self._running and key not in self._pauses:
                del self._backoffs[key]

    async def _begin(self) -> float:
        """Start as many aggregations as there are free slots; return the seconds until the next is due."""
        rest = self.interval
        found = await self._run_for_each(self._failures.ready(self._parts.queues), list_groups)
        self._forget_vanished(found)
        # Random order, so that no group is always last.
        random.shuffle(found)
        for queue, groups in found:
            try:
                rest = min(rest, await self._begin_in(queue, groups))
            except PyasynqError as error:
                self._failures.note(queue, error)
        # If all slots are taken, the next round begins when an aggregation ends.
        busy = {id(run.aggregation.aggregator) for run in self._running.values()}
        return rest if self._room > 0 or len(busy) < self._routes.count else self.interval

    async def _begin_in(self, queue: str, groups: list[str]) -> float:
        """Start as many aggregations of a queue as there are free slots.

        Return the seconds until its next group is due.
        """
        parts, rest = self._parts, self.interval
        for places, some in self._share_places(self._find_candidates(queue, groups)):
            limits = [(group, self._routes.limits(group, one)) for group, one in some.items()]
            checked = await parts.driver.run(
                check_groups(queue, limits, most_sets=places, now=parts.clock.redis_now()),
            )
            parts.redis_time.learn(checked.redis_now)
            for one in checked.sets:
                self._start(one, some[one.group])
            if checked.next_due is not None:
                rest = min(rest, checked.next_due - checked.redis_now.timestamp)
        return rest

    @property
    def _room(self) -> int:
        """Number of free slots that all aggregators share."""
        return self._parts.settings.aggregations - len(self._running)

    def _share_places(
        self, candidates: dict[str, DeclaredAggregator]
    ) -> Iterator[tuple[int, dict[str, DeclaredAggregator]]]:
        """Yield pairs: a number of free slots, and the groups that may take them.

        The slots that all aggregators share come first. When none of these is free, each idle aggregator has
        one slot of its own.
        """
        if candidates and (room := self._room) > 0:
            yield room, candidates
        if self._room > 0:
            return
        busy = {id(run.aggregation.aggregator) for run in self._running.values()}
        for idle in {id(one): one for one in candidates.values() if id(one) not in busy}.values():
            yield 1, {group: one for group, one in candidates.items() if one is idle}

    def _find_candidates(self, queue: str, groups: list[str]) -> dict[str, DeclaredAggregator]:
        busy = self._running.keys() | self._pauses.keys()
        random.shuffle(groups)
        return {
            group: aggregator
            for group in groups
            if (queue, group) not in busy and (aggregator := self._routes.find(group)) is not None
        }

    def _start(self, one: AggregationSet, aggregator: DeclaredAggregator) -> None:
        aggregation = Aggregation(self._parts, one, aggregator, self._threads, self._registrar)
        task = asyncio.create_task(
            self._aggregate(one, aggregation), name=f"pyasynq aggregation of {one.group}"
        )
        self._running[one.queue, one.group] = _Run(one, aggregation, task)

    async def _aggregate(self, one: AggregationSet, aggregation: Aggregation) -> None:
        key = one.queue, one.group
        try:
            ending = await aggregation.run()
            self._backoffs.pop(key, None)
            if ending is not None:
                self.events.emit(ending)
        except asyncio.CancelledError:
            if self.closing:
                raise
            self.events.emit(AggregationLost(*key))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported by an event, and retried
            self._pause(one, error)
        finally:
            del self._running[key]
            self.wake()

    def _pause(self, one: AggregationSet, error: BaseException) -> None:
        key, settings = (one.queue, one.group), self._parts.settings
        if key not in self._backoffs:
            self._backoffs[key] = Backoff(settings.aggregation_first_rest, settings.aggregation_longest_rest)
        rest = self._backoffs[key].next()
        self._pauses[key] = _Pause(one, self._parts.clock.monotonic() + rest)
        self.events.emit(AggregationFailed(*key, error, rest))


def _hung_aggregator(run: _Run) -> ShutdownHung:
    thread_id = run.aggregation.thread_id
    place = find_thread_place(thread_id) if thread_id else report_place(run.task)
    what = f"the aggregator of {run.aggregation.aggregator.pattern!r} (group {run.one.group!r})"
    return ShutdownHung(what, place)


def _group_by_queue(sets: Iterable[AggregationSet]) -> dict[str, list[AggregationSet]]:
    queues: dict[str, list[AggregationSet]] = {}
    for one in sets:
        queues.setdefault(one.queue, []).append(one)
    return queues
