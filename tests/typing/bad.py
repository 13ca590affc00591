"""Wrong uses of the typed API: type checkers must find an error on each marked line, and on no other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pyasynq
from pyasynq import App, Archive, Retry, Snooze, Task, TypedCall, context
from pyasynq.testing import use

app = App("redis://localhost:6379/0")


@app.task("email:deliver", queue="critical")
async def deliver(user_id: int, template: str) -> str:
    return template


@app.task
def resize(path: str, width: int = 100) -> bytes:
    return path.encode()


@app.task("a", que="critical")  # E: misspelt option
async def misspelt_option() -> None: ...


@app.task("b", max_retry="5")  # E: option of the wrong type
async def wrong_option() -> None: ...


@app.task(7)  # E: a name is text
async def wrong_name() -> None: ...


@app.task("c", is_failure=3)  # E: no function
async def wrong_rule() -> None: ...


async def wrong_arguments() -> None:
    await deliver.enqueue(user_id="42", template="welcome")  # E: text for a whole number
    await deliver.enqueue(user_id=42)  # E: missing argument
    await deliver.enqueue(user_id=42, tmplate="welcome")  # E: unknown argument
    await deliver.enqueue(42, "welcome", "more")  # E: surplus argument
    deliver.enqueue_sync(user_id=None, template="welcome")  # E: None for a whole number
    deliver.task(user_id=42, template=b"welcome")  # E: bytes for text
    await deliver(user_id=42, template=1)  # E: direct call with a wrong argument
    resize(1)  # E: direct call with a wrong argument
    await resize.enqueue("a.png", width="5")  # E: text for a whole number
    await deliver.enqueue_many([1, 2])  # E: no mappings
    await deliver.enqueue_many([{1: 2}])  # E: no argument names


@app.cron(5)  # E: an expression is text
@app.task("d")
async def wrong_expression() -> None: ...


@app.cron("@daily", misfire="never")  # E: there is no such policy
@app.task("e")
async def wrong_policy() -> None: ...


def wrong_schedules() -> None:
    app.schedule("@daily", deliver)  # E: a handler for a task
    app.schedule("@daily", Task("t"), retentoin=5)  # E: misspelt option
    app.scheduler().register("@daily", "t", b"", max_retry="5")  # E: option of the wrong type


async def wrong_options() -> None:
    await deliver.options(proces_in=5).enqueue(user_id=1, template="x")  # E: misspelt option
    await deliver.options(process_in="5").enqueue(user_id=1, template="x")  # E: text for a duration
    await deliver.options(process_at=timedelta(1)).enqueue(user_id=1, template="x")  # E: duration for a time
    await deliver.options(queue=None).enqueue(user_id=1, template="x")  # E: None for a name
    await deliver.enqueue(user_id=1, template="x", process_in=5)  # E: option among the arguments
    await app.enqueue("t", b"", retentoin=5)  # E: misspelt option
    await app.enqueue("t", "text")  # E: text for bytes
    await app.enqueue_many([Task("t")], headers={"a": 1})  # E: header that is not a text
    Task("t", b"", unique="1h")  # E: text for a duration
    Task("t", b"", unique=60, until="done")  # E: no such moment
    await deliver.options(unique=60, on_duplicate="skip").enqueue(1, "x")  # E: no such rule
    app.enqueue_many_sync([deliver])  # E: a typed task without its arguments


async def wrong_results() -> None:
    number: int = await deliver(user_id=1, template="x")  # E: returns text
    width: str = resize("a.png")  # E: returns bytes
    print(number, width, deliver.enqueue_sync(1, "x").result_of_nothing)  # E: no such attribute
    handle = await deliver.enqueue(1, "x")
    print(await handle.result() + 1)  # E: the handler returns text
    count: int = await deliver.handle("a").result()  # E: as above
    blocking: bytes = deliver.enqueue_sync(1, "x").result()  # E: as above
    await handle.result("5")  # E: text for a duration
    print(count, blocking, deliver.handle(1))  # E: an id is text


@app.task("e", executor="thread")  # E: no such executor
async def wrong_executor() -> None: ...


@app.task("f", result_ttl="1h")  # E: text for a duration
async def wrong_result_ttl() -> None: ...


def wrong_control() -> None:
    Snooze("5m")  # E: text for a duration
    Retry(30, False)  # E: spend is named
    Archive()  # E: a reason is asked for
    context().progress("half")  # E: text for a number


async def wrong_tests() -> None:
    with use(app) as kit:
        await kit.perform(deliver, user=1, template="x")  # E: no such argument
        kit.perform_sync(resize, 1)  # E: a number for text
        kit.advance_sync("3 days")  # E: text for a timedelta


@asynccontextmanager
async def open_pool(app: App) -> AsyncGenerator[dict[str, int], None]:
    yield {"size": 10}


stateful = App(lifespan=open_pool)
size: str = stateful.state["size"]  # E: the pool has numbers
stateful.state.close()  # E: a mapping has no such method
other: App[list[int]] = stateful  # E: an app with another state
App(lifespan=deliver)  # E: no context manager
App(123)  # E: a URL is text


@app.aggregator  # E: returns no task
async def makes_bytes(group: str, tasks: list[Task]) -> bytes:
    return group.encode()


@resize.aggregator("g")  # E: calls of another type
def takes_others(group: str, calls: list[TypedCall[[int, str], str]]) -> None: ...


@resize.aggregator("g", max_delay="1h")  # E: text for a duration
def too_late(group: str, calls: list[TypedCall[..., bytes]]) -> None: ...


async def wrong_calls() -> None:
    await deliver.enqueue_many([resize.task("a")])  # E: a call of another task
    await deliver.enqueue_many(deliver.task(number, 1) for number in range(3))  # E: a number for text
    deliver.task(1, "x").apply(lambda user_id: user_id)  # E: a function of one argument
    count: int = deliver.task(1, "x").apply(lambda user_id, template: template)  # E: returns text
    print(count)


@app.aggregator("g", max_size="10")  # E: text for a number
def makes_nothing(group: str, tasks: list[Task]) -> None: ...


pyasynq.Queue(concurrency=3)  # E: misspelt argument
pyasynq.Queue(max_run="3")  # E: text for a number
pyasynq.WorkerConfig(proceses=2)  # E: misspelt argument
pyasynq.ServerConfig(concurrency="3")  # E: text for a number
App(lifespam=None)  # E: misspelt argument
App(timeout="5")  # E: text for a duration
app.on_error()  # E: a hook is missing

print(pyasynq.Cilent)  # E: there is no such name, though names are imported when they are first used
