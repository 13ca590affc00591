"""Right uses of the typed API: type checkers must find nothing here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from pyasynq import (
    App,
    Archive,
    BlockingEnqueuedTask,
    BlockingTaskHandle,
    Cancel,
    CoroutineTask,
    EnqueuedTask,
    EnqueueResult,
    EnqueueStatus,
    FinishedTask,
    GroupRule,
    OnDuplicate,
    PeriodicTaskConfig,
    PeriodicTaskManager,
    PlainTask,
    Retry,
    Scheduler,
    SchedulerConfig,
    ServerConfig,
    Snooze,
    Task,
    TaskHandle,
    TaskInfo,
    TypedCall,
    TypedTask,
    context,
    depends,
)
from pyasynq.info import CancelResult
from pyasynq.task import TaskState
from pyasynq.testing import Attempt, task_context, use


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


@app.task("render", executor="process", timeout=600)
def render(path: str) -> bytes:
    return path.encode()


async def render_it() -> None:
    assert_type(await (await render.enqueue("a.svg")).result(), bytes)


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


async def deduplicate() -> None:
    mode: OnDuplicate = "return_existing"
    handle = await tidy.options(unique=60, until="start", unique_key="tidy", on_duplicate=mode).enqueue()
    assert_type(handle, EnqueuedTask[int])
    assert_type(handle.enqueued.is_enqueued, bool)
    assert_type(handle.enqueued.enqueue_status, EnqueueStatus)


async def schedule_them() -> None:
    assert_type(tidy, CoroutineTask[[], int])
    assert_type(await tidy.enqueue(), EnqueuedTask[int])
    assert_type(tidy_all.enqueue_sync(older_than=1), BlockingEnqueuedTask[str])
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
    assert_type(handle, EnqueuedTask[str])
    assert_type(await handle.result(timeout=5), str)
    assert_type(await handle.wait(timedelta(seconds=5)), FinishedTask)
    assert_type(handle.enqueued, TaskInfo)
    assert_type(await handle.info(), TaskInfo)
    assert_type(await handle.state(), TaskState)
    assert_type(await handle.cancel("archive", wait=1), CancelResult)
    assert_type(handle.id, str)
    await deliver.enqueue(42, "welcome", address=Address("Main Street"))
    later = deliver.options(process_in=timedelta(hours=24), task_id="a")
    assert_type(await later.enqueue(user_id=42, template="x"), EnqueuedTask[str])
    await deliver.options(process_at=datetime.now(UTC), deadline=datetime.now(UTC)).enqueue(1, "x")
    assert_type(deliver.enqueue_sync(user_id=42, template="welcome"), BlockingEnqueuedTask[str])
    assert_type(await sweep.enqueue(), EnqueuedTask[None])
    assert_type(await resize.enqueue("a.png"), EnqueuedTask[bytes])
    assert_type(await count.enqueue(text="a"), EnqueuedTask[int])
    assert_type(await report.enqueue(datetime.now(UTC)), EnqueuedTask[list[str]])


async def read_results() -> None:
    assert_type(await (await report.enqueue(datetime.now(UTC))).result(), list[str])
    assert_type(await (await sweep.enqueue()).result(), None)
    assert_type(resize.enqueue_sync("a.png").result(), bytes)
    assert_type(deliver.handle("some-id", queue="low"), TaskHandle[str])
    assert_type(await count.handle("some-id").result(0), int)
    assert_type(count.handle_sync("some-id"), BlockingTaskHandle[int])
    assert_type(await app.handle("some-id", "low").result(), bytes | None)
    results = await count.enqueue_many([{"text": "a"}])
    many = [count.handle(one.task_id, queue=one.queue) for one in results if one and one.task_id]
    assert_type(many, list[TaskHandle[int]])
    handles: list[TaskHandle[str]] = [await deliver.enqueue(1, "x"), deliver.handle("a")]
    assert_type(await handles[0].wait(), FinishedTask)


@app.task("kept", result_ttl=60, max_retry=1)
async def kept() -> int:
    return 1


@app.task
async def poll(job: int) -> str | Snooze:
    return Snooze(timedelta(minutes=5)) if job else "ready"


@app.task("control")
def choose(number: int) -> list[int] | Retry | Archive | Cancel:
    if number == 1:
        raise Snooze(5)
    choices: list[list[int] | Retry | Archive | Cancel] = [
        [1],
        Retry(after=30, spend=False),
        Archive("no such user"),
        Cancel(),
    ]
    return choices[number]


@app.task()
async def only_waits() -> Snooze | None:
    return Snooze(0.5)


async def results_are_without_control() -> None:
    assert_type(await poll.enqueue(1), EnqueuedTask[str])
    assert_type(choose.enqueue_sync(1), BlockingEnqueuedTask[list[int]])
    assert_type(await only_waits.enqueue(), EnqueuedTask[None])
    context().progress(1, 2.5, "half")


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


def take_any_app(given: App) -> str:
    return given.address


def take_app_of_mapping(given: App[Mapping[str, int]]) -> int:
    return given.state["size"]


def read_state() -> None:
    assert_type(app, App[dict[str, int]])
    assert_type(app.state, dict[str, int])
    assert_type(from_environment.state, Any)
    take_any_app(app)
    take_any_app(from_environment)
    take_app_of_mapping(app)
    take_app_of_mapping(from_environment)


class Shop:
    app: App = App("redis://localhost")
    typed: App[int]


async def open_and_close() -> None:
    async with app as opened:
        assert_type(opened, App[dict[str, int]])
        await opened.ping()


async def connect() -> AsyncIterator[Address]:
    yield Address("a")


@asynccontextmanager
async def begin(connection: Address = depends(connect, per="worker")) -> AsyncGenerator[int, None]:
    assert_type(connection, Address)
    yield 1


async def load_name() -> str:
    return "a"


def open_address() -> AbstractContextManager[Address]:
    return nullcontext(Address("a"))


async def load_closing() -> nullcontext[Address]:
    return nullcontext(Address("a"))


assert_type(depends(open_address), Address)
assert_type(depends(lambda: nullcontext(1)), int)
assert_type(depends(load_closing), nullcontext[Address])


@app.task("depending")
async def depending(
    user_id: int,
    transaction: int = depends(begin),
    name: str = depends(load_name),
    size: int = depends(lambda: 1),
) -> None: ...


async def depend_on_them() -> None:
    await depending.with_headers({"a": "b"}).with_options(queue="low").enqueue(user_id=1)
    await depending(user_id=1, transaction=2)


@app.aggregator
async def make_report(group: str, tasks: list[Task]) -> Task | None:
    return deliver.task(user_id=len(tasks), template=group) if tasks else None


@app.aggregator("user:*", grace_period=timedelta(seconds=30), max_size=10)
def make_digest(group: str, tasks: Sequence[Task]) -> Task:
    return Task("digest", group.encode())


def read_template(user_id: int, template: str, *, address: Address | None = None) -> str:
    return template


@deliver.aggregator("mail:*", grace_period=5)
async def make_one(group: str, calls: Sequence[TypedCall[..., str]]) -> Task | None:
    templates = [call.apply(read_template) for call in calls]
    assert_type(calls[0].arguments, dict[str, Any])
    return deliver.task(len(templates), "x") if templates else None


@count.aggregator()
def make_count(group: str, calls: Sequence[TypedCall[[str], int]]) -> Task:
    return count.task("".join(call.apply(str.upper) for call in calls))


@count.use
async def check_text(
    call: TypedCall[[str], int], call_next: Callable[[Task], Awaitable[bytes | str | None]]
) -> bytes | str | None:
    assert_type(call.with_headers(a="b"), TypedCall[[str], int])
    return await call_next(call)


async def enqueue_typed_calls() -> None:
    await count.enqueue_many(count.task(text) for text in "ab")
    await count.enqueue_many([{"text": "a"}, count.task("b")])
    count.enqueue_many_sync([count.options(queue="low").task(text="a")])
    assert_type(count.read_call(Task("count", b"")).apply(lambda text: text), str)


async def group_them() -> None:
    await deliver.options(group="user:1").enqueue(user_id=1, template="x")
    assert_type(await make_report("user:1", []), Task | None)
    assert_type(make_digest("user:1", []), Task)
    ServerConfig(group_aggregator=make_digest, groups={"user:*": GroupRule(max_delay=60)})


async def test_them() -> None:
    with use(app, start=datetime(2040, 1, 1, tzinfo=UTC), patience=timedelta(seconds=5)) as kit:
        assert_type((await kit.perform(deliver, user_id=1, template="x")).result, str | None)
        assert_type(kit.perform_sync(resize, "a.png").result, bytes | None)
        kit.assert_enqueued(deliver, user_id=1, queue="critical", process_in=timedelta(hours=1))
        kit.advance_sync(days=3, raises=False)
        kit.add_scheduler(Scheduler(kit.url, clock=kit.clock))
        with task_context(state="pool") as recorded:
            assert_type(await deliver(user_id=1, template="x"), str)
        assert_type(recorded.result, bytes | None)
    async with use(app) as kit:
        assert_type((await kit.drain())[0], Attempt[Any])
