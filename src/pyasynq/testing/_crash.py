"""A worker that dies with the tasks that it has taken."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyasynq._broker.dequeue import Rules, Terms, dequeue
from pyasynq._broker.leases import RAN_ALONE
from pyasynq._wire.messages import decode_task_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._clock import Instant
    from pyasynq._redis.driver import BlockingDriver


def take_and_die(
    driver: BlockingDriver, queues: Iterable[str], limit: int, now: Instant
) -> list[tuple[str, str]]:
    """Take up to `limit` tasks, as a worker does that is killed then; return their types and ids."""
    server = f"crashed-{uuid.uuid4()}"
    alone = RAN_ALONE if limit == 1 else ""
    taken: list[tuple[str, str]] = []
    for queue in queues:
        room = limit - len(taken)
        if room <= 0:
            break
        answer = driver.run(dequeue(queue, limit=room, token=f"{server}/1{alone}", now=now))
        if answer.rules is not Rules.PLAIN:
            terms = Terms(answer.rules)
            answer = driver.run(dequeue(queue, limit=room, token=f"{server}/2{alone}", terms=terms, now=now))
        taken += [(decode_task_message(one.message).type, one.id) for one in answer.tasks]
    return taken
