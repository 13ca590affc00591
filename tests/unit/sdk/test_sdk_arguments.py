"""The SDK's arguments: an invalid one is refused before anything connects, and the error names the field."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import ConfigurationError, InvalidOptionError, Task
from pyasynq._wire.engine_text import decode_engine_texts, encode_engine
from pyasynq.sdk import SdkClient, TaskReq, start_worker, with_worker
from pyasynq.sdk.handlers import HandlerTable
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq import TaskContext

NOWHERE = "redis://127.0.0.1:1/0"


async def handle(context: TaskContext, task: Task) -> None:
    """Do nothing."""


async def typed(number: int) -> None:
    """Do nothing with a number."""


async def middleware(task: Task, call_next: Any) -> Any:
    """Do nothing besides."""
    return await call_next(task)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"handlers": {}}, "handlers=.*give a table"),
        ({"handlers": [handle]}, "handlers=.*give a table"),
        ({"handlers": {1: handle}}, "handlers: a task name is text"),
        ({"handlers": {"dump": "handle"}}, r"handlers\['dump'\] must be a function"),
        ({"middlewares": [handle, print]}, "must be `async def`"),
        ({"redis": None}, "redis, service: give one of them"),
        ({"service": "http://localhost"}, "redis, service: these are two transports"),
        ({"key": "pq_1"}, "key: it is for service="),
        ({"redis": None, "service": "localhost:8080"}, "service: give the address"),
        ({"redis": None, "service": "http://localhost:x"}, "service: give the address"),
        ({"redis": None, "service": "http://me:key@localhost"}, "service: .* given as key="),
        ({"redis": None, "service": "http://localhost", "key": "a\nb"}, "key: give an API key"),
        ({"redis": "http://example.org"}, "redis"),
        ({"team": 3}, "team"),
        ({"team": "t" * 101}, "team"),
        ({"on_finished": print}, "team: on_finished needs the name of your team"),
        ({"on_finished": "print", "team": "t"}, "on_finished must be a function"),
        ({"on_finished": print, "team": "t", "handlers": {"t-finished": handle}}, "handlers.*'t-finished'"),
    ],
)
@run_async
async def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Without a connection."""
    with pytest.raises(ConfigurationError, match=message):
        await start_worker(**{"handlers": {"dump": handle}, "redis": NOWHERE, **arguments})


def test_a_client_needs_a_road_and_a_team_for_endings() -> None:
    """As a worker does."""
    with pytest.raises(ConfigurationError, match="redis, service: give one"):
        SdkClient()
    with pytest.raises(ConfigurationError, match="team"):
        SdkClient(redis=NOWHERE, tell_endings=True)


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({"task_name": " "}, "task_name"),
        ({"task_name": 1}, "task_name"),
        ({"task_id": 1.5}, "task_id"),
        ({"task_id": True}, "task_id"),
        ({"task_id": ""}, "task_id"),
    ],
)
def test_a_request_names_the_wrong_field(fields: dict[str, Any], option: str) -> None:
    """And never shows params."""
    with pytest.raises(InvalidOptionError) as caught:
        TaskReq(**{"task_name": "dump", **fields})
    assert option == caught.value.option


@pytest.mark.parametrize("params", [object(), float("nan"), {"a": b"secret"}])
def test_params_that_json_cannot_carry_are_refused(params: object) -> None:
    """The error does not show them."""
    request = TaskReq(task_name="dump", params=params)
    with pytest.raises(InvalidOptionError, match="params") as caught:
        request.encode_params()
    assert "secret" not in f"{caught.value}{request!r}"


class CallableObject:
    """A handler that is an object."""

    async def __call__(self, context: TaskContext, task: Task) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("handler", "is_typed"),
    [
        (handle, False),
        (lambda _context, task: None, False),
        (CallableObject(), False),
        (partial(handle), False),
        (typed, True),
        (lambda number, text: None, True),
    ],
)
def test_a_handler_takes_context_and_task_or_fields_of_params(handler: Any, is_typed: bool) -> None:
    """By the second parameter's name or type."""
    table = HandlerTable({"dump": handler}, [middleware])
    [described] = table.describe_types()
    assert ("dump", "dump", is_typed) == (described.type, described.queue, described.schema is not None)
    assert table.route("dump") is not None
    assert 1 == len(list(table.routes()))


@pytest.mark.parametrize(("text", "team"), [("", ""), ('x {"team":7}', ""), ("x [1]", ""), ("x {", "")])
def test_a_record_without_a_sound_team_has_none(text: str, team: str) -> None:
    """What comes from Redis may be anything."""
    assert team == decode_engine_texts(text)["team"]
    written = encode_engine("pyasynq", {}, texts={"team": "starmap"})
    assert "starmap" == decode_engine_texts(written)["team"]


@pytest.mark.parametrize("starts", [False, True])
@run_async
async def test_a_worker_gives_an_application_its_lifespan(starts: bool) -> None:
    """Requests reach the application; the server is told when the worker cannot start."""
    closed: list[bool] = []
    sent: list[Any] = []

    class FakeWorker:
        async def close(self) -> None:
            closed.append(True)

    async def start() -> Any:
        if not starts:
            raise ConfigurationError("no such type")
        return FakeWorker()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(scope["type"])

    async def receive() -> Any:
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    wrapped = with_worker(application, start)
    await wrapped({"type": "lifespan"}, receive, send)
    await wrapped({"type": "http"}, receive, send)
    kinds = [one if isinstance(one, str) else one["type"] for one in sent]
    if starts:
        assert ["lifespan.startup.complete", "lifespan.shutdown.complete", "http"] == kinds
    else:
        assert ["lifespan.startup.failed", "http"] == kinds
        assert "no such type" == sent[0]["message"]
    assert starts == bool(closed)


def test_the_sdk_loads_nothing_of_the_extra() -> None:
    """A program with Redis alone needs neither Starlette nor msgspec."""
    program = (
        "import sys, pyasynq.sdk; print({'starlette', 'msgspec', 'aiohttp', 'uvicorn'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "set()" == done.stdout.strip()
