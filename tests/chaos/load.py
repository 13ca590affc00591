"""The work of a chaos run: tasks of all kinds, and the producer that writes down the fate of each enqueue."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import NotDurableError, PyasynqError, ReplyLostError
from pyasynq.task import Task
from tests.chaos.records import What
from tests.chaos.settings import QUEUE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from pyasynq.client import Client
    from tests.chaos.records import Recorder

    MakeTask = Callable[[random.Random, str], Task]

NO_ARGUMENTS: Final[MappingProxyType[str, object]] = MappingProxyType({})
CHUNK: Final = 500
_IN_FLIGHT: Final = 3
_LONE_EVERY: Final = 10
"""Each chunk of this many is enqueued task by task."""
_PAUSE_SECONDS: Final = 0.1
"""How long a producer waits after a chunk of which nothing was taken."""
_NOTHING_TO_DO: Final = 0.9
"""The share of the tasks that only write down that they run."""
_LOCK_SECONDS: Final = 3_600
_KEPT_SECONDS: Final = 3_600
_LONGEST_MILLISECONDS: Final = 50


def make_task(
    task_type: str, task_id: str, arguments: Mapping[str, object] = NO_ARGUMENTS, **options: Any
) -> Task:
    """Return a task of the app of the chaos runs; the producer must not import that app."""
    return Task(task_type, json.dumps(dict(arguments)).encode(), task_id=task_id, queue=QUEUE, **options)


def mixed_task(random: random.Random, task_id: str) -> Task:
    """Return one of all the kinds of tasks that there are; nine in ten do nothing."""
    if random.random() < _NOTHING_TO_DO:
        return Task("work", b"{}", task_id=task_id, queue=QUEUE)
    arguments = {"milliseconds": random.randrange(1, _LONGEST_MILLISECONDS)}
    task_type, options = random.choice(
        (
            ("work", {}),
            ("work", {"unique": _LOCK_SECONDS, "unique_key": task_id}),
            ("work", {"process_in": random.random() * 2}),
            ("work", {"retention": _KEPT_SECONDS}),
            ("thread", {}),
            ("thread", {}),
            ("retry", {}),
        )
    )
    return make_task(task_type, task_id, {} if task_type == "retry" else arguments, **options)


class Producer:
    """Enqueues until this many tasks have been acknowledged.

    Args:
        client: who enqueues.
        recorder: where the fate of each enqueue is written.
        random: chooses the kinds of tasks.
        make: makes each.
        queues: where the tasks go; with more than one, each goes to a random one.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        random: random.Random,
        make: MakeTask = mixed_task,
        queues: Sequence[str] = (QUEUE,),
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._random = random
        self._make = make
        self._queues = queues
        self._chunks = count(1)
        self._under_way = 0
        self.acknowledged = 0
        """How many tasks are certainly in their queue, or were."""

    async def run(self, tasks: int) -> None:
        """Enqueue until this many have been acknowledged; cancelled, it leaves what was sent in the queue."""
        await asyncio.gather(*(self._send(tasks) for _ in range(_IN_FLIGHT)))

    async def _send(self, tasks: int) -> None:
        while (size := min(CHUNK, tasks - self.acknowledged - self._under_way)) > 0:
            self._under_way += size
            number = next(self._chunks)
            chunk = [self._make_task(f"t{number}-{place}") for place in range(size)]
            self._recorder.note_all(What.INTENDED, map(_id_of, chunk))
            send = self._send_alone if number % _LONE_EVERY == 0 else self._send_together
            errors = await send(chunk)
            self._under_way -= size
            if not self._take(chunk, errors):
                await asyncio.sleep(_PAUSE_SECONDS)

    def _make_task(self, task_id: str) -> Task:
        task = self._make(self._random, task_id)
        if len(self._queues) > 1:
            task.options["queue"] = self._random.choice(self._queues)
        return task

    async def _send_together(self, chunk: list[Task]) -> list[BaseException | None]:
        return [result.error for result in await self._client.enqueue_many(chunk, on_error="return")]

    async def _send_alone(self, chunk: list[Task]) -> list[BaseException | None]:
        answers = await asyncio.gather(*map(self._client.enqueue, chunk), return_exceptions=True)
        return [answer if isinstance(answer, BaseException) else None for answer in answers]

    def _take(self, chunk: Sequence[Task], errors: Sequence[BaseException | None]) -> int:
        """Record the outcome of a chunk; return how many tasks were acknowledged."""
        fates: dict[What, list[str]] = {}
        for task, error in zip(chunk, errors, strict=True):
            fates.setdefault(_fate(error), []).append(_id_of(task))
        for fate, ids in fates.items():
            self._recorder.note_all(fate, ids)
        acknowledged = len(fates.get(What.ACKNOWLEDGED, ()))
        self.acknowledged += acknowledged
        return acknowledged


def _id_of(task: Task) -> str:
    return str(task.options["task_id"])


def _fate(error: BaseException | None) -> What:
    if error is None:
        return What.ACKNOWLEDGED
    if isinstance(error, ReplyLostError | NotDurableError):
        return What.UNKNOWN
    if isinstance(error, PyasynqError):
        return What.REFUSED
    raise error
