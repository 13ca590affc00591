"""Right uses of the typed API: type checkers must find nothing here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_type

from pyasynq import (
    App,
    CoroutineTask,
    EnqueueResult,
    GroupRule,
    PeriodicTaskConfig,
    PeriodicTaskManager,
    PlainTask,
    Scheduler,
    SchedulerConfig,
    ServerConfig,
    Task,
    TaskHandle,
    TaskInfo,
    TypedTask,
    context,
)


@dataclass
class Address:
    street: str


@asynccontextmanager
async def open_pool(app: App) -> AsyncGenerator[dict[str, int], None]:
    yield {"size": 10}


app = App("redis://localhost:6379/0", lifespan=open_pool, modules=["shop.tasks"])
from_environment = App()


@app.task("email:deliver", queue="critical", max_retry=5, timeout=30)
async def deliver(user_id: int, template: str, *, address: Address | None = None) -> str:
    context().log.info("delivering")
    return template


@app.task
async def sweep() -> None: ...


@app.task()
def resize(path: str, width: int = 100) -> bytes:
    return path.encode()


@app.task
def count(text: str) -> int:
    return len(text)


def no_failure(error: BaseException) -> bool:
    return not isinstance(error, TimeoutError)


def delay(retried: int, error: BaseException, task: Task) -> timedelta:
    return timedelta(seconds=retried)


@app.task(
    name="report",
    retry_delay=delay,
    is_failure=no_failure,
    crash_limit=5,
    queue="low",
    unique=timedelta(hours=1),
    retention=3600,
    headers={"tenant": "a"},
)
async def report(day: datetime) -> list[str]:
    return [day.isoformat()]


@app.cron("*/5 * * * *", misfire="once", queue="low")
@app.task("tidy")
async def tidy() -> int:
    return 1


@app.cron("@daily")
def tidy_all(older_than: int = 30) -> str:
    return str(older_than)


app.schedule("0 9 * * *", report.task(datetime.now(UTC)), misfire="all", max_retry=1)


async def tenants() -> list[PeriodicTaskConfig]:
    return [PeriodicTaskConfig("@hourly", Task("report"), {"queue": "low"}, misfire="all")]


async def schedule_them() -> None:
    assert_type(tidy, CoroutineTask[[], int])
    assert_type(await tidy.enqueue(), TaskHandle[int])
    assert_type(tidy_all.enqueue_sync(older_than=1), TaskHandle[str])
    scheduler = Scheduler("redis://localhost", SchedulerConfig(location="Europe/Berlin"))
    assert_type(scheduler.register("@daily", "t", b"{}", misfire="all", max_retry=1), str)
    async with scheduler, PeriodicTaskManager("redis://localhost", tenants):
        pass


@app.use
async def log_calls(
    task: Task,
    call_next: Callable[[Task], Awaitable[bytes | str | None]],
) -> bytes | str | None:
    return await call_next(task)


@app.use_client
async def add_tenant(task: Task, call_next: Callable[[Task], Awaitable[TaskInfo]]) -> TaskInfo:
    return await call_next(task)


async def enqueue_them() -> None:
    handle = await deliver.enqueue(user_id=42, template="welcome")
    assert_type(handle, TaskHandle[str])
    assert_type(handle.info, TaskInfo)
    assert_type(handle.id, str)
    await deliver.enqueue(42, "welcome", address=Address("Main Street"))
    later = deliver.options(process_in=timedelta(hours=24), task_id="a")
    assert_type(await later.enqueue(user_id=42, template="x"), TaskHandle[str])
    await deliver.options(process_at=datetime.now(UTC), deadline=datetime.now(UTC)).enqueue(1, "x")
    assert_type(deliver.enqueue_sync(user_id=42, template="welcome"), TaskHandle[str])
    assert_type(await sweep.enqueue(), TaskHandle[None])
    assert_type(await resize.enqueue("a.png"), TaskHandle[bytes])
    assert_type(await count.enqueue(text="a"), TaskHandle[int])
    assert_type(await report.enqueue(datetime.now(UTC)), TaskHandle[list[str]])


async def enqueue_many_of_them() -> None:
    tasks = (deliver.task(user_id=i, template="x") for i in range(3))
    assert_type(await app.enqueue_many(tasks), list[EnqueueResult])
    await app.enqueue_many([deliver.task(1, "x"), resize.task("a.png"), Task("go:task", b"{}")], queue="low")
    assert_type(await deliver.enqueue_many([{"user_id": 1, "template": "x"}]), list[EnqueueResult])
    deliver.enqueue_many_sync({"user_id": i, "template": "x"} for i in range(3))
    await app.enqueue("go:task", b"{}", queue="go", max_retry=1)
    app.enqueue_sync(Task("go:task", b"{}", timeout=5), retention=timedelta(days=1))


async def call_them() -> None:
    assert_type(await deliver(user_id=1, template="x"), str)
    assert_type(resize("a.png", width=5), bytes)
    assert_type(count("a"), int)


def take_any(task: TypedTask[[str], int]) -> PlainTask[[str], int] | None:
    return task if isinstance(task, PlainTask) else None


def takes_a_coroutine_task(task: CoroutineTask[[], None]) -> None: ...


take_any(count)
takes_a_coroutine_task(sweep)


async def open_and_close() -> None:
    async with app as opened:
        assert_type(opened, App)
        await opened.ping()


@app.aggregator
async def make_report(group: str, tasks: list[Task]) -> Task | None:
    return deliver.task(user_id=len(tasks), template=group) if tasks else None


@app.aggregator("user:*", grace_period=timedelta(seconds=30), max_size=10)
def make_digest(group: str, tasks: Sequence[Task]) -> Task:
    return Task("digest", group.encode())


async def group_them() -> None:
    await deliver.options(group="user:1").enqueue(user_id=1, template="x")
    assert_type(await make_report("user:1", []), Task | None)
    assert_type(make_digest("user:1", []), Task)
    ServerConfig(group_aggregator=make_digest, groups={"user:*": GroupRule(max_delay=60)})
