"""Dependencies of handlers: made for an attempt or a worker, closed at its end, and replaced in tests."""

from __future__ import annotations

import asyncio
import json
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    nullcontext,
    suppress,
)
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pytest

from pyasynq import (
    Archive,
    ArgumentsError,
    Cancel,
    ConfigurationError,
    InvalidOptionError,
    Retry,
    Snooze,
    TaskContext,
    depends,
)
from pyasynq.errors import PayloadDecodingError
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

log: list[str] = []


@pytest.fixture(autouse=True)
def clean_log() -> None:
    """Begin with an empty log."""
    log.clear()


class Pool:
    """A pool of connections, which is a context manager too, as those of many libraries are."""

    def __enter__(self) -> Self:
        raise AssertionError("a pool that a provider returns is not entered")

    def __exit__(self, *error: object) -> None: ...


pool = Pool()


def get_pool() -> Pool:
    """Return what lives longer than the worker."""
    return pool


async def connect() -> AsyncIterator[str]:
    """Open and close, asynchronously."""
    log.append("open")
    yield "connection"
    log.append("close")


@asynccontextmanager
async def begin(connection: str = depends(connect, per="worker")) -> AsyncIterator[str]:
    """Begin a transaction of a connection; commit it unless the handler fails."""
    log.append(f"begin on {connection}")
    try:
        yield f"transaction on {connection}"
    except ValueError:
        log.append("roll back")
        raise
    log.append("commit")


def name_task(running: TaskContext, prefix: str = "task") -> Iterator[str]:
    """Return a text about the running task."""
    yield f"{prefix} {running.task_id}"


async def load(name: str = depends(name_task)) -> str:
    """Depend on another one, as a coroutine function."""
    return f"loaded {name}"


@pytest.mark.parametrize("plain", [False, True])
def test_a_handler_gets_its_dependencies_besides_the_payload(plain: bool) -> None:
    """A coroutine function and a plain one, from providers of every kind; what is made is closed."""
    app = make_app()
    seen: list[object] = []

    if plain:

        @app.task("t")
        def act(
            number: int,
            own: Pool = depends(get_pool),
            transaction: str = depends(begin),
            text: str = depends(load),
        ) -> None:
            seen.extend([number, own, transaction, text])
            log.append("run")
    else:

        @app.task("t")
        async def act(
            number: int,
            own: Pool = depends(get_pool),
            transaction: str = depends(begin),
            text: str = depends(load),
        ) -> None:
            seen.extend([number, own, transaction, text])
            log.append("run")

    with sound_kit(app) as kit:
        for number in (1, 2):
            act.options(task_id=f"id{number}").enqueue_sync(number)
        stored = kit.inspector.task_info("default", "id1").payload
        kit.drain_sync()

    assert {"number": 1} == json.loads(stored)
    expected = [[number, pool, "transaction on connection", f"loaded task id{number}"] for number in (1, 2)]
    assert [*expected[0], *expected[1]] == seen
    attempt = ["begin on connection", "run", "commit"]
    assert ["open", *attempt, *attempt, "close"] == log


class Transaction:
    """A context manager whose class does not come from the standard library."""

    def __enter__(self) -> str:
        log.append("enter")
        return "entered"

    def __exit__(self, *error: object) -> None:
        log.append(f"exit {[type(one).__name__ for one in error[1:2]]}")

    def close(self) -> None:
        """Close it, as a connection."""
        log.append("close")


def open_annotated() -> AbstractContextManager[str]:
    """Return a context manager of any class, as the annotation says."""
    return Transaction()


class SlowTransaction(Transaction):
    """A context manager for coroutines."""

    async def __aenter__(self) -> str:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)


def open_slowly() -> AbstractAsyncContextManager[str]:
    """Return a context manager for coroutines."""
    return SlowTransaction()


def open_by_text() -> Iterator[str]:
    """Return a context manager that only type checkers import."""
    return Transaction()  # type: ignore[return-value]


