"""The operator's methods about operations on many tasks."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq._broker import inspecting
from pyasynq._broker.operating.operations import (
    create_operation,
    list_operations,
    read_operation,
    set_operation_state,
    write_tasks,
)
from pyasynq.errors import (
    InvalidOptionError,
    QueueNotFoundError,
    RedisPermissionError,
    TaskNotFoundError,
    UndecodableMessageError,
    UnknownTaskStateError,
)
from pyasynq.operations.operation import (
    MAX_FOUND,
    PERMISSION_OF_ACT,
    Act,
    OperationInfo,
    OperationOptions,
    OperationPreview,
    OperationState,
    Scope,
    Targets,
    check_confirmation,
    check_options,
    check_targets,
    is_undo_possible,
    preview_of,
    states_of,
)
from pyasynq.operations.operation_record import (
    decode_operation,
    encode_operation,
    encode_tasks,
    fingerprint_request,
    name_operation,
)
from pyasynq.operations.permissions import Permission

from .search import SearchOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq.operations.selection import AsyncSelections, Budget
    from pyasynq.task import TaskInfo

_READ_AT_ONCE: Final = 500
_MOST_POSITIONS: Final = 100_000_000
_MOST_SECONDS: Final = 600.0
"""Maximum seconds of the search for an operation's tasks, because its caller waits until the end."""
_PREVIEW_POSITIONS: Final = 100_000
"""Maximum positions that a preview examines: up to this number, tasks are counted exactly."""
_PREVIEW_SECONDS: Final = 20.0
"""Maximum seconds of a preview, which only a busy machine reaches."""
_DEFAULT: Final = OperationOptions()
_MISSING: Final = (
    TaskNotFoundError,
    QueueNotFoundError,
    UndecodableMessageError,
    UnknownTaskStateError,
)


