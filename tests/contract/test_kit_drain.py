"""Running handlers in tests: in order, with all that a worker has around them, and errors that are seen."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Archive, Cancel, Mux, Retry, RevokeTask, ServerConfig, Snooze, Task, context
from pyasynq.errors import (
    DrainTimeoutError,
    EndlessDrainError,
    HandlerExitError,
    HandlerNotFoundError,
    PayloadDecodingError,
    ServerStateError,
    TaskTimeoutError,
)
from pyasynq.events import Outcome
from pyasynq.task import TaskState
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pyasynq import App, TaskInfo
    from pyasynq.client import CallNext


def test_pending_tasks_run_in_their_order_and_so_does_what_they_enqueue() -> None:
    """One at a time; what lies in the future stays."""
    app, ran = make_app(), []

    @app.task("step")
    def step(number: int) -> int:
        ran.append(number)
        if number < 3:
            step.enqueue_sync(number + 10)
        step.options(process_in=60).enqueue_sync(100)
        return number * 2

    with sound_kit(app) as kit:
        for number in range(5):
            step.enqueue_sync(number)
        report = kit.drain_sync()

    assert [0, 1, 2, 3, 4, 10, 11, 12] == ran
    assert [0, 2, 4, 6, 8, 20, 22, 24] == [attempt.result for attempt in report]
    assert {Outcome.SUCCEEDED: 8} == report.outcomes


def test_all_queues_are_served_until_they_are_empty() -> None:
    """However many there are: a worker with one place asks them in turn."""
    app = make_app()

    @app.task("work")
    def work() -> None: ...

    config = ServerConfig(queues={f"q{number}": number + 1 for number in range(6)})
    with sound_kit(app, config=config) as kit:
        kit.drain_sync()
        for queue in config.queues:
            work.options(queue=queue).enqueue_sync()
        report = kit.drain_sync()
        assert ({*config.queues}, {}) == ({attempt.queue for attempt in report}, report.left)


def test_a_failing_handler_is_seen() -> None:
    """Its own error is raised, with a note about the task; it is settled, and what comes after it waits."""
    app, ran = make_app(), []

    @app.task("fails", max_retry=3)
    def fails() -> None:
        raise ZeroDivisionError("by zero")

    @app.task("after")
    def after() -> None:
        ran.append("after")

    with sound_kit(app) as kit:
        handle = fails.enqueue_sync()
        after.enqueue_sync()
        with pytest.raises(ZeroDivisionError, match="by zero") as raised:
            kit.drain_sync()
        [note] = raised.value.__notes__
        assert f"task {handle.id} of type 'fails' in queue 'default', attempt 1 of 4: retried" == note
        assert [] == ran
        assert [raised.value] == [attempt.error for attempt in kit.attempts]
        kit.assert_enqueued(fails, state=TaskState.RETRY)
        kit.drain_sync()
        assert ["after"] == ran


def test_failures_can_be_looked_at_instead() -> None:
    """All runs then, and the report tells what happened."""
    app = make_app()

    @app.task("fails", max_retry=0)
    async def fails(why: str) -> None:
        raise ValueError(why)

    with sound_kit(app) as kit:
        fails.enqueue_sync("a")
        fails.enqueue_sync("b")
        report = kit.drain_sync(raises=False)

    assert [{"why": "a"}, {"why": "b"}] == [attempt.arguments for attempt in report.archived]
    assert ["a", "b"] == [str(error) for error in report.errors]
    assert "fails(why='a') archived: ValueError('a')" in str(report)


@pytest.mark.parametrize(
    ("wish", "outcome"),
    [
        (RevokeTask(), Outcome.REVOKED),
        (Snooze(60), Outcome.SNOOZED),
        (Retry(60, spend=False), Outcome.RETRIED),
        (Archive("too old"), Outcome.ARCHIVED),
        (Cancel(), Outcome.REVOKED),
    ],
)
def test_an_outcome_chosen_by_the_handler_is_not_a_failure(wish: Exception, outcome: Outcome) -> None:
    """It has said what it wants; the next attempt comes when it said."""
    app, wishes = make_app(), [wish]

    @app.task("decides")
    def decides() -> str:
        if wishes:
            raise wishes.pop()
        return "done"

    with sound_kit(app) as kit:
        decides.enqueue_sync()
        assert [outcome] == [attempt.outcome for attempt in kit.drain_sync()]
        again = isinstance(wish, Snooze | Retry)
        assert ["done"] * again == [attempt.result for attempt in kit.advance_sync(seconds=60)]


@pytest.mark.parametrize("raised", [SystemExit(1), asyncio.CancelledError()])
@run_async
async def test_what_would_end_the_test_itself_is_wrapped(raised: BaseException) -> None:
    """A worker survives it, and so does the event loop of the test."""
    app = make_app()

    @app.task("exits")
    async def exits() -> None:
        raise raised

    with sound_kit(app) as kit:
        with pytest.raises(HandlerExitError, match="a handler raised") as error:
            await kit.perform(exits)
        assert error.value.__cause__ is raised
        kit.assert_enqueued(exits, state="retry")


def test_a_type_without_a_handler_and_a_wrong_payload_are_failures() -> None:
    """Both are mistakes of the enqueuing code."""
    app = make_app()

    @app.task("typed")
    def typed(number: int) -> None: ...

    with sound_kit(app) as kit:
        app.enqueue_sync("unknown")
        with pytest.raises(HandlerNotFoundError):
            kit.drain_sync()
        app.enqueue_sync("typed", b"{}")
        with pytest.raises(PayloadDecodingError, match="missing 'number'"):
            kit.drain_sync()
        assert [None, None] == [attempt.arguments for attempt in kit.attempts]


def test_middleware_and_lifespan_are_those_of_the_app() -> None:
    """Also client middleware; the lifespan is entered for each call of the kit, as by a worker."""
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncGenerator[str]:
        seen.append("open")
        yield "pool"
        seen.append("close")

    async def around(task: Task, call_next: Any) -> Any:
        seen.append(f"before {task.headers['tenant']}")
        return await call_next(task)

    async def tenant(task: Task, call_next: CallNext) -> TaskInfo:
        task.options["headers"] = {**task.headers, "tenant": "t1"}
        return await call_next(task)

    app = make_app(lifespan=lifespan, middleware=[around], client_middleware=[tenant])

    @app.task("work")
    def work() -> None:
        seen.append(context().state)

    with sound_kit(app) as kit:
        work.enqueue_sync()
        kit.drain_sync()
        kit.drain_sync()

    assert ["open", "before t1", "pool", "close", "open", "close"] == seen


def test_plain_handlers_run_in_the_thread_of_a_plain_test() -> None:
    """Objects of that thread, such as the transaction of a Django test, are shared with handlers."""
    app, threads = make_app(), []
    local = threading.local()
    local.transaction = "of the test"

    @app.task("plain")
    def plain() -> str:
        threads.append(threading.current_thread())
        context().write_result_sync(b"progress")
        return str(local.transaction)

    @app.task("coroutine")
    async def coroutine() -> None:
        threads.append(threading.current_thread())

    with sound_kit(app) as kit:
        plain.enqueue_sync()
        coroutine.enqueue_sync()
        report = kit.drain_sync()

    assert "of the test" == report[0].result
    assert threading.current_thread() is threads[0]
    assert threading.current_thread() is not threads[1]


@run_async
async def test_coroutines_run_in_the_event_loop_of_the_test() -> None:
    """With what is open there; plain handlers run in threads, as in a worker."""
    app = make_app()
    here = asyncio.get_running_loop()

    @app.task("coroutine")
    async def coroutine() -> bool:
        return asyncio.get_running_loop() is here

    @app.task("plain")
    def plain() -> str:
        return threading.current_thread().name

    async with sound_kit_async(app) as kit:
        await coroutine.enqueue()
        await plain.enqueue()
        report = await kit.drain()

    assert report[0].result is True
    assert report[1].result.startswith("pyasynq-handler")


@asynccontextmanager
async def sound_kit_async(app: App) -> AsyncGenerator[Any]:
    """Use a kit by `async with`."""
    with sound_kit(app) as kit:
        yield kit


@run_async
async def test_blocking_methods_say_what_to_call_in_a_coroutine() -> None:
    """They would block the loop that the handlers need."""
    with sound_kit(make_app()) as kit:
        with pytest.raises(ServerStateError, match=r"await kit\.drain"):
            kit.drain_sync()
        with pytest.raises(ServerStateError, match=r"await kit\.advance"):
            kit.advance_sync(days=1)


def test_a_handler_cannot_drain() -> None:
    """The error says what it can do."""
    app = make_app()

    @app.task("drains")
    async def drains() -> None:
        await kit.drain()

    with sound_kit(app) as kit:
        drains.enqueue_sync()
        with pytest.raises(ServerStateError, match="pass_time"):
            kit.drain_sync()


def test_handlers_that_wait_for_one_another_need_two_places() -> None:
    """With one, the patience of the kit ends; the error names the task and the remedy, and puts it back."""
    app = make_app()
    done = asyncio.Event()

    @app.task("parent")
    async def parent() -> None:
        child.enqueue_sync()
        await done.wait()

    @app.task("child")
    async def child() -> None:
        done.set()

    with sound_kit(app, patience=0.1) as kit:
        handle = parent.enqueue_sync()
        with pytest.raises(DrainTimeoutError, match=rf"parent {handle.id}.*concurrency=2"):
            kit.drain_sync()
        kit.assert_enqueued(parent, state="pending")
    done = asyncio.Event()
    with sound_kit(app, concurrency=2) as kit:
        parent.enqueue_sync()
        assert ["child", "parent"] == [attempt.type for attempt in kit.drain_sync()]


def test_a_task_that_enqueues_itself_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type is named."""
    monkeypatch.setattr("pyasynq.testing._worker._MOST_AT_ONCE", 20)
    app = make_app()

    @app.task("again")
    async def again() -> None:
        await again.enqueue()

    with sound_kit(app) as kit:
        again.enqueue_sync()
        with pytest.raises(EndlessDrainError, match="'again' 20 times"):
            kit.drain_sync()


