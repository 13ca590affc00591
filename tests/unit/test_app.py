"""Declaring and enqueueing typed tasks; a fake client stands for Redis."""

from __future__ import annotations

import asyncio
import functools
import re
import subprocess
import sys
from collections.abc import Awaitable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import pytest

from pyasynq._app.client_middleware import blocking_middleware
from pyasynq._app.typed_task import CoroutineTask, PlainTask
from pyasynq._engine.handlers.routes import AttemptRules, HandlerRules
from pyasynq.app import App
from pyasynq.config import ServerConfig
from pyasynq.control import Retry, Snooze
from pyasynq.errors import (
    ArgumentsError,
    ConfigurationError,
    EnqueueManyError,
    HandlerNotFoundError,
    InvalidOptionError,
    PayloadDecodingError,
    UnknownOptionError,
)
from pyasynq.limits import Queue
from pyasynq.mux import Mux
from pyasynq.task import EnqueueResult, EnqueueStatus, Task, TaskInfo, TaskState
from pyasynq.worker_config import WorkerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from pyasynq._engine.handlers.routes import Route

URL = "redis://user:secret@localhost:6379/0"


def info_of(task: Task) -> TaskInfo:
    """Return what a client would answer."""
    return TaskInfo(
        "some-id",
        str(task.options.get("queue", "default")),
        task.type,
        task.payload or b"",
        TaskState.PENDING,
        max_retry=25,
        retried=0,
        timeout=None,
        deadline=None,
        next_process_at=None,
        retention=timedelta(0),
    )


class FakeClient:
    """Remembers the tasks that it was given."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    async def enqueue(self, task: Task, payload: None = None) -> TaskInfo:
        self.tasks.append(task)
        return info_of(task)

    async def enqueue_many(self, tasks: Any, *, on_error: str) -> list[EnqueueResult]:
        assert "return" == on_error
        if hasattr(tasks, "__aiter__"):
            self.tasks += [task async for task in tasks]
        else:
            self.tasks += tasks
        return [EnqueueResult(EnqueueStatus.ENQUEUED, str(i), "default") for i in range(len(self.tasks))]


class FakeBlockingClient:
    """The same, blocking."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def enqueue(self, task: Task, payload: None = None) -> TaskInfo:
        self.tasks.append(task)
        return info_of(task)

    def enqueue_many(self, tasks: Iterable[Task], *, on_error: str) -> list[EnqueueResult]:
        assert "return" == on_error
        self.tasks += tasks
        return [EnqueueResult(EnqueueStatus.ENQUEUED, str(i), "default") for i in range(len(self.tasks))]


class FakeSender:
    """An app's sending side, on fake clients."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.blocking = FakeBlockingClient()


def app_on(sender: FakeSender, monkeypatch: pytest.MonkeyPatch) -> App:
    """Return an app whose clients are the sender's."""
    monkeypatch.setattr(App, "_open", lambda _: sender.client)
    monkeypatch.setattr(App, "_open_blocking", lambda _: sender.blocking)
    return App(URL)


async def deliver(user_id: int, template: str = "welcome") -> str:
    """A coroutine handler."""
    return f"{template} {user_id}"


def resize(path: str) -> bytes:
    """A plain handler."""
    return path.encode()


def route_in(app: App, task_type: str) -> Route | None:
    """Return the route by which a server runs tasks of a type."""
    return app.__pyasynq_router__().route(task_type)


async def run(route: Route | None, payload: bytes) -> Any:
    """Run a route as the engine does, without a server."""
    assert route is not None
    result: Any = route.call(Task("some type", payload))
    return result if route.plain else await result