open_by_text.__annotations__["return"] = "contextlib.AbstractContextManager[str]"


@pytest.mark.parametrize("provider", [open_annotated, open_slowly, open_by_text, partial(open_annotated)])
def test_a_context_manager_that_a_function_is_annotated_to_return_is_entered(provider: Any) -> None:
    """It sees the error of the handler, and is left with the attempt."""
    app = make_app()

    @app.task("t", max_retry=0)
    def act(value: Any = depends(provider)) -> None:
        log.append(value)
        raise ValueError

    with sound_kit(app) as kit:
        act.enqueue_sync()
        kit.drain_sync(raises=False)
    assert ["enter", "entered", "exit ['ValueError']"] == log


@pytest.mark.parametrize("per", ["attempt", "worker"])
def test_a_context_manager_of_contextlib_is_entered(per: Any) -> None:
    """Also by a direct call; one that has to be awaited for it is refused there."""
    app = make_app()

    @app.task("t")
    def act(value: Any = depends(lambda: closing(Transaction()), per=per)) -> str:
        return type(value).__name__

    @app.task("null")
    def read(value: int = depends(lambda: nullcontext(5))) -> int:
        return value

    with sound_kit(app) as kit:
        assert ["Transaction", 5] == [kit.perform_sync(act).result, kit.perform_sync(read).result]
    assert ["close"] == log
    assert ["Transaction", 5] == [act(), read()]
    assert ["close", "close"] == log


@run_async
async def test_a_coroutine_function_hands_out_the_context_manager_that_it_returns() -> None:
    """So do its types: the caller has awaited it."""
    app = make_app()

    async def wait_for_one() -> closing[Transaction]:
        return closing(Transaction())

    @app.task("t")
    async def act(value: closing[Transaction] = depends(wait_for_one)) -> str:
        return type(value).__name__

    assert "closing" == await act()


def test_an_exit_stack_is_handed_out_as_it_is() -> None:
    """Entering gives the stack itself, and leaving would close what others share."""
    app, stack = make_app(), ExitStack()

    @app.task("t")
    def act(value: ExitStack = depends(lambda: stack)) -> bool:
        return value is stack

    with stack:
        stack.callback(log.append, "closed")
        assert act()
        assert [] == log


def test_an_error_of_the_handler_reaches_the_provider() -> None:
    """As in the body of a context manager; the task fails with it."""
    app = make_app()

    @app.task("t", max_retry=0)
    async def fail(transaction: str = depends(begin)) -> None:
        raise ValueError(transaction)

    with sound_kit(app) as kit:
        fail.enqueue_sync()
        report = kit.drain_sync(raises=False)

    assert ["ValueError"] == [type(one.error).__name__ for one in report]
    assert ["open", "begin on connection", "roll back", "close"] == log


CONTROLS = [Snooze(5), Retry(5), Archive("bad"), Cancel(), Cancel]


async def transact() -> AsyncIterator[str]:
    """Commit after a success only."""
    try:
        yield "transaction"
    except BaseException as error:
        log.append(f"roll back for {type(error).__name__}")
        raise
    log.append("commit")


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("is_returned", [False, True])
def test_a_control_value_reaches_the_provider_whether_returned_or_raised(
    control: Any, plain: bool, is_returned: bool
) -> None:
    """Both forms mean the same, in coroutines and in threads."""
    app = make_app()

    def decide() -> Any:
        if is_returned:
            return control
        raise control

    if plain:

        @app.task("t")
        def act(transaction: str = depends(transact)) -> Any:
            return decide()
    else:

        @app.task("t")
        async def act(transaction: str = depends(transact)) -> Any:
            return decide()

    with sound_kit(app) as kit:
        act.enqueue_sync()
        [attempt] = kit.drain_sync(raises=False)

    name = control.__name__ if isinstance(control, type) else type(control).__name__
    assert [f"roll back for {name}"] == log
    outcomes = {"Snooze": "snoozed", "Retry": "retried", "Archive": "archived", "Cancel": "revoked"}
    assert outcomes[name] == attempt.outcome.value


