"""Handlers of task routes: lists, single tasks, actions on one or some tasks, and enqueueing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from pyasynq._face_records.tasks import describe_task
from pyasynq.errors import PayloadChangedError
from pyasynq.operations.request_keys import options_of_key
from pyasynq.options import EnqueueOptions, resolve_options
from pyasynq.task import EnqueueStatus, Task

from .call import Created, Listing, changed_meanwhile, encode_answer, make_tag
from .idempotency import check_fingerprint, read_key, refusing_reused_key
from .problem import wrong_value
from .records import COMPONENTS, describe_cancel, describe_task_result, encode_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._face_records.fields import Record
    from pyasynq.info import TaskResults
    from pyasynq.task import TaskInfo

    from .bodies import EnqueueRequest
    from .call import ApiCall

_PAYLOADS: Final = ("payload", "payload_text", "payload_base64")
_NOT_OPTIONS: Final = frozenset({"type", "reason", *_PAYLOADS})


async def handle_list_tasks(call: ApiCall) -> Listing:
    """Return a page of the tasks of one state, the newest first."""
    page = await call.operator.walk_tasks(
        call.queue, call["state"], group=call["group"], cursor=call["cursor"], page_size=call["limit"]
    )
    return Listing(list(map(describe_task, page.tasks)), page.cursor, {"looked_at": page.looked_at})


async def handle_get_task(call: ApiCall) -> Record:
    """Return a task."""
    return describe_task(await call.operator.task(call.queue, call.task))


async def handle_delete_task(call: ApiCall) -> None:
    """Delete a task."""
    await call.operator.delete_task(call.queue, call.task, reason=call["reason"])


async def handle_run_task(call: ApiCall) -> Record:
    """Run a task now."""
    await call.operator.run_task(call.queue, call.task, reason=call.body.reason)
    return await handle_get_task(call)


async def handle_archive_task(call: ApiCall) -> Record:
    """Archive a task."""
    await call.operator.archive_task(call.queue, call.task, reason=call.body.reason)
    return await handle_get_task(call)


async def handle_cancel_task(call: ApiCall) -> Record:
    """Ask for the cancellation of a running task."""
    result = await call.operator.cancel_task(
        call.queue, call.task, call.body.outcome, reason=call.body.reason
    )
    return describe_cancel(result)


async def handle_reschedule_task(call: ApiCall) -> Record:
    """Change when a task is due."""
    await call.operator.reschedule_task(call.queue, call.task, call.body.process_at, reason=call.body.reason)
    return await handle_get_task(call)


async def handle_edit_payload(call: ApiCall) -> Record:
    """Replace the payload of a task; with `If-Match`, only if the task has not changed since it was read."""
    payload, expected = read_new_payload(call), None
    if call.header("if-match"):
        task = await call.operator.task(call.queue, call.task)
        call.check_unchanged(make_tag(encode_answer(encode_record(COMPONENTS["Task"], describe_task(task)))))
        expected = task.payload
    try:
        await call.operator.edit_payload(
            call.queue,
            call.task,
            payload,
            relock=call.body.relock,
            expected=expected,
            reason=call.body.reason,
        )
    except PayloadChangedError:
        raise changed_meanwhile() from None
    return await handle_get_task(call)


def read_new_payload(call: ApiCall) -> bytes:
    """Return the payload in a body that must have one. Raises `ProblemError` if it has none, or several."""
    payload = read_given_payload(call.body)
    if payload is None:
        raise wrong_value("payload", "Give payload, payload_text or payload_base64.")
    return payload


async def handle_copy_task(call: ApiCall) -> Created:
    """Enqueue a copy of a task; with an idempotency key at most once within a day."""
    payload, key = read_given_payload(call.body), read_key(call.ask.request)
    with refusing_reused_key("task"):
        info = await call.operator.enqueue_copy(
            call.queue, call.task, payload, key=key, reason=call.body.reason
        )
    return created_task(info)


async def handle_enqueue(call: ApiCall) -> Created:
    """Enqueue a task; with an idempotency key at most once within a day."""
    task = build_task(call)
    info = await call.operator.enqueue(call.queue, task, reason=call.body.reason)
    check_fingerprint(task, info)
    return created_task(info)


def build_task(call: ApiCall) -> Task:
    """Return the task that a body and the idempotency key describe.

    Raises:
        ProblemError: for several payloads, or an invalid key.
        InvalidOptionError: for an invalid option.
    """
    body: EnqueueRequest = call.body
    options = {
        name: getattr(body, name)
        for name in body.__struct_fields__
        if name not in _NOT_OPTIONS and getattr(body, name) is not msgspec.UNSET
    }
    if key := read_key(call.ask.request):
        options |= options_of_key(key, call.ask.user.name, msgspec.json.encode(body), options)
    resolve_options(options)
    return Task(body.type, read_given_payload(body), **cast("EnqueueOptions", options))


def read_given_payload(body: Any) -> bytes | None:
    """Return the payload in a body; None if the body has none.

    Raises:
        ProblemError: the body has several payloads.
    """
    given = {name: getattr(body, name) for name in _PAYLOADS if getattr(body, name) is not msgspec.UNSET}
    if len(given) > 1:
        raise wrong_value(list(given)[-1], "Give one of payload, payload_text and payload_base64.")
    for value in given.values():
        return value.encode() if isinstance(value, str) else bytes(value)
    return None


def created_task(info: TaskInfo) -> Created:
    """Return the result for a task that was enqueued now, or before with the same idempotency key."""
    record = {**describe_task(info), "enqueue_status": str(info.enqueue_status or EnqueueStatus.ENQUEUED)}
    is_new = info.enqueue_status in {None, EnqueueStatus.ENQUEUED}
    return Created(record, ("queues", info.queue, "tasks", info.id), 201 if is_new else 200)


async def handle_run_tasks(call: ApiCall) -> Listing:
    """Run the tasks with these ids now."""
    return await _change_some(call, call.operator.run_tasks)


async def handle_archive_tasks(call: ApiCall) -> Listing:
    """Archive the tasks with these ids."""
    return await _change_some(call, partial(call.operator.archive_tasks, trim=call.body.trim))


async def handle_delete_tasks(call: ApiCall) -> Listing:
    """Delete the tasks with these ids for good; a bulk operation can delete them with undo."""
    return await _change_some(call, call.operator.delete_tasks)


async def handle_cancel_tasks(call: ApiCall) -> Listing:
    """Ask for the cancellation of the tasks with these ids."""
    return await _change_some(call, partial(call.operator.cancel_tasks, outcome=call.body.outcome))


async def _change_some(call: ApiCall, change: Callable[..., Awaitable[TaskResults]]) -> Listing:
    results = await change(call.queue, call.body.ids, reason=call.body.reason)
    facts = {"done": results.done, "refused": len(results.refused), "trimmed": results.trimmed}
    return Listing([describe_task_result(result) for result in results], facts=facts)
