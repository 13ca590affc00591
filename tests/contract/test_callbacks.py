"""Completion callbacks of an app: every end of a task is told at least once, whichever process dies."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    App,
    Archive,
    Callback,
    Cancel,
    Client,
    ConfigurationError,
    DuplicateTaskError,
    Inspector,
    InvalidOptionError,
    Retry,
    ServerConfig,
    Snooze,
    Task,
    TaskNotFoundError,
    UnknownOptionError,
)
from pyasynq._broker.outbox import StoredEnding, deliver_endings
from pyasynq._broker.settle import settle_done
from pyasynq._engine.services import outbox_relay
from pyasynq._wire.endings import encode_callback
from pyasynq._wire.keys import queue_keys
from tests.contract.settling import DoneTask
from tests.contract.test_server_recovery import AT_ONCE
from tests.factories import NOW, Tasks, claim
from tests.fix_engine import serving
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from pyasynq.testing import Kit
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

CONFIG = ServerConfig(queues={"default": 1, "reports": 1}, concurrency=10, shutdown_timeout=5)


class Told:
    """An app's callback, and what it was told."""

    def __init__(self, app: App) -> None:
        self.calls: list[tuple[str, str, str, str]] = []
        self.come = asyncio.Event()

        @app.task("report:ready", queue="reports", max_retry=3)
        async def ready(id: str, type: str, outcome: str, error: str) -> None:  # noqa: A002 - what callbacks are told
            self.calls.append((id, type, outcome, error))
            self.come.set()

        self.task = ready

    async def wait(self, number: int = 1) -> list[tuple[str, str, str, str]]:
        """Wait until it was told this often."""
        while len(self.calls) < number:
            self.come.clear()
            await asyncio.wait_for(self.come.wait(), 20)
        return self.calls


def app_that(error: Callable[[], BaseException] | None, *, plain: bool, **options: Any) -> tuple[App, Told]:
    """Return an app whose task `t` raises this, with a callback."""
    app = App()
    told = Told(app)

    def act() -> None:
        if error is not None:
            raise error()

    async def act_async() -> None:
        act()

    app.task("t", on_finished=told.task, **options)(act if plain else act_async)
    return app, told


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("error", "options", "outcome", "text"),
    [
        (None, {}, "succeeded", ""),
        (None, {"retention": 60}, "succeeded", ""),
        (lambda: ValueError("no"), {"max_retry": 0}, "archived", "no"),
        (lambda: Archive("why"), {}, "archived", "why"),
        (Cancel, {}, "cancelled", ""),
    ],
)
@run_async
async def test_each_end_of_an_attempt_enqueues_the_callback(
    redis_url: str, error: Any, options: dict[str, Any], outcome: str, text: str, plain: bool
) -> None:
    """At once, by the server that settled; the callback's queue may be in another slot of a cluster."""
    app, told = app_that(error, plain=plain, **options)
    app.url = redis_url
    async with serving(redis_url, app, CONFIG):
        handle = await app.tasks["t"].enqueue()
        [call] = await told.wait()
    assert (handle.id, "t", outcome) == call[:3]
    assert text in call[3]
    await app.close()


@pytest.mark.parametrize("error", [lambda: ValueError("no"), lambda: Snooze(3_600), lambda: Retry(3_600)])
@run_async
async def test_what_does_not_end_a_task_is_not_told(
    redis_url: str, redis_client: RedisClient, error: Any
) -> None:
    """A task that waits for its next attempt has not ended."""
    app, told = app_that(error, plain=False, retry_delay=3_600)
    app.url = redis_url
    async with serving(redis_url, app, CONFIG) as running:
        handle = await app.tasks["t"].enqueue()
        await running.finished(handle.id)
        await running.settled()
    assert [] == told.calls
    assert b"x:finished" in redis_client.hkeys(queue_keys("default").task(handle.id))
    await app.close()


@run_async
async def test_a_deletion_by_hand_is_told(redis_url: str) -> None:
    """By the inspector, which knows no app: the hash of the task names the callback."""
    app, told = app_that(None, plain=False)
    app.url = redis_url
    handle = await app.tasks["t"].options(process_in=3_600).enqueue()
    async with Inspector(redis_url) as inspector:
        await inspector.delete_task("default", handle.id)
    async with serving(redis_url, app, CONFIG):
        assert [(handle.id, "t", "deleted", "")] == await told.wait()
    await app.close()


@run_async
async def test_the_end_of_a_task_that_killed_its_workers_is_told(redis_url: str, tasks: Tasks) -> None:
    """By the server that takes it back, whichever app that has: the hash of the task names the callback."""
    app = App(redis_url)
    told = Told(app)
    field = encode_callback(Callback("report:ready", "reports"), "t", "n")

    def put() -> None:
        expired = int(time.time()) - 600
        tasks.active("a", token="dead/1", crashes=9, lease=expired, extra={"x:finished": field})
        tasks.client.set(tasks.keys.callbacks, "1")

    await asyncio.to_thread(put)
    async with serving(redis_url, app, CONFIG, AT_ONCE):
        [call] = await told.wait()
    assert ("a", "t", "archived") == call[:3]
    assert call[3].startswith("poison: ")
    await app.close()


