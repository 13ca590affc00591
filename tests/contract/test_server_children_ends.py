"""How child processes end: by themselves, at time-outs, cancelled, at shutdown, and by recycling."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    ChildProcessDiedError,
    Inspector,
    LeaseExpiredError,
    ServerConfig,
    TaskCanceledError,
    TaskFailedError,
    TaskTimeoutError,
)
from pyasynq.events import LeaseLost, Outcome, TaskFinished, TaskRecovered, TaskStarted
from tests import child_tasks as work
from tests.fix_children import lives, looked_up, wait_for_end, written
from tests.fix_engine import QUICK
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq import Task
    from tests.fix_children import Serve
    from tests.fix_engine import Running
    from tests.invariants import RedisClient

SOON = 0.2


async def started(path: Path) -> list[int]:
    """Wait for the line that a handler writes, in a thread."""
    return await asyncio.to_thread(written, path)


async def taken(running: Running, task_id: str) -> None:
    """Wait until a task has been given to its handler, or waits for a child."""
    await running.recorder.wait(TaskStarted, lambda event: event.task_id == task_id)


@run_async
async def test_a_child_that_answers_out_of_turn_is_killed_with_its_task(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A forked copy of a handler answers first, or during the next task; no result is another task's.

    Defect D07.
    """
    path = str(tmp_path / "go")
    async with serve(ServerConfig(concurrency=1)) as running:
        copied = await work.copy_itself.enqueue("")
        with pytest.raises(TaskFailedError, match="was killed: it answered out of turn"):
            await copied.result(timeout=30)
        late = await work.copy_itself.enqueue(path)
        assert "original" == await late.result(timeout=30)
        next_one = await work.repeat.enqueue("b", path)
        failed = await running.finished(next_one.id)
        assert isinstance(failed.error, ChildProcessDiedError)
        for text in "cde":
            assert text == await (await work.repeat.enqueue(text)).result(timeout=30)
    assert "is killed: it answered out of turn" in caplog.text


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("how", "exit_code", "signal", "text"),
    [
        ("exit", 7, None, "ended with exit code 7"),
        ("SIGKILL", None, "SIGKILL", "was killed by SIGKILL, as the kernel does when memory runs out"),
        ("SIGSEGV", None, "SIGSEGV", "was killed by SIGSEGV"),
    ],
)
@run_async
async def test_a_child_that_dies_fails_the_attempt_and_nothing_else(
    redis_url: str, serve: Serve, how: str, exit_code: int | None, signal: str | None, text: str
) -> None:
    """It uses up a retry, is not a crash of the worker, and the next task gets another child."""
    async with serve() as running:
        before = await (await work.where.enqueue()).result(timeout=30)
        handle = await work.die.enqueue(how)
        info = await looked_up(redis_url, running, handle.id)
        error = (await running.finished(handle.id)).error
        after = await (await work.where.enqueue()).result(timeout=30)

    assert isinstance(error, ChildProcessDiedError)
    assert (exit_code, signal) == (error.exit_code, error.signal)
    assert f"the child process that ran the handler {text}" == info.last_error
    assert (1, 0, "") == (info.retried, info.crashes, info.traceback)
    assert [] == running.recorder.of(TaskRecovered)
    assert before != after


@pytest.mark.long
@run_async
async def test_at_its_timeout_a_child_is_killed_with_all_that_it_has_started(
    serve: Serve, tmp_path: Path
) -> None:
    """Although it holds its interpreter's lock, and has a child of its own; at once, whatever is set."""
    async with serve(ServerConfig(cancel_timeout=60)) as running:
        handle = await work.start_and_hang.enqueue(str(tmp_path / "pids"))
        ended = await running.finished(handle.id)
        pids = await started(tmp_path / "pids")
        await asyncio.to_thread(wait_for_end, *pids)

    assert isinstance(ended.error, TaskTimeoutError)
    assert 2 == len(pids)


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        (work.wait_for, {"path": "no such file"}),
        (work.linger, {"blocks": False}),
        (work.linger, {"blocks": True}),
    ],
    ids=["thread", "coroutine", "blocked loop"],
)
@run_async
async def test_a_timeout_names_the_line_of_the_handler_and_not_of_middleware(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, task: Any, arguments: dict[str, Any]
) -> None:
    """The middleware of the worker only waits; the child tells where its handler is before it is killed."""

    async def wait(task: Task, call_next: Any) -> Any:
        return await call_next(task)

    monkeypatch.setattr(work.app._registry, "_middleware", [wait])
    monkeypatch.setattr(work.app._registry, "_routes", {})
    async with serve() as running:
        handle = await task.enqueue(**arguments)
        ended = await running.finished(handle.id)

    assert isinstance(ended.error, TaskTimeoutError)
    assert (1.0, False) == (ended.error.limit, ended.error.is_deadline)
    assert re.fullmatch(r"child_tasks\.py:\d+ in (wait_for|linger)", ended.error.place)
    [note] = ended.error.__notes__
    assert note.startswith("The handler was at:\n  File ")
    assert "child_tasks.py" in note.splitlines()[1]
    assert "test_server_children_ends" not in note


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", [work.poll, work.poll_async], ids=["plain", "async"])
@run_async
async def test_a_cancelled_handler_is_told_and_its_child_lives_on(
    redis_url: str, serve: Serve, tmp_path: Path, task: Any
) -> None:
    """The event is set in a thread, and a coroutine gets `CancelledError`."""
    path = tmp_path / "said"
    async with serve(ServerConfig(cancel_timeout=20)) as running, Inspector(redis_url) as inspector:
        handle = await task.enqueue(str(path))
        [pid] = await started(path)
        await inspector.cancel(handle.id)
        ended = await running.finished(handle.id)

        assert "told" == await asyncio.to_thread(path.read_text)
        assert isinstance(ended.error, TaskCanceledError)
        assert pid == await (await work.where.enqueue()).result(timeout=30)


