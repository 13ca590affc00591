"""What the producer of the chaos runs makes of the answers to its enqueues."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import NotDurableError, PyasynqError, RedisOutOfMemoryError, ReplyLostError
from pyasynq.task import EnqueueResult, EnqueueStatus
from tests.chaos.load import Producer
from tests.chaos.records import Recorder, What, read_history

if TYPE_CHECKING:
    from pathlib import Path

    from pyasynq.task import Task


class Answering:
    """A client whose first chunk ends in an error, and whose next ones succeed."""

    def __init__(self, error: PyasynqError) -> None:
        self._error: PyasynqError | None = error

    async def enqueue_many(self, tasks: list[Task], *, on_error: str) -> list[EnqueueResult]:
        assert "return" == on_error
        error, self._error = self._error, None
        return [EnqueueResult(EnqueueStatus.ENQUEUED, None, None, error) for _ in tasks]


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (ReplyLostError("redis:6379", "no reply"), What.UNKNOWN),
        (RedisOutOfMemoryError("full"), What.REFUSED),
        (NotDurableError.__new__(NotDurableError), What.UNKNOWN),
    ],
    ids=["lost reply", "out of memory", "not durable"],
)
def test_an_error_says_whether_a_task_may_run(error: PyasynqError, fate: What, tmp_path: Path) -> None:
    """This many more are enqueued, under other ids, until as many as wanted are acknowledged."""
    recorder = Recorder(tmp_path)
    client: Any = Answering(error)
    producer = Producer(client, recorder, random.Random(1))
    asyncio.run(producer.run(600))
    fates = list(read_history(tmp_path).enqueues.values())
    recorder.close()
    assert 600 == producer.acknowledged == fates.count(What.ACKNOWLEDGED)
    assert len(fates) - 600 == fates.count(fate) > 0
