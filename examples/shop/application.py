"""The app: its worker, queues, hooks and middleware. `pyasynq worker shop:app` needs no flags."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pyasynq import (
    App,
    AttemptEnd,
    Queue,
    SchedulerConfig,
    Task,
    TaskInfo,
    WorkerConfig,
    context,
    is_control,
)
from shop.models import Catalogue, Money

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Handler = Callable[[Task], Awaitable[bytes | str | None]]

_log = logging.getLogger("shop")
customer: ContextVar[str] = ContextVar("customer", default="none")
"""The customer of the request or of the running task."""
done: Counter[str] = Counter()
"""Number of successes in this process, by type of task."""


@asynccontextmanager
async def open_shop(_app: App) -> AsyncGenerator[Catalogue, None]:
    """Read the catalogue once in each worker process; handlers find it as `app.state`."""
    yield Catalogue({"book": "a book", "pen": "a pen"})


app = App(
    lifespan=open_shop,
    worker=WorkerConfig(concurrency=20, shutdown_timeout=20, statistics=True, with_scheduler=True),
    queues={"critical": 5, "default": 2, "payments": Queue(max_run=4, rate=50)},
    scheduler_config=SchedulerConfig(location="Europe/Berlin"),
    version="2026.11.1",
)
app.type_codec(Money, encode=str, decode=Money.parse, schema={"type": "string", "pattern": r"^\d+\.\d\d$"})

if os.environ.get("SENTRY_DSN"):
    import sentry_sdk

    from pyasynq.contrib.sentry import instrument

    sentry_sdk.init(dsn=os.environ["SENTRY_DSN"])
    instrument(app, check_ins=True)


@app.on_worker_start
async def say_hello() -> None:
    """Tell that this process begins to work."""
    _log.info("the shop is open")


@app.on_worker_stop
def say_goodbye() -> None:
    """Tell what this process has done."""
    _log.info("the shop is closed: %s", dict(done))


@app.on_success
async def count(end: AttemptEnd) -> None:
    """Count what is done."""
    done[end.task_type] += 1


@app.on_error
def report_failure(end: AttemptEnd) -> None:
    """Tell developers about each failed attempt, and whether it was cancelled."""
    _log.warning("%s failed: %s (%s)", end.task_type, end.error, end.reason or "not cancelled")


@app.on_retry
def tell_when(end: AttemptEnd) -> None:
    """Tell when a task is tried again."""
    _log.info("task %s is tried again in %.0f s", end.task_id, end.delay or 0)


@app.on_archived
def report_loss(end: AttemptEnd) -> None:
    """Tell people about a task that was given up."""
    _log.error("task %s in queue %s needs somebody: %s", end.task_id, end.queue, end.error)


@app.use_client
async def send_customer(task: Task, call_next: Callable[[Task], Awaitable[TaskInfo]]) -> TaskInfo:
    """Put the customer of the request into a header of each task."""
    return await call_next(task.with_headers(customer=customer.get()))


@app.use
async def restore_customer(task: Task, call_next: Handler) -> bytes | str | None:
    """Restore the customer, and log what fails with it."""
    token = customer.set(task.headers.get("customer", "none"))
    try:
        return await call_next(task)
    except Exception as error:
        if not is_control(error):
            _log.warning("task of customer %s failed", customer.get())
        raise
    finally:
        customer.reset(token)


async def log_duration(task: Task, call_next: Handler) -> bytes | str | None:
    """Log how long a handler takes: middleware for the tasks that name it."""
    began = time.monotonic()
    try:
        return await call_next(task)
    finally:
        context().log.info("%s took %.1f s", task.type, time.monotonic() - began)
