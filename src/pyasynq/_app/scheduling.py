"""Declared schedules of an app, and the scheduler that enqueues their tasks periodically."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyasynq._app.sending import Sending
from pyasynq._app.typed_task import TypedTask
from pyasynq._broker.enqueueing.chunks import with_options
from pyasynq.config import SchedulerConfig, check_misfire
from pyasynq.errors import ArgumentsError, InvalidOptionError, UnknownAnnotationError
from pyasynq.options import DEFAULT_QUEUE, check_combination, check_unattended, resolve_options

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from pyasynq._app.decorators import CronDecorator
    from pyasynq._redis.clients import RedisSource
    from pyasynq._scheduler.entry import ScheduleEntry
    from pyasynq.client import ClientMiddleware
    from pyasynq.config import Misfire
    from pyasynq.options import Duration, EnqueueOptions
    from pyasynq.scheduler import Scheduler
    from pyasynq.task import Task


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A periodic task declared by an app: the task and its cron expression.

    Attributes:
        make_task: function that makes the task. Arguments are checked only after all modules are imported.
        options: options of the task.
    """

    spec: str
    make_task: Callable[[], Task]
    options: EnqueueOptions
    misfire: Misfire

    def register(self, scheduler: Scheduler) -> None:
        """Register the task with a scheduler. Raises what `make_task` raises."""
        scheduler.register(self.spec, self.make_task(), misfire=self.misfire)


def schedule_task(spec: str, task: Task, misfire: Misfire) -> DeclaredSchedule:
    """Return the schedule of a `Task` whose payload is already encoded.

    Raises:
        CronError: for an expression that cannot be read.
    """
    _check_schedule(spec, misfire)
    return DeclaredSchedule(spec, lambda: task, task.options, misfire)


def schedule_handler(spec: str, task: TypedTask[..., Any], misfire: Misfire) -> DeclaredSchedule:
    """Return the schedule of a typed task, which is called without arguments at each tick.

    Raises:
        CronError: for an expression that cannot be read.
        ArgumentsError: for a handler that cannot be called without arguments.
    """
    _check_schedule(spec, misfire)
    try:
        with suppress(UnknownAnnotationError):  # the module may define the name further down
            task.task()
    except ArgumentsError as error:
        remedy = f"a tick has no arguments: give them, as in app.schedule({spec!r}, handler.task(...))"
        raise ArgumentsError(f"{error}; {remedy}", error.argument) from None
    return DeclaredSchedule(spec, task.task, task.declared_options, misfire)


def _check_spec(spec: object) -> None:
    if not isinstance(spec, str):
        raise InvalidOptionError("spec", spec, 'must be a cron expression, as in @app.cron("*/5 * * * *")')


def _check_schedule(spec: str, misfire: Misfire) -> None:
    from pyasynq._cron import parse_cron  # noqa: PLC0415 - few programs have schedules

    parse_cron(spec)
    check_misfire(misfire)


