"""Recovery of the tasks of a dead child, without waiting for its leases to lapse."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Final

from pyasynq._background.redis_time import RedisTime
from pyasynq._backoff import Backoff
from pyasynq._broker.leases import list_server_tasks
from pyasynq._broker.servers import clear_server_state
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.lease.recovery import Recovery, RecoveryRules
from pyasynq._engine.logs import subscribe_lines
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.facts import read_redis_facts
from pyasynq._redis.url import parse_redis_url
from pyasynq._visible_text import visible
from pyasynq._wire.constants import LEASE_GRACE_SECONDS, LEASE_SECONDS
from pyasynq.errors import PyasynqError
from pyasynq.events import Events, MessageQuarantined, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.leases import ExpiredTask
    from pyasynq._engine.supervisor.child_facts import ChildFacts
    from pyasynq._engine.supervisor.death_notes import DeathEvent

_log = logging.getLogger("pyasynq")
_LOOKS: Final = (0.0, 0.5)
"""Seconds before each search for tasks. The child's last commands may reach Redis after the first search."""
_GIVE_UP_AFTER: Final = 60.0
"""Seconds after which recovery gives up: the leases have lapsed, and other servers recover the tasks."""
_MARGIN: Final = 1


async def recover_known_death(
    facts: ChildFacts,
    pid: int,
    died_at: float,
    tell: Callable[[DeathEvent], object] = lambda _event: None,
) -> int:
    """Put back, or archive as poison, the tasks that a dead process had; return how many.

    It also removes the record of the dead server. It retries for a minute while Redis is unreachable. If
    it is cancelled, some tasks may already be recovered.

    Args:
        facts: reported by the process at its start.
        pid: id of the process.
        died_at: monotonic time of its end, or later.
        tell: called with a `WorkerDied` or a `MessageQuarantined` for each of the tasks.
    """
    driver = AsyncDriver(parse_redis_url(facts.url), client_name="pyasynq-supervisor")
    recoverer = _Recoverer(facts, driver, died_at, tell)
    taken = 0
    try:
        for rest in _LOOKS:
            await asyncio.sleep(rest)
            taken += await recoverer.recover_until_answered()
        await driver.run(clear_server_state(facts.host, pid, facts.server_id))
    except PyasynqError as error:
        text = "the tasks of server %s come back when their leases lapse: %s"
        _log.warning(text, facts.server_id, visible(error))
    finally:
        await driver.close()
    return taken


class _Recoverer:
    """Recovers the tasks of one dead server."""

    def __init__(
        self,
        facts: ChildFacts,
        driver: AsyncDriver,
        died_at: float,
        tell: Callable[[DeathEvent], object],
    ) -> None:
        self._facts = facts
        self._driver = driver
        self._died_at = died_at
        self._latest_lease: int | None = None
        self._tasks_seen = 0
        """Number of tasks found so far."""
        self._redis_time = RedisTime(SYSTEM_CLOCK)
        events = Events()
        subscribe_lines(events)
        events.subscribe(WorkerDied, tell)
        events.subscribe(MessageQuarantined, tell)
        self._recovery = Recovery(
            RecoveryRules(
                get_crash_limit=facts.get_crash_limit,
                archive_max_size=facts.archive_max_size,
                archive_max_age=facts.archive_max_age,
                own_slack=None,
                foreign_slack=LEASE_GRACE_SECONDS,
            ),
            driver,
            events,
            self._redis_time,
        )

    async def recover_until_answered(self) -> int:
        """Recover the current tasks; retry while Redis is unreachable."""
        backoff = Backoff()
        while True:
            try:
                return await self._recover()
            except PyasynqError:
                if time.monotonic() - self._died_at > _GIVE_UP_AFTER:
                    raise
                await asyncio.sleep(backoff.next())

    async def _recover(self) -> int:
        if self._latest_lease is None:
            facts = await self._driver.run(read_redis_facts())
            self._redis_time.learn(facts.redis_now)
            died = facts.redis_now.timestamp - (time.monotonic() - self._died_at)
            self._latest_lease = math.ceil(died) + LEASE_SECONDS + _MARGIN
        queues = self._facts.queues
        answers = await self._driver.run_batch(
            [list_server_tasks(queue, server_id=self._facts.server_id) for queue in queues]
        )
        found: list[tuple[str, list[ExpiredTask]]] = []
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            found.append((queue, [task for task in answer if self._can_be_its(task)]))
        tasks_before, self._tasks_seen = self._tasks_seen, self._tasks_seen + sum(len(it) for _, it in found)
        were_only_one = tasks_before == 0 and self._tasks_seen == 1
        results = await self._recovery.requeue(
            [(queue, tasks) for queue, tasks in found if tasks], were_only_one=were_only_one
        )
        taken = 0
        for result in results:
            if isinstance(result, Exception):
                raise result
            taken += result
        return taken

    def _can_be_its(self, task: ExpiredTask) -> bool:
        # A Go peer keeps our token in a task that it takes over; a later lease end is the peer's.
        assert self._latest_lease is not None  # noqa: S101 - set before the first call
        return task.lease_score is None or task.lease_score <= self._latest_lease
