"""The article's table of handlers, and its middlewares."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import close_old_connections

from pyasynq.sdk import task_run
from service_django.models import Dataset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq import Task, TaskContext
    from pyasynq.sdk import EndReport

    CallNext = Callable[[Task], Awaitable[bytes | str | None]]

log = logging.getLogger("datasets")


async def dump_feature(context: TaskContext, task: Task) -> str:
    """Dump the features of a data set: count the bytes of its file."""
    params = json.loads(task.payload or b"")
    content = await asyncio.to_thread(Path(params["path"]).read_bytes)
    context.log.info("data set %s has %d bytes", params["id"], len(content))
    return json.dumps({"bytes": len(content)})


def resize(path: str) -> int:
    """Resize a picture; a plain function runs in a thread, and this one takes the fields of its params."""
    return len(Path(path).read_bytes())


async def init_logger(task: Task, call_next: CallNext) -> bytes | str | None:
    """Let all lines of the task's log follow one that names it."""
    log.info("task of type %s", task.type)
    return await call_next(task)


async def update_dataset_status(task: Task, call_next: CallNext) -> bytes | str | None:
    """Note that the data set is being worked on; `finish_dataset` notes the end."""
    if task.type == "dumpfeature":
        dataset = json.loads(task.payload or b"")["id"]
        await Dataset.objects.filter(id=dataset).aupdate(state="running")
    return await call_next(task)


def finish_dataset(end: EndReport) -> None:
    """Note how the task of a data set has ended, by itself or by an operator. It may be noted twice."""
    if end.task_name != "dumpfeature":
        return
    close_old_connections()
    try:
        Dataset.objects.filter(id=int(end.task_id)).update(state=end.outcome, error=end.error)
    finally:
        close_old_connections()


TASK_CONF = {"dumpfeature": dump_feature, "resize": resize}
MIDDLEWARES = [init_logger, update_dataset_status, task_run]
