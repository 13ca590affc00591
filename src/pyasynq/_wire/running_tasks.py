"""Descriptions of running tasks, read from servers' records without the record class in between."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from pyasynq._wire import asynq_pb2
from pyasynq._wire.timestamps import read_timestamp
from pyasynq.errors import UndecodableMessageError
from pyasynq.info import WorkerInfo


def decode_running_task(data: bytes, *, payload: bool = True) -> WorkerInfo:
    """Describe the running task in a `WorkerInfo` message, with or without its payload.

    A list of servers decodes thousands. This takes half as long as a description of a decoded record, and
    leaves out the server, which the reader knows. Raises UndecodableMessageError, also for empty data.
    """
    if not data:
        raise UndecodableMessageError("WorkerInfo", data, "there is nothing to decode")
    try:
        message = asynq_pb2.WorkerInfo.FromString(data)
        return WorkerInfo(
            task_id=message.task_id,
            task_type=message.task_type,
            queue=message.queue,
            payload=message.task_payload if payload else b"",
            started=read_timestamp(message.start_time),
            deadline=read_timestamp(message.deadline),
        )
    except (DecodeError, UnicodeDecodeError, OverflowError) as error:
        raise UndecodableMessageError("WorkerInfo", data, str(error)) from error
