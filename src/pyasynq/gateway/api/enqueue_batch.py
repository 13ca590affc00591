"""Handler of `POST /v1/tasks:batch`: many tasks in one request, each with a result of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pyasynq.web.api.idempotency import read_key
from pyasynq.web.api.json_body import decode_body, decode_text

from .bodies import NewTaskBatch
from .call import answer_json
from .enqueue import describe_new_task, enqueue_body
from .problems import to_service_problem

if TYPE_CHECKING:
    import msgspec
    from starlette.responses import Response

    from .call import ServiceCall

_LARGEST_BODY: Final = 8_000_000


async def serve_enqueue_batch(call: ServiceCall) -> Response:
    """Enqueue many tasks; an error of one of them affects no other.

    The calls leave together, as the client gathers what is enqueued at once (group commit).
    """
    key = read_key(call.request)
    content = await call.content(_LARGEST_BODY)
    batch: NewTaskBatch = decode_body(call.request, content, NewTaskBatch)
    results = await asyncio.gather(
        *(_enqueue_item(call, at, raw, f"{key} {at}" if key else "") for at, raw in enumerate(batch.tasks))
    )
    return answer_json({"results": results})


async def _enqueue_item(call: ServiceCall, at: int, raw: msgspec.Raw, key: str) -> dict[str, Any]:
    """Return the status that a request of its own would have had, and the task or the problem."""
    try:
        info, is_existing = await enqueue_body(call, bytes(raw), decode_text, key)
    except Exception as error:  # noqa: BLE001 - every error becomes a problem
        problem = to_service_problem(error)
        if problem.field:
            problem.field = f"tasks[{at}].{problem.field}"
        return {"status": problem.status, "problem": problem.content()}
    task = describe_new_task(info, is_existing=is_existing)
    return {"status": 200 if is_existing else 201, "task": task}