def test_a_task_that_snoozes_without_a_delay_is_found_soon() -> None:
    """After a hundred attempts, not after ten thousand. (D59)"""
    app = make_app()
    runs = 0

    @app.task("not:yet")
    def not_yet() -> None:
        nonlocal runs
        runs += 1
        raise Snooze(0)

    with sound_kit(app) as kit:
        not_yet.enqueue_sync()
        with pytest.raises(EndlessDrainError, match=r"'not:yet' 1[0-9][0-9] times"):
            kit.drain_sync()
    assert 100 <= runs <= 120


def test_a_mux_or_a_function_can_be_under_test() -> None:
    """With the kit's clients in the place of an app's."""
    mux = Mux()

    @mux.handler("mail:send")
    async def send(task: Task) -> str:
        return f"{task.payload!r}"

    with sound_kit(mux) as kit:
        kit.sync_client.enqueue("mail:send", b"x")
        [attempt] = kit.drain_sync()
        assert ("b'x'", b"x", None) == (attempt.result, attempt.payload, attempt.arguments)
        assert "mail:send" == kit.perform_task_sync(Task("mail:send")).type


@run_async
async def test_the_asyncio_client_of_a_kit_enqueues() -> None:
    """`kit.client` is for tests of code that has no app."""
    with sound_kit(lambda task: task.type) as kit:
        await asyncio.gather(*(kit.client.enqueue(f"{number}") for number in range(3)))
        assert ["0", "1", "2"] == [attempt.result for attempt in await kit.drain()]


