"""Hooks of an app: which are called for which end of an attempt, and that they disturb nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    App,
    Archive,
    Cancel,
    CancelReason,
    ConfigurationError,
    Inspector,
    Retry,
    RevokeTask,
    ServerConfig,
    SkipRetry,
    Snooze,
    TaskCanceledError,
    TaskTimeoutError,
    UndecodableMessageError,
    WorkerDiedError,
    context,
    is_control,
)
from pyasynq._engine import hook_runner
from pyasynq.events import Events, MessageQuarantined, Outcome, TaskFinished, WorkerDied
from tests import child_tasks as work
from tests.fix_engine import serving, trust_redis
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyasynq import AttemptEnd
    from tests.factories import Tasks
    from tests.invariants import RedisClient

Calls = list[tuple[str, "AttemptEnd"]]


def listen(app: App) -> Calls:
    """Give an app a hook of each kind; return what they are called with."""
    calls: Calls = []

    def add(kind: str) -> Callable[[AttemptEnd], None]:
        def hook(end: AttemptEnd) -> None:
            calls.append((kind, end))

        return hook

    async def on_error(end: AttemptEnd) -> None:
        calls.append(("error", end))

    app.on_error(on_error)
    app.on_retry(add("retry"))
    app.on_archived(add("archived"))
    app.on_success(add("success"))
    return calls


def failing_app(error: Callable[[], BaseException], *, plain: bool) -> App:
    """Return an app whose task `t` raises."""
    app = App()

    def fail() -> None:
        raise error()

    async def fail_async() -> None:
        raise error()

    app.task("t")(fail if plain else fail_async)
    return app


ENDS: list[tuple[Callable[[], BaseException], int, list[str]]] = [
    (lambda: ValueError("no"), 1, ["error", "retry"]),
    (lambda: ValueError("no"), 0, ["archived", "error"]),
    (lambda: Snooze(3_600), 0, []),
    (lambda: Retry(3_600), 5, ["retry"]),
    (Retry, 0, ["archived"]),
    (lambda: Archive("why"), 5, ["archived"]),
    (SkipRetry, 5, ["archived"]),
    (Cancel, 5, []),
    (RevokeTask, 5, []),
]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("error", "max_retry", "kinds"), ENDS)
@run_async
async def test_the_end_of_an_attempt_calls_its_hooks(
    redis_url: str, error: Callable[[], BaseException], max_retry: int, kinds: list[str], plain: bool
) -> None:
    """As the table in the page on hooks says; what a handler asks for is not an error."""
    app = failing_app(error, plain=plain)
    calls = listen(app)
    async with serving(redis_url, app) as running:
        await running.client.enqueue("t", b"{}", task_id="a", max_retry=max_retry)
        await running.finished("a")
    assert kinds == sorted(kind for kind, _ in calls)


@run_async
async def test_a_success_calls_its_hook(redis_url: str) -> None:
    """Without an error, and with how long the handler ran."""
    app = App()

    @app.task("t")
    async def succeed() -> None: ...

    calls = listen(app)
    async with serving(redis_url, app) as running:
        await running.client.enqueue("t", b"{}", task_id="a")
        await running.finished("a")
    [(kind, end)] = calls
    assert ("success", "default", "a", "t", Outcome.SUCCEEDED, None, "", None) == (
        kind,
        end.queue,
        end.task_id,
        end.task_type,
        end.outcome,
        end.error,
        end.traceback,
        end.reason,
    )
    assert end.seconds is not None


@run_async
async def test_a_hook_is_told_the_error_and_its_traceback(redis_url: str) -> None:
    """The traceback is text, and the hook also gets the delay before the next try."""
    app = failing_app(lambda: ValueError("no such user"), plain=False)
    calls = listen(app)
    async with serving(redis_url, app, ServerConfig(retry_delay=60)) as running:
        await running.client.enqueue("t", b"{}", task_id="a")
        await running.finished("a")
    end = dict(calls)["retry"]
    assert "no such user" == str(end.error)
    assert "in fail_async" in end.traceback
    assert end.traceback.rstrip().endswith("ValueError: no such user")
    assert end.delay is not None
    assert 58 < end.delay <= 61


async def endless() -> None:
    """Wait to be cancelled."""
    await asyncio.sleep(3_600)


@pytest.mark.parametrize(
    ("options", "reason", "error"),
    [
        ({"timeout": 1}, CancelReason.TIMEOUT, TaskTimeoutError),
        ({"deadline": timedelta(seconds=1)}, CancelReason.DEADLINE, TaskTimeoutError),
    ],
)
@run_async
async def test_an_attempt_whose_time_is_over_tells_the_reason(
    redis_url: str, options: dict[str, Any], reason: CancelReason, error: type[BaseException]
) -> None:
    """The hooks and the handler see the same reason."""
    app = App()
    seen: list[CancelReason | None] = []

    @app.task("t")
    async def wait() -> None:
        try:
            await endless()
        finally:
            seen.append(context().cancelled.reason)

    calls = listen(app)
    if "deadline" in options:
        options = {"deadline": datetime.now(UTC) + options["deadline"]}
    async with serving(redis_url, app) as running:
        await running.client.enqueue("t", b"{}", task_id="a", max_retry=0, **options)
        await running.finished("a")
    assert ["archived", "error"] == sorted(kind for kind, _ in calls)
    assert {reason} == {end.reason for _, end in calls} == set(seen)
    assert isinstance(calls[0][1].error, error)


@pytest.mark.parametrize(
    ("outcome", "kinds"),
    [("retry", ["error", "retry"]), ("archive", ["archived", "error"]), ("delete", ["error"])],
)
@run_async
async def test_a_cancelled_attempt_calls_the_hooks_of_its_outcome(
    redis_url: str, outcome: Any, kinds: list[str]
) -> None:
    """With the reason; in a plain handler, which is told by polling."""
    app = App()
    begun = threading.Event()
    seen: list[CancelReason | None] = []

    @app.task("t")
    def wait() -> None:
        assert context().cancelled.reason is None
        begun.set()
        context().cancelled.wait(30)
        seen.append(context().cancelled.reason)

    calls = listen(app)
    async with serving(redis_url, app) as running, Inspector(redis_url) as inspector:
        await running.client.enqueue("t", b"{}", task_id="a")
        await asyncio.to_thread(begun.wait, 30)
        await inspector.cancel("a", outcome=outcome)
        await running.finished("a")
    assert kinds == sorted(kind for kind, _ in calls)
    assert {CancelReason.CANCEL} == {end.reason for _, end in calls} == set(seen)
    assert isinstance(calls[0][1].error, TaskCanceledError)


@run_async
async def test_a_shutdown_calls_no_hooks(redis_url: str) -> None:
    """The task goes back; its handler can tell why it is cancelled."""
    app = App()
    begun = asyncio.Event()
    seen: list[CancelReason | None] = []

    @app.task("t")
    async def wait() -> None:
        begun.set()
        try:
            await endless()
        finally:
            seen.append(context().cancelled.reason)

    calls = listen(app)
    async with serving(redis_url, app, ServerConfig(shutdown_timeout=0)) as running:
        await running.client.enqueue("t", b"{}", task_id="a")
        await begun.wait()
    assert [] == calls
    assert [CancelReason.SHUTDOWN] == seen


@pytest.mark.parametrize("place", ["loop", "process"])
@pytest.mark.parametrize(("crashes", "kinds"), [(0, ["error"]), (8, ["archived", "error"])])
@run_async
async def test_a_task_of_a_dead_worker_calls_hooks_where_it_is_taken_back(
    redis_url: str,
    redis_client: RedisClient,
    tasks: Tasks,
    monkeypatch: pytest.MonkeyPatch,
    crashes: int,
    kinds: list[str],
    place: str,
) -> None:
    """With `WorkerDiedError`; as poison also the hook of the archive."""
    trust_redis(monkeypatch)
    app, name = App(), "where"
    if place == "process":
        app = work.app
        monkeypatch.setattr(app, "_hooks", type(app._hooks)())
    else:

        @app.task("where")
        async def succeed() -> None: ...

    calls = listen(app)
    tasks.active("a", type=name, token="dead/1", lease=redis_client.time()[0] - 60, crashes=crashes)
    async with serving(redis_url, app) as running:
        await running.recorder.wait(WorkerDied)
    told = [(kind, end) for kind, end in calls if kind != "success"]
    assert kinds == sorted(kind for kind, _ in told)
    error = told[0][1].error
    assert isinstance(error, WorkerDiedError)
    assert ("dead", crashes + 1) == (error.server_id, error.crashes)
    assert (name, None if crashes == 0 else Outcome.ARCHIVED) == (told[0][1].task_type, told[0][1].outcome)


@run_async
async def test_a_task_that_cannot_be_decoded_calls_the_hook_of_the_archive(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Nothing is known of it beyond its id."""
    app = App()
    calls = listen(app)
    tasks.pending("a")
    redis_client.hset(tasks.keys.task("a"), "msg", b"\xff\xff")
    async with serving(redis_url, app) as running:
        await running.recorder.wait(MessageQuarantined)
    [(kind, end)] = calls
    assert ("archived", "a", "") == (kind, end.task_id, end.task_type)
    assert isinstance(end.error, UndecodableMessageError)


