"""Filter of results by permission: removes secrets, and everything about queues that the user does not see.

Every result of `Operator` passes through this filter. It visits the items of lists and mappings, and the
fields of dataclasses. A dataclass whose field `queue` names a hidden queue is left out.

A new result type needs a filter function only if it names queues in another way, or contains strings or
bytes of tasks. `@cut_down.register` registers the function, here or in the module of the type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING, Any, Final

from pyasynq._error_signature import error_signature
from pyasynq.options import DEFAULT_QUEUE
from pyasynq.task import TaskInfo, make_unchecked_task

from .audit import AuditEntry
from .finding import Attention, AttentionFinding
from .operation import OperationInfo
from .permissions import Permission
from .redaction import Withheld

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.info import ErrorGroup, QueueInfo, SchedulerEntryInfo, ServerInfo, TaskEvent, WorkerInfo

    from .permissions import Access
    from .redaction import Redactor


_MOST_QUEUES: Final = 10_000
"""Maximum number of queues for which the result of `sees` is cached."""


class _Hidden:
    """The type of `HIDDEN`."""

    def __repr__(self) -> str:
        return "HIDDEN"


HIDDEN: Final = _Hidden()
"""Marker for values that the user may not see at all; lists and mappings drop them."""


class Shown:
    """Filter that removes from results what one user may not see."""

    def __init__(self, access: Access, redactor: Redactor) -> None:
        self.access = access
        self.redactor = redactor
        self.sees_everything = access.may_everywhere(Permission.TASKS_VIEW)
        # Hundreds of servers may name the same thousand queues each.
        self.sees: Callable[[str], bool] = lru_cache(_MOST_QUEUES)(access.sees)
        """Function that returns whether the user may know that a queue exists."""

    def __call__(self, value: Any) -> Any:
        """Return a value without the parts that the user may not see, or `HIDDEN`."""
        return value if isinstance(value, (str, bytes, int, float, type(None))) else cut_down(value, self)

    def may_view_payload(self, queue: str) -> bool:
        """Return whether the user may see contents of this queue's tasks."""
        return self.access.may(Permission.PAYLOAD_VIEW, queue)

    def payload(self, queue: str, task_type: str, data: bytes) -> bytes:
        """Return a payload without its secrets; withheld if the user may not see payloads of this queue."""
        return self.redactor.data(data, task_type) if self.may_view_payload(queue) else Withheld(data)

    def error(self, queue: str, task_type: str, text: str) -> str:
        """Return a task's error without its secrets; only its signature if the user may not see payloads."""
        return self.redactor.text(text if self.may_view_payload(queue) else error_signature(text), task_type)