def test_enqueue_sends_the_arguments_and_returns_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task has the options of its declaration."""
    sender = FakeSender()
    task = app_on(sender, monkeypatch).task("email:deliver", queue="critical", max_retry=5)(deliver)
    handle = asyncio.run(task.enqueue(user_id=42))
    (sent,) = sender.client.tasks
    assert "email:deliver" == sent.type
    assert b'{"user_id":42,"template":"welcome"}' == sent.payload
    assert {"queue": "critical", "max_retry": 5} == sent.options
    assert ("some-id", "critical") == (handle.id, handle.queue)
    assert "email:deliver" == handle.enqueued.type


def test_enqueue_sync_sends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the blocking client."""
    sender = FakeSender()
    handle = app_on(sender, monkeypatch).task("email:deliver")(deliver).enqueue_sync(42, "x")
    assert b'{"user_id":42,"template":"x"}' == sender.blocking.tasks[0].payload
    assert "some-id" == handle.id


def test_options_make_a_copy_and_win_over_the_declaration() -> None:
    """Setting by setting; the original stays as it was."""
    task = App(URL).task("email:deliver", queue="critical", max_retry=5, process_in=5)(deliver)
    other = task.options(queue="low", headers={"tenant": "a"}).options(headers={"trace": "b"})
    assert {"queue": "critical", "max_retry": 5, "process_in": 5} == task.task(1).options
    assert {"queue": "low", "max_retry": 5, "process_in": 5, "headers": {"tenant": "a", "trace": "b"}} == (
        other.task(1).options
    )


def test_enqueue_many_refuses_one_call_and_sends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result stands where its call stood, from iterables and async iterables, blocking or not."""
    calls: list[Any] = [{"user_id": 1}, {"usr_id": 2}, {"user_id": object()}, {"user_id": 4}]

    async def slowly() -> AsyncIterator[Any]:
        for call in calls:
            yield call

    for kind in ("list", "async", "blocking"):
        sender = FakeSender()
        task = app_on(sender, monkeypatch).task("email:deliver")(deliver)
        if kind == "blocking":
            results = task.enqueue_many_sync(calls, on_error="return")
        else:
            results = asyncio.run(task.enqueue_many(calls if kind == "list" else slowly(), on_error="return"))
        assert ["enqueued", "refused", "refused", "enqueued"] == [result.status for result in results]
        assert "did you mean 'user_id'" in str(results[1].error)
        assert "argument user_id" in str(results[2].error)
        assert ["0", None, None, "1"] == [result.task_id for result in results]


@pytest.mark.parametrize("way", ["enqueue_many", "enqueue_many_sync"])
def test_enqueue_many_says_what_a_call_must_be(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A call that is not a mapping is refused in its result; a mapping instead of calls, at once."""
    task = app_on(FakeSender(), monkeypatch).task("email:deliver")(deliver)

    def enqueue_many(calls: Any) -> Any:
        called = getattr(task, way)(calls, on_error="return")
        return asyncio.run(called) if way == "enqueue_many" else called

    results = enqueue_many([{"user_id": 1}, 7])
    assert ["enqueued", "refused"] == [result.status for result in results]
    assert "task 'email:deliver': call 1 is int: give each call as a mapping of arguments" in str(
        results[1].error
    )
    for calls in ({"user_id": 1}, "user_id"):
        with pytest.raises(
            ArgumentsError, match=r"'email:deliver': the calls are (dict|str): give a list of"
        ):
            enqueue_many(calls)


