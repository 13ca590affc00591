"""Context of handlers in a child process: the task, and the link to the worker."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from pyasynq import errors
from pyasynq._engine.executor import frames
from pyasynq._engine.executor.frames import Unpacker, pack_frame
from pyasynq.context import CancelReason
from pyasynq.errors import (
    LeaseExpiredError,
    PyasynqError,
    RedisError,
    TaskCanceledError,
    TaskTimeoutError,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from pyasynq._engine.executor.frames import MessageFrame
    from pyasynq.context import Home, RunningTask

_T = TypeVar("_T")
_CHUNK: Final = 65_536
_PROGRESS_SECONDS: Final = 0.1
"""Interval in seconds between reports, because a handler may report very often."""


class Link:
    """The child's end of the socket. Any thread may send; one thread reads.

    The reading thread ends this process when the worker closes the socket. The thread notices that, and a
    cancellation, even if the event loop is blocked.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._frames = self._read()
        self._numbers = itertools.count()
        self._writes: dict[int, Future[None]] = {}

    def _read(self) -> Iterator[MessageFrame]:
        unpacker = Unpacker()
        while data := self._socket.recv(_CHUNK):
            yield from unpacker.feed(data)

    def first(self) -> MessageFrame:
        """Wait for the worker's first message. Raises StopIteration when the worker has ended."""
        return next(self._frames)

    def listen(self, heard: Callable[[MessageFrame], object]) -> None:
        """Read in a thread, and call `heard` there with each frame; when the worker ends, kill this process.

        Confirmations of stored results are passed to their waiting futures instead.
        """
        threading.Thread(target=self._listen, args=(heard,), name="pyasynq-worker-link", daemon=True).start()

    def _listen(self, heard: Callable[[MessageFrame], object]) -> None:
        try:
            for frame in self._frames:
                if frame.kind == frames.WRITTEN:
                    self._on_written(frame.fields)
                else:
                    heard(frame)
        finally:
            # All processes that handlers have started are in the group.
            os.killpg(os.getpid(), signal.SIGKILL)

    def send(self, message: bytes) -> None:
        """Send a frame; blocks while the worker does not read."""
        with self._sending:
            self._socket.sendall(message)

    def log(self, fields: dict[str, Any]) -> None:
        """Send a log record."""
        self.send(pack_frame(frames.LOG, fields))

    def write_result(self, task: int, data: bytes) -> Future[None]:
        """Ask the worker to store a result; the future gets the confirmation or the error."""
        number = next(self._numbers)
        written = self._writes[number] = Future[None]()
        self.send(pack_frame(frames.WRITE_RESULT, {"task": task, "number": number}, data))
        return written

    def _on_written(self, fields: Mapping[str, Any]) -> None:
        written = self._writes.pop(fields["number"])
        # The future is cancelled if the coroutine that awaited it was cancelled.
        if not written.set_running_or_notify_cancel():
            return
        if fields["error"] is None:
            written.set_result(None)
        else:
            written.set_exception(_build_error(**fields["error"]))


def _build_error(name: str, text: str) -> PyasynqError:
    """Return the worker's error as its own class, or as a `RedisError` if it is not one of pyasynq's."""
    kind = getattr(errors, name, RedisError)
    error: PyasynqError = kind.__new__(kind)
    error.args = (text,)
    return error


class Reports:
    """Sends the newest progress report of a handler, a few times a second."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._newest: dict[str, Any] | None = None
        self._news = threading.Condition()
        threading.Thread(target=self._work, name="pyasynq-progress", daemon=True).start()

    def put(self, fields: dict[str, Any]) -> None:
        """Accept a progress report, which replaces an unsent report; block only while another one is sent."""
        with self._news:
            self._newest = fields
            self._news.notify()

    def flush(self) -> None:
        """Send a report that has not been sent."""
        with self._news:
            self._send()

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._newest is not None)
                self._send()
            time.sleep(_PROGRESS_SECONDS)

    def _send(self) -> None:
        fields, self._newest = self._newest, None
        if fields is not None:
            self._link.send(pack_frame(frames.PROGRESS, fields))


class HostedMessage(NamedTuple):
    """Fields of the task's message that handlers can read."""

    type: str
    retry: int
    retried: int
    retention: int
    headers: Mapping[str, str]


class HostedTask:
    """Stand-in for an attempt in the child process: provides `context()` to the handler.

    Attributes:
        number: sequence number of this task in the child.
        dropped_result: why the handler's result is not stored; empty if it is.
        is_over: whether the task has ended; later reports of its threads are dropped.
        thread_id: id of the thread that last ran its handler.
        threads: number of threads that run its handler; written by them.
    """

    def __init__(self, fields: Mapping[str, Any], home: Home) -> None:
        self.number: int = fields["number"]
        self.id: str = fields["id"]
        self.queue: str = fields["queue"]
        self.deadline_at: float | None = fields["deadline_at"]
        self.waited: float | None = fields["waited"]
        self.message = HostedMessage(*(fields[name] for name in HostedMessage._fields))
        self.home: Home = home
        self.dropped_result = ""
        self.is_over = False
        self.cause: BaseException | None = None
        self.thread_id = 0
        self.threads = 0
        self._cancelled = threading.Event()

    def cancel(self, reason: CancelReason) -> None:
        """Set `context().cancelled`."""
        self.cause = _build_cause(reason)
        self._cancelled.set()

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled."""
        return self._cancelled


def _build_cause(reason: CancelReason) -> BaseException:
    """Return an exception that `cancel_reason` takes for this reason."""
    if reason in {CancelReason.TIMEOUT, CancelReason.DEADLINE}:
        return TaskTimeoutError(is_deadline=reason is CancelReason.DEADLINE)
    if reason is CancelReason.LEASE_LOST:
        return LeaseExpiredError()
    return asyncio.CancelledError() if reason is CancelReason.SHUTDOWN else TaskCanceledError()


class HostedHome:
    """Stand-in for the worker's engine in a child process: stores results and progress through the worker.

    Attributes:
        task_state: value that the lifespan yielded in this child.
    """

    def __init__(self, link: Link, reports: Reports, task_state: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.task_state = task_state
        self._link = link
        self._reports = reports

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Store a result through the worker."""
        hosted = cast("HostedTask", task)
        if hosted.is_over:
            raise LeaseExpiredError
        await asyncio.wrap_future(self._link.write_result(hosted.number, data))

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and block the calling handler thread until it has ended."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Accept a progress report, from any thread."""
        hosted = cast("HostedTask", task)
        if not hosted.is_over:
            self._reports.put({"task": hosted.number, "done": done, "total": total, "note": note})

    def report_trace(self, task: RunningTask, seconds: float, trace_id: str, span_id: str) -> None:
        """Do nothing: the worker records trace spans and metrics itself."""
