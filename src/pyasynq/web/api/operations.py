"""Handlers of bulk operations (on many tasks), and of the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._face_records.operations import describe_operation
from pyasynq._face_records.reports import describe_audit_entry
from pyasynq.operations import Act, AuditFilters, OperationOptions, Targets

from .call import Created, Listing
from .idempotency import read_key, refusing_reused_key
from .problem import wrong_value
from .records import describe_operation_preview

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._face_records.fields import Record
    from pyasynq.operations import AuditPage, OperationInfo

    from .bodies import OperationRequest
    from .call import ApiCall

_PATIENCE: Final = 0.2
"""Seconds for which a response waits for a small operation to end."""


async def handle_list_operations(call: ApiCall) -> Listing:
    """Return the newest operations."""
    return Listing([describe_operation(one) for one in await call.operator.operations(call["limit"])])


async def handle_get_operation(call: ApiCall) -> Record:
    """Return an operation."""
    return describe_operation(await call.operator.operation(call.names["operation"]))


async def handle_preview(call: ApiCall) -> Record:
    """Return how many tasks an operation would change, with samples (preview); change nothing."""
    body: OperationRequest = call.body
    targets, options = _read_targets(body), _read_options(body)
    return describe_operation_preview(await call.operator.preview_operation(Act(body.act), targets, options))


async def handle_start(call: ApiCall) -> Created:
    """Start an operation in the background; with an idempotency key, once within 30 days."""
    body: OperationRequest = call.body
    targets, options, key = _read_targets(body), _read_options(body), read_key(call.ask.request)
    with refusing_reused_key("operation"):
        info = await call.operator.start_operation(
            Act(body.act), targets, options, reason=body.reason, confirm=body.confirm, key=key
        )
    return await _run(call, info)


async def handle_pause(call: ApiCall) -> Record:
    """Pause an operation."""
    return describe_operation(await _change(call, call.operator.pause_operation))


async def handle_resume(call: ApiCall) -> Created:
    """Resume a paused operation in this process."""
    return await _run(call, await _change(call, call.operator.resume_operation))


async def handle_stop(call: ApiCall) -> Record:
    """End an operation; changes already made remain."""
    return describe_operation(await _change(call, call.operator.stop_operation))


async def handle_undo(call: ApiCall) -> Created:
    """Start an operation that puts deleted tasks back."""
    return await _run(call, await _change(call, call.operator.undo_operation))


async def handle_run(call: ApiCall) -> Created:
    """Continue an operation whose process has died."""
    info = await call.operator.operation(call.names["operation"])
    for queue in info.concerns:
        call.ask.require("run_operation", queue)
    call.ask.require_somewhere("run_operation")
    return await _run(call, info)


async def _change(call: ApiCall, verb: Callable[..., Awaitable[OperationInfo]]) -> OperationInfo:
    """Call a verb of the operator for the operation in the path, and return the verb's result."""
    return await verb(call.names["operation"], reason=call.body.reason)


async def _run(call: ApiCall, info: OperationInfo) -> Created:
    ended = await call.ask.target.run_operation(call.ask.user, info.operation, _PATIENCE)
    record = describe_operation(ended or info)
    return Created(record, ("operations", info.operation), 202)


def _read_targets(body: OperationRequest) -> Targets:
    if bool(body.ids) == bool(body.query.strip()):
        raise wrong_value("ids", "Give either ids or a query.")
    return Targets(body.ids, body.query)


def _read_options(body: OperationRequest) -> OperationOptions:
    given = body.options
    return OperationOptions(
        process_at=given.process_at,
        spread=timedelta(seconds=given.spread),
        queue=given.queue,
        outcome=given.outcome,
        max_retry=given.max_retry,
        timeout=None if given.timeout is None else timedelta(seconds=given.timeout),
        deadline=given.deadline,
        headers=given.headers,
        rate=given.rate,
        undo=given.undo,
    )


async def handle_list_audit(call: ApiCall) -> Listing:
    """Return a page of the audit log, newest first."""
    return _list_entries(
        await call.operator.audit(_read_filters(call), cursor=call["cursor"], limit=call["limit"])
    )


async def handle_list_refusals(call: ApiCall) -> Listing:
    """Return a page of the calls that were refused, newest first."""
    return _list_entries(
        await call.operator.refusals(_read_filters(call), cursor=call["cursor"], limit=call["limit"])
    )


def _read_filters(call: ApiCall) -> AuditFilters:
    names = ("user", "verb", "queue", "outcome", "operation", "text", "since", "until")
    return AuditFilters(**{name: call[name] for name in names})


def _list_entries(page: AuditPage) -> Listing:
    records = [describe_audit_entry(entry) for entry in page.entries]
    return Listing(records, page.cursor or "", {"looked_at": page.scanned})