@pytest.mark.parametrize("way", ["enqueue_many", "enqueue_many_sync"])
def test_calls_that_are_refused_raise_an_error(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The other calls are sent, and the error has the results of all of them. (D06)"""
    sender = FakeSender()
    task = app_on(sender, monkeypatch).task("email:deliver")(deliver)

    def enqueue_many(calls: Any, **options: Any) -> Any:
        called = getattr(task, way)(calls, **options)
        return asyncio.run(called) if way == "enqueue_many" else called

    with pytest.raises(EnqueueManyError) as raised:
        enqueue_many([{"user_id": 1}, 7, {"usr_id": 2}])
    assert ["enqueued", "refused", "refused"] == [result.status for result in raised.value.results]
    assert [ArgumentsError, ArgumentsError] == [type(error) for error in raised.value.exceptions]
    assert "2 of 3 tasks were not enqueued as asked: 2 ArgumentsError" in str(raised.value)
    with pytest.raises(InvalidOptionError, match="on_error"):
        enqueue_many([], on_error="ignore")


def test_a_typed_task_can_be_called_as_the_function_it_was() -> None:
    """Name, signature and documentation are the function's."""
    app = App(URL)
    task = app.task("email:deliver")(deliver)
    assert "x 7" == asyncio.run(task(7, template="x"))
    assert b"a" == app.task("resize")(resize)("a")
    assert "deliver" == task.__name__  # type: ignore[attr-defined]
    assert "<CoroutineTask 'email:deliver'>" == repr(task)


def test_the_name_of_an_unnamed_task_is_module_and_function() -> None:
    """Both processes import it by that name."""
    task = App(URL).task(deliver)
    assert f"{deliver.__module__}.deliver" == task.type


def test_two_tasks_of_one_type_are_refused_naming_both() -> None:
    """One of them would never run."""
    app = App(URL)
    app.task("email")(deliver)
    with pytest.raises(
        ConfigurationError, match=r"type 'email': .*deliver \(.*:\d+\) and .*resize \(.*:\d+\)"
    ):
        app.task("email")(resize)


def test_an_unnamed_task_in_main_is_refused() -> None:
    """The worker knows that module by another name."""

    async def job() -> None: ...

    job.__module__, job.__qualname__ = "__main__", "job"
    app = App(URL)
    with pytest.raises(ConfigurationError, match=r"'__main__' here .* @app.task\(\"job\"\)"):
        app.task(job)
    assert "job" == app.task("job")(job).type


def test_a_function_that_cannot_be_found_by_name_needs_one() -> None:
    """Lambdas, local functions and partials."""
    nameless: Any
    for nameless in (lambda: None, functools.partial(resize, "a")):
        with pytest.raises(ConfigurationError, match="give the task one"):
            App(URL).task(nameless)


def test_generators_and_methods_are_refused() -> None:
    """A handler has one result, and a payload has no object."""

    def generator() -> Iterable[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    class Mailer:
        def send(self, to: str) -> None: ...

    for function in (generator, asynchronous):
        with pytest.raises(ConfigurationError, match="is a generator"):
            App(URL).task("a")(function)
    with pytest.raises(ConfigurationError, match="'self': declare a function"):
        App(URL).task("a")(Mailer.send)


def test_wrong_options_of_a_declaration_are_errors_at_once() -> None:
    """The error suggests the nearest option."""
    options: Any = {"que": "critical"}
    with pytest.raises(UnknownOptionError, match="did you mean 'queue'"):
        App(URL).task("a", **options)
    with pytest.raises(InvalidOptionError, match="max_retry=-1"):
        App(URL).task("a", max_retry=-1)
    with pytest.raises(InvalidOptionError, match="the name of a task"):
        App(URL).task(" ")
    with pytest.raises(UnknownOptionError, match="did you mean 'process_in'"):
        App(URL).task("a")(deliver).options(proces_in=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("countdown", "process_in"),
        ("eta", "process_at"),
        ("retries", "max_retry"),
        ("_defer_by", "process_in"),
        ("keep_result", "retention"),
        ("job_id", "task_id"),
    ],
)
def test_the_words_of_other_libraries_lead_to_ours(word: str, option: str) -> None:
    """They are not like ours in spelling."""
    with pytest.raises(UnknownOptionError, match=f"no option {word!r}; did you mean {option!r}"):
        App(URL).task("t", **{word: 1})  # type: ignore[call-overload]


def test_a_handle_shows_where_the_task_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, as somebody at a prompt wants it."""
    app = App(URL)
    monkeypatch.setattr(app, "enqueue_sync", info_of)

    @app.task("t", queue="critical")
    def work() -> None: ...

    assert "<BlockingEnqueuedTask some-id of 't' in queue 'critical', pending>" == repr(work.enqueue_sync())


def test_a_parameter_that_no_payload_carries_is_an_error_at_once() -> None:
    """Naming task and parameter."""

    async def handler(a: complex) -> None: ...

    handler.__annotations__["a"] = complex
    with pytest.raises(ConfigurationError, match="task 'a', parameter 'a': JSON cannot carry complex"):
        App(URL).task("a")(handler)


later_app = App(URL)


@later_app.task("later")
async def take_later(what: Later) -> str:
    """Annotated with a class that is defined below."""
    return what["name"]


class Later(TypedDict):
    name: str


def test_an_annotation_may_name_what_comes_later() -> None:
    """It is looked up again when all modules are there."""
    later_app.load()
    assert b'{"what":{"name":"a"}}' == take_later.task({"name": "a"}).payload


def test_an_annotation_that_nothing_defines_is_an_error_when_the_app_is_loaded() -> None:
    """Naming what is missing and where."""

    async def handler(a: int) -> None: ...

    handler.__annotations__["a"] = "Missing"
    app = App(URL)
    task = app.task("a")(handler)
    with pytest.raises(ConfigurationError, match="names 'Missing', which its module does not define"):
        app.load()
    with pytest.raises(ConfigurationError, match="names 'Missing'"):
        task.task(1)


def test_the_queues_are_those_of_the_tasks_and_default() -> None:
    """What a worker serves unless told otherwise."""
    app = App(URL)
    app.task("a", queue="low")(deliver)
    app.task("b", queue="critical")(resize)
    assert ("critical", "low") == app.queues
    assert {"critical": 1, "default": 1, "low": 1} == app.default_queues()
    assert ["a", "b"] == list(app.tasks)


PUBLIC_OF_APPS = {
    *(
        "address",
        "aggregator",
        "close",
        "close_sync",
        "cron",
        "default_queues",
        "describe_types",
        "enqueue",
        "enqueue_many",
        "enqueue_many_sync",
        "enqueue_sync",
        "handle",
        "handle_sync",
        "has_schedules",
        "inspector",
        "inspector_sync",
        "load",
        "on_archived",
        "on_error",
        "on_retry",
        "on_success",
        "on_worker_start",
        "on_worker_stop",
        "ping",
        "ping_sync",
        "queues",
        "result",
        "result_sync",
        "run_scheduler",
        "run_worker",
        "schedule",
        "scheduler",
        "server",
        "state",
        "task",
        "tasks",
        "type_codec",
        "url",
        "use",
        "use_client",
        "wait",
        "wait_sync",
        "worker",
    )
}
PUBLIC_OF_TASKS = {
    *(
        "aggregator",
        "declared_options",
        "enqueue",
        "enqueue_many",
        "enqueue_many_sync",
        "enqueue_sync",
        "handle",
        "handle_sync",
        "options",
        "read_call",
        "schema",
        "task",
        "use",
        "with_headers",
        "with_options",
    )
}


@pytest.mark.parametrize(
    ("cls", "public"), [(App, PUBLIC_OF_APPS), (CoroutineTask, PUBLIC_OF_TASKS), (PlainTask, PUBLIC_OF_TASKS)]
)
def test_only_what_a_user_calls_is_public(cls: type, public: set[str]) -> None:
    """What the engine, child processes and kits need has a private name."""
    assert public == {name for name in dir(cls) if not name.startswith("_")}


def test_a_route_decodes_runs_and_encodes() -> None:
    """Coroutines and plain functions; outside of a server the result is always encoded."""
    app = App(URL)
    app.task("email")(deliver)
    app.task("resize")(resize)
    assert b'"welcome 1"' == asyncio.run(run(route_in(app, "email"), b'{"user_id":1}'))
    assert b'"YQ=="' == asyncio.run(run(route_in(app, "resize"), b'{"path":"a"}'))
    assert [False, True] == [route.plain for route in app.__pyasynq_router__().routes()]
    assert route_in(app, "email") is route_in(app, "email")


def test_a_payload_that_does_not_fit_fails_the_task() -> None:
    """An ordinary failure, before the handler is called."""
    app = App(URL)
    app.task("email")(deliver)
    with pytest.raises(PayloadDecodingError, match="missing 'user_id'; unknown 'id'"):
        asyncio.run(run(route_in(app, "email"), b'{"id":1}'))


def test_a_result_that_json_cannot_carry_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """And reported: the task has succeeded, and its settle is not lost."""

    async def wrong() -> object:
        return object()

    app = App(URL)
    app.task("wrong")(wrong)
    assert asyncio.run(run(route_in(app, "wrong"), b"")) is None
    assert "the result of task 'wrong': JSON cannot carry object" in caplog.text


def test_middleware_runs_outermost_first_around_handler_and_not_found() -> None:
    """Middleware of the constructor comes before that of `use()`."""
    seen: list[str] = []

    def recorder(name: str) -> Any:
        async def middleware(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
            seen.append(f"{name} before")
            try:
                return await call_next(task)
            finally:
                seen.append(f"{name} after")

        return middleware

    app = App(URL, middleware=[recorder("outer")])
    app.use(recorder("inner"))
    app.task("email")(deliver)
    asyncio.run(run(route_in(app, "email"), b'{"user_id":1}'))
    assert ["outer before", "inner before", "inner after", "outer after"] == seen
    seen.clear()
    with pytest.raises(HandlerNotFoundError):
        asyncio.run(run(route_in(app, "unknown"), b""))
    assert ["outer before", "inner before", "inner after", "outer after"] == seen
    assert route_in(App(URL), "unknown") is None


def test_client_middleware_runs_without_a_loop_if_it_only_awaits_the_next() -> None:
    """So one middleware serves `enqueue` and `enqueue_sync`."""

    async def add_header(task: Task, call_next: Callable[[Task], Awaitable[TaskInfo]]) -> TaskInfo:
        return await call_next(Task(task.type, task.payload, headers={"tenant": "a"}))

    async def sleepy(task: Task, call_next: Callable[[Task], Awaitable[TaskInfo]]) -> TaskInfo:
        await asyncio.sleep(0)
        return await call_next(task)

    client = FakeBlockingClient()
    assert "some-id" == blocking_middleware(add_header)(Task("a"), client.enqueue).id
    assert {"tenant": "a"} == client.tasks[0].headers
    with pytest.raises(ConfigurationError, match="sleepy' waits for something other than call_next"):
        blocking_middleware(sleepy)(Task("a"), client.enqueue)
    assert 1 == len(client.tasks)


def test_passwords_and_arguments_are_not_in_any_repr() -> None:
    """Nor in the errors of wrong calls."""
    app = App(URL)
    task = app.task("email")(deliver)
    assert "<App at localhost:6379 with 1 task>" == repr(app)
    assert "secret" not in repr(task.task(1, "secret"))
    wrong: Any = task
    with pytest.raises(ArgumentsError) as caught:
        wrong.task("secret", "secret", "secret")
    assert "secret" not in str(caught.value)


def test_a_wrong_url_is_an_error_at_once_and_a_missing_one_at_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`PYASYNQ_REDIS_URL` is read as late as the connection is made."""
    with pytest.raises(ConfigurationError, match="unsupported URI scheme: 'reds'; did you mean 'redis'"):
        App("reds://localhost")
    with pytest.raises(ConfigurationError, match=r"modules=<str>: give a list"):
        App(URL, modules="shop")
    monkeypatch.delenv("PYASYNQ_REDIS_URL", raising=False)
    app = App()
    assert "<App at $PYASYNQ_REDIS_URL with 0 tasks>" == repr(app)
    with pytest.raises(ConfigurationError, match="set PYASYNQ_REDIS_URL in the environment"):
        _ = app.url
    monkeypatch.setenv("PYASYNQ_REDIS_URL", "redis://elsewhere")
    assert "redis://elsewhere" == app.url


def test_a_queue_that_the_app_declares_as_ordered_refuses_front_at_once() -> None:
    """Redis learns only from a server that the queue is ordered."""
    app = App(URL, queues={"ledger": Queue(ordered=True)})
    remedy = "front=True: queue 'ledger' is ordered, by App"

    def book() -> None: ...

    with pytest.raises(InvalidOptionError, match=remedy):
        app.task("refused", queue="ledger", front=True)(book)
    task = app.task("book", queue="ledger")(book).options(front=True)
    with pytest.raises(InvalidOptionError, match=remedy):
        task.enqueue_sync()
    with pytest.raises(InvalidOptionError, match=remedy):
        asyncio.run(task.enqueue())
    with pytest.raises(InvalidOptionError, match=remedy):
        app.enqueue_sync("book", queue="ledger", front=True)


def test_a_task_that_orders_its_own_queue_refuses_front() -> None:
    """The order is declared by the task itself."""
    app = App(URL)
    with pytest.raises(InvalidOptionError, match="front=True: queue 'own' is ordered, by task 'own'"):
        app.task("own", ordered=True, front=True)(lambda: None)


def test_middleware_that_is_not_a_coroutine_function_is_refused() -> None:
    """It could not await the next one."""

    def plain(task: Task, call_next: Any) -> Any: ...

    with pytest.raises(
        ConfigurationError, match=r"plain' must be `async def`, as in `async def m\(task, call_next\)`"
    ):
        App(URL).use(plain)
    with pytest.raises(ConfigurationError, match="must be `async def`"):
        App(URL, middleware=[plain])


def test_a_lifespan_that_is_a_bare_generator_is_refused() -> None:
    """The error names the missing decorator."""

    async def life(app: App) -> AsyncIterator[None]:
        yield

    wrong: Any = life
    with pytest.raises(ConfigurationError, match="decorate it with @asynccontextmanager"):
        App(URL, lifespan=wrong)


def test_a_lifespan_that_is_not_a_function_is_refused() -> None:
    """The error names the value and the remedy."""
    with pytest.raises(ConfigurationError, match="lifespan=3: give a function of the app"):
        App(URL, lifespan=3)  # type: ignore[arg-type]


def test_a_misspelt_rule_of_a_type_is_told_from_the_options() -> None:
    """The decorator takes more than an enqueue does: it suggests and lists that too, and only there."""
    declare: Any = App(URL).task
    for wrong, meant in (("resultttl", "result_ttl"), ("isfailure", "is_failure")):
        with pytest.raises(UnknownOptionError, match=f"no option '{wrong}'; did you mean '{meant}'"):
            declare("x", **{wrong: 5})
    with pytest.raises(UnknownOptionError, match=r"the options are .*is_failure, .*result_ttl, "):
        declare("x", colour="red")
    with pytest.raises(UnknownOptionError, match="did you mean 'retention'"):
        declare("x")(deliver).options(result_ttl=5)


def test_the_rules_of_a_type_reach_its_route() -> None:
    """Retry delay, what counts as a failure, and the limit of crashes."""

    def delay(retried: int, error: BaseException, task: Task) -> float:
        return 1.0

    def is_failure(error: BaseException) -> bool:
        return False

    app = App(URL)
    app.task("a", retry_delay=delay, is_failure=is_failure, crash_limit=0)(deliver)
    route = route_in(app, "a")
    assert route is not None
    assert HandlerRules(delay, is_failure, 0) == route.rules
    with pytest.raises(InvalidOptionError, match="crash_limit=-1"):
        App(URL).task("a", crash_limit=-1)(deliver)


@pytest.mark.parametrize("delay", [5, 5.0, timedelta(seconds=5)])
def test_a_retry_delay_may_be_constant(delay: Any) -> None:
    """Durations of a task type, of a pattern and of a server; zero is valid too, text is not."""
    app, mux = App(URL), Mux()
    app.task("a", retry_delay=delay)(deliver)
    mux.handle("a", print, retry_delay=delay)
    for route in (route_in(app, "a"), mux.route("a")):
        rules = AttemptRules(ServerConfig(), route, Task("a"))
        assert 5.0 == rules.delay(3, ValueError())
    assert 5.0 == AttemptRules(ServerConfig(retry_delay=delay), None, Task("a")).delay(3, ValueError())
    assert 0.0 == AttemptRules(ServerConfig(retry_delay=0), None, Task("a")).delay(3, ValueError())
    for wrong in ("5s", -1, True):
        with pytest.raises(InvalidOptionError, match=r"^retry_delay="):
            app.task("b", retry_delay=wrong)(deliver)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match=r"^retry_delay="):
            mux.handle("b", print, retry_delay=wrong)  # type: ignore[arg-type]


