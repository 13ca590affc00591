"""Data sets whose features are dumped by a worker next to the web application.

Store the task types, and serve:

    pyasynq service ../service/service.toml
    PYASYNQ_REDIS_URL=redis://localhost:6379/0 uvicorn service_fastapi.application:app
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pyasynq.sdk import TaskReq, enqueue, start_worker, task_run
from service_fastapi import datasets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from pyasynq import Task, TaskContext
    from pyasynq.sdk import EndReport

    CallNext = Callable[[Task], Awaitable[bytes | str | None]]

logging.basicConfig(level=logging.INFO)
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
        datasets.begin(json.loads(task.payload or b"")["id"])
    return await call_next(task)


def finish_dataset(end: EndReport) -> None:
    """Note how the task of a data set has ended, by itself or by an operator."""
    if end.task_name == "dumpfeature":
        datasets.end(int(end.task_id), end.outcome, end.error)


TASK_CONF = {"dumpfeature": dump_feature, "resize": resize}
MIDDLEWARES = [init_logger, update_dataset_status, task_run]


def find_road() -> dict[str, Any]:
    """Return where tasks are taken: from the task service over HTTP, or from Redis."""
    if service := os.environ.get("TASK_SERVICE"):
        return {"service": service, "key": os.environ.get("TASK_SERVICE_KEY", "")}
    return {"redis": os.environ.get("PYASYNQ_REDIS_URL", "redis://localhost:6379/0")}


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None, None]:
    """Run the worker for as long as the application is served."""
    async with await start_worker(
        TASK_CONF,
        middlewares=MIDDLEWARES,
        **find_road(),
        team="starmap",
        concurrency=int(os.environ.get("WORKER_CONCURRENCY", "100")),
        overdue_limit=float(os.environ.get("WORKER_OVERDUE_LIMIT", "600")),
        on_finished=finish_dataset,
    ):
        yield


app = FastAPI(lifespan=lifespan)


class NewDataset(BaseModel):
    """A data set to add."""

    path: str


@app.post("/datasets", status_code=201)
async def add_dataset(new: NewDataset) -> dict[str, Any]:
    """Add a data set, and have its features dumped."""
    dataset = datasets.add(new.path)
    task = TaskReq(task_id=dataset, task_name="dumpfeature", params={"path": new.path, "id": dataset})
    return {"id": dataset, "existing": (await enqueue(task)).existing}


@app.get("/datasets/{dataset}")
async def get_dataset(dataset: int) -> dict[str, Any]:
    """Answer with a data set."""
    found = datasets.read(dataset)
    if found is None:
        raise HTTPException(404)
    return found


@app.post("/pictures", status_code=202)
async def add_picture(new: NewDataset) -> dict[str, Any]:
    """Have a picture resized."""
    return {"id": (await enqueue(TaskReq(task_name="resize", params={"path": new.path}))).id}
