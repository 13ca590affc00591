"""Sentry: errors of handlers as events, attempts as transactions, check-ins of schedules (extra `sentry`).

Example:
    sentry_sdk.init(dsn=..., traces_sample_rate=0.1)
    instrument(app)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyasynq._extras import explain_missing

try:
    import sentry_sdk
    from sentry_sdk.tracing import TransactionSource
except ModuleNotFoundError as error:
    raise explain_missing(error) from None

from pyasynq._error_signature import error_signature
from pyasynq.context import context
from pyasynq.contrib._sentry_monitors import CheckIns
from pyasynq.control import is_control
from pyasynq.errors import TaskTimeoutError, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.app import App
    from pyasynq.hooks import AttemptEnd
    from pyasynq.task import Task

_ORIGIN = "auto.queue.pyasynq"


def instrument(app: App, *, check_ins: bool = False) -> None:
    """Report the errors of an app's handlers to Sentry, and a transaction for each attempt.

    Call it after `sentry_sdk.init`, in each process that runs tasks. Errors are grouped by type of task and
    signature: their first line without numbers, ids and quotations. Control values of a handler, such as
    `Retry` or `Snooze`, are not errors. Timeouts and dead workers are reported too. No payload is sent.

    Args:
        app: the app whose handlers are watched.
        check_ins: whether to make a cron monitor for each schedule of the app, and to report begin and end of
            its runs.
    """
    if check_ins:
        runs = CheckIns(app)
        app.use(runs.watch)
        app.on_archived(runs.fail)
    app.use(trace_attempt)
    app.on_error(report_end)


async def trace_attempt(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
    """Run a handler in a new scope and a new transaction, and report its error; middleware of an app."""
    running = context()
    wish: BaseException | None = None
    with sentry_sdk.isolation_scope() as scope:
        _describe(scope, running.queue, task.type, running.task_id, running.retried)
        with sentry_sdk.start_transaction(
            op="queue.process", name=task.type, source=TransactionSource.TASK, origin=_ORIGIN
        ) as transaction:
            transaction.set_data("messaging.destination.name", running.queue)
            transaction.set_data("messaging.message.id", running.task_id)
            transaction.set_data("messaging.message.retry.count", running.retried)
            transaction.set_status("ok")
            try:
                return await call_next(task)
            except Exception as error:
                if is_control(error):
                    wish = error
                else:
                    scope.fingerprint = _fingerprint(task.type, error)
                    sentry_sdk.capture_exception(error)
                    raise
            except asyncio.CancelledError as error:
                transaction.set_status("cancelled")
                wish = error
    # Raised outside the transaction, which would mark any exception as an internal error.
    raise wish


def report_end(end: AttemptEnd) -> None:
    """Report failures that no handler can raise: timeouts, and deaths of workers; a hook of an app."""
    if not isinstance(end.error, TaskTimeoutError | WorkerDiedError):
        return
    with sentry_sdk.new_scope() as scope:
        _describe(scope, end.queue, end.task_type, end.task_id, end.retried)
        scope.fingerprint = _fingerprint(end.task_type, end.error)
        sentry_sdk.capture_exception(end.error)


def _describe(scope: sentry_sdk.Scope, queue: str, task_type: str, task_id: str, retried: int) -> None:
    scope.set_tag("pyasynq.queue", queue)
    scope.set_tag("pyasynq.type", task_type)
    scope.set_context("pyasynq", {"task_id": task_id, "queue": queue, "type": task_type, "retried": retried})


def _fingerprint(task_type: str, error: BaseException) -> list[str]:
    return ["pyasynq", task_type, type(error).__qualname__, error_signature(str(error))]