def test_pydantic_is_never_imported_unless_a_module_did() -> None:
    """Nor are the extras: an app costs what it uses."""
    program = (
        "import sys; from pyasynq import App; app = App('redis://localhost')\n"
        "@app.task('a')\nasync def a(x: int, y: list[str]) -> None: ...\n"
        "a.task(1, []); extras = {'pydantic', 'uvloop', 'rich', 'watchfiles', 'click'}; "
        "print(sorted(extras & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_an_app_has_one_aggregator_for_each_name_of_groups() -> None:
    """The decorated function stays what it is; a second one of the same name is an error."""
    app = App(URL)

    @app.aggregator
    async def every(group: str, tasks: list[Task]) -> Task | None:
        return None

    @app.aggregator("user:*", grace_period=5, max_delay=timedelta(minutes=1), max_size=7)
    def users(group: str, tasks: list[Task]) -> Task:
        return Task("digest", b"%d" % len(tasks))

    assert b"2" == users("g", [Task("a"), Task("b")]).payload
    assert {"*": False, "user:*": True} == {
        name: one.plain for name, one in app.__pyasynq_router__().aggregators().items()
    }
    rule = app.__pyasynq_router__().aggregators()["user:*"].rule
    assert (5, timedelta(minutes=1), 7) == (rule.grace_period, rule.max_delay, rule.max_size)
    with pytest.raises(ConfigurationError, match=r"'user:\*' have an aggregator already"):
        app.aggregator("user:*")(users)
    with pytest.raises(InvalidOptionError, match="name of a group"):
        app.aggregator(" ")(users)
    with pytest.raises(ConfigurationError, match="must be a function"):
        app.aggregator("x")(7)  # type: ignore[type-var]


class Entity:
    """A class that an ORM maps to a row."""


@pytest.mark.parametrize("annotation", [Entity, list[Entity], Entity | None, Awaitable[Entity]], ids=str)
def test_a_return_type_without_json_is_refused_at_the_declaration(annotation: Any) -> None:
    """Its results could never be kept; the error says what to write. (D11)"""

    async def load() -> Any: ...

    load.__annotations__["return"] = annotation
    with pytest.raises(
        ConfigurationError, match="task 'load', return annotation: JSON cannot carry Entity; use a dataclass"
    ):
        App(URL).task("load")(load)


@pytest.mark.parametrize(
    "annotation", [NoReturn, None, Awaitable[int], Coroutine[Any, Any, int | Snooze], Retry], ids=str
)
def test_an_annotation_without_a_result_needs_no_json(annotation: Any) -> None:
    """Nor does what is awaited to have one. (D11)"""

    def work() -> Any: ...

    work.__annotations__["return"] = annotation
    App(URL).task("work")(work)


def test_a_task_with_a_limit_has_a_queue_of_its_own() -> None:
    """It is called like the type, unless the task names one."""
    app = App()

    @app.task("report:build", max_run=3)
    async def build() -> None: ...

    @app.task("mail:send", queue="mail", rate="50/m+5")
    async def send() -> None: ...

    @app.task("ledger:book", ordered=True)
    async def book() -> None: ...

    @app.task("mail:count", queue="mail")
    async def count() -> None: ...

    assert {
        "default": 1,
        "ledger:book": Queue(ordered=True),
        "mail": Queue(rate=50, period=60, burst=5),
        "report:build": Queue(max_run=3),
    } == app.default_queues()
    assert "report:build" == build.task().options["queue"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"max_run": 3}, {"max_run": 5}, "max_run=3 by task 'one', and task 'two' says max_run=5"),
        ({"rate": "1/s"}, {"rate": 2}, "rate=1.0 by task 'one', and task 'two' says rate=2"),
        ({"rate": "9/m"}, {"rate": 9}, "period=60.0 by task 'one', and task 'two' says period=1.0"),
        ({"ordered": True}, {"max_run": 2}, "an ordered queue runs one task at a time"),
    ],
)
def test_two_tasks_that_limit_one_queue_differently_are_an_error(
    first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    """At the declaration of the second; the same limit twice is none."""
    app = App()
    app.task("one", queue="q", **first)(lambda: None)
    app.task("again", queue="q", **first)(lambda: None)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        app.task("two", queue="q", **second)(lambda: None)


def test_a_limit_of_the_app_and_one_of_a_task_must_be_alike() -> None:
    """The app's is as good as another task's."""
    app = App(queues={"mail": Queue(max_run=2)})
    with pytest.raises(ConfigurationError, match=r"max_run=2 by App\(.*, and task 'x' says"):
        app.task("x", queue="mail", max_run=3)(lambda: None)


@pytest.mark.parametrize("limit", [{"max_run": 0}, {"rate": "often"}, {"rate": -1}, {"ordered": "yes"}])
def test_a_limit_of_a_task_that_cannot_work_is_refused(limit: dict[str, Any]) -> None:
    """Before there is a function."""
    with pytest.raises(InvalidOptionError, match=next(iter(limit))):
        App().task("x", **limit)


@pytest.mark.parametrize(
    "settings", [{"worker": ServerConfig()}, {"queues": {"a": 0}}, {"queues": ["a"]}, {"version": 5}]
)
def test_wrong_settings_of_an_app_are_refused(settings: dict[str, Any]) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidOptionError, match=next(iter(settings))):
        App(**settings)


