"""Protobuf messages that Asynq peers keep in Redis: tasks, and records of servers, workers and schedulers.

A task stays the protobuf object it was decoded into: one decode per run. Fields of newer peers survive,
because a message is rewritten by copying that object and setting fields in the copy.
Records are read and written whole, so they are plain dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, TypeVar, Unpack

from google.protobuf.message import DecodeError, Message

from pyasynq._wire import asynq_pb2
from pyasynq._wire.asynq_pb2 import TaskMessage
from pyasynq._wire.timestamps import read_timestamp, write_timestamp
from pyasynq.errors import InvalidTextError, UndecodableMessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

__all__ = [
    "InvalidTextError",
    "SchedulerEnqueueEvent",
    "SchedulerEntry",
    "ServerInfo",
    "TaskMessage",
    "TaskMessageFields",
    "UndecodableMessageError",
    "WorkerInfo",
    "copy_task_message",
    "decode_task_message",
    "encode_task_message",
    "new_task_message",
]

_AnyMessage = TypeVar("_AnyMessage", bound=Message)
_EMPTY = "there is nothing to decode"


class TaskMessageFields(TypedDict, total=False):
    """The fields of a new TaskMessage; omitted ones are zero or empty, and take no bytes."""

    type: str
    payload: bytes | None
    id: str
    queue: str
    retry: int
    """Number of allowed retries."""
    retried: int
    """Number of retries spent."""
    error_msg: str
    timeout: int
    """Timeout in seconds; 0 means no limit."""
    deadline: int
    """Unix time in seconds; 0 means none."""
    unique_key: str
    last_failed_at: int
    """Unix time in seconds; 0 means never."""
    retention: int
    """Seconds for which a completed task is kept."""
    completed_at: int
    """Unix time in seconds; 0 means not completed."""
    group_key: str
    headers: Mapping[str, str] | None


def new_task_message(**values: Unpack[TaskMessageFields]) -> TaskMessage:
    """Return a new message. None for payload or headers is the same as empty.

    Raises InvalidTextError naming the field with a lone surrogate, and ValueError for a number that its
    field cannot hold.
    """
    return _build(TaskMessage, values)


def decode_task_message(data: bytes) -> TaskMessage:
    """Return the message in `data`. Raises UndecodableMessageError, also for empty data.

    Protobuf reads an empty string as a message with every field empty; in Redis it means that the task was
    removed or damaged.
    """
    if not data:
        raise UndecodableMessageError(TaskMessage.DESCRIPTOR.name, data, _EMPTY)
    try:
        return TaskMessage.FromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise UndecodableMessageError(TaskMessage.DESCRIPTOR.name, data, str(error)) from error


def encode_task_message(message: TaskMessage) -> bytes:
    """Return the bytes of a message; equal messages give equal bytes."""
    # Only map entries have a random order; sorting costs time even when there are none.
    if message.headers:
        return message.SerializeToString(deterministic=True)
    return message.SerializeToString()


def copy_task_message(message: TaskMessage) -> TaskMessage:
    """Return an independent copy, including the fields that this version does not know."""
    copy = TaskMessage()
    copy.CopyFrom(message)
    return copy


@dataclass(frozen=True, slots=True)
class _Record:
    """A message that is read and written whole; its fields are those of the protobuf class.

    Instants are aware datetimes, in microseconds; None is "never". Every instant is always written.
    """

    _message_class: ClassVar[type[Message]]
    _instants: ClassVar[tuple[str, ...]]

    def encode(self) -> bytes:
        """Return the protobuf bytes.

        Raises InvalidTextError for a text with a lone surrogate, and ValueError for a naive datetime or a
        number that its field cannot hold.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        instants = {name: values.pop(name) for name in self._instants}
        message = _build(self._message_class, values)
        for name, instant in instants.items():
            write_timestamp(getattr(message, name), instant, field=name)
        return message.SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the record in `data`. Raises UndecodableMessageError, also for empty data.

        A record always carries its instants, so it is never empty.
        """
        if not data:
            raise UndecodableMessageError(cls.__name__, data, _EMPTY)
        try:
            message = cls._message_class.FromString(data)
            values = {
                name: getattr(message, name) if read is None else read(getattr(message, name))
                for name, read in _find_readers(cls)  # type: ignore[arg-type]  # classes are hashable
            }
        except (DecodeError, UnicodeDecodeError, OverflowError) as error:
            raise UndecodableMessageError(cls.__name__, data, str(error)) from error
        return cls(**values)


@cache
def _find_readers(record: type[_Record]) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """Return the fields of a record's class, each with its conversion from protobuf; None for no conversion.

    They are found once: a page of the dashboard decodes thousands of records.
    """
    empty = record._message_class()  # noqa: SLF001 - of the class above
    return tuple((field.name, _find_reader(record, empty, field.name)) for field in fields(record))


def _find_reader(record: type[_Record], empty: Message, name: str) -> Callable[[Any], Any] | None:
    if name in record._instants:  # noqa: SLF001 - of the class above
        return read_timestamp
    value = getattr(empty, name)
    if isinstance(value, MutableMapping):
        return dict
    return tuple if isinstance(value, MutableSequence) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo(_Record):
    """A running server. `queues` maps each name to its configured priority; `engine` is empty for Go."""

    _message_class: ClassVar[type[Message]] = asynq_pb2.ServerInfo
    _instants: ClassVar[tuple[str, ...]] = ("start_time",)

    host: str
    pid: int
    server_id: str
    concurrency: int
    queues: Mapping[str, int]
    strict_priority: bool
    status: str
    start_time: datetime | None
    active_worker_count: int
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo(_Record):
    """A task that a server is working on."""

    _message_class: ClassVar[type[Message]] = asynq_pb2.WorkerInfo
    _instants: ClassVar[tuple[str, ...]] = ("start_time", "deadline")

    host: str
    pid: int
    server_id: str
    task_id: str
    task_type: str
    task_payload: bytes
    queue: str
    start_time: datetime | None
    deadline: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerEntry(_Record):
    """A periodic task of a running scheduler; `prev_enqueue_time` is None before its first enqueue."""

    _message_class: ClassVar[type[Message]] = asynq_pb2.SchedulerEntry
    _instants: ClassVar[tuple[str, ...]] = ("next_enqueue_time", "prev_enqueue_time")

    id: str
    spec: str
    task_type: str
    task_payload: bytes
    enqueue_options: tuple[str, ...]
    next_enqueue_time: datetime | None
    prev_enqueue_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerEnqueueEvent(_Record):
    """One enqueue made by a scheduler."""

    _message_class: ClassVar[type[Message]] = asynq_pb2.SchedulerEnqueueEvent
    _instants: ClassVar[tuple[str, ...]] = ("enqueue_time",)

    task_id: str
    enqueue_time: datetime | None


def _build(message_class: type[_AnyMessage], values: Mapping[str, Any]) -> _AnyMessage:
    try:
        return message_class(**values)
    except ValueError:
        # Protobuf does not name the field, and its implementations raise different errors.
        for field, text in _find_texts(values):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidTextError(message_class.DESCRIPTOR.name, field, text, error.start) from None
        raise


def _find_texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each string in the fields of a message, with the name of its field."""
    for name, value in values.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, tuple):
            yield from ((name, item) for item in value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield f"a key of {name}", key
                if isinstance(item, str):
                    yield f"{name}[{key!r}]", item