@run_async
async def test_a_later_task_with_the_same_id_is_told_too(redis_url: str) -> None:
    """Also soon after the first one, which is gone."""
    app, told = app_that(None, plain=False)
    app.url = redis_url
    async with serving(redis_url, app, CONFIG):
        for number in (1, 2):
            await app.tasks["t"].options(task_id="row-1").enqueue()
            assert [("row-1", "t", "succeeded", "")] * number == await told.wait(number)
    await app.close()


def test_the_members_of_a_group_are_not_told_and_the_aggregate_is() -> None:
    """The members live on in the aggregate."""
    app = make_app()
    told = Told(app)

    @app.task("member", on_finished=told.task, group="g")
    async def member() -> None: ...

    @app.task("digest", on_finished=told.task)
    async def digest() -> None: ...

    @app.aggregator("g", max_size=2)
    def join(group: str, tasks: list[Task]) -> Task:
        return digest.task()

    with sound_kit(app) as kit:
        for _ in range(2):
            member.enqueue_sync()
        kit.drain_sync()

    assert [("digest", "succeeded")] == [call[1:3] for call in told.calls]


def put_ended(perform: Perform, tasks: Tasks, task_id: str = "a") -> tuple[StoredEnding, ...]:
    """End a task with a callback as a server does that dies right after it; return its entries."""
    field = encode_callback(Callback("report:ready", "reports"), "t", f"n {task_id}")
    tasks.active(task_id, extra={"x:finished": field})
    tasks.client.set(tasks.keys.callbacks, "1")
    endings: tuple[StoredEnding, ...] = perform(
        settle_done("default", [DoneTask(*claim(task_id), "")], now=NOW)
    ).endings
    return endings


@pytest.mark.parametrize("calls", range(4))
@run_async
async def test_a_callback_is_told_once_though_the_server_died_at_any_step(
    monkeypatch: pytest.MonkeyPatch,
    redis_url: str,
    redis_client: RedisClient,
    perform: Perform,
    tasks: Tasks,
    calls: int,
) -> None:
    """After the settle, after the enqueue, after the name of the queue, or after the removal of the entry."""
    monkeypatch.setattr(outbox_relay, "MIN_AGE_SECONDS", 0.0)
    plan = deliver_endings("default", await asyncio.to_thread(put_ended, perform, tasks), now=NOW)
    await asyncio.to_thread(_run_part, perform, plan, calls)
    app = App(redis_url)
    told = Told(app)
    async with serving(redis_url, app, CONFIG) as running:
        assert [("a", "t", "succeeded", "")] == await told.wait()
        await running.next_round("queue_look")
        await running.next_round("outbox_relay")
    assert 1 == len(told.calls)
    assert not redis_client.exists(tasks.keys.outbox)


def _run_part(perform: Perform, plan: Plan[Any], calls: int) -> None:
    """Make the first calls of a plan, and no more."""

    def part() -> Plan[None]:
        answer: Any = None
        for _ in range(calls):
            answer = yield plan.send(answer)

    perform(part())


@run_async
async def test_a_new_end_is_left_to_the_server_that_settled_it(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, perform: Perform, tasks: Tasks
) -> None:
    """For two seconds; other servers would only repeat what it is doing."""
    monkeypatch.setattr(outbox_relay, "MIN_AGE_SECONDS", 3_600.0)
    await asyncio.to_thread(put_ended, perform, tasks)
    app = App(redis_url)
    told = Told(app)
    async with serving(redis_url, app, CONFIG) as running:
        await running.next_round("queue_look")
        await running.next_round("outbox_relay")
        assert [] == told.calls


def test_the_kit_runs_callbacks_with_the_tasks() -> None:
    """A drain of the kit runs the callbacks too, as a worker does."""
    app = make_app()
    told = Told(app)

    @app.task("t", on_finished=told.task)
    async def act() -> None: ...

    with sound_kit(app) as kit:
        handle = act.enqueue_sync()
        report = kit.drain_sync()

    assert [(handle.id, "t", "succeeded", "")] == told.calls
    assert ["t", "report:ready"] == [attempt.type for attempt in report]


def test_a_task_with_other_arguments_cannot_be_a_callback() -> None:
    """The declaration says so, with the arguments that it must take."""
    app = App()

    @app.task("other")
    async def other(user_id: int) -> None: ...

    with pytest.raises(
        ConfigurationError, match=r"must take \(id: str, type: str, outcome: str, error: str\)"
    ):
        app.task("t", on_finished=other)


@pytest.mark.parametrize("wrong", ["report:ready", 3, lambda: None])
def test_a_callback_is_a_task_or_a_callback(wrong: Any) -> None:
    """A name alone is refused, because it does not tell the queue."""
    with pytest.raises(InvalidOptionError, match="must be a task of the app, or Callback"):
        App().task("t", on_finished=wrong)


