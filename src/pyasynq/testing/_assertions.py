"""Assertions about enqueued tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq.task import TaskState
from pyasynq.testing._enqueued import WAITING_STATES, Enqueued, TaskFilter, complaint, process_time
from pyasynq.testing._recorder import decode_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from pyasynq import sync
    from pyasynq._app.typed_task import TypedTask
    from pyasynq.options import Duration
    from pyasynq.task import Task
    from pyasynq.testing._report import Attempt

_PAGE: Final = 1_000


class Assertions:
    """Assertions about the waiting tasks of the test: pending, scheduled, retry and aggregating.

    The assertions read Redis, so tasks of any client count. Arguments that are not given match any value.
    Values are compared by `==`, so `unittest.mock.ANY` and `pytest.approx` work. If a handler's argument has
    the name of an option, pass it in `args`.
    """

    inspector: sync.Inspector
    attempts: list[Attempt[Any]]
    _tasks: Mapping[str, TypedTask[..., Any]]

    @property
    def now(self) -> datetime:
        """Current virtual time."""
        raise NotImplementedError

    def enqueued(
        self,
        task: TypedTask[..., Any] | Task | str | None = None,
        /,
        *args: Any,
        **wanted: Any,
    ) -> list[Enqueued]:
        """Return the waiting tasks that match the arguments of `assert_enqueued`; pending tasks in order."""
        what, tasks = self._make_filter(task, args, **wanted), self._list_waiting()
        return [one for one in tasks if not what.differences(one)]

    def assert_enqueued(
        self,
        task: TypedTask[..., Any] | Task | str | None = None,
        /,
        *args: Any,
        count: int | None = None,
        **wanted: Any,
    ) -> Enqueued:
        """Return the first matching task that waits; fail if there is none, and show the most similar tasks.

        Args:
            task: a typed task, a type, a `Task`, or None for any.
            *args: arguments of the typed task's handler, by position.
            count: exact number of matching tasks; by default one or more.
            **wanted: arguments of the handler by name, `args=` for those that have the name of an option,
                `payload=` (bytes; or JSON, compared by the given keys), `queue=`, `state=`, `group=`,
                `headers=`, `task_id=`, `max_retry=`, `process_at=` and `process_in=`.

        Raises:
            AssertionError: if the number of matching tasks is wrong.
            ArgumentsError: for an argument that the handler does not have.
        """
        __tracebackhide__ = True
        what, tasks = self._make_filter(task, args, **wanted), self._list_waiting()
        found = [one for one in tasks if not what.differences(one)]
        if found and count in {None, len(found)}:
            return found[0]
        number = "" if count is None else f"{count} x "
        there = "" if count is None else f" ({len(found)} are)"
        already = [str(one) for one in self.attempts if one.type == what.type][-3:]
        raise AssertionError(complaint(what, tasks, f"not enqueued: {number}{what}{there}", already))

    def refute_enqueued(
        self,
        task: TypedTask[..., Any] | Task | str | None = None,
        /,
        *args: Any,
        **wanted: Any,
    ) -> None:
        """Fail if a matching task waits; the arguments are those of `assert_enqueued`.

        Raises:
            AssertionError: if a matching task waits.
            ArgumentsError: for an argument that the handler does not have.
        """
        __tracebackhide__ = True
        what = self._make_filter(task, args, **wanted)
        found = [one for one in self._list_waiting() if not what.differences(one)]
        if found:
            raise AssertionError(complaint(what, found, f"enqueued, and should not be: {what}", ()))

    def _make_filter(
        self,
        task: TypedTask[..., Any] | Task | str | None,
        positional: tuple[Any, ...],
        *,
        args: Mapping[str, Any] | None = None,
        process_at: datetime | None = None,
        process_in: Duration | None = None,
        payload: object = None,
        **wanted: Any,
    ) -> TaskFilter:
        names = ("queue", "state", "group", "headers", "task_id", "max_retry")
        options = {name: wanted.pop(name) for name in names if name in wanted}
        return TaskFilter(
            task,
            positional,
            {**wanted, **(args or {})},
            payload=payload,
            process_at=process_time(self.now, process_at, process_in),
            **options,
        )

    def _list_waiting(self) -> list[Enqueued]:
        return [
            Enqueued(info, decode_arguments(self._tasks.get(info.type), info.payload))
            for queue in self.inspector.queues()
            for state, group in self._collections(queue)
            for page in self._pages(queue, state, group)
            for info in page
        ]

    def _collections(self, queue: str) -> Iterator[tuple[TaskState, str]]:
        for state in WAITING_STATES:
            if state is not TaskState.AGGREGATING:
                yield state, ""
        for group in self.inspector.groups(queue):
            yield TaskState.AGGREGATING, group.name

    def _pages(self, queue: str, state: TaskState, group: str) -> Iterator[list[Any]]:
        number, page = 0, [None] * _PAGE
        while len(page) == _PAGE:
            number += 1
            page = self.inspector.list_tasks(queue, state, number, _PAGE, group=group)  # type: ignore[assignment]
            yield page
