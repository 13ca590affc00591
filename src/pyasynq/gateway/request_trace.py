"""Trace context of requests (W3C Trace Context), which is passed on in the headers of new tasks."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import Scope

    from pyasynq.options import EnqueueOptions

_PARENT: Final = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_VERSION: Final = "ff"
_SAMPLED: Final = 1
_LONGEST_STATE: Final = 512

_TRACE: ContextVar[Mapping[str, str]] = ContextVar("pyasynq_request_trace")


@contextmanager
def tracing(scope: Scope) -> Iterator[None]:
    """Keep the trace context of a request during a block, for the tasks that the request enqueues."""
    token = _TRACE.set(read_trace(scope))
    try:
        yield
    finally:
        _TRACE.reset(token)


def read_trace(scope: Scope) -> dict[str, str]:
    """Return the headers of a request's trace context; none if it has none, or a damaged one."""
    given: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        if name in {b"traceparent", b"tracestate"}:
            given.setdefault(name, []).append(value.decode("latin-1"))
    parents = given.get(b"traceparent", [])
    found = _PARENT.fullmatch(parents[0].strip()) if len(parents) == 1 else None
    if found is None or found[1] == _NO_VERSION or not int(found[2], 16) or not int(found[3], 16):
        return {}
    if found[1] == "00" and found[5]:
        return {}
    # Version 00 with the flag "sampled" alone: OpenTelemetry for Go refuses later flags.
    trace = {"traceparent": f"00-{found[2]}-{found[3]}-{int(found[4], 16) & _SAMPLED:02x}"}
    state = ",".join(given.get(b"tracestate", []))
    if state and len(state) <= _LONGEST_STATE and state.isprintable() and state.isascii():
        trace["tracestate"] = state
    return trace


def with_trace(task: Task) -> Task:
    """Return a copy of a task with the trace context of the request, unless the task has one already."""
    trace = _TRACE.get({})
    if not trace or any(name.lower() == "traceparent" for name in task.headers):
        return task
    options: EnqueueOptions = {**task.options, "headers": {**task.headers, **trace}}
    return Task(task.type, task.payload, **options)
