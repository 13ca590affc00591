"""Settles and renewals of one attempt, which leave from two threads and arrive in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._broker.dequeue import dequeue
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.lease.renewal import Renewal
from pyasynq._engine.lease.roster import Roster
from pyasynq._engine.run.attempt import Attempt, Phase
from pyasynq._engine.run.outcome import DONE, REQUEUE, Decision
from pyasynq._engine.run.settle_record import SettleRecord
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.settle.settle_queue import SettleQueue
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.events import Events, LeaseLost, Outcome
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from tests.factories import Tasks

SHORT, LONG = 2, 30
RETRIED = Decision("retry", Outcome.RETRIED, due_at=2_000_000_000, is_failure=True)


@pytest.mark.parametrize("decision", [DONE, REQUEUE, RETRIED])
def test_h05_a_renewal_that_overtakes_a_settle_does_not_make_it_look_stale(
    redis_url: str, tasks: Tasks, decision: Decision
) -> None:
    """The lease in Redis is later than it was when the settle was made, and it is still ours."""
    tasks.put(TaskState.PENDING, "a")
    driver = BlockingDriver(parse_redis_url(redis_url))
    events, settings, roster = Events(), EngineSettings(lease=LONG), Roster(["default"])
    lost: list[LeaseLost] = []
    events.subscribe(LeaseLost, lost.append)
    redis_time = RedisTime(SYSTEM_CLOCK)
    settles = SettleQueue(
        ServerConfig(), settings, roster=roster, events=events, clock=SYSTEM_CLOCK, redis_time=redis_time
    )

    taken = driver.run(dequeue("default", limit=1, token="s/1", lease_seconds=SHORT, now=None))
    [task] = taken.tasks
    attempt = Attempt(
        None,  # type: ignore[arg-type] # nothing runs here
        "default",
        decode_task_message(task.message),
        "s/1",
        lease_until=SYSTEM_CLOCK.monotonic() + SHORT,
        lease_score=task.lease_score,
    )
    roster.add(attempt)
    attempt.phase = Phase.SETTLING
    settles.put(attempt, decision, SettleRecord(message=task.message))
    [batch] = settles.take_fresh()
    assert ([], [], None) == Renewal(driver, settings, SYSTEM_CLOCK, redis_time).renew([attempt])
    settles.confirm(batch, driver.run(batch.plan))
    driver.close()

    assert [] == lost
    assert [] == tasks.ids("active")
