"""Handlers of `/v1/tasks/{queue}/{id}`: read, run, archive, cancel, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from pyasynq._face_records.tasks import describe_task
from pyasynq.web.api.call import encode_answer
from pyasynq.web.api.records import COMPONENTS, describe_cancel, encode_record

from .bodies import CancelTask, ChangeTask
from .call import answer_json

if TYPE_CHECKING:
    from .call import ServiceCall


async def serve_get_task(call: ServiceCall) -> Response:
    """Answer with a task, as `/api/v1` does."""
    record = describe_task(await call.operator.task(*call.check_queue()))
    return answer_json(encode_answer(encode_record(COMPONENTS["Task"], record)).rstrip())


async def serve_run_task(call: ServiceCall) -> Response:
    """Run a waiting or finished task now."""
    queue, task_id = call.check_queue()
    body: ChangeTask = await call.body(ChangeTask)
    await call.operator.run_task(queue, task_id, reason=body.reason)
    return Response(status_code=204)


async def serve_archive_task(call: ServiceCall) -> Response:
    """Archive a task that does not run."""
    queue, task_id = call.check_queue()
    body: ChangeTask = await call.body(ChangeTask)
    await call.operator.archive_task(queue, task_id, reason=body.reason)
    return Response(status_code=204)


async def serve_cancel_task(call: ServiceCall) -> Response:
    """Ask for the cancellation of a running task."""
    queue, task_id = call.check_queue()
    body: CancelTask = await call.body(CancelTask)
    result = await call.operator.cancel_task(queue, task_id, body.outcome, reason=body.reason)
    return answer_json(describe_cancel(result))


async def serve_delete_task(call: ServiceCall) -> Response:
    """Delete a task that does not run."""
    await call.operator.delete_task(*call.check_queue(), reason=call.values["reason"])
    return Response(status_code=204)
