"""The app of the workers and schedulers of both versions; it uses only names that both have.

The environment says where records go. Each process leaves a mark there that names its version.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyasynq import App, Retry, Task, context
from tests.chaos.records import Recorder, What
from tests.mixed.settings import GROUPED_QUEUE, LIMITED_QUEUE, QUEUE, RECORDS_VARIABLE, leave_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEVER_POISON: Final = 1_000
"""A kill is not the fault of the tasks that it meets, so three kills must not archive one."""
_RETRY_SECONDS: Final = 0.5

_folder = Path(os.environ[RECORDS_VARIABLE])
_recorder = Recorder(_folder)
leave_mark(_folder)
app = App()


async def _perform(milliseconds: int) -> None:
    """Note the start and the end of this task, and wait in between."""
    task_id = context().task_id
    _recorder.note(What.STARTED, task_id)
    await asyncio.sleep(milliseconds / 1000)
    _recorder.note(What.FINISHED, task_id)


@app.task("work", queue=QUEUE, crash_limit=_NEVER_POISON)
async def work(milliseconds: int = 0) -> None:
    """Wait as for a slow service."""
    await _perform(milliseconds)


@app.task("limited", queue=LIMITED_QUEUE, crash_limit=_NEVER_POISON)
async def work_limited(milliseconds: int = 0) -> None:
    """Do the same in the queue that has a limit."""
    await _perform(milliseconds)


@app.task("thread", queue=QUEUE, crash_limit=_NEVER_POISON)
def work_in_thread(milliseconds: int = 0) -> None:
    """Do the same without asyncio."""
    task_id = context().task_id
    _recorder.note(What.STARTED, task_id)
    time.sleep(milliseconds / 1000)
    _recorder.note(What.FINISHED, task_id)


@app.task("retry", queue=QUEUE, crash_limit=_NEVER_POISON)
async def fail_once() -> None:
    """Fail at the first attempt."""
    if context().retried:
        await _perform(0)
        return
    _recorder.note(What.STARTED, context().task_id)
    _recorder.note(What.FAILED, context().task_id)
    raise Retry(after=_RETRY_SECONDS)


@app.task("collect", queue=GROUPED_QUEUE, crash_limit=_NEVER_POISON)
async def collect(ids: list[str]) -> None:
    """Note that the members of a group were worked on."""
    _recorder.note_all(What.STARTED, ids)
    _recorder.note_all(What.FINISHED, ids)


@app.aggregator(grace_period=1, max_delay=2, max_size=50)
def aggregate(group: str, tasks: Sequence[Task]) -> Task:
    """Make one task of the tasks of a group, which name themselves in their payloads."""
    del group
    return collect.task(ids=[json.loads(task.payload or b"{}")["id"] for task in tasks])


app.schedule("@every 1s", work.task(), misfire="all")
