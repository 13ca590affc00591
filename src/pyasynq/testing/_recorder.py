"""Recorder of the attempts and events of a kit's worker, fed by the events of server and schedulers."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyasynq import events as happened
from pyasynq._app.routes import watch_result
from pyasynq._engine.handlers.group_routes import GroupRouter
from pyasynq._engine.handlers.routes import HasHooks
from pyasynq._engine.run.outcome import find_control_flow
from pyasynq.context import current_task
from pyasynq.errors import HandlerExitError, PayloadDecodingError
from pyasynq.events import Outcome, TaskFinished
from pyasynq.hooks import Hooks
from pyasynq.testing._report import Attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Mapping

    from pyasynq._app.typed_task import TypedTask
    from pyasynq._clock import Instant
    from pyasynq._engine.handlers.group_routes import DeclaredAggregator
    from pyasynq._engine.handlers.routes import Route, Router
    from pyasynq.events import Events
    from pyasynq.task import Task
    from pyasynq.testing._time import VirtualClock

_NOTED: Final = (
    happened.TaskRecovered,
    happened.LeaseLapsed,
    happened.TaskPoisoned,
    happened.LeaseLost,
    happened.GhostsDropped,
    happened.MessageQuarantined,
    happened.ArchiveTrimmed,
    happened.TasksAggregated,
    happened.AggregationDeclined,
    happened.AggregationFailed,
    happened.AggregationLost,
    happened.SetsReclaimed,
    happened.TickFired,
    happened.TickFailed,
    happened.TickPaused,
    happened.TicksMissed,
    happened.FutureTickIgnored,
    happened.HookFailed,
    happened.SyncFailed,
    happened.PeriodicTaskRefused,
)


class Recorder:
    """Recorder of what runs during one call of the kit.

    Attributes:
        attempts: attempts in the order in which they ended.
        events: other events.
        failure: the first error of a handler, an aggregator, a hook or a provider.
    """

    def __init__(self, clock: VirtualClock, tasks: Mapping[str, TypedTask[..., Any]]) -> None:
        self.attempts: list[Attempt[Any]] = []
        self.events: list[tuple[object, ...]] = []
        self.failure: BaseException | None = None
        self._clock = clock
        self._tasks = tasks
        self._results: dict[tuple[str, str], object] = {}
        self._payloads: dict[tuple[str, str], bytes] = {}
        self._snoozes: Counter[tuple[str, str, Instant]] = Counter()
        self.most_snoozes = 0
        """Largest number of snoozes of one task at one instant so far."""

    @property
    def count(self) -> int:
        """Number of attempts and events."""
        return len(self.attempts) + len(self.events)

    @contextmanager
    def listening(self, events: Events) -> Iterator[None]:
        """Record the events that are emitted during a block."""
        ends = [events.subscribe(TaskFinished, self._on_finished)]
        ends += [events.subscribe(kind, self._record) for kind in _NOTED]
        try:
            yield
        finally:
            for end in ends:
                end()

    def raise_failure(self) -> None:
        """Raise the failure, if any.

        An error that would end the event loop (such as `SystemExit`) is raised as the cause of another error.
        """
        failure = self.failure
        if failure is None:
            return
        if isinstance(failure, Exception):
            raise failure
        raise HandlerExitError(failure) from failure

    def started(self, task: Task) -> None:
        """Record the payload of the current attempt when its handler starts, and observe its result."""
        running = current_task.get()
        key = running.queue, running.id
        self._payloads[key] = task.payload or b""
        self._results.pop(key, None)
        watch_result.set(lambda value: self._results.__setitem__(key, value))

    def returned(self, value: object) -> None:
        """Record the return value of the current attempt's handler, unless a result is recorded already."""
        running = current_task.get()
        self._results.setdefault((running.queue, running.id), value)

    def _on_finished(self, event: TaskFinished) -> None:
        key = event.queue, event.task_id
        payload = self._payloads.pop(key, b"")
        result = self._results.pop(key, None)
        if event.outcome is Outcome.SNOOZED:
            once = *key, self._clock.now()
            self._snoozes[once] += 1
            self.most_snoozes = max(self.most_snoozes, self._snoozes[once])
        self.attempts.append(
            Attempt(
                task_id=event.task_id,
                type=event.task_type,
                queue=event.queue,
                payload=payload,
                arguments=decode_arguments(self._tasks.get(event.task_type), payload),
                retried=event.retried,
                at=self._clock.now().to_datetime(),
                outcome=event.outcome,
                result=None if event.error is not None else result,
                error=event.error,
            )
        )
        if event.error is not None and not _is_intended(event):
            retries = f"attempt {event.retried + 1} of {event.max_retry + 1}"
            what = f"task {event.task_id} of type {event.task_type!r} in queue {event.queue!r}"
            self._fail(event.error, f"{what}, {retries}: {event.outcome.value}")

    def _record(self, event: tuple[object, ...]) -> None:
        self.events.append(event)
        error = getattr(event, "error", None)
        if isinstance(error, BaseException):
            self._fail(error, f"reported as {event!r}")

    def hook_failed(self, error: BaseException) -> None:
        """Record what a hook of the app has raised."""
        self._fail(error, "raised by a hook")

    def _fail(self, error: BaseException, note: str) -> None:
        if self.failure is None:
            self.failure = error
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)


def _is_intended(event: TaskFinished) -> bool:
    """Return whether the event's error is a chosen outcome (such as `Snooze`), not a failure."""
    return (
        event.error is None or event.outcome is Outcome.REVOKED or find_control_flow(event.error) is not None
    )


def decode_arguments(task: TypedTask[..., Any] | None, payload: bytes) -> dict[str, Any] | None:
    """Return the arguments in a payload; None if they cannot be decoded."""
    if task is None:
        return None
    try:
        return task._declaration.arguments.decode(payload)  # noqa: SLF001 - the kit reads as the worker does
    except PayloadDecodingError:
        return None


class RecordedRouter:
    """Router whose handlers report their payloads and results to a recorder."""

    def __init__(self, router: Router, recorder: Recorder) -> None:
        self._router = router
        self._recorder = recorder

    def route(self, task_type: str) -> Route | None:
        """Return the route of a task type, wrapped so that it reports to the recorder."""
        route = self._router.route(task_type)
        return None if route is None else self._record_route(route)

    def routes(self) -> Iterable[Route]:
        """Return all routes."""
        return self._router.routes()

    def types(self) -> Iterable[str]:
        """Return the task types that have handlers."""
        return self._router.types()

    def aggregators(self) -> Mapping[str, DeclaredAggregator]:
        """Return the aggregators by name or pattern of their groups."""
        return self._router.aggregators() if isinstance(self._router, GroupRouter) else {}

    @property
    def hooks(self) -> Hooks:
        """Hooks of the app."""
        return self._router.hooks if isinstance(self._router, HasHooks) else Hooks()

    def _record_route(self, route: Route) -> Route:
        recorder = self._recorder

        async def wait_for(waiting: Awaitable[Any]) -> Any:
            result = await waiting
            recorder.returned(result)
            return result

        def call(task: Task) -> Any:
            recorder.started(task)
            result = route.call(task)
            if inspect.isawaitable(result):
                return wait_for(result)
            recorder.returned(result)
            return result

        return dataclasses.replace(route, call=call)
