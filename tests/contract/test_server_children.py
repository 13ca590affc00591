"""Handlers in child processes, on a real Redis: their input, and their results and reports."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Mux, PayloadDecodingError, RemoteError, ServerConfig, TaskState, context, testing
from pyasynq.events import LeaseLost, Outcome, TaskFinished
from tests import child_tasks as work
from tests.child_tasks import CardDeclinedError
from tests.fix_children import looked_up
from tests.fix_engine import QUICK
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from pyasynq.task import Task
    from tests.fix_engine import Running

    Serve = Callable[..., AbstractAsyncContextManager[Running]]


@run_async
async def test_a_handler_runs_in_a_process_of_its_own_that_is_used_again(serve: Serve) -> None:
    """Plain or async, with typed arguments and a typed result, decoded there."""
    async with serve() as running:
        first = await (await work.where.enqueue()).result(timeout=30)
        second = await (await work.where_async.enqueue()).result(timeout=30)
        doubled = await (await work.double.enqueue(work.Order(4), times=3)).result(timeout=30)
        await running.client.enqueue("double", b'{"order": {"number": "four"}}', task_id="a")
        wrong = await running.finished("a")

    assert os.getpid() != first
    assert first == second
    assert work.Order(12) == doubled
    assert isinstance(wrong.error, PayloadDecodingError)
    assert "argument order.number" in str(wrong.error)


@run_async
async def test_the_context_is_that_of_the_attempt(redis_url: str, serve: Serve) -> None:
    """And its state is the child's own, made once; the app there works with the worker's Redis."""
    async with serve():
        for tasks in (1, 2):
            handle = await work.facts.options(headers={"a": "b"}, task_id=f"f{tasks}", timeout=60).enqueue()
            facts = await handle.result(timeout=30)
            assert 50 < facts.pop("seconds_left") < 60.1
            assert facts == {
                "id": f"f{tasks}",
                "type": "facts",
                "queue": "default",
                "retried": 0,
                "max_retry": 7,
                "has_waited": True,
                "headers": {"a": "b"},
                "state_is_of_this_process": True,
                "tasks_of_this_state": tasks,
                "cancelled": False,
                "url": redis_url,
            }


@run_async
async def test_progress_and_results_are_written_by_the_worker(redis_url: str, serve: Serve) -> None:
    """From threads and coroutines; the last report is never lost."""
    async with serve() as running:
        plain = await work.report.enqueue()
        done = await looked_up(redis_url, running, plain.id)
        coroutine = await work.report_async.enqueue()
        also = await looked_up(redis_url, running, coroutine.id)
        ghost = await work.haunt.enqueue()
        await looked_up(redis_url, running, ghost.id)
        # It sleeps in the same child for less long than this takes.
        later = await work.compute.enqueue(0.5)
        untouched = await looked_up(redis_url, running, later.id)

    assert done.progress is not None
    assert (1_000, 1_000, "counting") == (done.progress.done, done.progress.total, done.progress.note)
    assert b"from a thread" == done.result
    assert also.progress is not None
    assert "half ?" == also.progress.note
    assert b"from a coroutine" == also.result
    assert untouched.progress is None


@run_async
async def test_log_records_are_written_as_the_workers_own(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """With the fields of their task, their own fields, and their tracebacks; at the worker's levels."""
    logging.getLogger("shop").setLevel(logging.INFO)
    try:
        async with serve():
            is_debug = await (await work.say.enqueue("hello")).result(timeout=30)
    finally:
        logging.getLogger("shop").setLevel(logging.NOTSET)
    of_task, other = [record for record in caplog.records if record.getMessage().startswith("hello")]

    assert is_debug is False
    assert ("say", 1, "red") == (of_task.task_type, of_task.attempt, of_task.colour)  # type: ignore[attr-defined]
    assert ("shop", "child_tasks.py") == (other.name, other.filename)
    assert other.process != os.getpid()
    assert "ValueError: hello" in str(other.exc_text)
    assert "say" == other.task_type  # type: ignore[attr-defined]