@run_async
async def test_a_control_value_of_a_direct_call_reaches_the_provider_and_is_returned() -> None:
    """The caller gets it unchanged, and without a traceback."""
    app = make_app()
    wish = Snooze(5)

    def begin_plain() -> Iterator[str]:
        try:
            yield "transaction"
        except Snooze:
            log.append("roll back")
            raise

    @app.task("t")
    async def act(transaction: str = depends(transact)) -> Any:
        return wish

    @app.task("plain")
    def plain(transaction: str = depends(begin_plain)) -> Any:
        return wish

    assert wish is await act()
    assert wish is plain()
    assert ["roll back for Snooze", "roll back"] == log
    assert wish.__traceback__ is None


@pytest.mark.parametrize("is_returned", [False, True])
def test_a_provider_that_hides_the_end_of_the_handler_does_not_change_it(is_returned: bool) -> None:
    """A snoozed task is not lost."""
    app = make_app()

    def hide() -> Iterator[str]:
        with suppress(BaseException):
            yield "transaction"

    @app.task("t")
    async def act(transaction: str = depends(hide)) -> Any:
        if is_returned:
            return Snooze(5)
        raise Snooze(5)

    with sound_kit(app) as kit:
        act.enqueue_sync()
        [attempt] = kit.drain_sync(raises=False)
    assert "snoozed" == attempt.outcome.value


def test_a_returned_control_value_has_no_traceback_of_the_provider_that_saw_it() -> None:
    """The task's error is the reason alone."""
    app = make_app()

    @app.task("t")
    async def act(transaction: str = depends(transact)) -> Any:
        return Archive("bad")

    with sound_kit(app) as kit:
        act.options(task_id="id").enqueue_sync()
        kit.drain_sync(raises=False)
        info = kit.inspector.task_info("default", "id")
    assert ("bad", "") == (info.last_error, info.traceback)


def test_a_provider_is_called_once_for_an_attempt() -> None:
    """Two parameters that need the same get the same."""
    app = make_app()
    seen: list[bool] = []

    def make() -> object:
        return object()

    def wrap(one: object = depends(make)) -> object:
        return one

    @app.task("t")
    def act(one: object = depends(make), other: object = depends(wrap)) -> None:
        seen.append(one is other)

    with sound_kit(app) as kit:
        act.enqueue_sync()
        kit.drain_sync()

    assert [True] == seen


def test_the_failure_of_a_provider_is_one_of_the_attempt() -> None:
    """It is retried, and the provider is called again."""
    app = make_app()
    calls: list[int] = []

    def unsteady() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("not yet")
        return len(calls)

    @app.task("t", retry_delay=0)
    def act(number: int = depends(unsteady, per="worker")) -> None:
        log.append(f"got {number}")

    with sound_kit(app) as kit:
        act.enqueue_sync()
        kit.drain_sync(raises=False)
        kit.advance_sync(timedelta(seconds=5), raises=False)

    assert ["got 2"] == log


def test_a_test_replaces_a_provider() -> None:
    """By a function or a value, until the kit ends or for a block; also what others depend on."""
    app = make_app()

    @app.task("t")
    def act(transaction: str = depends(begin), own: Any = depends(get_pool)) -> None:
        log.append(f"{transaction}, {own}")

    def fake() -> Iterator[str]:
        log.append("fake open")
        yield "fake"
        log.append("fake close")

    with sound_kit(app) as kit:
        kit.override(connect, fake)
        with kit.override(get_pool, "no pool"):
            act.enqueue_sync()
            kit.drain_sync()
        act.enqueue_sync()
        kit.drain_sync()
    ran = ["fake open", "begin on fake", "transaction on fake, no pool", "commit", "fake close"]
    assert ran == log[:5]
    assert "no pool" not in "".join(log[5:])
    assert {} == app._providers.overrides


