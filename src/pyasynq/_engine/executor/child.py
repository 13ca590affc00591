"""The worker's hold on one child process: its program, its process group, and what it says."""

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

from pyasynq._engine.executor import frames
from pyasynq._engine.executor.carried_log import log_levels, write_record
from pyasynq._engine.executor.frames import Frame, Unpacker, pack_frame
from pyasynq._engine.executor.marks import MARK, kill_marked, new_mark
from pyasynq.errors import ChildProcessDiedError, LeaseExpiredError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._engine.run.attempt import Attempt

_log = logging.getLogger("pyasynq")
_PROGRAM: Final = "pyasynq._engine.executor.program"
_LAST_WORDS_SECONDS: Final = 1.0
"""How long what a dead child has said is waited for; others may hold its socket open."""
_LOOK_SECONDS: Final = 0.05
_STANDARD_ERROR: Final = 2


class ExecutorChild(asyncio.Protocol):
    """A process that runs one task at a time. All of it belongs to the event loop of the worker.

    It leads a session and a process group of its own, which is killed as a whole, also when it has ended by
    itself; so is what has left the group, by its mark. When the worker dies for any reason, the kernel
    closes its ends of a pipe and a socket, and by either the child's group is killed.

    Attributes:
        ended: done when the process is gone, with its code; a signal's number is negative.
        on_end: called with the child when that is so.
        tasks: how many it was given.
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
        self._answer: asyncio.Future[Frame] | None = None
        self._orders = 0
        """How many orders it was given; its next answer carries the number of the last one."""
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
            # Here and not in a thread: a new program in one step, never a copy of this process at work.
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
        """Connect, and tell the child what it is to be like. Does not wait for its answer."""
        self._socket.setblocking(False)
        transport, _ = await self._loop.create_unix_connection(lambda: self, sock=self._socket)
        self._transport = cast("asyncio.WriteTransport", transport)
        is_uvloop = type(self._loop).__module__.partition(".")[0] == "uvloop"
        self._say(frames.START, {"path": sys.path, "log_levels": log_levels(), "uvloop": is_uvloop})

    async def ask(self, attempt: Attempt, order: Frame, grace: Callable[[], float]) -> Frame:
        """Order something for an attempt, and return what the child says at its end.

        When the caller is cancelled, the handler is told, and the child is killed unless it has ended what
        it does within the seconds that `grace` returns then. `CancelledError` is raised only after that.

        Raises:
            ChildProcessDiedError: when the child has ended before.
        """
        self._attempt = attempt
        self._context = contextvars.copy_context()
        answer = self._answer = self._loop.create_future()
        self._orders += 1
        try:
            self._say(order.kind, {**order.fields, "order": self._orders}, order.body)
            if self.ended.done():
                self._look_whether_over()
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._break_off(answer, grace())
            raise
        finally:
            self._attempt = self._answer = None
            self._context = contextvars.Context()
            if not answer.cancel():
                # Known by now, or of no interest any more.
                answer.exception()
            # It holds an error, whose traceback holds this frame.
            del answer

    async def _break_off(self, answer: asyncio.Future[Frame], seconds: float) -> None:
        try:
            if seconds > 0 and not answer.done():
                self._say(frames.CANCEL)
                await asyncio.wait({answer}, timeout=seconds)
        finally:
            # Also when somebody loses patience with it.
            if not answer.done():
                self.kill()
                await self._wait_for_end()

    async def _wait_for_end(self) -> None:
        """Wait until the process is gone, however often the caller is cancelled meanwhile."""
        while not self.ended.done():
            try:
                await asyncio.wait({self.ended})
            except asyncio.CancelledError:
                continue

    async def leave(self, seconds: float) -> None:
        """Let the child leave its lifespans and end, and kill it if that takes longer."""
        try:
            self._say(frames.LEAVE)
            await asyncio.wait({self.ended}, timeout=seconds)
        finally:
            self.kill()
            await self._wait_for_end()

    @property
    def is_usable(self) -> bool:
        """Whether it can be given a task."""
        return not self._silent and not self._is_dying and not self.ended.done()

    @property
    def was_killed(self) -> bool:
        """Whether the process is gone, by a KILL."""
        return self.ended.done() and self.ended.result() == -signal.SIGKILL

    def kill(self, reason: str = "") -> None:
        """Kill the child and all that it has started, for a reason to be told; harmless when it is gone."""
        self._is_dying = True
        self._killed_for = self._killed_for or reason
        with self._killing:
            if self._reaped:
                return  # its number may be somebody else's by now
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return  # nobody is left in the group but a child that has ended

    def _wait(self) -> None:
        if hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            # Until it is reaped, the group's number is its own.
            self.kill()
        while (code := self._reap()) is None:
            time.sleep(_LOOK_SECONDS)
        # A process with a session of its own is not in the group.
        kill_marked(self._mark)
        if os.getpid() == 1:
            # As process 1 of a container the worker inherits what the child had started.
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-self.pid, 0)
        try:
            self._loop.call_soon_threadsafe(self._has_ended, code)
        except RuntimeError:
            return  # the loop was closed: nobody waits for the child any more

    def _reap(self) -> int | None:
        with self._killing:
            code = self._process.poll()
            self._reaped = code is not None
            return code

    def _has_ended(self, code: int) -> None:
        os.close(self._pipe)
        self.ended.set_result(code)
        self.on_end(self)
        if self._transport is None:
            self._socket.close()
        self._loop.call_later(_LAST_WORDS_SECONDS, self._hang_up)
        self._look_whether_over()

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        """Note that nothing more will be said; a child that has closed its socket is of no use."""
        self._silent = True
        self.kill()
        self._look_whether_over()

    def _look_whether_over(self) -> None:
        answer = self._answer
        if answer is None or answer.done() or not (self._silent and self.ended.done()):
            return
        code = self.ended.result()
        exit_code, number = (code, None) if code >= 0 else (None, _name(-code))
        answer.set_exception(ChildProcessDiedError(exit_code, number, self._killed_for))

    def data_received(self, data: bytes) -> None:
        """Take what the child says."""
        try:
            for frame in self._unpacker.feed(data):
                self._heard(frame)
        except (ValueError, KeyError, TypeError):
            _log.exception("child process %d said something that cannot be read, and is killed", self.pid)
            self.kill("it said something that cannot be read")

    def _heard(self, frame: Frame) -> None:
        attempt = self._attempt
        if frame.kind == frames.LOG:
            # In the context of the attempt, for the filters of those who write it.
            self._context.run(write_record, frame.fields)
        elif frame.kind in (frames.READY, frames.RETURNED, frames.RAISED):
            self._take_answer(frame)
        elif attempt is None or frame.fields["task"] != self.tasks:
            # A thread that a handler has left behind speaks of a task that is over.
            if frame.kind == frames.WRITE_RESULT:
                self._answer_write(frame, LeaseExpiredError())
        elif frame.kind == frames.PROGRESS:
            fields = frame.fields
            attempt.home.report_progress(attempt, fields["done"], fields["total"], fields["note"])
        elif frame.kind == frames.WRITE_RESULT:
            write = self._loop.create_task(self._write_result(attempt, frame), context=self._context.copy())
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)

    def _take_answer(self, frame: Frame) -> None:
        """Give an answer to the caller, if it is the one to the last order and from the child itself."""
        number, pid = frame.fields.pop("order"), frame.fields.pop("pid")
        if self._answer is None or self._answer.done() or (number, pid) != (self._orders, self.pid):
            # It cannot be known which process answered, nor whether later answers are right.
            reason = "it answered out of turn, as a copy does that a handler has forked"
            _log.error("child process %d is killed: %s", self.pid, reason)
            self.kill(reason)
        else:
            self._answer.set_result(frame)

    async def _write_result(self, attempt: Attempt, frame: Frame) -> None:
        failure: Exception | None = None
        try:
            await attempt.home.write_result(attempt, frame.body)
        except Exception as error:  # noqa: BLE001 - told to the handler, which would wait for ever otherwise
            failure = error
        self._answer_write(frame, failure)

    def _answer_write(self, frame: Frame, failure: Exception | None) -> None:
        error = None if failure is None else {"name": type(failure).__name__, "text": str(failure)}
        self._say(frames.WRITTEN, {"number": frame.fields["number"], "error": error})

    def _say(self, kind: str, fields: dict[str, Any] | None = None, body: bytes = b"") -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack_frame(kind, fields, body))


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