@run_async
async def test_a_task_that_is_deleted_by_hand_calls_no_hooks(redis_url: str, tasks: Tasks) -> None:
    """No attempt has ended."""
    app = App()
    calls = listen(app)
    tasks.pending("a")
    async with serving(redis_url, app, ServerConfig(queues={"other": 1})), Inspector(redis_url) as inspector:
        await inspector.delete_task("default", "a")
    assert [] == calls


@run_async
async def test_hooks_of_tasks_in_child_processes_run_in_the_worker(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook gets the error that the handler raised in the child process."""
    monkeypatch.setattr(work.app, "_hooks", type(work.app._hooks)())
    calls = listen(work.app)
    async with serving(redis_url, work.app) as running:
        await running.client.enqueue("double", b'{"order": {"number": "four"}}', task_id="a", max_retry=0)
        await running.finished("a")
    assert ["archived", "error"] == sorted(kind for kind, _ in calls)
    assert "argument order.number" in str(calls[0][1].error)


@pytest.mark.parametrize(
    ("outcome", "kinds"),
    [("retry", ["error", "retry"]), ("archive", ["archived", "error"]), ("delete", ["error"])],
)
@run_async
async def test_a_cancelled_attempt_in_a_child_process_calls_the_same_hooks(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: Any, kinds: list[str]
) -> None:
    """With the reason, whatever the child process does."""
    monkeypatch.setattr(work.app, "_hooks", type(work.app._hooks)())
    calls = listen(work.app)
    begun = tmp_path / "begun"
    payload = json.dumps({"path": str(begun)}).encode()
    async with serving(redis_url, work.app) as running, Inspector(redis_url) as inspector:
        await running.client.enqueue("poll", payload, task_id="a")
        await asyncio.to_thread(wait_until, begun.exists)
        await inspector.cancel("a", outcome=outcome)
        await running.finished("a")
    assert kinds == sorted(kind for kind, _ in calls)
    assert {CancelReason.CANCEL} == {end.reason for _, end in calls}
    assert {TaskCanceledError} == {type(end.error) for _, end in calls}


ENDS_IN_CHILDREN: list[tuple[str, dict[str, str], int, list[str]]] = [
    ("where", {}, 1, ["success"]),
    ("decline", {}, 1, ["error", "retry"]),
    ("decline", {}, 0, ["archived", "error"]),
    ("wait", {"path": "/nowhere"}, 1, ["error", "retry"]),  # until its timeout
    ("wait", {"path": "/nowhere"}, 0, ["archived", "error"]),
    ("control", {"what": "snooze"}, 0, []),
    ("control", {"what": "retry raised"}, 1, ["retry"]),
    ("control", {"what": "archive"}, 5, ["archived"]),
    ("control", {"what": "skip raised"}, 5, ["archived"]),
    ("control", {"what": "cancel raised"}, 5, []),
]


@run_async
async def test_the_end_of_an_attempt_in_a_child_process_calls_the_same_hooks(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row as for handlers in the worker's own process."""
    monkeypatch.setattr(work.app, "_hooks", type(work.app._hooks)())
    calls = listen(work.app)
    async with serving(redis_url, work.app) as running:
        for number, (name, arguments, max_retry, _) in enumerate(ENDS_IN_CHILDREN):
            await running.client.enqueue(
                name,
                json.dumps(arguments).encode(),
                task_id=str(number),
                max_retry=max_retry,
                timeout=1 if name == "wait" else 60,
            )
        for number in range(len(ENDS_IN_CHILDREN)):
            await running.finished(str(number))
    kinds = [
        sorted(kind for kind, end in calls if end.task_id == str(number))
        for number in range(len(ENDS_IN_CHILDREN))
    ]
    assert [expected for *_, expected in ENDS_IN_CHILDREN] == kinds


@run_async
async def test_what_a_hook_raises_is_logged_and_changes_nothing(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other hooks are called, and the task has succeeded."""
    app = App()
    called: list[str] = []

    @app.task("t")
    async def succeed() -> None: ...

    @app.on_success
    async def broken(end: AttemptEnd) -> None:
        raise ValueError("first")

    @app.on_success
    def broken_plain(end: AttemptEnd) -> None:
        raise SystemExit(5)

    @app.on_success
    async def own_timeout(end: AttemptEnd) -> None:
        raise TimeoutError

    @app.on_success
    def last(end: AttemptEnd) -> None:
        called.append(end.task_id)

    async with serving(redis_url, app) as running:
        await running.client.enqueue("t", b"{}", task_id="a")
        finished = await running.finished("a")
    assert Outcome.SUCCEEDED == finished.outcome
    assert ["a"] == called
    raised = sorted(line for line in caplog.messages if line.startswith("the hook "))
    assert [True] * 3 == [line.endswith(" raised") for line in raised]


@pytest.mark.parametrize("plain", [False, True])
@run_async
async def test_a_slow_hook_is_given_up_and_holds_nothing(
    redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    """Neither slots nor settles: with one slot, all tasks end while the first hook still runs."""
    monkeypatch.setattr(hook_runner, "HOOK_SECONDS", 0.3)
    app = App()
    released = threading.Event()

    @app.task("t")
    async def succeed() -> None: ...

    async def slow(end: AttemptEnd) -> None:
        await endless()

    def slow_plain(end: AttemptEnd) -> None:
        released.wait(30)

    app.on_success(slow_plain if plain else slow)
    try:
        async with serving(redis_url, app, ServerConfig(concurrency=1)) as running:
            for number in range(10):
                await running.client.enqueue("t", b"{}", task_id=str(number))
            for number in range(10):
                await running.finished(str(number))
            await running.settled()
    finally:
        released.set()
    assert 10 == sum("took over 0.3 s and was given up" in line for line in caplog.messages)


@run_async
async def test_hooks_that_are_too_slow_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond a number of calls that wait, further ones are dropped and told."""
    monkeypatch.setattr(hook_runner, "_AT_ONCE", 1)
    monkeypatch.setattr(hook_runner, "_WAITING", 2)
    app = App()
    called: list[str] = []
    gate = asyncio.Event()

    @app.on_success
    async def wait(end: AttemptEnd) -> None:
        await gate.wait()
        called.append(end.task_id)

    events = Events()
    runner = hook_runner.HookRunner(app._hooks, events)
    for number in range(6):
        events.emit(TaskFinished("q", str(number), "t", 0, 1, Outcome.SUCCEEDED, 0.1, None))
    gate.set()
    await runner.close(lambda: 5.0)  # type: ignore[arg-type] # a number of seconds is all it asks for
    assert ["0", "1", "2"] == called
    assert [
        "1 call of a hook was dropped so far: over 2 wait, since the hooks are too slow"
    ] == caplog.messages


@run_async
async def test_the_end_of_a_worker_gives_hooks_their_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The running ones are cancelled, the waiting ones are dropped."""
    monkeypatch.setattr(hook_runner, "_AT_ONCE", 1)
    monkeypatch.setattr(hook_runner, "HOOK_SECONDS", 0.1)
    app = App()

    @app.on_error
    async def wait(end: AttemptEnd) -> None:
        await endless()

    events = Events()
    runner = hook_runner.HookRunner(app._hooks, events)
    for number in range(3):
        events.emit(TaskFinished("q", str(number), "t", 0, 1, Outcome.RETRIED, 0.1, ValueError()))
    await runner.close(lambda: 0.0)  # type: ignore[arg-type] # as above
    assert ["3 calls of hooks were given up at the end of the worker"] == caplog.messages


def test_an_app_without_hooks_for_successes_asks_for_no_event_of_them() -> None:
    """A drain of successes builds none."""

    async def attach(app: App) -> tuple[bool, bool]:
        events = Events()
        hook_runner.HookRunner(app._hooks, events)
        return events.wants(TaskFinished), events.wants_routine(TaskFinished)

    errors, successes = App(), App()
    errors.on_error(lambda end: None)
    successes.on_success(lambda end: None)
    assert (True, False) == asyncio.run(attach(errors))
    assert (True, True) == asyncio.run(attach(successes))
    assert not App()._hooks.watch_attempts


@run_async
async def test_a_worker_calls_hooks_at_its_start_and_its_end(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within the lifespan; one that raises does not keep the worker from working."""
    app = App(redis_url)
    told: list[str] = []

    @app.task("t")
    async def succeed() -> None:
        told.append("task")

    @app.on_worker_start
    async def started() -> None:
        told.append("start")

    @app.on_worker_start
    def broken() -> None:
        raise ValueError("no")

    @app.on_worker_stop
    def stopped() -> None:
        told.append("stop")

    server = app.server(ServerConfig(burst=True))
    await app.enqueue("t", b"{}")
    assert 0 == await server.run(app, signals=False)
    assert ["start", "task", "stop"] == told
    assert 1 == sum(line.endswith("broken raised") for line in caplog.messages)


@pytest.mark.parametrize("name", ["on_error", "on_retry", "on_archived", "on_success"])
def test_a_hook_of_attempts_takes_one_argument(name: str) -> None:
    """Any other is refused where it is declared."""
    with pytest.raises(ConfigurationError, match="must take one argument, the end of an attempt"):
        getattr(App(), name)(lambda: None)
    with pytest.raises(ConfigurationError, match="must take one argument"):
        getattr(App(), name)("log")


@pytest.mark.parametrize("name", ["on_worker_start", "on_worker_stop"])
def test_a_hook_of_the_worker_takes_no_argument(name: str) -> None:
    """One that needs it is refused where it is declared."""
    with pytest.raises(ConfigurationError, match="must take no argument"):
        getattr(App(), name)(lambda end: None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Snooze(1), True),
        (Retry(), True),
        (Archive(""), True),
        (Cancel(), True),
        (SkipRetry(), True),
        (RevokeTask(), True),
        (ValueError(), False),
        (TaskCanceledError(), False),
        (TaskTimeoutError(), False),
    ],
)
def test_control_is_told_apart_from_errors(error: BaseException, expected: bool) -> None:
    """Middleware sees both as raised exceptions, and `is_control` tells which is which."""
    assert expected is is_control(error)
