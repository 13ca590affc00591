"""Child process of a worker: its program, its process group, and its messages."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from pyasynq._background.code_places import HandlerPlace, make_timeout_error
from pyasynq._engine.executor import frames
from pyasynq._engine.executor.carried_log import log_levels, write_record
from pyasynq._engine.executor.frames import MessageFrame, Unpacker, pack_frame
from pyasynq._engine.executor.marks import MARK, kill_marked, new_mark
from pyasynq.context import CancelReason, cancel_reason
from pyasynq.errors import ChildProcessDiedError, LeaseExpiredError, TaskTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._engine.run.attempt import Attempt

_log = logging.getLogger("pyasynq")
_PROGRAM: Final = "pyasynq._engine.executor.program"
_LAST_WORDS_SECONDS: Final = 1.0
"""Maximum seconds to wait for the last messages of a dead child, whose socket others may hold open."""
_LOOK_SECONDS: Final = 0.05
_LOCATE_SECONDS: Final = 0.2
"""Seconds to wait at a timeout for the handler's line; a handler that holds the GIL blocks the answer."""
_STANDARD_ERROR: Final = 2


class ExecutorChild(asyncio.Protocol):
    """A process that runs one task at a time. All of it belongs to the event loop of the worker.

    It leads its own session and process group, which is killed as a whole, even when it has ended by itself.
    Processes that have left the group are found by the mark and killed too. When the worker dies, the kernel
    closes the worker's ends of a pipe and a socket. Either of these kills the child's group.

    Attributes:
        ended: done when the process has ended, with its code; the number of a signal is negative.
        on_end: called with the child when its process has ended.
        tasks: number of tasks that were sent to the child.
        prepared: names of the handlers that it has prepared.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.on_end: Callable[[ExecutorChild], object] = lambda _: None
        self.tasks = 0
        self.prepared: set[str] = set()
        self._killed_for = ""
        self._unpacker = Unpacker()
        self._answer: asyncio.Future[MessageFrame] | None = None
        self._place: asyncio.Future[HandlerPlace] | None = None
        self._orders = 0
        """Number of orders sent to the child; its next answer carries the number of the last order."""
        self._is_dying = False
        self._attempt: Attempt | None = None
        self._context = contextvars.Context()
        self._writes: set[asyncio.Task[None]] = set()
        self._silent = False
        self._transport: asyncio.WriteTransport | None = None
        self._killing = threading.Lock()
        self._reaped = False
        self._spawn()

    def _spawn(self) -> None:
        self._mark = new_mark()
        self._socket, theirs = socket.socketpair()
        their_pipe, self._pipe = os.pipe()
        try:
            # On the loop, not in a thread: spawns a new program, and never forks this process while it works.
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(theirs.fileno()), str(their_pipe)],
                env={**os.environ, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=_STANDARD_ERROR,
                pass_fds=(theirs.fileno(), their_pipe),
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            os.close(self._pipe)
            raise
        finally:
            theirs.close()
            os.close(their_pipe)
        self.pid = self._process.pid
        threading.Thread(target=self._wait, name=f"pyasynq-child-{self.pid}", daemon=True).start()

    async def set_up(self) -> None:
        """Connect, and send the child its settings. Does not wait for its answer."""
        self._socket.setblocking(False)
        transport, _ = await self._loop.create_unix_connection(lambda: self, sock=self._socket)
        self._transport = cast("asyncio.WriteTransport", transport)
        is_uvloop = type(self._loop).__module__.partition(".")[0] == "uvloop"
        self._send_frame(frames.START, {"path": sys.path, "log_levels": log_levels(), "uvloop": is_uvloop})

    async def ask(self, attempt: Attempt, order: MessageFrame, grace: Callable[[], float]) -> MessageFrame:
        """Send an order for an attempt, and return the child's answer.

        When the caller is cancelled, the handler is cancelled too. The child is killed unless it answers
        within the seconds that `grace` then returns. `CancelledError` is raised only after that.

        Raises:
            ChildProcessDiedError: when the child ended before its answer.
        """
        self._attempt = attempt
        self._context = contextvars.copy_context()
        answer = self._answer = self._loop.create_future()
        self._orders += 1
        try:
            self._send_frame(order.kind, {**order.fields, "order": self._orders}, order.body)
            if self.ended.done():
                self._check_over()
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._break_off(answer, attempt, grace())
            raise
        finally:
            self._attempt = self._answer = self._place = None
            self._context = contextvars.Context()
            if not answer.cancel():
                # Marks the error as retrieved.
                answer.exception()
            # The future holds an error, whose traceback refers to this frame (reference cycle).
            del answer

    async def _break_off(
        self, answer: asyncio.Future[MessageFrame], attempt: Attempt, seconds: float
    ) -> None:
        try:
            if isinstance(attempt.cause, TaskTimeoutError):
                attempt.cause = await self._locate(answer, attempt.cause)
            if seconds > 0 and not answer.done():
                reason = cancel_reason(attempt.cause) or CancelReason.SHUTDOWN
                self._send_frame(frames.CANCEL, {"reason": reason})
                await asyncio.wait({answer}, timeout=seconds)
        finally:
            # This also runs when the caller is cancelled a second time.
            if not answer.done():
                self.kill()
                await self._wait_for_end()

    async def _locate(
        self, answer: asyncio.Future[MessageFrame], error: TaskTimeoutError
    ) -> TaskTimeoutError:
        """Return the timeout error with the handler's current line, if the child reports it.

        The original error names a line of the worker's middleware, which waits for the handler.
        """
        place = self._place = self._loop.create_future()
        self._send_frame(frames.LOCATE)
        until: set[asyncio.Future[Any]] = {place, answer, self.ended}
        await asyncio.wait(until, timeout=_LOCATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        located = make_timeout_error(error.limit, place.result() if place.done() else HandlerPlace())
        located.is_deadline = error.is_deadline
        return located

    async def _wait_for_end(self) -> None:
        """Wait until the process has ended, even if the caller is cancelled repeatedly."""
        while not self.ended.done():
            try:
                await asyncio.wait({self.ended})
            except asyncio.CancelledError:
                continue

    async def leave(self, seconds: float) -> None:
        """Let the child leave its lifespans and end; kill it if that takes longer than `seconds`."""
        try:
            self._send_frame(frames.LEAVE)
            await asyncio.wait({self.ended}, timeout=seconds)
        finally:
            self.kill()
            await self._wait_for_end()

    @property
    def is_usable(self) -> bool:
        """Whether the child can be given a task."""
        return not self._silent and not self._is_dying and not self.ended.done()

    @property
    def was_killed(self) -> bool:
        """Whether the process has been ended by SIGKILL."""
        return self.ended.done() and self.ended.result() == -signal.SIGKILL

    def kill(self, reason: str = "") -> None:
        """Kill the child and all that it has started, for a reported reason; does nothing after its end."""
        self._is_dying = True
        self._killed_for = self._killed_for or reason
        with self._killing:
            if self._reaped:
                return  # its number may belong to another process now
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return  # the group has only a child that has ended

    def _wait(self) -> None:
        if hasattr(os, "waitid"):  # missing on macOS before Python 3.13
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            # The number of the process group is not reused until the child is reaped.
            self.kill()
        while (code := self._reap()) is None:
            time.sleep(_LOOK_SECONDS)
        # A process with its own session is not in the group.
        kill_marked(self._mark)
        if os.getpid() == 1:
            # As process 1 of a container the worker inherits the child's processes.
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-self.pid, 0)
        try:
            self._loop.call_soon_threadsafe(self._on_exit, code)
        except RuntimeError:
            return  # the loop was closed

    def _reap(self) -> int | None:
        with self._killing:
            code = self._process.poll()
            self._reaped = code is not None
            return code

    def _on_exit(self, code: int) -> None:
        os.close(self._pipe)
        self.ended.set_result(code)
        self.on_end(self)
        if self._transport is None:
            self._socket.close()
        self._loop.call_later(_LAST_WORDS_SECONDS, self._hang_up)
        self._check_over()

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        """Note that the socket is closed, and kill the child: without its socket it cannot run tasks."""
        self._silent = True
        self.kill()
        self._check_over()

    def _check_over(self) -> None:
        answer = self._answer
        if answer is None or answer.done() or not (self._silent and self.ended.done()):
            return
        code = self.ended.result()
        exit_code, number = (code, None) if code >= 0 else (None, _name(-code))
        answer.set_exception(ChildProcessDiedError(exit_code, number, self._killed_for))

    def data_received(self, data: bytes) -> None:
        """Process messages of the child."""
        try:
            for frame in self._unpacker.feed(data):
                self._process_frame(frame)
        except (ValueError, KeyError, TypeError):
            _log.exception("child process %d sent an unreadable message and is killed", self.pid)
            self.kill("it sent an unreadable message")

    def _process_frame(self, frame: MessageFrame) -> None:
        attempt = self._attempt
        if frame.kind == frames.LOG:
            # In the context of the attempt, for the filters of log handlers.
            self._context.run(write_record, frame.fields)
        elif frame.kind in (frames.READY, frames.RETURNED, frames.RAISED):
            self._take_answer(frame)
        elif attempt is None or frame.fields["task"] != self.tasks:
            # A thread that a handler left running reports for a task that has ended.
            if frame.kind == frames.WRITE_RESULT:
                self._answer_write(frame, LeaseExpiredError())
        elif frame.kind == frames.LOCATED:
            if self._place is not None and not self._place.done():
                self._place.set_result(HandlerPlace(frame.fields["line"], frame.fields["stack"]))
        elif frame.kind == frames.PROGRESS:
            fields = frame.fields
            attempt.home.report_progress(attempt, fields["done"], fields["total"], fields["note"])
        elif frame.kind == frames.WRITE_RESULT:
            write = self._loop.create_task(self._write_result(attempt, frame), context=self._context.copy())
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)

    def _take_answer(self, frame: MessageFrame) -> None:
        """Pass an answer to the caller.

        Kill the child if the answer is to another order, or from another process, such as a fork.
        """
        number, pid = frame.fields.pop("order"), frame.fields.pop("pid")
        if self._answer is None or self._answer.done() or (number, pid) != (self._orders, self.pid):
            # Another process may have written this answer, so later answers cannot be trusted either.
            reason = "it answered out of turn, as a process forked by a handler does"
            _log.error("child process %d is killed: %s", self.pid, reason)
            self.kill(reason)
        else:
            self._answer.set_result(frame)

    async def _write_result(self, attempt: Attempt, frame: MessageFrame) -> None:
        failure: Exception | None = None
        try:
            await attempt.home.write_result(attempt, frame.body)
        except Exception as error:  # noqa: BLE001 - sent to the handler, which waits for it
            failure = error
        self._answer_write(frame, failure)

    def _answer_write(self, frame: MessageFrame, failure: Exception | None) -> None:
        error = None if failure is None else {"name": type(failure).__name__, "text": str(failure)}
        self._send_frame(frames.WRITTEN, {"number": frame.fields["number"], "error": error})

    def _send_frame(self, kind: str, fields: dict[str, Any] | None = None, body: bytes = b"") -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack_frame(kind, fields, body))


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
