"""Enqueued tasks, filters for tasks, and the differences between a task and a filter."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._app.typed_task import TypedTask
from pyasynq._checks import parse_instant, parse_seconds
from pyasynq.errors import ArgumentsError, InvalidOptionError, nearest
from pyasynq.task import Task, TaskInfo, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyasynq.options import Duration

WAITING_STATES: Final = (TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY, TaskState.AGGREGATING)
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A task that waits in Redis.

    Attributes:
        info: the task as it is in Redis.
        arguments: arguments of the handler, for typed tasks; None for others.
    """

    info: TaskInfo
    arguments: Mapping[str, Any] | None

    @property
    def id(self) -> str:
        """The task's id."""
        return self.info.id

    @property
    def type(self) -> str:
        """The task's type."""
        return self.info.type

    @property
    def queue(self) -> str:
        """The queue of the task."""
        return self.info.queue

    @property
    def state(self) -> TaskState:
        """State of the task: pending, scheduled, retry or aggregating."""
        return self.info.state

    @property
    def payload(self) -> bytes:
        """The task's payload."""
        return self.info.payload

    def json(self) -> Any:
        """Return the payload as JSON. Raises ValueError when it is not JSON."""
        return json.loads(self.info.payload)

    def __str__(self) -> str:
        info = self.info
        if self.arguments is not None:
            call = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        else:
            call = f"payload={info.payload!r}" if info.payload else ""
        when = f" for {info.next_process_at}" if info.state in {TaskState.SCHEDULED, TaskState.RETRY} else ""
        group = f" in group {info.group!r}" if info.group else ""
        return f"{info.type}({call}), queue {info.queue!r}{group}, {info.state.value}{when}"


class TaskFilter:
    """Filter for tasks. Unset fields match any value.

    Args:
        task: a typed task; or a type; or a `Task`, whose payload and options are also compared.
        args: positional arguments of the handler.
        arguments: arguments of the handler by name.
        payload: exact bytes, or JSON: for an object, only the given keys are compared.
        options: `queue`, `state`, `group`, `headers` (those given), `task_id`, `max_retry`, `process_at`.

    Raises:
        ArgumentsError: for an argument that the handler does not have.
        InvalidOptionError: for an invalid value.
    """

    def __init__(
        self,
        task: TypedTask[..., Any] | Task | str | None,
        args: tuple[Any, ...] = (),
        arguments: Mapping[str, Any] | None = None,
        *,
        payload: object = None,
        **options: object,
    ) -> None:
        if task is not None and not isinstance(task, TypedTask | Task | str):
            raise InvalidOptionError(
                "task",
                task,
                "must be a typed task, as @app.task makes it of a function, a Task, a type, or None",
            )
        self.type: str | None = task if isinstance(task, str) or task is None else task.type
        self.arguments = dict(arguments or {})
        self.options = {name: value for name, value in options.items() if value is not None}
        _check_state(self.options.get("state", TaskState.PENDING))
        self.payload = payload
        if isinstance(task, TypedTask):
            self.arguments = _bind_arguments(task, args, self.arguments)
        elif isinstance(task, Task):
            own = {name: task.options[name] for name in ("queue", "group", "headers") if name in task.options}
            self.options = own | self.options
            if payload is None:
                self.payload = task.payload
        if not isinstance(task, TypedTask) and (args or self.arguments):
            raise InvalidOptionError(
                "arguments",
                [*args, *self.arguments],
                "only typed tasks have arguments; compare a payload: payload={...} for JSON, or bytes",
            )

    def differences(self, task: Enqueued) -> list[str]:
        """Describe how a task differs from the filter; empty for a matching task."""
        info = task.info
        if self.type is not None and info.type != self.type:
            return [f"type is {info.type!r}"]
        return [*self._compare_options(info), *self._compare_arguments(task), *self._compare_payload(task)]

    def _compare_options(self, info: TaskInfo) -> Iterator[str]:
        for name, wanted in self.options.items():
            if name == "headers" and isinstance(wanted, dict):
                for header, value in wanted.items():
                    yield from _compare(f"header {header!r}", value, info.headers.get(header))
            else:
                yield from _compare(name, wanted, _get_field(info, name))

    def _compare_arguments(self, task: Enqueued) -> Iterator[str]:
        if self.arguments and task.arguments is None:
            yield f"its payload does not fit the handler: {task.payload!r}"
            return
        for name, wanted in self.arguments.items():
            yield from _compare(name, wanted, (task.arguments or {})[name])

    def _compare_payload(self, task: Enqueued) -> Iterator[str]:
        if self.payload is None or task.payload == self.payload:
            return
        if isinstance(self.payload, bytes):
            yield f"payload is {task.payload!r}, not {self.payload!r}"
            return
        try:
            found = task.json()
        except ValueError:
            yield f"payload is not JSON: {task.payload!r}"
            return
        if isinstance(self.payload, dict) and isinstance(found, dict):
            for name, wanted in self.payload.items():
                yield from _compare(f"payload[{name!r}]", wanted, found.get(name))
        else:
            yield from _compare("payload", self.payload, found)

    def __str__(self) -> str:
        call = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        options = "".join(f", {name} {value!r}" for name, value in self.options.items())
        payload = "" if self.payload is None else f", payload {self.payload!r}"
        return f"{self.type or 'any task'}({call}){options}{payload}"