@run_async
async def test_a_handler_that_is_called_by_hand_gets_its_dependencies() -> None:
    """The dependencies last for this call; those that the caller gives are used instead."""
    app = make_app()

    @app.task("t")
    async def act(number: int, transaction: str = depends(begin)) -> str:
        return f"{number} {transaction}"

    @app.task("plain")
    def plain(own: Pool = depends(get_pool), connection: str = depends(connect)) -> str:
        return f"{own is pool} {connection}"

    assert "1 transaction on connection" == await act(1)
    assert ["open", "begin on connection", "commit", "close"] == log
    assert "2 mine" == await act(2, transaction="mine")
    assert "True given" == plain(connection="given")
    with pytest.raises(ConfigurationError, match="has to be awaited: give the argument"):
        plain()


def test_a_dependency_cannot_be_enqueued() -> None:
    """It does not belong to the arguments of an enqueue, to a payload, or to the schema."""
    app = make_app()

    @app.task("t", max_retry=0)
    def act(number: int, own: Pool = depends(get_pool)) -> None: ...

    assert ["number"] == list(act.schema()["properties"])
    with sound_kit(app) as kit:
        with pytest.raises(ArgumentsError, match="own"):
            act.enqueue_sync(1, own=pool)
        app.enqueue_sync("t", b'{"number":1,"own":2}', max_retry=0)
        [attempt] = kit.drain_sync(raises=False)
    assert isinstance(attempt.error, PayloadDecodingError)


def needs_number(number: int) -> int:
    """Take an argument that nothing gives."""
    return number


def lives_longer(name: str = depends(name_task)) -> str:
    """Depend on what ends with an attempt."""
    return name


@pytest.mark.parametrize(
    ("provider", "per", "text"),
    [
        (needs_number, "attempt", "has the parameter 'number', which is neither"),
        (lives_longer, "worker", "which lives as long as an attempt: give both one life"),
        (name_task, "worker", "takes a TaskContext, which lives as long as an attempt"),
    ],
)
def test_a_dependency_that_cannot_be_made_is_refused_at_the_declaration(
    provider: Any, per: Any, text: str
) -> None:
    """The error names the provider."""
    app = make_app()

    def act(one: Any = depends(provider, per=per)) -> None: ...

    with pytest.raises(ConfigurationError, match=text):
        app.task("t")(act)


@pytest.mark.parametrize(("provider", "per"), [("get_pool", "attempt"), (get_pool, "process")])
def test_a_dependency_needs_a_function_and_a_known_life(provider: Any, per: Any) -> None:
    """A name is not looked up."""
    with pytest.raises(InvalidOptionError):
        depends(provider, per=per)


@run_async
async def test_attempts_that_want_a_dependency_of_the_worker_at_once_share_it() -> None:
    """The first one makes it, and the others wait."""
    app = make_app()
    gate = asyncio.Event()

    async def slow() -> object:
        log.append("made")
        await gate.wait()
        return object()

    @app.task("t")
    async def act(one: object = depends(slow, per="worker")) -> int:
        return id(one)

    async with app._providers.for_worker():
        calls = [asyncio.ensure_future(act()) for _ in range(3)]
        await asyncio.sleep(0)
        gate.set()
        found = await asyncio.gather(*calls)
    assert 1 == len(set(found))
    assert ["made"] == log


def test_the_program_of_a_child_has_the_route_with_dependencies() -> None:
    """Each child process makes its own: it enters the life of a worker of its own."""
    app = make_app()

    @app.task("t", executor="process")
    def act(connection: str = depends(connect, per="worker")) -> str:
        return connection

    async def run() -> str:
        owner, lifespan = act.__pyasynq_lifespan__()
        assert owner is app
        async with lifespan:
            return str(await app._providers._get(act._declaration.dependencies["connection"], None, {}))  # type: ignore[arg-type]

    assert "connection" == asyncio.run(run())
    assert ["open", "close"] == log
