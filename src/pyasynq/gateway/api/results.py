"""Handler of `GET /v1/tasks/{queue}/{id}/result`: waits for the end of a task, and returns its result."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from pyasynq._visible_text import visible
from pyasynq.errors import WaitTimeoutError
from pyasynq.gateway.leases.access import missing_scope
from pyasynq.gateway.leases.hang_up import ClientGoneError, HangUpWatch
from pyasynq.gateway.waits import WaitEndedError
from pyasynq.task import TaskEnd
from pyasynq.web.api.nesting import is_deeper
from pyasynq.web.api.problem import ProblemError

from .call import answer_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.task import FinishedTask

    from .call import ServiceCall

READ_SCOPE: Final = "tasks:read"
_DEEPEST: Final = 64
_CLIENT_GONE: Final = 499
"""Status of an answer whose client has disconnected, as nginx logs it."""


async def serve_result(call: ServiceCall) -> Response:
    """Answer with the result of a task, or 202 if it has not ended in the time to wait."""
    queue, task_id = call.check_queue()
    return await answer_result(call, queue, task_id, call.values["wait"])


def check_may_read(call: ServiceCall) -> None:
    """Raise `ProblemError` if the key may not read results."""
    if READ_SCOPE not in call.key.scopes:
        raise missing_scope(READ_SCOPE)


async def answer_result(
    call: ServiceCall,
    queue: str,
    task_id: str,
    wait: float,
    *,
    headers: Mapping[str, str] | None = None,
    is_known: bool = False,
) -> Response:
    """Wait for the end of a task, and return the answer.

    A client that disconnects ends the wait, and so does the end of the instance.

    Args:
        call: the request.
        queue: queue of the task.
        task_id: its id.
        wait: seconds.
        headers: headers of the answer.
        is_known: whether the task existed when the wait began; if it is missing later, it has ended.

    Raises:
        ProblemError: there is no such task any more, or it was deleted.
    """
    watch = HangUpWatch(call.request)
    watch.start()
    try:
        ended = call.parts.client.wait(queue, task_id, wait)
        finished = await watch.run(call.parts.waits.run(ended) if wait else ended, lambda _: None)
    except (WaitTimeoutError, WaitEndedError):
        return answer_json({"queue": queue, "id": task_id, "ended": False}, 202, headers)
    except ClientGoneError:
        return Response(status_code=_CLIENT_GONE)
    finally:
        await watch.stop()
    return answer_json(describe_end(finished, is_known=is_known), 200, headers)


def describe_end(finished: FinishedTask, *, is_known: bool) -> dict[str, Any]:
    """Return how a task has ended. Raises `ProblemError` if no such task is known."""
    info = finished.info
    answer: dict[str, Any] = {"queue": finished.queue, "id": finished.id, "ended": True}
    if info is None:
        if is_known:
            return answer | {"state": str(finished.end)}
        detail = f"There is no task {visible(finished.id)} in the queue {visible(finished.queue)}."
        remedy = (
            "It has ended without retention, or it was deleted: give its type a retention to keep results."
        )
        raise ProblemError(404, "task_not_found", detail, remedy)
    answer["state"] = str(info.state)
    if finished.end is TaskEnd.COMPLETED:
        return answer | _describe_result(info.result)
    return answer | {"error": visible(info.last_error)}


def _describe_result(result: bytes | None) -> dict[str, Any]:
    """Return the result as JSON, text or Base64, under the field names that leases use for payloads."""
    if result is None:
        return {"result": None}
    try:
        text = result.decode()
    except UnicodeDecodeError:
        return {"result_base64": result}
    if not is_deeper(result, _DEEPEST):
        with contextlib.suppress(msgspec.DecodeError):
            return {"result": msgspec.json.decode(result, type=msgspec.Raw)}
    return {"result_text": text}