@pytest.mark.long
@run_async
async def test_a_cancelled_handler_that_does_not_listen_is_killed(
    redis_url: str, serve: Serve, tmp_path: Path
) -> None:
    """When `cancel_timeout` is over, with what it has started."""
    async with serve(ServerConfig(cancel_timeout=SOON)) as running, Inspector(redis_url) as inspector:
        handle = await work.hang.enqueue(str(tmp_path / "pids"))
        pids = await started(tmp_path / "pids")
        await inspector.cancel(handle.id)
        await running.finished(handle.id)

        await asyncio.to_thread(wait_for_end, *pids)


@run_async
async def test_a_child_whose_task_is_somebody_elses_is_killed_at_once(
    serve: Serve, redis_client: RedisClient, tmp_path: Path, damage_allowed: None
) -> None:
    """The kill does not wait for `cancel_timeout`, because two workers must not run one task."""
    async with serve(ServerConfig(cancel_timeout=60)) as running:
        handle = await work.hang.enqueue(str(tmp_path / "pids"))
        pids = await started(tmp_path / "pids")
        redis_client.hset(f"asynq:{{default}}:t:{handle.id}", "x:attempt", "another/1")
        await running.recorder.wait(LeaseLost)

        await asyncio.to_thread(wait_for_end, *pids)
        await running.finished(handle.id)
        redis_client.flushall()


@run_async
async def test_a_result_of_a_task_that_is_somebody_elses_is_refused_in_the_child(
    serve: Serve, redis_client: RedisClient, tmp_path: Path, damage_allowed: None
) -> None:
    """By the error that a handler in a thread would get."""
    path, go = tmp_path / "said", tmp_path / "go"
    # Nothing renews meanwhile, so nothing else finds out.
    async with serve(settings=QUICK.__class__(sweep_interval=0.02)) as running:
        handle = await work.write_late.enqueue(str(path), str(go))
        await started(path)
        redis_client.hset(f"asynq:{{default}}:t:{handle.id}", "x:attempt", "another/1")
        await asyncio.to_thread(go.touch)
        await running.finished(handle.id)
        redis_client.flushall()

    assert str(LeaseExpiredError()) == path.read_text("ascii")