@pytest.mark.parametrize(
    ("config", "argument", "runs"),
    [
        (None, None, True),
        (None, False, False),
        (WorkerConfig(), None, False),
        (WorkerConfig(), True, True),
        (WorkerConfig(with_scheduler=True), None, True),
        (ServerConfig(), None, False),
    ],
)
def test_a_server_has_the_scheduler_that_its_settings_ask_for(
    config: ServerConfig | None, argument: bool | None, runs: bool
) -> None:
    """Settings that are passed replace those of the app, and the argument overrides both."""
    app = App("redis://localhost:1", worker=WorkerConfig(with_scheduler=True))
    assert runs == bool(app.server(config, with_scheduler=argument).related_events)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (WorkerConfig(processes=4), "processes"),
        (WorkerConfig(health_port=80, reload=True, log_level="debug"), "reload, health_port, log_level"),
        (WorkerConfig(max_memory=2**30, max_tasks_per_child=9), "max_tasks_per_child, max_memory"),
        (WorkerConfig(concurrency=5, queues={"a": 1}, with_scheduler=True, logging=False), ""),
        (ServerConfig(), ""),
    ],
)
def test_a_worker_in_a_program_warns_of_settings_that_only_the_command_obeys(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, config: ServerConfig, names: str
) -> None:
    """A missing probe or process would otherwise be noticed in production."""
    monkeypatch.setattr("pyasynq.server.Server.run_forever", lambda *_, **__: 0)
    assert 0 == App("redis://localhost:1").run_worker(config)
    if isinstance(config, WorkerConfig):
        caplog.clear()
        assert 0 == App("redis://localhost:1", worker=config).run_worker()
    told = f"a worker in a program of its own ignores {names}: start it with `pyasynq worker`"
    assert ([told] if names else []) == caplog.messages