@run_async
async def test_an_error_is_written_down_as_that_of_a_thread(redis_url: str, serve: Serve) -> None:
    """Type, text, place and traceback; rules by its class and its attributes work."""
    told = []

    def tell(task: Task, error: BaseException) -> None:
        told.append((task.type, error))

    async with serve(ServerConfig(error_handler=tell)) as running:
        declined = await work.decline.enqueue()
        info = await looked_up(redis_url, running, declined.id)
        busy = await work.busy.enqueue()
        not_counted = await looked_up(redis_url, running, busy.id)
        strange = await work.strange.enqueue()
        unknown = await looked_up(redis_url, running, strange.id)

    assert info.last_error.startswith("CardDeclinedError: no 5 [child_tasks.py:")
    assert info.attempts[0].error.startswith("CardDeclinedError: no 5")
    assert "raise CardDeclinedError(5, after=500.0)" in info.traceback
    assert "pyasynq/_server" not in info.traceback
    assert info.next_process_at is not None
    assert info.last_failed_at is not None
    assert 499 <= (info.next_process_at - info.last_failed_at).total_seconds() <= 501
    assert (1, 0) == (info.retried, not_counted.retried)
    assert "StrangeError: from nowhere" in unknown.last_error
    assert [CardDeclinedError, CardDeclinedError, RemoteError] == [type(error) for _, error in told]


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["", " raised", " from"])
@run_async
async def test_a_handler_chooses_the_outcome_of_its_task(redis_url: str, serve: Serve, way: str) -> None:
    """Returned, raised, or as the cause of another error."""
    outcomes = {}
    async with serve() as running:
        for what in ("snooze", "retry", "archive", "cancel", "skip"):
            if what == "skip" and not way:
                continue  # Asynq's word is only raised
            handle = await work.control.enqueue(what + way)
            outcomes[what] = (await running.finished(handle.id)).outcome
            if what == "archive":
                archived = await looked_up(redis_url, running, handle.id)

    assert archived.last_error == "enough"
    assert TaskState.ARCHIVED is archived.state
    outcomes.pop("skip", None)
    assert outcomes == {
        "snooze": Outcome.SNOOZED,
        "retry": Outcome.RETRIED,
        "archive": Outcome.ARCHIVED,
        "cancel": Outcome.REVOKED,
    }


@pytest.mark.parametrize("is_returned", [False, True])
@run_async
async def test_the_provider_in_a_child_sees_the_control_value(
    redis_url: str, serve: Serve, is_returned: bool
) -> None:
    """Returned or raised, its transaction is rolled back there."""
    async with serve() as running:
        handle = await work.archive_in_transaction.enqueue(is_returned)
        assert Outcome.ARCHIVED is (await running.finished(handle.id)).outcome
        info = await looked_up(redis_url, running, handle.id)

    assert "enough" == info.last_error
    assert info.progress is not None
    assert "roll back for Archive" == info.progress.note


@run_async
async def test_sys_exit_is_the_tasks_failure_and_the_child_goes_on(serve: Serve) -> None:
    """`SystemExit` fails the task with its code, as it does in a worker."""
    async with serve() as running:
        before = await (await work.where.enqueue()).result(timeout=30)
        ended = await running.finished((await work.leave.enqueue(3)).id)
        after = await (await work.where.enqueue()).result(timeout=30)

    assert isinstance(ended.error, SystemExit)
    assert 3 == ended.error.code
    assert before == after


@pytest.mark.long
@run_async
async def test_handlers_of_a_mux_run_in_children_too(redis_url: str, serve: Serve) -> None:
    """With the task as it is; they have no state, and no result that is none."""
    async with serve(mux=work.mux) as running:
        for name in ("plain", "async", "odd"):
            await running.client.enqueue(
                f"mux:{name}", b"\x00bytes", task_id=name, retention=60, headers={"a": "b"}
            )
        plain, coroutine, odd = [
            await looked_up(redis_url, running, name) for name in ("plain", "async", "odd")
        ]

    assert plain.result is not None
    pid, _, rest = plain.result.decode().partition(" ")
    assert os.getpid() != int(pid)
    assert "mux:plain b'\\x00bytes' {'a': 'b'} None" == rest
    assert b"\x00bytes" == coroutine.result
    assert TaskState.COMPLETED is odd.state
    assert not odd.result
    assert "the result was dropped: the handler of 'mux:odd' returned dict" in odd.last_error


@run_async
async def test_a_handler_added_while_its_server_runs_has_a_child_too(redis_url: str, serve: Serve) -> None:
    """A server builds its pool of children for the first such task, not at its start."""
    mux = Mux()
    async with serve(mux=mux) as running:
        engine = running.server._engine
        assert engine is not None
        assert engine._children is None
        mux.handle("late", work.plain_handler, executor="process")
        await running.client.enqueue("late", b"", task_id="late", retention=60)
        info = await looked_up(redis_url, running, "late")

    assert info.result is not None
    assert os.getpid() != int(info.result.split()[0])


