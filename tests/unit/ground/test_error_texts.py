"""No text of an error holds a value of a payload: types, never values."""

from __future__ import annotations

import asyncio
import functools
import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pydantic
import pytest

from pyasynq import App, Archive, Cancel, Mux, Retry, Snooze, Task, errors
from pyasynq._broker.enqueueing.chunks import build_enqueue_result
from pyasynq._engine.handlers.group_routes import declare_aggregator
from pyasynq._engine.handlers.middleware import check_middleware
from pyasynq._engine.handlers.routes import make_router
from pyasynq._payload import ArgumentsCodec, ResultCodec
from pyasynq._wire.messages import decode_task_message, encode_task_message, new_task_message
from pyasynq.config import GroupRule, ServerConfig
from pyasynq.errors import PyasynqError
from pyasynq.options import OPTION_NAMES, check_combination, resolve_options
from pyasynq.task import TaskInfo, TaskState

SECRET = "hunter2"
INFO = TaskInfo(
    id="a",
    queue="q",
    type="t",
    payload=SECRET.encode(),
    state=TaskState.PENDING,
    max_retry=1,
    retried=0,
    timeout=None,
    deadline=None,
    next_process_at=None,
    retention=timedelta(0),
    headers={"h": SECRET},
)


@dataclass
class Account:
    password: str


@dataclass
class Number:
    """Its own check says what it was given, as `int` does."""

    digits: str

    def __post_init__(self) -> None:
        int(self.digits)


class Point(NamedTuple):
    x: int


class Options(TypedDict):
    size: int


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Model(pydantic.BaseModel):
    count: int = 0
    names: dict[str, int] = {}
    pet: Cat | Dog | None = pydantic.Field(default=None, discriminator="kind")

    @pydantic.field_validator("count")
    @classmethod
    def check(cls, value: int) -> int:
        """Refuse numbers in the way in which users do it."""
        if value > 1:
            raise ValueError(f"{SECRET} is not a count")
        return value


VALUES: list[Any] = [
    SECRET,
    SECRET.encode(),
    {"password": SECRET},
    {SECRET: 1},
    [SECRET],
    (SECRET,),
    {SECRET},
    Account(SECRET),
    ValueError(SECRET),
    functools.partial(print, SECRET),
    SECRET + "\ud800",
]
ANNOTATIONS: list[Any] = [
    *(bool, int, float, bytes, datetime, date, time, timedelta, UUID, Decimal, Path, None),
    *(list[int], tuple[int, ...], tuple[int, int], set[int], dict[int, int], dict[str, int], Sequence[int]),
    *(int | None, int | dict[str, int], Literal[1], TaskState, Account, Number, Point, Options, Model, Any),
]
JSON = [
    f'"{SECRET}"',
    f'["{SECRET}"]',
    f'{{"{SECRET}x":"{SECRET}"}}',
    f'{{"password":["{SECRET}"]}}',
    f'{{"digits":"{SECRET}"}}',
    f'{{"x":"{SECRET}"}}',
    f'{{"size":"{SECRET}"}}',
    f'{{"count":"{SECRET}"}}',
    '{"count":2}',
    f'{{"names":{{"{SECRET}":"{SECRET}"}}}}',
    f'{{"pet":{{"kind":"{SECRET}"}}}}',
]

