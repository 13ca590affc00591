"""Client side of a Gearman connection: the jobs that it submits, their states, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import parse_whole_number
from pyasynq._visible_text import visible
from pyasynq.errors import DuplicateTaskError, InvalidOptionError, PyasynqError, TaskNotFoundError
from pyasynq.options import merge_options
from pyasynq.task import EnqueueStatus, Task, TaskEnd, TaskState

from .handles import find_task, new_job_id, task_handle
from .packets import PacketType
from .worker_side import UNIQUE_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.task import FinishedTask, TaskInfo

    from .parts import DoorParts

    Send = Callable[..., None]

_log = logging.getLogger("pyasynq.gateway")

_LONGEST_UNIQUE: Final = 64
_RESULT_SECONDS: Final = 600.0
"""Minimum number of seconds for which a job's result is kept for waiting clients."""
_UNIQUE_SECONDS: Final = 86_400.0
"""Maximum number of seconds for which a unique job that never runs blocks equal jobs."""
_ENDED: Final = frozenset({TaskState.COMPLETED, TaskState.ARCHIVED})
_FRONT_TRIES: Final = 3
_NO_FRONT: Final = b"the type is ordered, so no job may pass another: submit it without a priority"
_SAME_AS_WORKLOAD: Final = b"-"


class ClientSide:
    """Client side of a Gearman connection.

    Args:
        parts: objects that all connections of the Gearman server share.
        send: sends a packet.
        wants_exceptions: returns whether the client has asked for the error messages of failed jobs.
    """

    def __init__(self, parts: DoorParts, send: Send, wants_exceptions: Callable[[], bool]) -> None:
        self._parts = parts
        self._send = send
        self._wants_exceptions = wants_exceptions
        self._waits: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Tasks (asyncio) that wait for the ends of foreground jobs, by queue and id."""
        self._made: set[tuple[str, str]] = set()
        """Foreground jobs that this client was the first to submit."""

    def handlers(self) -> dict[int, Callable[..., Awaitable[None]]]:
        """Return the handler of each packet type that a client sends."""
        foreground = (PacketType.SUBMIT_JOB, PacketType.SUBMIT_JOB_LOW)
        background = (PacketType.SUBMIT_JOB_BG, PacketType.SUBMIT_JOB_LOW_BG)
        return {
            **dict.fromkeys(foreground, self._submit),
            **dict.fromkeys(background, self._submit_in_background),
            PacketType.SUBMIT_JOB_HIGH: partial(self._submit, front=True),
            PacketType.SUBMIT_JOB_HIGH_BG: partial(self._submit_in_background, front=True),
            PacketType.SUBMIT_JOB_EPOCH: self._submit_for_later,
            PacketType.GET_STATUS: self._tell_status,
            PacketType.GET_STATUS_UNIQUE: self._tell_status_of_unique,
        }

    def tell(self, queue: str, task_id: str, kind: PacketType, *arguments: bytes) -> None:
        """Forward a worker's message about a job, if this client waits for the job."""
        if (queue, task_id) in self._waits:
            handle = task_handle(queue, task_id)
            if handle is not None:
                self._send(kind, handle, *arguments)

    async def end(self) -> None:
        """Stop waiting for jobs when the connection ends.

        A waiting job that no other client waits for is deleted; a running job continues.
        """
        waits, self._waits = self._waits, {}
        for wait in waits.values():
            wait.cancel()
        for queue, task_id in self._made & waits.keys():
            if not any((queue, task_id) in one.client.awaited for one in self._parts.sessions):
                await self._delete_waiting(queue, task_id)

    @property
    def awaited(self) -> frozenset[tuple[str, str]]:
        """Queue and id of each job for which this client waits."""
        return frozenset(self._waits)

    async def _delete_waiting(self, queue: str, task_id: str) -> None:
        with contextlib.suppress(PyasynqError):
            info = await self._parts.operator.task(queue, task_id)
            if info.state is TaskState.PENDING:
                await self._parts.operator.delete_task(queue, task_id, reason="its Gearman client hung up")

    async def _submit(self, function: bytes, unique: bytes, workload: bytes, *, front: bool = False) -> None:
        configuration = self._find(function)
        if configuration is None:
            return
        retention = max(_RESULT_SECONDS, configuration.retention or 0.0)
        options = {"max_retry": 0, "retention": retention, "front": front}
        made = await self._enqueue(configuration, unique, workload, **options)
        if made is None:
            return
        info, is_existing = made
        job = (info.queue, info.id)
        if job in self._waits:
            return
        if not is_existing:
            self._made.add(job)
        self._waits[job] = asyncio.create_task(self._wait(*job), name="pyasynq gearman wait")

    async def _submit_in_background(
        self, function: bytes, unique: bytes, workload: bytes, *, front: bool = False
    ) -> None:
        configuration = self._find(function)
        if configuration is not None:
            await self._enqueue(configuration, unique, workload, front=front)

    async def _submit_for_later(self, function: bytes, unique: bytes, epoch: bytes, workload: bytes) -> None:
        configuration = self._find(function)
        if configuration is None:
            return
        seconds = parse_whole_number(epoch.decode("ascii", "replace"))
        try:
            at = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            at = None
        if at is None:
            self._send(PacketType.ERROR, b"invalid_epoch", b"the time must be Unix time in seconds")
            return
        await self._enqueue(configuration, unique, workload, process_at=at)

    def _find(self, function: bytes) -> TaskConfiguration | None:
        found = self._parts.find_function(function)
        if found is None:
            self._send(PacketType.ERROR, b"unknown_function", b"there is no such task type")
        return found

    async def _enqueue(
        self, configuration: TaskConfiguration, unique: bytes, workload: bytes, **options: Any
    ) -> tuple[TaskInfo, bool] | None:
        """Enqueue a job and send its handle; return the task, and whether it existed already."""
        if options.get("front") and configuration.ordered:
            self._send(PacketType.ERROR, b"ordered", _NO_FRONT)
            return None
        try:
            _check_workload(configuration, workload)
            made = {**configuration.options, **options, **_unique_options(unique, workload)}
            info = await self._find_or_enqueue(
                Task(configuration.name, workload, task_id=new_job_id(), **made)
            )
        except PyasynqError as error:
            self._send(PacketType.ERROR, b"not_enqueued", visible(error).encode())
            return None
        handle = task_handle(info.queue, info.id)
        if handle is None:
            self._send(PacketType.ERROR, b"not_enqueued", b"another program has a task with this unique id")
            return None
        self._send(PacketType.JOB_CREATED, handle)
        return info, info.enqueue_status not in {None, EnqueueStatus.ENQUEUED}

    async def _find_or_enqueue(self, task: Task) -> TaskInfo:
        """Enqueue a task and return it, or return the existing task with its unique id.

        Raises:
            PyasynqError: it cannot be enqueued.
        """
        if not task.options.get("front"):
            return await self._parts.client.enqueue(task)
        if "unique" in task.options:
            task = Task(task.type, task.payload, **merge_options(task.options, {"on_duplicate": "raise"}))
        tries = 0
        while True:
            tries += 1
            try:
                return await self._parts.client.enqueue(task)
            except DuplicateTaskError as error:
                found = await self._read(error.queue, error.holder) if error.holder else None
                if found is not None:
                    return replace(found, enqueue_status=EnqueueStatus.EXISTING)
                if tries == _FRONT_TRIES:
                    raise  # other tasks take and release its locks between all reads

    async def _wait(self, queue: str, task_id: str) -> None:
        """Wait for the end of a job, and send its result to the client."""
        try:
            end = await self._parts.client.wait(queue, task_id)
        except PyasynqError as error:
            _log.debug("the end of task %s is not known: %s", visible(task_id), visible(error))
            end = None
        self._waits.pop((queue, task_id), None)
        handle = task_handle(queue, task_id)
        if handle is None:
            return
        if end is not None and end.end is TaskEnd.COMPLETED:
            self._send(PacketType.WORK_COMPLETE, handle, _result_of(end))
            return
        if self._wants_exceptions() and end is not None and end.info is not None:
            self._send(PacketType.WORK_EXCEPTION, handle, end.info.last_error.encode("utf-8", "replace"))
        self._send(PacketType.WORK_FAIL, handle)

    async def _tell_status(self, handle: bytes) -> None:
        found = find_task(handle, self._parts.list_queues())
        info = None if found is None else await self._read(*found)
        self._send(PacketType.STATUS_RES, handle, *_status_of(info))

    async def _tell_status_of_unique(self, unique: bytes) -> None:
        """Send the state of the job with a unique id: "unknown" unless this connection waits for the job."""
        clients = 0
        info = None
        for queue, task_id in self._waits:
            one = await self._read(queue, task_id)
            if one is not None and one.headers.get(UNIQUE_HEADER) == unique.decode("utf-8", "replace"):
                info, clients = one, 1
        self._send(PacketType.STATUS_RES_UNIQUE, unique, *_status_of(info), str(clients).encode())

    async def _read(self, queue: str, task_id: str) -> TaskInfo | None:
        try:
            return await self._parts.operator.task(queue, task_id)
        except TaskNotFoundError:
            return None