@pytest.mark.long
@run_async
async def test_middleware_runs_in_the_worker_around_the_call(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees results and errors, and may change the task."""
    seen: list[Any] = []

    async def watch(task: Task, call_next: Any) -> Any:
        try:
            result = await call_next(task)
        except CardDeclinedError as error:
            seen.append((os.getpid(), error.amount))
            raise
        seen.append((os.getpid(), result))
        return result

    registry = work.app._registry
    monkeypatch.setattr(registry, "_middleware", [watch])
    monkeypatch.setattr(registry, "_routes", {})
    async with serve() as running:
        pid = await (await work.where.enqueue()).result(timeout=30)
        await running.finished((await work.decline.enqueue()).id)

    assert [(os.getpid(), str(pid).encode()), (os.getpid(), 5)] == seen


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", [work.where, work.decline, work.die], ids=["succeeds", "fails", "dies"])
@run_async
async def test_an_attempt_is_freed_when_it_has_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, task: Any
) -> None:
    """Without the garbage collector: neither its child nor its error keeps it."""
    references: list[weakref.ref[Any]] = []

    async def note(task: Task, call_next: Any) -> Any:
        references.append(weakref.ref(context()._task))
        return await call_next(task)

    monkeypatch.setattr(work.app._registry, "_middleware", [note])
    monkeypatch.setattr(work.app._registry, "_routes", {})
    logging.getLogger("pyasynq").setLevel(logging.CRITICAL)
    async with serve() as running:
        finished = asyncio.Event()
        running.server.events.subscribe(TaskFinished, lambda _: finished.set())
        running.recorder.seen = Forgetful()
        gc.collect()
        gc.disable()
        try:
            await (task.enqueue("exit") if task is work.die else task.enqueue())
            await finished.wait()
            await running.settled()
            await running.next_round("deadlines")
            await running.next_round("heartbeater")
            await running.next_round("heartbeater")
            assert [None] == [reference() for reference in references]
        finally:
            gc.enable()
            logging.getLogger("pyasynq").setLevel(logging.NOTSET)


class Forgetful(list[Any]):
    """Keeps nothing: an event would keep its error alive, the error its frames."""

    def append(self, item: Any) -> None:
        del item


@pytest.mark.long
@run_async
async def test_a_child_that_computes_holds_up_neither_loop_nor_leases(redis_url: str, serve: Serve) -> None:
    """It holds its interpreter's lock for longer than a lease, and the worker goes on."""
    settings = QUICK.__class__(lease=1, heartbeat_interval=0.1, sweep_interval=0.02, look_interval=0.1)
    async with serve(settings=settings) as running:
        await (await work.where.enqueue()).result(timeout=30)
        handle = await work.compute.enqueue(2.5)
        computed = asyncio.create_task(handle.result(timeout=30))
        longest, last = 0.0, asyncio.get_running_loop().time()
        while not computed.done():
            await asyncio.sleep(0.01)
            now = asyncio.get_running_loop().time()
            longest, last = max(longest, now - last), now

        assert computed.result() >= 2.5
        assert [] == running.recorder.of(LeaseLost)
        assert 0 == (await running.finished(handle.id)).retried
    assert longest < computed.result(), "a turn of the loop took as long as the child computed"


@run_async
async def test_under_test_handlers_stay_in_the_process_of_the_test(tmp_path: Path) -> None:
    """Where what the test has patched is, and where a breakpoint works."""
    async with testing.use(work.app) as kit:
        performed = await kit.perform(work.where)
        also = await kit.perform(work.where_async)

    assert [os.getpid()] * 2 == [performed.result, also.result]


@run_async
async def test_nothing_is_started_before_it_is_needed(serve: Serve) -> None:
    """A worker that has such handlers and no such tasks has no children."""
    async with serve() as running:
        await running.next_round("processor")
        engine = running.server._engine
        assert engine is not None
        assert engine._children is None


@run_async
async def test_a_child_makes_and_closes_the_dependencies_of_its_handlers(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lives as long as the worker is made once in each child, and closed when the child ends."""
    monkeypatch.setenv("CHILD_TASKS_FOLDER", str(tmp_path))
    async with serve(ServerConfig(concurrency=1, cancel_timeout=20)):
        found = []
        for number in (1, 2):
            handle = await work.depend_on.options(task_id=f"task {number}").enqueue(number)
            found.append(await handle.result(timeout=30))
        [(_, _, child), _] = found
        assert [(1, f"task 1 in {child}", child), (2, f"task 2 in {child}", child)] == found
        assert os.getpid() != child
        assert {f"committed-{child}"} == set(os.listdir(tmp_path))  # noqa: PTH208 - names are what is compared

    assert {f"committed-{child}", f"closed-{child}", f"left-{child}"} == set(os.listdir(tmp_path))  # noqa: PTH208 - as above