ERRORS: list[PyasynqError] = [
    errors.PyasynqError(),
    errors.ConfigurationChangedError("q", 2),
    errors.ConfigurationError(),
    *(errors.InvalidOptionError("option", value, "remedy") for value in VALUES),
    errors.UnknownAnnotationError(),
    errors.UnknownOptionError("option", ["options"]),
    errors.CronError("* * * *", "*", "remedy"),
    errors.PayloadTooLargeError(2, 1),
    errors.ArgumentsError("text", None),
    errors.PayloadEncodingError(),
    errors.PayloadDecodingError(),
    errors.RedisError(),
    errors.RedisUnavailableError("host:1", "refused"),
    errors.RedisTLSError("host:1", "refused"),
    errors.ReplyLostError("host:1", "reset"),
    errors.RedisAuthenticationError(),
    errors.RedisPermissionError(),
    errors.RedisOutOfMemoryError(),
    errors.NotDurableError(INFO, 0, 1, "cause"),
    errors.RedisVersionError("5.0"),
    errors.RedisReplyError(),
    errors.ClientClosedError(),
    errors.EnqueueError(),
    errors.TaskIDConflictError("q", "a"),
    errors.DuplicateTaskError("q", f"asynq:{{q}}:x:unique:{SECRET}", "a", "cannot be returned"),
    errors.DuplicateTaskError("q", f"asynq:{{q}}:x:unique:{SECRET}"),
    errors.TickTakenError("entry", 1, 2),
    errors.QueueNotFoundError("q"),
    errors.TaskNotFoundError("q", "a"),
    errors.UnknownTaskStateError("q", "a", "state"),
    errors.TaskStateError("run", "q", "a", "active"),
    errors.QueueNotEmptyError("q", 1),
    errors.QueueBusyError("q", 1),
    errors.QueuePausedError("q"),
    errors.OperationNotFoundError("op"),
    errors.ApiKeyNotFoundError("0123456789ab"),
    errors.ReportNotFoundError("command", "0123456789ab"),
    errors.CommandStateError("0123456789ab", "done"),
    errors.PermissionDeniedError("mira", "run_task", "tasks.run", "q", ("operator", "admin")),
    errors.QueryError(0, 1, "sentence", SECRET),
    errors.PayloadChangedError("q", "a"),
    errors.QueueLimitsChangedError("q"),
    errors.QueueNotPausedError("q"),
    errors.WaitTimeoutError("q", "a", 1.0),
    errors.WorkerDiedError("server", 1),
    errors.ResultError("q", "a", "reason"),
    errors.ResultNotKeptError("q", "a", "reason"),
    errors.TaskFailedError("q", "a", "error"),
    errors.TaskDeletedError("q", "a", "reason"),
    errors.UndecodableMessageError("TaskMessage", SECRET.encode(), "reason"),
    errors.InvalidTextError("TaskMessage", "type", SECRET + "\ud800", len(SECRET)),
    errors.SkipRetry(),
    errors.RevokeTask(),
    errors.HandlerNotFoundError("t"),
    errors.TaskTimeoutError(),
    errors.TaskCanceledError(),
    errors.LeaseExpiredError(),
    errors.AttemptSettledError("q", "a"),
    errors.ReportedError(),
    errors.RemoteError("shop.Error", "text"),
    errors.ChildProcessDiedError(1, None),
    errors.SemaphoreFullError("scope", 1),
    errors.SemaphoreNotHeldError("scope", "a"),
    errors.ServerStateError(),
    errors.ForeignRedisError("host:1"),
    errors.DrainTimeoutError(["t a"], 1.0),
    errors.EndlessDrainError({"t": 1}),
    errors.HandlerExitError(SystemExit(SECRET)),
    errors.SchedulerStateError(),
    errors.ScheduleNotFoundError("entry"),
    errors.ServerNotFoundError("server"),
    errors.ReadFromReplicaError(),
    errors.SchedulePausedError("entry", 1),
    errors.EnqueueManyError([build_enqueue_result(errors.PayloadTooLargeError(2, 1))]),
    errors.ResultTooLargeError(2, 1),
    errors.RedisValueTooLargeError(),
    errors.ArchiveFullError("q", 2, 1, 1),
    errors.SettleError(),
    errors.UnknownAttemptError(),
]


def test_no_class_of_error_shows_a_value() -> None:
    """Every class of `errors` is in the list, with a value wherever its constructor takes one. (D28)"""
    classes = {one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, PyasynqError)}
    assert classes == {type(error) for error in ERRORS}
    assert [] == [str(error) for error in ERRORS if SECRET in str(error) or SECRET in repr(error)]


def handler_of(annotation: Any) -> Callable[..., None]:
    """Return a handler with one parameter of this type."""

    def handler(argument: Any) -> None:
        del argument

    handler.__annotations__ = {"argument": annotation, "return": annotation}
    return handler


def arguments_of(annotation: Any) -> ArgumentsCodec:
    """Return what brings a call of that handler to a payload."""
    return ArgumentsCodec(handler_of(annotation), {"argument": annotation}, owner="task 't'")


def send_many(calls: Any) -> None:
    """Enqueue calls of a typed task, and raise the error of the first one."""
    results = asyncio.run(
        App("redis://127.0.0.1:1", timeout=0.01).task("t")(handler_of(int)).enqueue_many(calls)
    )
    raise results[0].error or AssertionError


def message_with(value: Any) -> bytes:
    """Return an encoded message in which a value stands where text is wanted."""
    return encode_task_message(new_task_message(type=value, payload=value, id="a", queue="q"))