@pytest.mark.long
@run_async
async def test_a_child_that_says_what_cannot_be_read_is_killed(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task fails, and the worker goes on."""
    async with serve() as running:
        handle = await work.talk_rubbish.enqueue()
        error = (await running.finished(handle.id)).error
        await (await work.where.enqueue()).result(timeout=30)

    assert isinstance(error, ChildProcessDiedError)
    assert "was killed: it sent an unreadable message" in str(error)
    assert "sent an unreadable message and is killed" in caplog.text


@run_async
async def test_tasks_whose_child_is_not_ready_yet_are_put_back_at_shutdown(
    serve: Serve, redis_client: RedisClient
) -> None:
    """That of a child which is being started, and that which waits for its turn."""
    config = ServerConfig(concurrency=2, executor_processes=1, shutdown_timeout=0, cancel_timeout=5)
    async with serve(config) as running:
        handles = [await work.where.enqueue() for _ in range(2)]
        for handle in handles:
            await taken(running, handle.id)
        await running.server.shutdown()

        ids = [handle.id.encode() for handle in reversed(handles)]
        assert ids == redis_client.lrange("asynq:{default}:pending", 0, -1)
        assert 0 == running.recorder.of(TaskFinished)[0].retried


@run_async
async def test_shutdown_waits_then_tells_then_kills_and_puts_the_task_back(
    serve: Serve, redis_client: RedisClient, tmp_path: Path
) -> None:
    """No retry is spent, and nothing of it runs on."""
    config = ServerConfig(shutdown_timeout=SOON, cancel_timeout=SOON)
    async with serve(config) as running:
        handle = await work.hang.enqueue(str(tmp_path / "pids"))
        pids = await started(tmp_path / "pids")
        await running.server.shutdown()

        assert not any(map(lives, pids))
        assert [handle.id.encode()] == redis_client.lrange("asynq:{default}:pending", 0, -1)
        assert 3 == running.server.exit_code
        assert Outcome.REQUEUED is (await running.finished(handle.id)).outcome


@pytest.mark.long
@run_async
async def test_an_idle_child_leaves_its_lifespan_at_shutdown(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child closes its lifespan as the worker closes its own."""
    monkeypatch.setenv("CHILD_TASKS_FOLDER", str(tmp_path))
    async with serve(ServerConfig(cancel_timeout=20)):
        pid = await (await work.where.enqueue()).result(timeout=30)

    assert [f"left-{pid}"] == os.listdir(tmp_path)  # noqa: PTH208 - names are what is compared
    assert not lives(pid)


@pytest.mark.long
@run_async
async def test_a_child_is_replaced_when_it_has_run_its_number_of_tasks(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves its lifespan too."""
    monkeypatch.setenv("CHILD_TASKS_FOLDER", str(tmp_path))
    async with serve(ServerConfig(concurrency=1, executor_max_tasks=2, cancel_timeout=20)):
        pids = [await (await work.where.enqueue()).result(timeout=30) for _ in range(3)]
        await asyncio.to_thread(wait_for_end, pids[0])

        assert pids[0] == pids[1] != pids[2]
        assert (tmp_path / f"left-{pids[0]}").exists()


@pytest.mark.long
@run_async
async def test_no_more_children_run_than_are_allowed_and_waiting_costs_a_task_none_of_its_time(
    serve: Serve, tmp_path: Path
) -> None:
    """The second task has one second, which begins when it has a child."""
    path = tmp_path / "go"
    async with serve(ServerConfig(concurrency=2, executor_processes=1)) as running:
        first = await work.wait_for.options(timeout=60).enqueue(str(path))
        second = await work.wait_for.options(timeout=1).enqueue(str(path))
        await taken(running, second.id)
        engine = running.server._engine
        assert engine is not None
        begun = engine._clock.monotonic()
        while engine._clock.monotonic() < begun + 1.5:
            await running.next_round("deadlines")
        assert [] == running.recorder.of(TaskFinished)
        assert engine._children is not None
        assert 1 == len(engine._children._busy)
        await asyncio.to_thread(path.touch)

        await first.result(timeout=30)
        await second.result(timeout=30)


@run_async
async def test_a_module_that_a_child_cannot_import_fails_the_task(
    redis_url: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the error of the import; the child is asked again the next time."""
    without_tests = [path for path in sys.path if not (Path(path) / "tests").is_dir()]
    async with serve() as running:
        monkeypatch.setattr("sys.path", without_tests)
        handle = await work.where.enqueue()
        info = await looked_up(redis_url, running, handle.id)

    assert info.last_error.startswith("ModuleNotFoundError: No module named 'tests")


@run_async
async def test_a_child_that_is_not_ready_in_time_is_killed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that hangs must not hold a slot for ever."""
    settings = QUICK.__class__(sweep_interval=0.02, child_start_timeout=0.001)
    async with serve(settings=settings) as running:
        handle = await work.where.enqueue()
        error = (await running.finished(handle.id)).error

    assert isinstance(error, ChildProcessDiedError)
    assert "was killed: importing its module and entering the lifespan took more than 0.001 s" in str(error)


@pytest.mark.long
@run_async
async def test_a_child_that_ends_while_it_has_no_task_is_forgotten(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """The next task gets a living one."""
    async with serve() as running:
        pid = await (await work.where.enqueue()).result(timeout=30)
        engine = running.server._engine
        assert engine is not None
        assert engine._children is not None
        [child] = engine._children._idle
        os.kill(pid, 9)
        await child.ended

        assert pid != await (await work.where.enqueue()).result(timeout=30)
    assert f"child process {pid} ended while it had no task: code -9" in caplog.text
