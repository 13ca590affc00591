"""Pool of the child processes of one worker, and calls of handlers in them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pyasynq._checks import parse_seconds
from pyasynq._engine.executor import frames
from pyasynq._engine.executor.carried_error import revive
from pyasynq._engine.executor.child import ExecutorChild
from pyasynq._engine.executor.frames import MessageFrame
from pyasynq._engine.executor.order import call_in_child
from pyasynq._engine.handlers.threads import in_thread
from pyasynq._engine.lease.roster import SlotTable
from pyasynq.context import current_task
from pyasynq.control import ControlFlow
from pyasynq.errors import LeaseExpiredError, TaskTimeoutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._clock import Clock
    from pyasynq._engine.executor.order import Program
    from pyasynq._engine.handlers.routes import HandlerReturn, Route
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq.config import ServerConfig
    from pyasynq.task import Task

_T = TypeVar("_T")
_log = logging.getLogger("pyasynq")
_KILL_SECONDS: Final = 5.0
"""Seconds to wait for the end of killed processes; one blocked in the kernel may take longer."""


class Children:
    """Pool of child processes, which run one task at a time and are reused.

    All of it belongs to one event loop. No process is started before the first call.
    """

    def __init__(
        self, config: ServerConfig, settings: EngineSettings, clock: Clock, redis_time: RedisTime
    ) -> None:
        self._config = config
        self._settings = settings
        self._clock = clock
        self._redis_time = redis_time
        self._free = asyncio.Semaphore(config.executor_processes or config.concurrency)
        self._idle: list[ExecutorChild] = []
        self._busy: set[ExecutorChild] = set()
        self._spare_starts: list[asyncio.Task[ExecutorChild]] = []
        """Starts of children whose attempts were cancelled; the next attempt uses such a child."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """The asyncio tasks that start or end children."""
        self._calls = SlotTable()
        self.on_killed: Callable[[Attempt, int], object] = lambda _attempt, _pid: None
        """Called with a cancelled attempt that did not end in time, and the PID of its killed child."""

    async def call(self, program: Program, task: Task) -> HandlerReturn:
        """Run a task's handler in a child process, when one is free, and return its result.

        Raises the handler's error, as far as `carried_error` supports it, and ChildProcessDiedError. When the
        caller is cancelled, the handler has `cancel_timeout` to end; then the child is killed. A lost lease
        kills the child at once; a timeout does so once the child has reported the handler's line.
        """
        attempt = cast("Attempt", current_task.get())
        attempt.wait_to_begin()
        self._calls.add(attempt)
        try:
            async with self._free:
                child = await self._take()
                try:
                    answer = await self._prepare(child, attempt, program)
                    if answer is None:
                        answer = await self._run(child, attempt, program, task)
                finally:
                    self._give_back(child)
        finally:
            self._calls.remove(attempt)
        return _read_outcome(answer, attempt)

    async def _take(self) -> ExecutorChild:
        child = None
        while self._idle and child is None:
            # Take the child that was used last: its data is in memory. A killed child may not have ended yet.
            last = self._idle.pop()
            child = last if last.is_usable else None
        if child is None:
            child = await self._wait_for_start()
        self._busy.add(child)
        return child

    async def _wait_for_start(self) -> ExecutorChild:
        # Use a spare child first: otherwise there would be more children than slots.
        starting = self._spare_starts.pop() if self._spare_starts else self._start_task(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._spare_starts.append(starting)
            starting.add_done_callback(self._keep)
            raise

    async def _start(self) -> ExecutorChild:
        child = ExecutorChild()
        child.on_end = self._on_child_end
        try:
            await child.set_up()
        except BaseException:
            child.kill()
            raise
        _log.debug("child process %d started", child.pid)
        return child

    def _keep(self, starting: asyncio.Task[ExecutorChild]) -> None:
        """Keep a child for later, unless another task has taken it."""
        if starting not in self._spare_starts:
            return
        self._spare_starts.remove(starting)
        if not starting.cancelled() and starting.exception() is None:
            self._give_back(starting.result())

    def _start_task(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        # An empty context: a copy of the attempt's context would keep the attempt alive as long as the child.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _prepare(self, child: ExecutorChild, attempt: Attempt, program: Program) -> MessageFrame | None:
        """Let a child prepare a handler; return the child's answer if that fails, otherwise None."""
        reference = program.reference()
        if reference in child.prepared:
            return None
        seconds = self._settings.child_start_timeout
        too_slow = f"importing its module and entering the lifespan took more than {seconds:g} s"
        # A cancelled timer stays in the loop until its time, and would keep the attempt alive.
        timer = asyncio.get_running_loop().call_later(
            seconds, child.kill, too_slow, context=contextvars.Context()
        )
        try:
            order = MessageFrame(frames.PREPARE, {"reference": reference, "settings": program.settings()})
            answer = await child.ask(attempt, order, lambda: 0.0)
        finally:
            timer.cancel()
        if answer.kind == frames.RAISED:
            return answer
        child.prepared.add(reference)
        return None

    async def _run(
        self, child: ExecutorChild, attempt: Attempt, program: Program, task: Task
    ) -> MessageFrame:
        # The timeout starts now, without the wait for a child.
        now = self._clock.monotonic()
        attempt.begin(monotonic=now, unix_time=self._redis_time.timestamp(now))
        child.tasks += 1
        order = {
            "number": child.tasks,
            "reference": program.reference(),
            "id": attempt.id,
            "queue": attempt.queue,
            "deadline_at": attempt.deadline_at,
            "waited": attempt.waited,
            "type": attempt.message.type,
            "retry": attempt.message.retry,
            "retried": attempt.message.retried,
            "retention": attempt.message.retention,
            "headers": dict(attempt.message.headers),
            "task_type": task.type,
            "task_headers": dict(task.headers),
        }
        frame = MessageFrame(frames.RUN, order, task.payload or b"")
        try:
            return await child.ask(attempt, frame, lambda: self._grace(attempt))
        except asyncio.CancelledError:
            if child.was_killed:
                self.on_killed(attempt, child.pid)
            raise

    def _grace(self, attempt: Attempt) -> float:
        if isinstance(attempt.cause, TaskTimeoutError | LeaseExpiredError):
            return 0.0
        return parse_seconds("cancel_timeout", self._config.cancel_timeout)

    def _give_back(self, child: ExecutorChild) -> None:
        self._busy.discard(child)
        if not child.is_usable:
            return
        most = self._config.executor_max_tasks
        if most is not None and child.tasks >= most:
            self._start_task(self._leave(child))
        else:
            self._idle.append(child)

    async def _leave(self, child: ExecutorChild) -> None:
        await child.leave(parse_seconds("cancel_timeout", self._config.cancel_timeout))

    def _on_child_end(self, child: ExecutorChild) -> None:
        if child in self._idle:
            self._idle.remove(child)
            _log.warning(
                "child process %d ended while it had no task: code %d", child.pid, child.ended.result()
            )

    async def end_calls(self) -> None:
        """Kill the children with running tasks, and wait for the ends of the calls."""
        for child in self._busy:
            child.kill()
        await self._calls.wait_until_idle(_KILL_SECONDS)

    async def close(self) -> None:
        """Let idle children leave; kill busy children, and any that take longer than `cancel_timeout`."""
        for child in self._busy:
            child.kill()
        while self._idle or self._tasks:
            while self._idle:
                self._start_task(self._leave(self._idle.pop()))
            # A start's error was already raised in its task.
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _read_outcome(answer: MessageFrame, attempt: Attempt) -> HandlerReturn:
    fields: dict[str, Any] = answer.fields
    if answer.kind == frames.RAISED:
        raise revive(fields["error"])
    if "wish" in fields:
        wish = revive(fields["wish"])
        if isinstance(wish, ControlFlow):
            return wish
        raise wish
    if fields["kind"] == "none":
        attempt.dropped_result = fields["dropped"]
        return None
    return answer.body.decode() if fields["kind"] == "text" else answer.body


def in_child(program: Program, here: Route) -> Callable[[Task], Awaitable[HandlerReturn]]:
    """Return a function that runs a handler in a child process.

    In a process without a pool of children, it calls the handler's route `here` instead.
    """
    call_here = cast(
        "Callable[[Task], Awaitable[HandlerReturn]]", in_thread(here.call) if here.plain else here.call
    )

    async def call(task: Task) -> HandlerReturn:
        call_child = call_in_child.get(None)
        result: HandlerReturn
        result = await (call_here(task) if call_child is None else call_child(program, task))
        return result

    return call