def test_one_call_is_performed_before_all_that_waits() -> None:
    """`perform` runs the call with its real context, and runs no other task."""
    app = make_app()

    @app.task("work", queue="critical", retention=60, timeout=30, process_in=600, max_retry=4)
    async def work(number: int) -> dict[str, Any]:
        its = context()
        await its.write_result(b"half")
        its.progress(1, 2, "half")
        assert its.deadline is not None
        left = (its.deadline - kit.now).total_seconds()
        return {"number": number, "queue": its.queue, "max_retry": its.max_retry, "left": left}

    with sound_kit(app) as kit:
        waiting = work.options(process_in=0).enqueue_sync(1)
        attempt = kit.perform_sync(work, number=2)
        info = kit.inspector.task_info("critical", attempt.task_id)
        kit.assert_enqueued(work, number=1, task_id=waiting.id)

    assert {"number": 2, "queue": "critical", "max_retry": 4, "left": 30.0} == attempt.result
    assert (Outcome.SUCCEEDED, {"number": 2}) == (attempt.outcome, attempt.arguments)
    assert info.result is not None
    assert {"number": 2, "queue": "critical", "max_retry": 4, "left": 30.0} == json.loads(info.result)
    assert info.progress is not None
    assert (1, 2, "half") == (info.progress.done, info.progress.total, info.progress.note)


