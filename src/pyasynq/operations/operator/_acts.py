"""Steps of operations: the calls to Redis that each act makes for its tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._broker.cancellation import request_in_queue
from pyasynq._broker.operating.acts import (
    ActStep,
    Stepped,
    archive_step,
    delete_step,
    edit_task,
    reschedule_step,
    run_step,
    set_aside_step,
    undo_step,
)
from pyasynq._broker.operating.moves import PLACE, forget_taken, hold_and_take, release_step
from pyasynq._broker.queue_registry import register_queues
from pyasynq.errors import (
    DuplicateTaskError,
    TaskIDConflictError,
    TaskNotFoundError,
    UndecodableMessageError,
    UnknownTaskStateError,
)
from pyasynq.info import CancelStatus
from pyasynq.operations.acting import copy_of, due_times, editor_of
from pyasynq.operations.operation import MAX_UNDO_BYTES, Act

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.inspecting.pending_places import Hints
    from pyasynq.operations.operation import OperationInfo, OperationOptions

    from ._connections import OperatorConnections

LARGEST_MOVE: Final = 50
"""Maximum number of tasks that a step moves, because their hashes pass through this process."""


class StepTasks(NamedTuple):
    """The tasks of a step, in one queue.

    Attributes:
        queue: queue of the tasks.
        ids: ids of the tasks.
        state: state that the tasks must have; empty for any.
        unwanted: ids of tasks that no longer match the query. A move of such a task is completed only if it
            has begun.
    """

    queue: str
    ids: list[str]
    state: str = ""
    unwanted: frozenset[str] = frozenset()


class StepProgress(NamedTuple):
    """Progress of the operation before a step.

    Attributes:
        number: number of the step.
        position: number of the operation's tasks that precede the step.
        kept: bytes of messages that are kept for undo.
        hints: positions of the step's pending tasks in the pending list.
        is_repeated: whether another process has made the step without recording it.
    """

    number: int
    position: int
    kept: int
    hints: Hints
    is_repeated: bool


class Acts:
    """Performer of the steps of one operation.

    Args:
        connections: connections to Redis.
        info: the operation.
        options: options of its act.
    """

    def __init__(
        self, connections: OperatorConnections, info: OperationInfo, options: OperationOptions
    ) -> None:
        self._connections = connections
        self._inspector = connections.inspector
        self._info = info
        self._options = options
        self._limits = self._inspector.limits()

    def size_limit(self, size: int) -> int:
        """Return the maximum number of tasks in a step: `size`, or fewer if the act or the rate limits it."""
        if self._info.act is Act.ARCHIVE:
            size = min(size, self._limits.max_size)
        if self._info.act is Act.MOVE:
            size = min(size, LARGEST_MOVE)
        if self._options.rate is not None:
            size = min(size, max(1, int(self._options.rate)))
        return size

    async def perform(self, chunk: StepTasks, progress: StepProgress) -> Stepped:  # noqa: PLR0911 - one for each act
        """Act on the tasks of a step; return its result."""
        queue, ids, state, _ = chunk
        step = ActStep(self._info.operation, progress.number)
        now = self._inspector.now()
        match self._info.act:
            case Act.RUN if not self._options.spread:
                return await self._inspector.run(run_step(step, queue, ids, state, now=now))
            case Act.ARCHIVE:
                hints = progress.hints
                plan = archive_step(step, queue, ids, state, limits=self._limits, now=now, hints=hints)
                return await self._inspector.run(plan)
            case Act.DELETE:
                keeps = self._options.undo and progress.kept < MAX_UNDO_BYTES
                delete = set_aside_step if keeps else delete_step
                return await self._inspector.run(delete(step, queue, ids, state, hints=progress.hints))
            case Act.UNDO:
                return await self._inspector.run(undo_step(step, queue, ids, self._info.undoes))
            case Act.RUN | Act.RESCHEDULE:
                times = due_times(self._options, ids, progress.position, self._info.total)
                return await self._inspector.run(reschedule_step(step, queue, times, now=now))
            case Act.EDIT:
                return await self._edit(queue, ids)
            case Act.CANCEL:
                return await self._cancel(queue, ids)
            case Act.MOVE:
                return await self._move(chunk, step, is_repeated=progress.is_repeated)
            case Act.ENQUEUE_AGAIN:
                return await self._enqueue_again(queue, ids)

    async def _edit(self, queue: str, ids: Sequence[str]) -> Stepped:
        edit = editor_of(self._options)
        results = await self._inspector.run_batch([edit_task(queue, task_id, edit) for task_id in ids])
        return _count(dict(zip(ids, map(_raise_if_error, results), strict=True)))

    async def _cancel(self, queue: str, ids: Sequence[str]) -> Stepped:
        request = partial(
            request_in_queue, queue, outcome=self._options.outcome, now=self._inspector.redis_now()
        )
        reasons = {}
        for task_id, result in zip(
            ids, await self._inspector.run_batch([request(task_id) for task_id in ids]), strict=True
        ):
            answer = _raise_if_error(result)
            state = "missing" if answer is None else str(answer.state or "missing")
            is_asked = answer is not None and answer.status is not CancelStatus.NOT_ACTIVE
            reasons[task_id] = "" if is_asked else state
        return _count(reasons)

    async def _move(self, chunk: StepTasks, step: ActStep, *, is_repeated: bool) -> Stepped:
        queue, ids, state, unwanted = chunk
        target = self._options.queue
        reasons: dict[str, str] = {}
        # The ledger of a repeated step has the result of each task, wherever the task is now.
        fates = dict.fromkeys(ids, PLACE)
        if not is_repeated:
            await self._inspector.run(register_queues([target]))
            operation = self._info.operation
            plans = [
                hold_and_take(operation, queue, target, one, state, is_wanted=one not in unwanted)
                for one in ids
            ]
            moves = dict(zip(ids, map(_raise_if_error, await self._inspector.run_batch(plans)), strict=True))
            fates = {task_id: move.fate for task_id, move in moves.items()}
            reasons = {task_id: move.reason for task_id, move in moves.items() if move.reason}
        stepped = await self._inspector.run(release_step(step, target, fates))
        if stepped.lost:
            return stepped
        await self._inspector.run(forget_taken(self._info.operation, queue, ids))
        return stepped._replace(refused=reasons | stepped.refused)

    async def _enqueue_again(self, queue: str, ids: Sequence[str]) -> Stepped:
        reasons = {}
        for task_id in ids:
            reasons[task_id] = ""
            try:
                info = await self._inspector.task_info(queue, task_id)
                task, options = copy_of(info, self._info.operation)
                await self._connections.client.enqueue(task, **options)
            except TaskIDConflictError:
                # The id is derived from the operation and the task, so an earlier run of this step made the
                # copy.
                continue
            except TaskNotFoundError:
                reasons[task_id] = "missing"
            except (UndecodableMessageError, UnknownTaskStateError):
                reasons[task_id] = "undecodable"
            except DuplicateTaskError:
                reasons[task_id] = "locked"
        return _count(reasons)


def _count(reasons: dict[str, str]) -> Stepped:
    refused = {task_id: reason for task_id, reason in reasons.items() if reason}
    return Stepped(len(reasons) - len(refused), refused)


def _raise_if_error(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result