class Scheduling(Sending):
    """Methods of an app that declare schedules, and make and run its schedulers."""

    def __init__(
        self,
        url: RedisSource | None,
        client_middleware: Iterable[ClientMiddleware],
        *,
        max_payload: int,
        timeout: Duration,
        publish_events: bool | int,
        scheduler_config: SchedulerConfig | None,
    ) -> None:
        super().__init__(
            url,
            client_middleware,
            max_payload=max_payload,
            timeout=timeout,
            publish_events=publish_events,
        )
        self._scheduler_config = SchedulerConfig() if scheduler_config is None else scheduler_config
        self._schedules: list[DeclaredSchedule] = []

    def load(self) -> None:
        """Import the modules that declare tasks and schedules."""
        raise NotImplementedError

    def task(self, function: Callable[..., Any], /) -> Any:
        """Declare a handler."""
        raise NotImplementedError

    @property
    def has_schedules(self) -> bool:
        """Whether the app declares any schedule."""
        return bool(self._schedules)

    @property
    def _scheduled_queues(self) -> set[str]:
        """Names of the queues that the scheduled tasks go to."""
        return {schedule.options.get("queue", DEFAULT_QUEUE) for schedule in self._schedules}

    def _list_entries(self) -> list[ScheduleEntry]:
        """Return the entries of the declared schedules, with the ids that they have in every scheduler.

        Raises:
            ArgumentsError: for a handler that cannot be called without arguments.
        """
        from pyasynq._scheduler.entry import new_entry  # noqa: PLC0415 - few processes need it

        zone = self._scheduler_config.zone
        entries: dict[str, ScheduleEntry] = {}
        for one in self._schedules:
            entry = new_entry(one.spec, one.make_task(), one.misfire, zone, entries)
            entries[entry.id] = entry
        return list(entries.values())

    def cron(
        self, spec: str, *, misfire: Misfire = "skip", **options: Unpack[EnqueueOptions]
    ) -> CronDecorator:
        """Enqueue a handler periodically: `@app.cron("*/5 * * * *")`, above `@app.task` or instead of it.

        It may be used several times on one handler. Only a running scheduler enqueues:
        `pyasynq scheduler`, or `pyasynq worker --with-scheduler`.

        Args:
            spec: five fields, or `@every 1h30m`, `@daily` and so on; see `Scheduler.register`.
            misfire: what to do about ticks that fell due while no scheduler ran: `skip`, `once` (fire only
                the last one) or `all`.
            options: options of the scheduled tasks; they override the options of the declaration.

        Raises:
            CronError: for an expression that cannot be read.
            ArgumentsError: for a handler that cannot be called without arguments; use `schedule` for it.
            UnknownOptionError, InvalidOptionError: for wrong options, and for a `spec` that is not text.
        """
        _check_spec(spec)
        resolve_options(options)

        def declare(target: Any) -> Any:
            task: TypedTask[..., Any] = target if isinstance(target, TypedTask) else self.task(target)
            scheduled = task.options(**options)
            check_unattended(scheduled.declared_options)
            self._schedules.append(schedule_handler(spec, scheduled, misfire))
            return task

        return declare

    def schedule(
        self, spec: str, task: Task, *, misfire: Misfire = "skip", **options: Unpack[EnqueueOptions]
    ) -> None:
        """Enqueue a task periodically: `app.schedule("0 9 * * *", deliver.task(user_id=1))`.

        Raises:
            CronError: for an expression that cannot be read.
            UnknownOptionError, InvalidOptionError: for wrong options, and for a value that is not a task.
        """
        _check_spec(spec)
        task = with_options(task, options)
        resolve_options(task.options)
        check_combination(task.options)
        check_unattended(task.options)
        self._schedules.append(schedule_task(spec, task, misfire))

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that the declared and the scheduled tasks go to."""
        raise NotImplementedError

    def scheduler(self, *, forward: bool = False) -> Scheduler:
        """Return a scheduler with everything that `cron` and `schedule` declared, not started.

        Args:
            forward: also move due tasks of the app's queues to pending, as
                `SchedulerConfig(forward_queues=...)`.

        Raises:
            ConfigurationError: without a Redis URL, or raised by `load`.
            ArgumentsError: for a handler that cannot be called without arguments.
        """
        from pyasynq.scheduler import Scheduler  # noqa: PLC0415 - programs that only enqueue start faster

        self.load()
        config = self._scheduler_config
        if forward:
            config = replace(config, forward_queues=tuple({*config.forward_queues, *self.queues}))
        scheduler = Scheduler(self.url, config, middleware=self._client_middleware, clock=self._clock)
        for schedule in self._schedules:
            schedule.register(scheduler)
        return scheduler

    def run_scheduler(
        self, *, forward: bool = False, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> int:
        """Run the scheduler as the main program of this process until a stop signal; return the exit code.

        `raise SystemExit(app.run_scheduler())` is what `pyasynq scheduler` does. Any number may run.

        Args:
            forward: as for `scheduler`.
            loop_factory: makes the event loop, such as `uvloop.new_event_loop`.

        Raises:
            ConfigurationError: without a Redis URL, or raised by `load`.
        """
        return self.scheduler(forward=forward).run_forever(loop_factory=loop_factory)