def _check_workload(configuration: TaskConfiguration, workload: bytes) -> None:
    """Validate a workload by the JSON Schema of its type; without a schema it may be any bytes.

    Raises:
        InvalidOptionError: the workload does not fit; the error names the field.
    """
    if configuration.params_schema is None:
        return
    try:
        params = json.loads(workload)
    except (ValueError, RecursionError):
        raise InvalidOptionError("workload", bytes, "must be JSON: the type has a schema") from None
    configuration.params_schema.check(params)


def _unique_options(unique: bytes, workload: bytes) -> dict[str, Any]:
    """Return the enqueue options that merge jobs with equal unique ids; `-` stands for the workload as id."""
    if not unique:
        return {}
    name = unique if unique != _SAME_AS_WORKLOAD else workload
    return {
        "unique": _UNIQUE_SECONDS,
        "unique_key": name.decode("utf-8", "backslashreplace"),
        "on_duplicate": "return_existing",
        "headers": {UNIQUE_HEADER: unique[:_LONGEST_UNIQUE].decode("utf-8", "replace")},
    }


def _result_of(end: FinishedTask) -> bytes:
    return (end.info.result if end.info is not None else None) or b""


def _status_of(info: TaskInfo | None) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the state of a job for a status packet: whether it is known, whether it runs, its progress."""
    if info is None or info.state in _ENDED:
        return b"0", b"0", b"0", b"0"
    progress = info.progress
    done, total = (0.0, 0.0) if progress is None else (progress.done, progress.total or 0.0)
    running = b"1" if info.state is TaskState.ACTIVE else b"0"
    return b"1", running, f"{done:.0f}".encode(), f"{total:.0f}".encode()
