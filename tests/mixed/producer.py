"""A producer of either version: enqueues tasks of all kinds until it is told to end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from itertools import count
from pathlib import Path
from typing import Any, Final

from pyasynq import Client, Task
from pyasynq.errors import PyasynqError, ReplyLostError
from tests.chaos.records import Recorder, What
from tests.mixed.settings import GROUPED_QUEUE, LIMITED_QUEUE, QUEUE, RECORDS_VARIABLE, leave_mark

_AT_ONCE: Final = 20
_PAUSE_SECONDS: Final = 0.05
_LONGEST_MILLISECONDS: Final = 40
_GROUPS: Final = 3
_KINDS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("work", {}),
    ("work", {"unique": 3_600}),
    ("work", {"process_in": 1.0}),
    ("work", {"retention": 3_600}),
    ("thread", {}),
    ("retry", {}),
    ("limited", {"queue": LIMITED_QUEUE}),
    ("member", {"queue": GROUPED_QUEUE}),
)


def make_task(number: int) -> Task:
    """Return a task of a random kind, whose id begins with its type."""
    task_type, options = random.choice(_KINDS)
    task_id = f"{task_type}-{os.getpid()}-{number}"
    arguments: dict[str, Any] = {"milliseconds": random.randrange(_LONGEST_MILLISECONDS)}
    options = {"queue": QUEUE, **options}
    if "unique" in options:
        options["unique_key"] = task_id
    if task_type == "retry":
        arguments = {}
    elif task_type == "member":
        arguments = {"id": task_id}
        options["group"] = f"group-{random.randrange(_GROUPS)}"
    return Task(task_type, json.dumps(arguments).encode(), task_id=task_id, **options)


async def produce(url: str, recorder: Recorder, stop: asyncio.Event) -> None:
    """Enqueue some tasks at once, again and again, and note the fate of each."""
    numbers = count(1)
    async with Client(url) as client:
        while not stop.is_set():
            tasks = [make_task(next(numbers)) for _ in range(_AT_ONCE)]
            recorder.note_all(What.INTENDED, map(_id_of, tasks))
            await asyncio.gather(*(_enqueue(client, recorder, task) for task in tasks))
            await asyncio.sleep(_PAUSE_SECONDS)


async def _enqueue(client: Client, recorder: Recorder, task: Task) -> None:
    try:
        await client.enqueue(task)
    except ReplyLostError:
        recorder.note(What.UNKNOWN, _id_of(task))
    except PyasynqError:
        recorder.note(What.REFUSED, _id_of(task))
    else:
        recorder.note(What.ACKNOWLEDGED, _id_of(task))


def _id_of(task: Task) -> str:
    return str(task.options["task_id"])


async def main() -> None:
    """Produce until SIGTERM."""
    folder = Path(os.environ[RECORDS_VARIABLE])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    leave_mark(folder)
    await produce(os.environ["PYASYNQ_REDIS_URL"], Recorder(folder), stop)


if __name__ == "__main__":
    asyncio.run(main())
