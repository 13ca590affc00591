"""Runner of an app's hooks at ends of attempts, in the background: hooks delay neither tasks nor outcomes."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from pyasynq._engine.failure_text import format_trace
from pyasynq._engine.handlers.routes import await_fully, is_coroutine_handler
from pyasynq._engine.handlers.threads import HandlerThreads
from pyasynq._human_text import counted
from pyasynq.context import CancelReason
from pyasynq.errors import UndecodableMessageError, WorkerDiedError
from pyasynq.events import MessageQuarantined, Outcome, TaskFinished, WorkerDied
from pyasynq.hooks import HOOK_SECONDS, AttemptEnd, name_of_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._background.time_limits import TimeLeft
    from pyasynq._engine.supervisor.death_notes import DeathEvent
    from pyasynq.events import Events
    from pyasynq.hooks import AttemptHook, HookKind, Hooks

_AT_ONCE: Final = 100
"""Maximum number of hooks that run at once."""
_WAITING: Final = 10_000
"""Maximum number of waiting hook calls; more are dropped, with a warning at most once a minute."""
_TELL_AGAIN_SECONDS: Final = 60.0
_CANCEL_SECONDS: Final = 0.5
"""Seconds that cancelled hooks have to clean up."""
_log = logging.getLogger("pyasynq")


class HookRunner:
    """Runs hooks in tasks and threads of their own. All of it belongs to the event loop of the server.

    Attributes:
        threads: where plain hooks run.
        on_failure: called with the error that a hook raised, after it was logged.
    """

    def __init__(self, hooks: Hooks, events: Events) -> None:
        self._hooks = hooks
        self.threads = HandlerThreads("pyasynq-hook")
        self.on_failure: Callable[[BaseException], object] | None = None
        self._waiting: deque[tuple[AttemptHook, AttemptEnd]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._dropped = 0
        self._told_at = 0.0
        self._context = contextvars.copy_context()
        # Without success hooks, this subscriber needs no event of a task that succeeds.
        events.subscribe(TaskFinished, self._finished, routine=bool(hooks.success))
        if hooks.error or hooks.archived:
            events.subscribe(WorkerDied, self._died)
        if hooks.archived:
            events.subscribe(MessageQuarantined, self._quarantined)

    def take(self, event: DeathEvent) -> None:
        """Call the hooks for a task that a supervisor has recovered from a dead worker."""
        if isinstance(event, WorkerDied):
            self._died(event)
        else:
            self._quarantined(event)

    def _finished(self, event: TaskFinished) -> None:
        kinds = _kinds_of(event)
        if not any(self._hooks.of(kind) for kind in kinds):
            return
        error = event.error
        end = AttemptEnd(
            event.queue,
            event.task_id,
            event.task_type,
            event.retried,
            event.max_retry,
            event.outcome,
            error,
            traceback="" if error is None else format_trace(error).decode("utf-8", "replace"),
            reason=event.reason,
            seconds=event.seconds,
            delay=event.delay,
        )
        self._call(kinds, end)

    def _died(self, event: WorkerDied) -> None:
        end = AttemptEnd(
            event.queue,
            event.task_id,
            event.task_type,
            event.retried,
            event.max_retry,
            Outcome.ARCHIVED if event.archived else None,
            WorkerDiedError(event.server_id, event.crashes),
        )
        self._call(("error", "archived") if event.archived else ("error",), end)

    def _quarantined(self, event: MessageQuarantined) -> None:
        error = UndecodableMessageError("TaskMessage", b"", event.reason)
        end = AttemptEnd(event.queue, event.task_id, "", 0, 0, Outcome.ARCHIVED, error)
        self._call(("archived",), end)

    def _call(self, kinds: Iterable[HookKind], end: AttemptEnd) -> None:
        for kind in kinds:
            for hook in self._hooks.of(kind):
                if len(self._waiting) < _WAITING:
                    self._waiting.append((hook, end))
                else:
                    self._drop()
        self._start_waiting()

    def _drop(self) -> None:
        self._dropped += 1
        now = time.monotonic()
        if now - self._told_at >= _TELL_AGAIN_SECONDS:
            self._told_at = now
            dropped = counted(self._dropped, "call of a hook was", "calls of hooks were")
            _log.error("%s dropped so far: over %d wait, since the hooks are too slow", dropped, _WAITING)

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < _AT_ONCE:
            hook, end = self._waiting.popleft()
            # Not the context of the attempt: it would live as long as the hook.
            task = asyncio.get_running_loop().create_task(
                run_hook(hook, (end,), self.threads, self.on_failure),
                name="pyasynq hook",
                context=self._context.copy(),
            )
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._start_waiting()

    @property
    def is_busy(self) -> bool:
        """Whether hooks run or wait."""
        return bool(self._running or self._waiting)

    async def wait_until_idle(self) -> None:
        """Wait until no hook runs or waits; each has its own time limit."""
        while self._running:
            await asyncio.wait(self._running)
            # The done callbacks of ended tasks start the waiting hooks.
            await asyncio.sleep(0)

    async def close(self, left: TimeLeft) -> None:
        """Wait at most 5 seconds for running and queued hooks, or until `left()` is 0; then drop them."""
        until = time.monotonic() + min(HOOK_SECONDS, left())
        while self._running and (seconds := until - time.monotonic()) > 0:
            await asyncio.wait(self._running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        lost = len(self._running) + len(self._waiting)
        self._waiting.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CANCEL_SECONDS)
        if lost:
            _log.error(
                "%s at the end of the worker",
                counted(lost, "call of a hook was given up", "calls of hooks were given up"),
            )
        self.threads.close()


def _kinds_of(event: TaskFinished) -> tuple[HookKind, ...]:
    """Return the kinds of hooks that the end of an attempt calls; docs/hooks.md has the same table."""
    errors: tuple[HookKind, ...] = () if event.error is None or event.asked else ("error",)
    if event.outcome is Outcome.SUCCEEDED:
        return ("success",)
    if event.outcome is Outcome.RETRIED:
        return (*errors, "retry")
    if event.outcome is Outcome.ARCHIVED:
        return (*errors, "archived")
    is_cancelled = event.outcome is Outcome.REVOKED and event.reason is CancelReason.CANCEL
    return errors if is_cancelled else ()


async def call_hooks(hooks: Iterable[object]) -> None:
    """Call hooks without arguments, one after the other."""
    threads = HandlerThreads("pyasynq-hook")
    for hook in hooks:
        await run_hook(hook, (), threads)
    threads.close()


async def run_hook(
    hook: object,
    arguments: tuple[object, ...],
    threads: HandlerThreads,
    on_failure: Callable[[BaseException], object] | None = None,
) -> None:
    """Call a hook, a coroutine function or a plain one, with a timeout of 5 seconds.

    An error of the hook is logged, then passed to `on_failure`.
    """
    limit = asyncio.timeout(HOOK_SECONDS)
    try:
        async with limit:
            if is_coroutine_handler(hook):  # type: ignore[arg-type] # it was checked at its declaration
                await await_fully(hook(*arguments))  # type: ignore[operator] # as above
            else:
                await await_fully(await threads.result(hook, *arguments))  # type: ignore[arg-type] # as above
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - a hook changes nothing, whatever it raises
        if limit.expired():
            _log.error("the hook %s took over %g s and was given up", name_of_hook(hook), HOOK_SECONDS)
        else:
            _log.exception("the hook %s raised", name_of_hook(hook))
        if on_failure is not None:
            on_failure(error)