def _check_state(state: object) -> None:
    if state not in WAITING_STATES:
        known = [one.value for one in WAITING_STATES]
        hint = nearest(state, known) if isinstance(state, str) else ""
        remedy = f"must be {', '.join(map(repr, known[:-1]))} or {known[-1]!r}, in which tasks wait{hint}"
        raise InvalidOptionError("state", state, remedy)


def _bind_arguments(
    task: TypedTask[..., Any], args: tuple[Any, ...], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    signature = inspect.signature(task._declaration.function)  # noqa: SLF001 - the kit may use internals of typed tasks
    for name in arguments:
        if name not in signature.parameters:
            hint = nearest(name, signature.parameters)
            raise ArgumentsError(f"task {task.type!r} has no argument {name!r}{hint}", name)
    try:
        return dict(signature.bind_partial(*args, **arguments).arguments)
    except TypeError as error:
        raise ArgumentsError(f"task {task.type!r}: {error}", None) from None


def _get_field(info: TaskInfo, name: str) -> object:
    if name == "process_at":
        return info.next_process_at
    return getattr(info, "id" if name == "task_id" else name)


def _compare(name: str, wanted: object, found: object) -> Iterator[str]:
    if found != wanted:
        shown = found.value if isinstance(found, TaskState) else found
        yield (
            f"{name} is {shown!r}, not {wanted!r}"
            if not isinstance(shown, datetime)
            else (f"{name} is {shown}, not {wanted}")
        )


def process_time(now: datetime, process_at: datetime | None, process_in: Duration | None) -> datetime | None:
    """Return the expected process time, from `process_at` or `process_in`, rounded up to whole seconds."""
    if process_at is not None and process_in is not None:
        raise InvalidOptionError("process_at", process_at, "give process_at or process_in, not both")
    if process_in is not None:
        process_at = now + timedelta(seconds=parse_seconds("process_in", process_in))
    if process_at is None:
        return None
    instant = parse_instant("process_at", process_at)
    return instant._replace(seconds=instant.ceiling, microseconds=0).to_datetime()


def complaint(wanted: TaskFilter, tasks: Sequence[Enqueued], headline: str, already: Iterable[str]) -> str:
    """Return the message of a failed assertion: the headline, and the most similar tasks.

    `already` has descriptions of the attempts that have already run.
    """
    lines = [headline]
    near = sorted(
        ((wanted.differences(task), task) for task in tasks if wanted.type in {None, task.type}),
        key=lambda pair: len(pair[0]),
    )
    for differences, task in near[:_SHOWN]:
        lines.append(f"  {'is' if not differences else 'not'} {task}")
        lines += [f"      {one}" for one in differences]
    others = [task for task in tasks if wanted.type not in {None, task.type}]
    if len(near) > _SHOWN:
        lines.append(f"  and {len(near) - _SHOWN} more of this type")
    if not tasks:
        lines.append("  nothing is enqueued")
    elif not near:
        hint = nearest(wanted.type or "", {task.type for task in others})
        lines.append(f"  no task of this type is enqueued{hint}; enqueued are:")
        lines += [f"      {task}" for task in others[:_SHOWN]]
        lines += [f"      and {len(others) - _SHOWN} more"] if len(others) > _SHOWN else []
    lines += [f"  has run already: {one}" for one in already]
    return "\n".join(lines)
