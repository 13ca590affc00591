"""Handler of `POST /v1/tasks:batch`: many tasks in one request, each with a result of its own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.responses import Response

from pyasynq.errors import InvalidOptionError, TaskIDConflictError
from pyasynq.task import EnqueueStatus, TaskState
from pyasynq.web.api.idempotency import check_fingerprint, read_key
from pyasynq.web.api.json_body import decode_body, decode_text

from .bodies import NewTaskBatch
from .call import answer_json
from .enqueue import PreparedTask, describe_new_task, enqueue_prepared, name_field, prepare_task
from .problems import to_service_problem
from .task_stream import LINES_TYPE, LineResponse, answer_lines, encode_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.task import EnqueueResult, Task

    from .call import ServiceCall

_LARGEST_BODY: Final = 8_000_000
BATCHES_AT_ONCE: Final = 2
"""Number of batches that an instance works on at once: one computes while the other waits for Redis."""
_SLICE: Final = 100
"""Number of tasks of a batch after which the event loop may serve other requests."""


async def serve_enqueue_batch(call: ServiceCall) -> Response:
    """Enqueue many tasks; an error of one of them affects no other.

    Lines of JSON (NDJSON) are enqueued as they arrive, and each is answered by a line.
    """
    key = read_key(call.request)
    if _names(call, "content-type"):
        enqueue = partial(_enqueue_lines, call, key)
        waits = call.parts.waits
        return LineResponse(answer_lines(call.request, enqueue, call.parts.max_body, lambda: waits.is_ending))
    content = await call.content(_LARGEST_BODY)
    batch: NewTaskBatch = decode_body(call.request, content, NewTaskBatch)
    results = await enqueue_in_order(call, list(map(bytes, batch.tasks)), key)
    if _names(call, "accept"):
        return Response(encode_lines(results), headers={"Cache-Control": "no-store"}, media_type=LINES_TYPE)
    return answer_json({"results": results})


def _names(call: ServiceCall, header: str) -> bool:
    """Return whether a header names the media type of lines of JSON (`application/x-ndjson`)."""
    named = call.request.headers.get(header, "").lower().split(",")
    return any(one.partition(";")[0].strip() == LINES_TYPE for one in named)


async def _enqueue_lines(
    call: ServiceCall, key: str, lines: Sequence[bytes], first: int
) -> list[dict[str, Any]]:
    return await enqueue_in_order(call, lines, key, first=first)


async def enqueue_in_order(
    call: ServiceCall, items: Sequence[bytes], key: str, *, first: int = 0
) -> list[dict[str, Any]]:
    """Enqueue tasks in the order in which they are given; return a result for each.

    Args:
        call: the request.
        items: the body of each task, in JSON.
        key: idempotency key of the whole batch; empty for none.
        first: index of the first item in the whole batch.

    Returns:
        for each task the status that a separate request would have had, and the task or the problem.
    """
    found: list[PreparedTask | Exception] = []
    results: list[dict[str, Any]] = []
    async with call.parts.batches:
        for at, item in enumerate(items, first):
            if len(found) % _SLICE == 0:
                await asyncio.sleep(0)
            found.append(await _prepare(call, item, f"{key} {at}" if key else ""))
        tasks = [one.task for one in found if isinstance(one, PreparedTask)]
        # A single call keeps the order of the tasks. Separate calls would not, because two pipelines may be
        # in flight.
        enqueued = iter(await call.parts.client.enqueue_many(tasks))
        now = datetime.now(UTC)
        for at, one in enumerate(found, first):
            if len(results) % _SLICE == 0:
                await asyncio.sleep(0)
            if isinstance(one, PreparedTask):
                results.append(await _describe(call, one, next(enqueued), at, now))
            else:
                results.append(_describe_error(one, at))
    return results


async def _prepare(call: ServiceCall, item: bytes, key: str) -> PreparedTask | Exception:
    """Return the task of an item, or the problem that prevents it."""
    try:
        return await prepare_task(call, item, decode_text, key)
    except Exception as error:  # noqa: BLE001 - every error becomes a problem
        return error


async def _describe(
    call: ServiceCall, prepared: PreparedTask, result: EnqueueResult, at: int, now: datetime
) -> dict[str, Any]:
    """Return the result of an item after its task was sent."""
    try:
        if prepared.asked.is_short and isinstance(result.error, TaskIDConflictError):
            info, is_existing = await enqueue_prepared(call, prepared)
            task = describe_new_task(info, is_existing=is_existing)
        else:
            task = _describe_sent(prepared.task, result, now)
    except InvalidOptionError as error:
        return _describe_error(name_field(error, prepared.asked), at)
    except Exception as error:  # noqa: BLE001 - every error becomes a problem
        return _describe_error(error, at)
    return {"status": 200 if task["existing"] else 201, "task": task}


def _describe_sent(task: Task, result: EnqueueResult, now: datetime) -> dict[str, Any]:
    """Return an enqueued task, or the existing task with its id.

    Raises:
        PyasynqError: the task was not enqueued.
        ProblemError: its idempotency key was used for another task.
    """
    if result.error is not None:
        raise result.error
    if result.holder is not None:
        check_fingerprint(task, result.holder)
        return describe_new_task(result.holder, is_existing=True)
    state, process_at = _find_due(task, now)
    return {
        "id": result.task_id,
        "queue": result.queue,
        "type": task.type,
        "state": state.value,
        "process_at": process_at,
        "existing": result.status is not EnqueueStatus.ENQUEUED,
    }


def _find_due(task: Task, now: datetime) -> tuple[TaskState, datetime | None]:
    """Return the state of a new task, and the time at which it is due; None for a task in a group."""
    options = task.options
    if options.get("group"):
        return TaskState.AGGREGATING, None
    due = options.get("process_at")
    delay = cast("float | None", options.get("process_in"))
    if delay is not None:
        due = now + timedelta(seconds=delay)
    if due is None:
        return TaskState.PENDING, now
    return (TaskState.SCHEDULED, due) if due > now else (TaskState.PENDING, now)


def _describe_error(error: Exception, at: int) -> dict[str, Any]:
    problem = to_service_problem(error)
    if problem.field:
        problem.field = f"tasks[{at}].{problem.field}"
    return {"status": problem.status, "problem": problem.content()}