@singledispatch
def cut_down(value: Any, shown: Shown) -> Any:
    """Filter one value for a user; `HIDDEN` if nothing may be seen (single dispatch by type)."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    if (cut := _find_info_filter(type(value))) is not None:
        return cut(value, shown)
    queue = getattr(value, "queue", None)
    if isinstance(queue, str) and queue and not shown.sees(queue):
        return HIDDEN
    changed = {}
    for one in dataclasses.fields(value):
        before = getattr(value, one.name)
        after = shown(before)
        if after is HIDDEN:
            return HIDDEN
        if after is not before and one.init:
            changed[one.name] = after
    return replace(value, **changed) if changed else value


@cut_down.register(list)
def _list(values: list[Any], shown: Shown) -> list[Any]:
    return [after for after in map(shown, values) if after is not HIDDEN]


@cut_down.register(tuple)
def _cut_tuple(values: tuple[Any, ...], shown: Shown) -> Any:
    cut = [after for after in map(shown, values) if after is not HIDDEN]
    if hasattr(values, "_fields"):  # a named tuple needs all of its values
        return type(values)(*cut) if len(cut) == len(values) else HIDDEN
    return tuple(cut)


@cut_down.register(Mapping)
def _cut_mapping(values: Mapping[Any, Any], shown: Shown) -> Mapping[Any, Any]:
    cut = {key: shown(value) for key, value in values.items()}
    return {key: value for key, value in cut.items() if value is not HIDDEN}


@cut_down.register(TaskInfo)
def _cut_task(task: TaskInfo, shown: Shown) -> Any:
    if not shown.sees(task.queue):
        return HIDDEN
    return shown.redactor.task(task, payload_view=shown.may_view_payload(task.queue))


def _cut_worker(worker: WorkerInfo, shown: Shown) -> Any:
    return _cut_payload(worker, shown) if shown.sees(worker.queue) else HIDDEN


def _cut_payload(worker: WorkerInfo, shown: Shown) -> WorkerInfo:
    if not worker.payload:  # lists leave out the payloads of thousands of running tasks
        return worker
    payload = shown.payload(worker.queue, worker.task_type, worker.payload)
    # Avoid a copy: most payloads have no secret.
    return worker if payload is worker.payload else replace(worker, payload=payload)


def _cut_server(server: ServerInfo, shown: Shown) -> Any:
    queues = server.queues
    if not shown.sees_everything:
        queues = {name: priority for name, priority in queues.items() if shown.sees(name)}
    if not queues:
        return HIDDEN
    limits = {name: limit for name, limit in server.limits.items() if shown.sees(name)}
    # Names of task types would reveal hidden queues.
    types = server.types if len(queues) == len(server.queues) else None
    # Without the dispatch by type, which takes longer than everything else here.
    running = tuple(_cut_payload(one, shown) for one in server.active_workers if shown.sees(one.queue))
    return replace(server, queues=queues, limits=limits, types=types, active_workers=running)


def _cut_entry(entry: SchedulerEntryInfo, shown: Shown) -> Any:
    queue = queue_of_entry(entry)
    if not shown.sees(queue):
        return HIDDEN
    payload = shown.payload(queue, entry.task.type, entry.task.payload or b"")
    return replace(entry, task=make_unchecked_task(entry.task.type, payload, entry.task.options))


def queue_of_entry(entry: SchedulerEntryInfo) -> str:
    """Return the queue into which a schedule enqueues."""
    return entry.task.options.get("queue", DEFAULT_QUEUE)


def _queue_info(info: QueueInfo, shown: Shown) -> Any:
    return info if shown.sees(info.queue) else HIDDEN


@cut_down.register(OperationInfo)
def _cut_operation(operation: OperationInfo, shown: Shown) -> Any:
    return operation if all(map(shown.sees, operation.concerns)) else HIDDEN


@cut_down.register(AuditEntry)
def _cut_audit_entry(entry: AuditEntry, shown: Shown) -> Any:
    if entry.user == shown.access.user.name:
        return entry
    if not entry.queues:
        return entry if shown.access.may_everywhere(Permission.AUDIT_VIEW) else HIDDEN
    return entry if all(shown.access.may(Permission.AUDIT_VIEW, name) for name in entry.queues) else HIDDEN


@cut_down.register(Attention)
def _cut_attention(attention: Attention, shown: Shown) -> Attention:
    return replace(
        attention,
        findings=shown(attention.findings),
        snoozed=shown(attention.snoozed),
        unreadable={name: why for name, why in attention.unreadable.items() if shown.sees(name)},
        wait_objectives={
            name: seconds for name, seconds in attention.wait_objectives.items() if shown.sees(name)
        },
    )


@cut_down.register(AttentionFinding)
def _cut_finding(finding: AttentionFinding, shown: Shown) -> Any:
    queues = tuple(name for name in finding.queues if shown.sees(name))
    if (finding.queue and not shown.sees(finding.queue)) or (finding.queues and not queues):
        return HIDDEN
    return finding if queues == finding.queues else replace(finding, queues=queues)


def _cut_event(event: TaskEvent, shown: Shown) -> Any:
    if not shown.sees(event.queue):
        return HIDDEN
    return replace(event, error=shown.error(event.queue, event.type, event.error))


def _cut_error_group(group: ErrorGroup, shown: Shown) -> Any:
    sample = shown(group.sample)
    if sample is HIDDEN:
        return HIDDEN
    signature = shown.redactor.text(group.signature, group.sample.type)
    return replace(group, signature=signature, sample=sample)


INFO_FILTERS: Final[dict[str, Callable[[Any, Shown], Any]]] = {
    "ErrorGroup": _cut_error_group,
    "QueueInfo": _queue_info,
    "SchedulerEntryInfo": _cut_entry,
    "ServerInfo": _cut_server,
    "TaskEvent": _cut_event,
    "WorkerInfo": _cut_worker,
}
"""Filters by the name of a class in `pyasynq.info`, so that unused classes need not be imported."""


def _find_info_filter(kind: type) -> Callable[[Any, Shown], Any] | None:
    """Return the filter of a class of `pyasynq.info`; None for other classes."""
    return INFO_FILTERS.get(kind.__name__) if kind.__module__.startswith("pyasynq.info.") else None
