"""Program of a child process: runs one task after another, as the worker orders.

It is started as `python -m pyasynq._engine.executor.program SOCKET PIPE` with two inherited descriptors.
"""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import os
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from pyasynq._background.code_places import find_handler_place
from pyasynq._engine.executor import frames
from pyasynq._engine.executor.carried_error import describe
from pyasynq._engine.executor.carried_log import log_to
from pyasynq._engine.executor.child_context import HostedHome, HostedTask, Link, Reports
from pyasynq._engine.executor.frames import MessageFrame, pack_frame
from pyasynq._engine.executor.order import find_handler
from pyasynq._engine.handlers.routes import Hosted, Route, await_fully, is_coroutine_handler, result_bytes
from pyasynq._engine.handlers.threads import HandlerThreads, current_threads
from pyasynq.context import CancelReason, current_task
from pyasynq.control import find_control
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyasynq._engine.handlers.routes import Handler


class Host:
    """Runner of handlers in a child process; one event loop runs all handlers and lifespans."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._reports = Reports(link)
        self._loop = asyncio.get_running_loop()
        self._orders: asyncio.Queue[MessageFrame] = asyncio.Queue()
        self._threads = HandlerThreads()
        current_threads.set(self._threads)
        self._prepared: dict[str, tuple[Route, Any]] = {}
        self._states: dict[int, Any] = {}
        self._running: HostedTask | None = None
        self._handler: asyncio.Task[MessageFrame] | None = None

    async def serve(self) -> None:
        """Run orders until the worker sends the last one."""
        self._link.listen(self._on_frame)
        async with AsyncExitStack() as lifespans:
            while (order := await self._orders.get()).kind != frames.LEAVE:
                answer = await self._answer(order, lifespans)
                # The worker checks by these fields that the answer is to its order and from this process.
                fields = {**answer.fields, "order": order.fields["order"], "pid": os.getpid()}
                self._link.send(pack_frame(answer.kind, fields, answer.body))
        self._threads.close()

    def _on_frame(self, frame: MessageFrame) -> None:
        """Accept an order, in the thread that reads."""
        if frame.kind == frames.LOCATE:
            self._locate()
            return
        if frame.kind != frames.CANCEL:
            self._loop.call_soon_threadsafe(self._orders.put_nowait, frame)
            return
        running = self._running
        if running is not None:
            running.cancel(CancelReason(frame.fields["reason"]))
        self._loop.call_soon_threadsafe(self._cancel)

    def _locate(self) -> None:
        """Send the handler's current line, from the reading thread: the event loop may be blocked."""
        running, handler = self._running, self._handler
        if running is None:
            return
        thread_id = running.thread_id if running.threads else None
        if handler is not None and asyncio.current_task(self._loop) is handler:
            # The handler blocks the loop now, so its frames are on the stack of the loop's thread.
            thread_id = threading.main_thread().ident
        place = find_handler_place(handler, thread_id)
        self._link.send(pack_frame(frames.LOCATED, {"task": running.number, **place._asdict()}))

    def _cancel(self) -> None:
        if self._handler is not None:
            self._handler.cancel()

    async def _answer(self, order: MessageFrame, lifespans: AsyncExitStack) -> MessageFrame:
        if order.kind == frames.RUN:
            return await self._perform(order, *self._prepared[order.fields["reference"]])
        # Not in a separate asyncio task: the task that enters a lifespan must leave it.
        try:
            await self._prepare(order.fields["reference"], order.fields["settings"], lifespans)
        except BaseException as error:  # noqa: BLE001 - any error is a failure of a task
            return MessageFrame(frames.RAISED, {"error": describe(error)})
        return MessageFrame(frames.READY, {})

    async def _prepare(self, reference: str, settings: Mapping[str, Any], lifespans: AsyncExitStack) -> None:
        found = find_handler(reference)
        if isinstance(found, Hosted):
            route = found.__pyasynq_route__(settings)
            self._prepared[reference] = route, await self._get_state(found, lifespans)
        else:
            handler = cast("Handler", found)
            self._prepared[reference] = Route(handler, plain=not is_coroutine_handler(handler)), None

    async def _perform(self, order: MessageFrame, route: Route, state: Any) -> MessageFrame:
        running = self._running = HostedTask(order.fields, HostedHome(self._link, self._reports, state))
        self._handler = self._loop.create_task(self._run(route, _make_task(order), running))
        try:
            return await self._handler
        finally:
            running.is_over = True
            self._running = self._handler = None
            self._reports.flush()

    async def _get_state(self, hosted: Hosted, lifespans: AsyncExitStack) -> Any:
        """Return the value that a handler's lifespan yielded; enter the lifespan before its first task."""
        owner, lifespan = hosted.__pyasynq_lifespan__()
        if id(owner) not in self._states:
            # Apps live as long as their modules.
            self._states[id(owner)] = await lifespans.enter_async_context(lifespan)
        return self._states[id(owner)]

    async def _run(self, route: Route, task: Task, running: HostedTask) -> MessageFrame:
        # No error may leave this coroutine: asyncio would end the loop for a SystemExit.
        try:
            current_task.set(running)
            if route.plain:
                result = await self._threads.call(route.call, task)
            else:
                result = route.call(task)
            result = await await_fully(result)
            return _make_answer(result, task.type, running)
        except BaseException as error:  # noqa: BLE001 - any error of a handler is a failure of its task
            return MessageFrame(frames.RAISED, {"error": describe(error)})


def _make_task(order: MessageFrame) -> Task:
    # As in `received_task`: types and headers are not checked.
    task = Task.__new__(Task)
    task.type = order.fields["task_type"]
    task.payload = order.body or None
    headers = order.fields["task_headers"]
    task.options = {"headers": headers} if headers else {}
    return task


def _make_answer(result: object, task_type: str, running: HostedTask) -> MessageFrame:
    wish = find_control(result)
    if wish is not None:
        return MessageFrame(frames.RETURNED, {"wish": describe(wish)})
    data = None if result is None else result_bytes(result, task_type)
    if data is None:
        return MessageFrame(frames.RETURNED, {"kind": "none", "dropped": running.dropped_result})
    return MessageFrame(frames.RETURNED, {"kind": "text" if isinstance(result, str) else "bytes"}, data)


def _die_with_worker(pipe: int) -> None:
    """Have the kernel kill the whole group when the worker's end of the pipe is closed.

    PR_SET_PDEATHSIG would kill only this process, which then could not kill the others.
    """
    os.set_inheritable(pipe, False)
    if sys.platform == "linux":
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _loop_factory(*, is_uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not is_uvloop:
        return None
    import uvloop  # noqa: PLC0415 - an extra

    return uvloop.new_event_loop


async def _serve(link: Link) -> None:
    await Host(link).serve()


def main(arguments: Sequence[str]) -> None:
    """Run a child process; returns when the worker has sent its last order."""
    descriptor, pipe = map(int, arguments)
    _die_with_worker(pipe)
    # Processes that handlers start must not inherit it.
    os.set_inheritable(descriptor, False)
    link = Link(socket.socket(fileno=descriptor))
    start = link.first().fields
    sys.path[:] = start["path"]
    log_to(link.log, start["log_levels"])
    with asyncio.Runner(loop_factory=_loop_factory(is_uvloop=start["uvloop"])) as runner:
        runner.run(_serve(link), context=contextvars.copy_context())


if __name__ == "__main__":
    main(sys.argv[1:])