@run_async
async def test_performing_raises_what_the_handler_raises() -> None:
    """Coroutine or not; the attempt tells the rest."""
    app = make_app()

    @app.task("plain", max_retry=0)
    def plain() -> None:
        raise KeyError("gone")

    with sound_kit(app) as kit:
        with pytest.raises(KeyError, match="gone"):
            await kit.perform(plain)
        assert Outcome.ARCHIVED is kit.attempts[-1].outcome
        attempt = await kit.perform_task(plain.task(), raises=False)
        assert isinstance(attempt.error, KeyError)


def test_a_queue_that_is_paused_gives_no_task_to_perform() -> None:
    """The error says so, instead of a result that is not there."""
    app = make_app()

    @app.task("work")
    def work() -> None: ...

    with sound_kit(app) as kit:
        kit.inspector.pause_queue("default")
        with pytest.raises(ServerStateError, match="queue 'default' gives no task"):
            kit.perform_sync(work)


def test_a_timeout_is_real_time() -> None:
    """A coroutine that does not end in time is broken off."""
    app = make_app()

    @app.task("slow", timeout=1)
    async def slow() -> None:
        await asyncio.sleep(30)

    with sound_kit(app) as kit, pytest.raises(TaskTimeoutError):
        kit.perform_sync(slow)


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
def test_time_that_passes_in_a_handler_counts_against_its_timeout(kind: str) -> None:
    """A fake of a slow service needs no real time; within the timeout the task stays its worker's."""
    app = make_app()

    @app.task("coroutine", timeout=3600, retention=60)
    async def coroutine(seconds: int) -> str:
        kit.pass_time(seconds=seconds)
        await asyncio.sleep(0.01)
        return "in time"

    @app.task("plain", timeout=3600, retention=60)
    def plain(seconds: int) -> str:
        kit.pass_time(seconds=seconds)
        return "too late" if context().cancelled.wait(0.01) else "in time"

    with sound_kit(app) as kit:
        task = app.tasks[kind]
        attempt = kit.perform_sync(task, seconds=3599)
        assert (Outcome.SUCCEEDED, "in time") == (attempt.outcome, attempt.result)
        assert b'"in time"' == kit.inspector.task_info("default", attempt.task_id).result
        with pytest.raises(TaskTimeoutError):
            kit.perform_sync(task, seconds=3600)


def test_ctrl_c_in_a_handler_ends_the_test() -> None:
    """It is for the user who runs the test, and not a failure of the task."""
    app, fingers = make_app(), ["on the keys"]

    @app.task("interrupted")
    def interrupted() -> None:
        if fingers:
            raise KeyboardInterrupt

    with sound_kit(app) as kit:
        interrupted.enqueue_sync()
        interrupted.enqueue_sync()
        with pytest.raises(KeyboardInterrupt):
            kit.drain_sync(raises=False)
        assert len(kit.attempts) <= 1
        fingers.clear()
        assert kit.drain_sync()


@run_async
async def test_a_drain_that_is_cancelled_puts_back_what_it_runs() -> None:
    """The task goes back to its queue, as at the shutdown of a worker."""
    app = make_app()
    begun = asyncio.Event()

    @app.task("endless")
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    with sound_kit(app) as kit:
        await endless.enqueue()
        drain = asyncio.create_task(kit.drain())
        await begun.wait()
        drain.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drain
        kit.assert_enqueued(endless, state="pending")


@run_async
async def test_a_result_can_be_awaited_once_its_task_has_run() -> None:
    """Nothing stays open in the event loop of the test."""
    app = make_app()

    @app.task("add", result_ttl=60)
    async def add(a: int, b: int) -> int:
        return a + b

    with sound_kit(app) as kit:
        handle = await add.enqueue(2, 3)
        await kit.drain()
        assert 5 == await handle.result(timeout=1)
        assert 5 == await asyncio.to_thread(add.handle_sync(handle.id).result, 1)
