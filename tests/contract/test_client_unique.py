"""What producers see of uniqueness: clients of both kinds, middleware, typed tasks and schedulers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, Client, EnqueueStatus, OnDuplicate, Task
from pyasynq.errors import DuplicateTaskError, InvalidOptionError, TaskIDConflictError
from pyasynq.task import TaskState
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.task import TaskInfo
    from tests.factories import Tasks
    from tests.fix_drivers import ClientFace
    from tests.invariants import RedisClient

    MakeClient = Callable[..., ClientFace]

WORDS: dict[OnDuplicate, str] = {
    "ignore": "ignored",
    "return_existing": "existing",
    "replace_payload": "replaced",
}


def facts(info: TaskInfo) -> tuple[str, str, bytes, bool]:
    """Return what tells one answer from another."""
    return info.enqueue_status.value, info.id, info.payload, info.is_enqueued


def pass_on(client: ClientFace) -> None:
    """Let tasks go through middleware."""

    def blocking(task: Task, call_next: Any) -> Any:
        return call_next(task)

    async def waiting(task: Task, call_next: Any) -> Any:
        return await call_next(task)

    client.client.use(waiting if isinstance(client.client, Client) else blocking)  # type: ignore[arg-type]


@pytest.mark.parametrize("middleware", [False, True])
def test_an_answer_tells_whether_the_task_was_enqueued(
    make_client: MakeClient, redis_url: str, middleware: bool
) -> None:
    """The same for `enqueue` and `enqueue_many`, with middleware and without."""
    client = make_client(redis_url)
    if middleware:
        pass_on(client)
    options: dict[str, Any] = {"unique": 60, "unique_key": "k"}
    assert ("enqueued", "a", b"1", True) == facts(client.enqueue("t", b"1", task_id="a", **options))
    expected: dict[OnDuplicate, tuple[str, bytes]] = {
        "ignore": ("b", b"2"),
        "return_existing": ("a", b"1"),
        "replace_payload": ("a", b"2"),
    }
    for rule, (task_id, payload) in expected.items():
        info = client.enqueue("t", b"2", task_id="b", on_duplicate=rule, **options)
        assert (WORDS[rule], task_id, payload, False) == facts(info)
    tasks = [Task("t", b"3", task_id="c", on_duplicate=rule, **options) for rule in WORDS]
    results = client.enqueue_many([*tasks, Task("t", b"3", **options)])
    assert [*WORDS.values(), "duplicate"] == [result.status for result in results]
    assert ["c", "a", "a"] == [result.task_id for result in results[:3]]
    assert [None, b"2", b"3"] == [result.holder and result.holder.payload for result in results[:3]]
    assert [None, None, None] == [result.error for result in results[:3]]
    assert [False, False, True, False] == list(map(bool, results))


def test_a_duplicate_whose_task_is_gone_cannot_be_returned(
    make_client: MakeClient, redis_url: str, redis_client: RedisClient
) -> None:
    """The error says so; `ignore` asks for nothing."""
    client = make_client(redis_url)
    options: dict[str, Any] = {"unique": 60, "unique_key": "k", "until": "expiry"}
    redis_client.set("asynq:{default}:x:unique:k", "a", ex=60)
    with pytest.raises(
        DuplicateTaskError,
        match="task 'a' in queue 'default' holds its lock; it cannot be returned, since it is gone",
    ):
        client.enqueue("t", on_duplicate="return_existing", **options)
    assert "ignored" == client.enqueue("t", on_duplicate="ignore", **options).enqueue_status


def test_h10_a_finished_task_is_replaced(make_client: MakeClient, redis_url: str, tasks: Tasks) -> None:
    """One that waits is not."""
    client = make_client(redis_url)
    tasks.put(TaskState.ARCHIVED, "a")
    with pytest.raises(TaskIDConflictError):
        client.enqueue("t", task_id="a")
    assert client.enqueue("t", task_id="a", on_conflict="replace_finished").is_enqueued
    with pytest.raises(TaskIDConflictError):
        client.enqueue("t", task_id="a", on_conflict="replace_finished")


@pytest.mark.parametrize(
    "options",
    [
        {"until": "start"},
        {"unique_key": "k"},
        {"on_duplicate": "ignore"},
        {"on_conflict": "replace_finished"},
        {"unique": 60, "until": "expiry", "on_duplicate": "replace_payload"},
    ],
    ids="-".join,
)
def test_what_means_nothing_together_is_refused_before_anything_is_sent(
    make_client: MakeClient, redis_url: str, redis_client: RedisClient, options: dict[str, Any]
) -> None:
    """Every way to enqueue refuses the combination, and the error names the remedy."""
    client, name = make_client(redis_url), list(options)[-1]
    with pytest.raises(InvalidOptionError) as refused:
        client.enqueue("t", **options)
    assert name == refused.value.option
    assert any(word in str(refused.value) for word in ("needs unique=", "needs task_id=", 'until="start"'))
    [result] = client.enqueue_many([Task("t")], on_error="return", **options)
    assert isinstance(result.error, InvalidOptionError)
    app = App(redis_url)
    with pytest.raises(InvalidOptionError):
        app.schedule("@daily", Task("t", **options))
    assert [] == redis_client.keys("*")


def test_options_of_a_typed_task_may_come_in_layers() -> None:
    """Only the whole of them can be wrong together."""
    app = App("redis://localhost:1")

    @app.task("t", unique=60)
    async def handler(number: int) -> None: ...

    late = handler.options(until="start").options(on_duplicate="ignore")
    assert {"unique": 60, "until": "start", "on_duplicate": "ignore"} == late.declared_options


@run_async
async def test_a_typed_task_that_was_there_is_the_handle(redis_url: str, tasks: Tasks) -> None:
    """The handle is that of the existing task, so a caller can wait for its result."""
    async with App(redis_url) as app:

        @app.task("t", unique=timedelta(minutes=1), on_duplicate="return_existing")
        async def handler(number: int) -> None: ...

        first = await handler.enqueue(1)
        again = await handler.enqueue(1)
        assert (first.id, EnqueueStatus.EXISTING) == (again.id, again.enqueued.enqueue_status)
        assert (await handler.enqueue(2)).enqueued.is_enqueued
        with pytest.raises(DuplicateTaskError):
            await handler.options(on_duplicate="raise").enqueue(1)
    assert 2 == len(tasks.ids("pending"))


@run_async
async def test_calls_that_travel_together_obey_their_own_rules(redis_url: str, tasks: Tasks) -> None:
    """One wins; each of the others gets the answer that it asked for."""
    async with Client(redis_url) as client:
        options: dict[str, Any] = {"unique": 60, "unique_key": "k"}
        rules: list[OnDuplicate] = ["ignore", "return_existing", "ignore", "replace_payload"]
        calls = [
            client.enqueue("t", b"%d" % number, on_duplicate=rule, **options)
            for number, rule in enumerate(rules)
        ]
        infos = await asyncio.gather(*calls)
    assert ["enqueued", "existing", "ignored", "replaced"] == [info.enqueue_status for info in infos]
    assert [infos[0].id] == tasks.ids("pending")