@pytest.mark.parametrize("fields", [{"type": " "}, {"queue": ""}, {"max_retry": -1}, {"timeout": 0}])
def test_a_callback_that_cannot_be_enqueued_is_refused(fields: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(InvalidOptionError):
        Callback(**{"type": "t", **fields})


@run_async
async def test_a_task_that_is_enqueued_once_is_not_enqueued_again(redis_url: str) -> None:
    """While it exists the repeat returns it; when it is gone, the repeat says that it did nothing."""
    async with Client(redis_url) as client, Inspector(redis_url) as inspector:
        first = await client.enqueue("t", b"1", task_id="a", once_for=60)
        again = await client.enqueue("t", b"2", task_id="a", once_for=60)
        await inspector.delete_task("default", "a")
        gone = await client.enqueue("t", b"3", task_id="a", once_for=60)
        [result] = await client.enqueue_many([Task("t", b"4", task_id="a", once_for=60)])
        stored = await inspector.list_tasks("default", "pending")

    words = [info.enqueue_status.value for info in (first, again, gone)]
    assert ["enqueued", "existing", "ignored"] == words
    assert (b"1", "ignored") == (again.payload, result.status.value)
    assert [] == list(stored)


def end_by_success(kit: Kit) -> None:
    """Run the task."""
    kit.drain_sync()


def end_by_failure(kit: Kit) -> None:
    """Run the task, which fails."""
    kit.drain_sync(raises=False)


def delete(kit: Kit) -> None:
    """Delete the task."""
    kit.inspector.delete_task("default", "a")


def complete_and_forget(kit: Kit) -> None:
    """Run the task, and let its retention end."""
    kit.drain_sync()
    kit.advance_sync(hours=2)


@pytest.mark.parametrize("unique", [None, timedelta(hours=8)])
@pytest.mark.parametrize(
    ("number", "end", "status", "state"),
    [
        (1, end_by_success, "existing", "completed"),
        (0, end_by_failure, "existing", "archived"),
        (1, complete_and_forget, "ignored", None),
        (1, delete, "ignored", None),
    ],
)
def test_a_repeat_describes_the_task_that_was_enqueued_once(
    number: int, end: Callable[[Kit], None], status: str, state: str | None, unique: timedelta | None
) -> None:
    """If that task is gone, the handle of the repeat names no state; nothing is enqueued.

    The lock of `unique`, which has ended with the task, changes nothing about that.
    """
    app = make_app()

    @app.task("t", max_retry=0, retention=timedelta(hours=1))
    def divide(number: int) -> float:
        return 1 / number

    once = divide.options(task_id="a", once_for=timedelta(hours=4))
    if unique is not None:
        once = once.options(unique=unique)
    with sound_kit(app) as kit:
        assert once.enqueue_sync(number).enqueued.is_enqueued
        end(kit)
        again = once.enqueue_sync(number)
        assert status == again.enqueued.enqueue_status
        assert repr(again).endswith(f"in queue 'default', {state or 'ignored'}>")
        if state is None:
            with pytest.raises(TaskNotFoundError):
                again.state()
        else:
            assert state == again.state() == again.enqueued.state
        assert 0 == kit.inspector.queue_info("default").pending


def test_a_lock_does_not_hide_a_task_that_is_enqueued_once() -> None:
    """The id is judged first; another id of the same payload is a duplicate."""
    app = make_app()

    @app.task("t", unique=timedelta(hours=8))
    def act() -> None: ...

    with sound_kit(app) as kit:
        once = act.options(task_id="a", once_for=timedelta(hours=4))
        once.enqueue_sync()
        assert "existing" == once.enqueue_sync().enqueued.enqueue_status
        with pytest.raises(DuplicateTaskError):
            act.options(task_id="b", once_for=timedelta(hours=4)).enqueue_sync()
        kit.inspector.delete_task("default", "a")
        act.enqueue_sync()
        assert "ignored" == once.enqueue_sync().enqueued.enqueue_status


@run_async
async def test_the_memory_of_a_task_that_is_enqueued_once_ends(
    redis_url: str, redis_client: RedisClient
) -> None:
    """After the given time; the marker has that as its time to live."""
    async with Client(redis_url) as client, Inspector(redis_url) as inspector:
        await client.enqueue("t", task_id="a", once_for=60, process_in=5)
        assert 58 <= redis_client.ttl(queue_keys("default").once("a")) <= 60
        await inspector.delete_task("default", "a")
        redis_client.delete(queue_keys("default").once("a"))
        assert (await client.enqueue("t", task_id="a", once_for=60)).is_enqueued


def test_once_for_needs_an_id() -> None:
    """A random id never comes again."""
    app = make_app()

    @app.task("t", once_for=60)
    async def act() -> None: ...

    with sound_kit(app), pytest.raises(InvalidOptionError, match="needs task_id="):
        act.enqueue_sync()


def test_a_misspelt_option_is_suggested() -> None:
    """The error names the nearest option, as it does for every option of a task."""
    with pytest.raises(UnknownOptionError, match="on_finished"):
        App().task("t", on_finish=3)  # type: ignore[call-overload]