class OperationOperator(SearchOperator):
    """The operator's methods about operations on many tasks: preview, start, run, pause, stop, undo."""

    async def preview_operation(
        self,
        act: Act | str,
        targets: Targets,
        options: OperationOptions = _DEFAULT,
    ) -> OperationPreview:
        """Preview an operation (dry run): its tasks, and the confirmation it needs. Changes nothing.

        Raises:
            InvalidOptionError: for neither ids nor a query, for too many ids, and for invalid options.
        """
        from pyasynq.operations.selection import Budget  # noqa: PLC0415 - most calls need none

        act = Act(act)
        check_options(act, options)
        targets = check_targets(targets)
        found: list[TaskInfo] = []
        missing, is_exact = 0, True
        if not targets.ids:
            budget = Budget(_PREVIEW_POSITIONS, _PREVIEW_SECONDS)
            async for page in self._pages(act, targets.query, options, budget):
                found += page.tasks
                is_exact = not page.cursor
        else:
            found, missing = await self._read_tasks(targets)
        return preview_of(
            act,
            found,
            missing,
            self._environment,
            memory=await self._read_memory(),
            now=self._inspector.now().to_datetime(),
            options=options,
            is_exact=is_exact,
        )

    async def start_operation(
        self,
        act: Act | str,
        targets: Targets,
        options: OperationOptions = _DEFAULT,
        *,
        reason: str = "",
        confirm: int | None = None,
        key: str = "",
    ) -> OperationInfo:
        """Store a new operation; `run_operation` in this or any other process then runs it.

        Args:
            act: action on each task.
            targets: the tasks.
            options: options of the act.
            reason: why; needed for deletions and for more than 100 tasks.
            confirm: number of the tasks; needed for more than 1,000 tasks, and in production.
            key: name of this request. If the user has started an operation with it within 30 days, that
                operation is returned, and nothing is started (idempotency key).

        Raises:
            InvalidOptionError: for invalid targets or options, or without reason or confirmation; for
                a key with which something else was started.
        """
        act = Act(act)
        if act is Act.UNDO:
            raise InvalidOptionError("act", act.value, "is started by undo_operation")
        check_options(act, options)
        targets = check_targets(targets)
        request = fingerprint_request(act, targets, options) if key else ""
        if key and (started := await self._find_started(key, request)) is not None:
            return started
        if act is Act.RUN and options.spread and options.process_at is None:
            options = replace(options, process_at=self._inspector.now().to_datetime())
        tasks = await self._find_tasks(act, targets, options)
        total = len(tasks)
        check_confirmation(act, total, self._environment, reason=reason, confirm=confirm)
        if act is Act.DELETE and options.undo and not is_undo_possible(0, await self._read_memory()):
            raise InvalidOptionError("undo", True, "Redis is too full to keep the tasks; delete without undo")
        scope = Scope(tuple(dict.fromkeys(queue for queue, _, _ in tasks)), total, targets.query)
        return await self._create(act, scope, tasks, options, reason=reason, key=key, request=request)

    async def operations(self, limit: int = 50) -> list[OperationInfo]:
        """Return the newest operations whose queues the user sees all."""
        names = (await self._inspector.run(list_operations()))[:limit]
        plans = [read_operation(name) for name in names]
        found = []
        for name, fields in zip(names, await self._inspector.run_batch(plans), strict=True):
            if isinstance(fields, Exception):
                raise fields
            operation = decode_operation(name, fields, now=self._inspector.now().to_datetime())
            if operation is not None:
                found.append(operation)
        return found

    async def operation(self, operation_id: str) -> OperationInfo:
        """Return an operation. Raises `OperationNotFoundError` if there is none that the user sees."""
        return await self._inspector.operation(operation_id)

    async def run_operation(
        self,
        operation_id: str,
        *,
        progress: Callable[[OperationInfo], object] | None = None,
        reason: str = "",
    ) -> OperationInfo:
        """Run an operation until it ends, is paused or stopped, or another process has taken it over.

        Any process may run it. If the running process dies, a call at least 15 seconds later continues, and
        counts no task twice. `progress` is called after each step. If cancelled, the call ends after the
        current step, and the operation is orphaned: `run_operation` continues it.

        Raises:
            OperationNotFoundError: there is no such operation.
            RedisError: Redis failed; the next `run_operation` continues the operation.
        """
        from ._runner import OperationRunner  # noqa: PLC0415 - most calls need none

        runner = OperationRunner(self._connections, operation_id, self._redactor, progress)
        return await runner.run()

    async def pause_operation(self, operation_id: str, *, reason: str = "") -> OperationInfo:
        """Pause an operation after its current step; return its state."""
        return await self._set_state(operation_id, OperationState.PAUSED, OperationState.RUNNING)

    async def resume_operation(self, operation_id: str, *, reason: str = "") -> OperationInfo:
        """Resume a paused operation, and return its state; `run_operation` then runs it."""
        return await self._set_state(operation_id, OperationState.RUNNING, OperationState.PAUSED)

    async def stop_operation(self, operation_id: str, *, reason: str = "") -> OperationInfo:
        """End an operation after its current step, and return its state; changes already made remain."""
        before = (OperationState.RUNNING, OperationState.PAUSED)
        return await self._set_state(operation_id, OperationState.STOPPED, *before)

    async def undo_operation(self, operation_id: str, *, reason: str = "") -> OperationInfo:
        """Start an operation that puts back the tasks of a deletion, within a day; run it like any other.

        Tasks whose id or lock belongs to another task by now are left out and reported. Nothing is put back
        twice.

        Raises:
            OperationNotFoundError: there is no such operation.
            InvalidOptionError: the operation has not ended, or has deleted nothing that can be put back.
        """
        undone = await self._inspector.operation(operation_id)
        if not undone.has_ended:
            raise InvalidOptionError("operation_id", undone.state.value, "stop the operation first")
        if not undone.undoable:
            raise InvalidOptionError(
                "operation_id", undone.undoable, "has deleted nothing that can be put back"
            )
        scope = Scope(undone.queues, undone.undoable, undoes=undone.operation)
        return await self._create(Act.UNDO, scope, (), _DEFAULT, reason=reason)

    async def _create(
        self,
        act: Act,
        scope: Scope,
        tasks: Sequence[tuple[str, str, str]],
        options: OperationOptions,
        *,
        reason: str,
        key: str = "",
        request: str = "",
    ) -> OperationInfo:
        own = secrets.token_hex(8)
        operation = name_operation(self.user, key) if key else own
        now = self._inspector.now()
        fields = encode_operation(
            act,
            scope,
            options,
            user=self.user,
            reason=self._redactor.text(reason),
            request=f"{request}:{own}" if key else "",
            now=now.to_datetime(),
        )
        is_new = await self._inspector.run(create_operation(operation, fields, now=now))
        # A call that was resent after a broken connection returns the operation of its first run.
        if key and not is_new and (started := await self._find_started(key, request, own)) is not None:
            return started
        await self._inspector.run(write_tasks(operation, 0, encode_tasks(tasks)))
        return await self._set_state(operation, OperationState.RUNNING, OperationState.READY)

    async def _find_started(self, key: str, request: str, own: str = "") -> OperationInfo | None:
        """Return the operation that another call has started with a key; None if there is none.

        Raises:
            InvalidOptionError: the key was used for something else, or the start has not ended.
        """
        operation = name_operation(self.user, key)
        fields = await self._inspector.run(read_operation(operation))
        if not fields:
            return None
        before, _, maker = fields.get("request", b"").decode("utf-8", "replace").partition(":")
        if before != request:
            raise InvalidOptionError("key", key, "was used for another operation; take another one")
        if own and maker == own:
            return None
        if fields["state"] == OperationState.READY.value.encode():
            message = "its start has not ended; look again, or start it with another key"
            raise InvalidOptionError("operation_id", OperationState.READY.value, message)
        return await self._inspector.operation(operation)

    async def _find_tasks(
        self, act: Act, targets: Targets, options: OperationOptions
    ) -> list[tuple[str, str, str]]:
        """Return queue, id and state of each task of an operation; an empty state stands for any state."""
        from pyasynq.operations.selection import Budget  # noqa: PLC0415 - most calls need none

        if targets.ids:
            # Tasks in the target queue of a move are not moved; they are reported as existing.
            return await self._find_named_tasks(act, targets)
        found: dict[tuple[str, str], str] = {}
        budget = Budget(_MOST_POSITIONS, _MOST_SECONDS)
        async for page in self._pages(act, targets.query, options, budget):
            # A task that moves during the search may be found in both places; an operation acts on it once.
            found |= {
                (task.queue, task.id): task.state.value
                for task in page.tasks
                if task.state in states_of(act, options)
            }
            if len(found) > MAX_FOUND:
                message = f"finds more than {MAX_FOUND:,} tasks; narrow it, and do the rest after it"
                raise InvalidOptionError("query", MAX_FOUND, message)
            if page.is_last and page.cursor:
                raise InvalidOptionError("query", MAX_FOUND, "takes too long to answer; narrow it")
        if not found:
            raise InvalidOptionError("query", 0, f"finds no task that {act.value} can be done with")
        tasks = [(queue, task_id, state) for (queue, task_id), state in found.items()]
        # The search finds the newest tasks first. Moves need the oldest first, to keep the order of pending
        # tasks, and because their list positions are found fastest.
        return tasks[::-1] if act is Act.MOVE else tasks

    async def _order_tasks(self, act: Act, queue: str, ids: Sequence[str]) -> Sequence[str]:
        """Return the tasks of a queue in the order in which an operation acts on them."""
        if act not in {Act.DELETE, Act.ARCHIVE}:
            return ids
        return await self._inspector.run(inspecting.pending_places.order_by_place(queue, ids))

    async def _find_named_tasks(self, act: Act, targets: Targets) -> list[tuple[str, str, str]]:
        """Return the tasks that are given by ids. Leave out queues in which the user may not run the query.

        Otherwise, a user could learn about payloads in these queues from the tasks that the query leaves out.
        """
        may_search = self._may_search(self._parse(targets.query), None) if targets.query else None
        tasks = [
            (queue, task_id, "")
            for queue, ids in targets.ids.items()
            if may_search is None or may_search(queue)
            for task_id in await self._order_tasks(act, queue, ids)
        ]
        if not tasks:
            raise InvalidOptionError(
                "query", 0, "asks for payloads of queues whose payloads you may not view"
            )
        return tasks

    async def _pages(self, act: Act, text: str, options: OperationOptions, budget: Budget) -> AsyncSelections:
        """Yield the tasks that a query finds in queues that the user may change, except a move's target."""
        query = self._parse(text)
        target = options.queue if act is Act.MOVE else ""
        names = await self._inspector.queues()
        queues = [queue for queue in names if queue != target and self._may_act(act, queue)]
        # Operations need names, and previews show ten of up to 100,000 tasks: redacting all takes seconds.
        selector = self._selector(query, queues, redacts_always=False)
        async for page in selector.pages(query, limit=MAX_FOUND + 1, budget=budget):
            yield page

    async def _set_state(
        self, operation_id: str, state: OperationState, *before: OperationState
    ) -> OperationInfo:
        found = await self._inspector.run(set_operation_state(operation_id, state, before))
        if found != state:
            wanted = " or ".join(before)
            raise InvalidOptionError("operation_id", found, f"the operation must be {wanted}, and is {found}")
        return await self._inspector.operation(operation_id)

    def _may_act(self, act: Act, queue: str) -> bool:
        needed = (Permission.OPERATIONS_RUN, PERMISSION_OF_ACT[act])
        return all(self._access.may(permission, queue) for permission in needed)

    async def _read_tasks(self, targets: Targets) -> tuple[list[TaskInfo], int]:
        names = [(queue, task_id) for queue, ids in targets.ids.items() for task_id in ids]
        found: list[TaskInfo] = []
        missing = 0
        now = self._inspector.now()
        for first in range(0, len(names), _READ_AT_ONCE):
            part = names[first : first + _READ_AT_ONCE]
            plans = [inspecting.tasks.describe_task(queue, task_id, now=now) for queue, task_id in part]
            for task in await self._inspector.run_batch(plans):
                if isinstance(task, _MISSING):
                    missing += 1
                elif isinstance(task, Exception):
                    raise task
                else:
                    found.append(task)
        return found, missing

    async def _read_memory(self) -> tuple[int, int]:
        """Return the bytes that Redis uses, and its `maxmemory`; 0 for an unknown number."""
        try:
            info = await self._inspector.redis_info()
        except RedisPermissionError:
            return 0, 0
        used, maximum = info.get("used_memory", ""), info.get("maxmemory", "")
        return (int(used), int(maximum)) if used.isdigit() and maximum.isdigit() else (0, 0)