WITH_A_VALUE: dict[str, Callable[[Any], object]] = {
    "payload": lambda value: Task("t", {"payload": value}),  # type: ignore[arg-type]
    "type": lambda value: Task([value]),  # type: ignore[arg-type]
    "calls": lambda value: send_many({"argument": value}),
    "call": lambda value: send_many([[value]]),
    "argument": lambda value: send_many([{"argument": value}]),
    "surplus": lambda value: arguments_of(int).encode((1, value), {}),
    "unknown": lambda value: arguments_of(int).encode((), {"argumen": value}),
    "snooze": lambda value: Snooze([value]),  # type: ignore[arg-type]
    "retry": lambda value: Retry([value]),  # type: ignore[arg-type]
    "spend": lambda value: Retry(spend=value),
    "archive": lambda value: Archive([value]),  # type: ignore[arg-type]
    "cancel": lambda value: Cancel([value]),  # type: ignore[arg-type]
    "router": lambda value: make_router([value]),  # type: ignore[arg-type]
    "handler": lambda value: Mux().handle("t", [value]),  # type: ignore[arg-type]
    "middleware": lambda value: check_middleware([value]),
    "aggregator": lambda value: declare_aggregator("g", [value], GroupRule()),  # type: ignore[arg-type]
    "modules": lambda value: App("redis://127.0.0.1:1", modules=SECRET + str(type(value))),
    "lifespan": lambda value: App("redis://127.0.0.1:1", lifespan=[value]),  # type: ignore[arg-type]
    "concurrency": lambda value: ServerConfig(concurrency=value),
    "queues": lambda value: ServerConfig(queues={"q": value}),
    "timeout": lambda value: ServerConfig(shutdown_timeout=value),
    "client middleware": lambda value: raise_error(build_enqueue_result([value]).error),
    "message": message_with,
    "bytes": lambda value: decode_task_message(str(value).encode("utf-8", "replace")),
    # The names of headers are shown.
    "headers": lambda value: resolve_options({"headers": [value]}),
    "header": lambda value: resolve_options({"headers": {"h": [value]}}),
}


def set_option(name: str) -> Callable[[Any], object]:
    """Return a call that gives an option a value."""
    return lambda value: resolve_options({name: value})


def set_rule(name: str) -> Callable[[Any], object]:
    """Return a call that gives a rule of a unique task a value, without the option that it needs."""
    return lambda value: check_combination({name: value})


WITH_A_VALUE.update({f"option {name}": set_option(name) for name in sorted(OPTION_NAMES - {"headers"})})
WITH_A_VALUE.update({f"rule {name}": set_rule(name) for name in ("until", "unique_key", "on_conflict")})


def raise_error(error: PyasynqError | None) -> None:
    """Raise what an operation keeps in its result."""
    if error is not None:
        raise error


def texts_of(error: BaseException) -> str:
    """Return all that people may read of an error, with the errors that it was raised from."""
    chain = "".join(traceback.format_exception_only(error)) + repr(error)
    for earlier in (error.__cause__, None if error.__suppress_context__ else error.__context__):
        chain += "" if earlier is None else texts_of(earlier)
    return chain


@pytest.mark.parametrize("way", WITH_A_VALUE)
def test_no_error_about_an_argument_shows_its_value(way: str) -> None:
    """Wrong arguments are text, bytes, mappings, objects and partial functions. (D28)"""
    raised, texts = 0, list[str]()
    for value in VALUES:
        try:
            WITH_A_VALUE[way](value)
        except (PyasynqError, TypeError, AttributeError) as error:
            raised += isinstance(error, PyasynqError)
            texts.append(texts_of(error))
    assert raised
    assert [] == [text for text in texts if SECRET in text]


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_no_error_of_a_payload_shows_its_value(annotation: Any) -> None:
    """On the way out and on the way in, for arguments and results of every kind of annotation. (D28)"""
    codec, results = arguments_of(annotation), ResultCodec(annotation, owner="task 't'")
    texts = []
    for value in VALUES:
        for encode in (
            lambda value=value: codec.encode((value,), {}),
            lambda value=value: results.encode(value),
        ):
            texts += texts_raised_by(encode)
    for json in JSON:
        for decode in (
            lambda json=json: codec.decode(f'{{"argument":{json}}}'.encode()),
            lambda json=json: codec.decode(json.encode()),
            lambda json=json: codec.decode(json.encode()[:-1]),
            lambda json=json: results.decode(json.encode()),
        ):
            texts += texts_raised_by(decode)
    assert len(texts) > 10
    # The name of an argument that the handler does not have is shown, as misspelt ones are.
    names = [f"unknown '{SECRET}x'", f"no field '{SECRET}x'"]
    for name in names:
        texts = [text.replace(name, "") for text in texts]
    assert [] == [text for text in texts if SECRET in text]


def texts_raised_by(call: Callable[[], object]) -> list[str]:
    """Return the text of the error that a call raises; only ours may leave."""
    try:
        call()
    except PyasynqError as error:
        return [texts_of(error)]
    return []


def test_a_refused_number_and_time_are_shown() -> None:
    """They are settings, and say more than their type. (D28)"""
    error = errors.InvalidOptionError("max_retry", -1, "must not be negative")
    assert "max_retry=-1: must not be negative" == str(error)
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert repr(moment) in str(errors.InvalidOptionError("process_at", moment, "too late"))
    assert "max_retry=<int>: " in str(errors.InvalidOptionError("max_retry", 10**5_000, "too large"))
