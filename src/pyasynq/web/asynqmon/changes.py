"""Routes of asynqmon that change something."""

from __future__ import annotations

import itertools
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from pyasynq.errors import QueueNotEmptyError, QueueNotFoundError
from pyasynq.task import TaskState

from .answer import ApiError, json_answer
from .go_texts import quote_for_go

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pyasynq.info import TaskResults

    from .answer import ApiRequest

_REASON: Final = "asynqmon API"
_CANCELED_AT_ONCE: Final = 100


def _answer_done() -> Response:
    return Response(status_code=204)


async def answer_delete_queue(ask: ApiRequest) -> Response:
    """Delete an empty queue."""
    try:
        await ask.operator.delete_queue(ask.queue, reason=_REASON)
    except QueueNotFoundError:
        raise ApiError(404, f"queue not found: queue={quote_for_go(ask.queue)}") from None
    except QueueNotEmptyError:
        raise ApiError(400, f"queue is not empty: queue={quote_for_go(ask.queue)}") from None
    return _answer_done()


async def answer_pause_queue(ask: ApiRequest) -> Response:
    """Pause a queue."""
    await ask.operator.pause_queue(ask.queue, reason=_REASON)
    return _answer_done()


async def answer_resume_queue(ask: ApiRequest) -> Response:
    """Resume a queue."""
    await ask.operator.resume_queue(ask.queue, reason=_REASON)
    return _answer_done()


async def answer_run_task(ask: ApiRequest) -> Response:
    """Run a task now; the state in the path is not checked."""
    with _explain_missing_queue():
        await ask.operator.run_task(ask.queue, ask.names["task"], reason=_REASON)
    return _answer_done()


async def answer_archive_task(ask: ApiRequest) -> Response:
    """Archive a task."""
    with _explain_missing_queue():
        await ask.operator.archive_task(ask.queue, ask.names["task"], reason=_REASON)
    return _answer_done()


async def answer_delete_task(ask: ApiRequest) -> Response:
    """Delete a task."""
    with _explain_missing_queue():
        await ask.operator.delete_task(ask.queue, ask.names["task"], reason=_REASON)
    return _answer_done()


async def answer_run_all(ask: ApiRequest) -> Response:
    """Run all tasks of a state or a group of a queue."""
    with _explain_missing_queue(_explain_missing_tasks(ask.state)):
        result = await ask.operator.run_all_tasks(ask.queue, ask.state, group=ask.group, reason=_REASON)
    return json_answer({"scheduled": result.done})


async def answer_archive_all(ask: ApiRequest) -> Response:
    """Archive all tasks of a state or a group of a queue; a full archive evicts older ones."""
    with _explain_missing_queue(_explain_missing_tasks(ask.state)):
        result = await ask.operator.archive_all_tasks(
            ask.queue, ask.state, group=ask.group, trim=True, reason=_REASON
        )
    return json_answer({"archived": result.done})


async def answer_delete_all(ask: ApiRequest) -> Response:
    """Delete all tasks of a state or a group of a queue."""
    with _explain_missing_queue(_explain_missing_tasks(ask.state)):
        result = await ask.operator.delete_all_tasks(ask.queue, ask.state, group=ask.group, reason=_REASON)
    return json_answer({"deleted": result.done})


async def answer_run_batch(ask: ApiRequest) -> Response:
    """Run the tasks with these ids."""
    return await _change_batch(ask, ask.operator.run_tasks, "pending_ids", "error_ids")


async def answer_archive_batch(ask: ApiRequest) -> Response:
    """Archive the tasks with these ids; evict older archived tasks if the archive is full."""
    change = partial(ask.operator.archive_tasks, trim=True)
    return await _change_batch(ask, change, "archived_ids", "error_ids")


async def answer_delete_batch(ask: ApiRequest) -> Response:
    """Delete the tasks with these ids."""
    return await _change_batch(ask, ask.operator.delete_tasks, "deleted_ids", "failed_ids")


async def answer_cancel_task(ask: ApiRequest) -> Response:
    """Request the cancellation of a task; change nothing, without an error, if it is not running."""
    await _cancel(ask, [ask.names["task"]])
    return _answer_done()


async def answer_cancel_batch(ask: ApiRequest) -> Response:
    """Request the cancellation of tasks by ids; the answer lists all ids."""
    ids = await ask.read_ids()
    await _cancel(ask, ids)
    return json_answer({"canceled_ids": ids, "error_ids": []})


async def answer_cancel_all(ask: ApiRequest) -> Response:
    """Request the cancellation of all running tasks of a queue."""
    with _explain_missing_queue():
        for page in itertools.count(1):
            tasks = await ask.operator.tasks(ask.queue, TaskState.ACTIVE, page, _CANCELED_AT_ONCE)
            await _cancel(ask, [task.id for task in tasks])
            if len(tasks) < _CANCELED_AT_ONCE:
                break
    return _answer_done()


async def _cancel(ask: ApiRequest, ids: list[str]) -> None:
    with suppress(QueueNotFoundError):
        await ask.operator.cancel_tasks(ask.queue, ids, reason=_REASON)


async def _change_batch(
    ask: ApiRequest, change: Callable[..., Awaitable[TaskResults]], done: str, failed: str
) -> Response:
    """Change the tasks whose ids the body lists; answer with the changed and the unchanged ids."""
    ids = await ask.read_ids()
    changed: set[str] = set()
    with suppress(QueueNotFoundError):
        results = await change(ask.queue, ids, reason=_REASON)
        changed = {result.task_id for result in results if result.done}
    answer: dict[str, list[str]] = {done: [], failed: []}
    for task_id in ids:
        answer[done if task_id in changed else failed].append(task_id)
        changed.discard(task_id)  # an id that is listed twice counts as failed the second time
    return json_answer(answer)


@contextmanager
def _explain_missing_queue(text: str = "asynq: queue not found") -> Iterator[None]:
    """Turn `QueueNotFoundError` in a `with` block into asynqmon's error; `text` has `{}` for the queue."""
    try:
        yield
    except QueueNotFoundError as error:
        raise ApiError(500, text.format(quote_for_go(error.queue))) from None


def _explain_missing_tasks(state: TaskState) -> str:
    """Return asynqmon's message for an action on all tasks of a state whose queue does not exist."""
    code = "INTERNAL_ERROR" if state in {TaskState.PENDING, TaskState.AGGREGATING} else "NOT_FOUND"
    return f"{code}: INTERNAL_ERROR: queue {{}} does not exist"
