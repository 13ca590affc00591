"""The page of one type of the task service: configuration, load, workers, schema and changes."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible, visible_lines
from pyasynq.operations import Redactor
from pyasynq.operations.audit import AuditFilters
from pyasynq.web import formats
from pyasynq.web.configuration_form import FORM_FIELDS, is_editable, select_fields, show_field, write_field
from pyasynq.web.page import Page
from pyasynq.web.pages.deliveries import DELIVERIES_SECTION, find_host
from pyasynq.web.pages.lease_workers import LeaseWorkerRow, build_lease_worker_rows, read_lease_workers
from pyasynq.web.pages.queues import read_queues, read_servers
from pyasynq.web.pages.task_types import SECTION, TaskTypeRow, build_type_row, read_configured_types
from pyasynq.web.problems import NextStep, Trouble, trouble_page

if TYPE_CHECKING:
    from pyasynq.info import QueueInfo
    from pyasynq.operations import TypeConfiguration
    from pyasynq.operations.audit import AuditEntry
    from pyasynq.web.page import PageRequest

_CHANGES: Final = ("set_type_configuration", "delete_type_configuration")
_MOST_CHANGES: Final = 10
_SECONDS: Final = 10.0
_NOT_OTHERS: Final = frozenset({"name", "kind", "managed"})
_LONGEST_TEXT: Final = 1_000
_LONGEST_SCHEMA: Final = 20_000
_MOST_MILLISECONDS: Final = 253_402_300_799_000
"""Unix time of the end of the year 9999 in milliseconds."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """View model of a change of the configuration, from the audit log."""

    at: datetime
    who: str
    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class TypeWorker:
    """A live server that takes tasks of the type."""

    name: str
    href: str
    engine: str
    busy: int
    slots: int


@dataclass(frozen=True, slots=True)
class TaskTypeView:
    """View model of the page of a task type of the task service."""

    row: TaskTypeRow
    others: tuple[tuple[str, str], ...]
    """Name and value of each field that the form does not show, such as the URL of the kind `http`."""
    fields: tuple[tuple[str, str, bool], ...]
    """Label, value and state (set or not) of each field except the schema."""
    schema: str
    changed_at: datetime | None
    changes: tuple[TypeChange, ...] | None
    """Changes from the audit log; None for a user who may not read the audit log."""
    changes_href: str
    versions: tuple[tuple[datetime, str], ...]
    """Time of each earlier version, and address of the form with its fields; empty for users who may not
    edit."""
    workers: tuple[TypeWorker, ...]
    remote_workers: tuple[LeaseWorkerRow, ...]
    """Workers that lease tasks of the type from the task service."""
    worker_command: str
    figures: tuple[tuple[str, str, str], ...]
    """Label, number and address of tasks in each state."""
    queue_href: str
    host: str
    """Host that tasks of the kind `http` call; empty for other kinds."""
    host_href: str
    statistics_href: str
    enqueue_href: str
    edit_href: str
    delete_href: str
    locked: str
    """Reason why the configuration cannot be edited here; empty if it can."""
    call: str
    """The `curl` command that stores the configuration; empty if its name has special characters."""
    toml: str
    """The configuration as a TOML table for the file of the task service."""


async def task_type_page(ask: PageRequest) -> Page:
    """Return the page `/task-types/{type}`."""
    name = ask.name("type")
    stored = next((one for one in await read_configured_types(ask) if one.name == name), None)
    if stored is None:
        return missing_type_page(ask, name)
    stored = _redact(ask, stored)
    info = next((one for one in await read_queues(ask) if one.queue == name), None)
    servers = [one for one in await read_servers(ask) if name in one.queues]
    remote_workers = [one for one in await read_lease_workers(ask) if name in one.queues]
    present = sum(one.state != "away" for one in remote_workers)
    may_edit = ask.may("set_type_configuration", name)
    locked = find_read_only_reason(stored)
    view = TaskTypeView(
        row=build_type_row(ask, stored, info, len(servers) + present),
        others=tuple(
            (visible(key), visible(value if isinstance(value, str) else json.dumps(value))[:_LONGEST_TEXT])
            for key, value in select_fields(stored.content, shown=False).items()
            if key not in _NOT_OTHERS
        ),
        fields=tuple(
            (one.label, show_field(one.name, stored.content), bool(stored.content.get(one.name)))
            for one in FORM_FIELDS
            if one.name != "schema"
        ),
        schema=visible_lines(write_field("schema", stored.content.get("schema"))[:_LONGEST_SCHEMA]),
        changed_at=moment_of(stored),
        changes=await _read_changes(ask, name),
        changes_href=ask.links.to("audit", queue=name) if ask.may("audit", name) else "",
        versions=await _read_versions(ask, stored) if may_edit and not locked else (),
        workers=tuple(
            TypeWorker(
                visible(f"{one.host}:{one.pid}"),
                ask.links.to("servers", one.id),
                visible(one.engine) or "Go",
                sum(worker.queue == name for worker in one.active_workers),
                one.concurrency,
            )
            for one in servers
        ),
        remote_workers=build_lease_worker_rows(ask, remote_workers),
        worker_command=f"pyasynq worker MODULE:APP --queues {shlex.quote(visible(name))}",
        figures=_figures(ask, name, info),
        queue_href=ask.links.to("queues", name) if info is not None else "",
        host=visible(find_host(stored.content)),
        host_href=ask.links.to(DELIVERIES_SECTION, find_host(stored.content)),
        statistics_href=ask.links.to("types", name),
        enqueue_href=ask.links.to("enqueue", type=name, queue=name, sample="yes")
        if ask.may("enqueue", name)
        else "",
        edit_href=ask.links.to(SECTION, name, "edit") if may_edit and not locked else "",
        delete_href=ask.links.to(SECTION, name, "delete")
        if ask.may("delete_type_configuration", name)
        else "",
        locked=locked,
        call=write_call(stored),
        toml=write_toml(stored),
    )
    waiting = f"({view.row.waiting:,}) " if view.row.is_unserved else ""
    return Page("task_type.html", f"{waiting}{visible(name)} · Task types", SECTION, view, is_live=True)


def _redact(ask: PageRequest, stored: TypeConfiguration) -> TypeConfiguration:
    """Return a configuration without the values of headers whose names mark them as secret."""
    headers = stored.content.get("headers")
    if not isinstance(headers, dict):
        return stored
    redactor = ask.settings.redactor or Redactor()
    texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in headers.items()}
    return replace(stored, content={**stored.content, "headers": dict(redactor.headers(texts))})


def missing_type_page(ask: PageRequest, name: str) -> Page:
    """Return the page for a type that is not configured, or that is hidden from the user."""
    text = "It was deleted, or it was never configured. Its tasks, if there are any, are in its queue."
    steps = (
        NextStep("All task types", ask.links.to(SECTION)),
        NextStep("Its queue", ask.links.to("queues", name)),
    )
    return trouble_page(404, Trouble(f"There is no task type “{visible(name)}”", text, steps))


def find_read_only_reason(stored: TypeConfiguration) -> str:
    """Return the reason why a configuration cannot be edited here; empty if it can."""
    if not is_editable(stored.content):
        return "It has fields that this version of pyasynq does not know, so they are not edited here."
    if stored.content.get("managed", "file") != "api":
        return (
            "The file of the task service manages this type: its next start would undo a change made here. "
            'Change the file, or write managed = "api" there, which gives the type to the API.'
        )
    return ""


def moment_of(stored: TypeConfiguration) -> datetime | None:
    """Return the time of a configuration's last change, derived from its version; None if unknown."""
    return to_version_time(stored.version)


def to_version_time(version: int) -> datetime | None:
    """Return the time of a version number that is Unix time in milliseconds; None if it is out of range."""
    return datetime.fromtimestamp(version / 1_000, UTC) if 0 < version < _MOST_MILLISECONDS else None


async def last_change(ask: PageRequest, name: str) -> str:
    """Return the author of a type's last change: `by mira`; empty if the user may not read the audit log."""
    ask.target.forget(ask.user, ("type changes", name))
    changes = await _read_changes(ask, name)
    return f"by {changes[0].who}" if changes else ""


async def _read_changes(ask: PageRequest, name: str) -> tuple[TypeChange, ...] | None:
    """Return the newest changes of a type, cached for some seconds; None if the user may not read them."""
    if not ask.may("audit", name):
        return None

    async def read() -> list[AuditEntry]:
        pages = [await ask.operator.audit(AuditFilters(verb=verb), limit=200) for verb in _CHANGES]
        entries = [one for page in pages for one in page.entries if name in one.queues]
        return sorted(entries, key=lambda one: one.at, reverse=True)[:_MOST_CHANGES]

    entries = await ask.target.recent(ask.user, ("type changes", name), read, _SECONDS)
    return tuple(
        TypeChange(
            one.at,
            visible(one.user),
            _describe_outcome(one),
            visible(one.reason),
        )
        for one in entries
    )


async def _read_versions(ask: PageRequest, stored: TypeConfiguration) -> tuple[tuple[datetime, str], ...]:
    """Return time and form address of each earlier version that can be restored, the newest first."""
    found = await ask.target.recent(
        ask.user,
        ("type versions", stored.name),
        lambda: ask.operator.type_configuration_versions(stored.name),
        _SECONDS,
    )
    return tuple(
        (moment, ask.links.to(SECTION, stored.name, "edit", version=one.version))
        for one in found
        if one.content is not None and one.version != stored.version
        for moment in (to_version_time(one.version),)
        if moment is not None
    )


def _describe_outcome(entry: AuditEntry) -> str:
    word = "deleted" if entry.verb == "delete_type_configuration" else "stored"
    return {"done": word, "failed": f"not {word}", "started": "interrupted"}.get(
        entry.outcome, visible(entry.outcome)
    )


def _figures(ask: PageRequest, name: str, info: QueueInfo | None) -> tuple[tuple[str, str, str], ...]:
    if info is None:
        return ()
    return tuple(
        (label, formats.number(count), ask.links.to("queues", name, state=state))
        for label, state, count in (
            ("Running", "active", info.active),
            ("Waiting", "pending", info.pending),
            ("Scheduled", "scheduled", info.scheduled),
            ("Retry", "retry", info.retry),
            ("Archived", "archived", info.archived),
            ("Completed", "completed", info.completed),
        )
    )


def write_call(stored: TypeConfiguration) -> str:
    """Return the `curl` command that stores a configuration by the task service's API.

    It is empty if the name of the type has special characters.
    """
    content = {key: value for key, value in stored.content.items() if key != "name"}
    body = json.dumps(content, ensure_ascii=False)
    return visible_lines(
        'curl -X PUT -H "Authorization: Bearer $PYASYNQ_KEY" -H "Content-Type: application/json" \\\n'
        f"  -H 'If-Match: \"{stored.version}\"' --data {shlex.quote(body)} \\\n"
        f'  "$PYASYNQ_SERVICE/v1/task-types/{shlex.quote(stored.name)}"'
        if _is_plain(stored.name)
        else ""
    )[:_LONGEST_SCHEMA]


def write_toml(stored: TypeConfiguration) -> str:
    """Return a configuration as a TOML table for the service's file; its schema goes into a separate file."""
    lines = [f"[tasks.{stored.name if _is_plain(stored.name) else json.dumps(stored.name)}]"]
    for one in FORM_FIELDS:
        value = stored.content.get(one.name)
        if one.name == "schema" and value:
            lines.append(f'schema = "schemas/{stored.name if _is_plain(stored.name) else "params"}.json"')
        elif value is not None and value is not False:
            lines.append(f"{one.name} = {_toml_value(one.name, value)}")
    others = select_fields(stored.content, shown=False).items()
    lines += [f"{key} = {_toml_value(key, value)}" for key, value in others if key not in {"name", "managed"}]
    return visible_lines("\n".join([*lines, 'managed = "api"'] if _is_of_api(stored) else lines))


def _toml_value(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items()) + " }"
    if name in {"timeout", "retention"}:
        return json.dumps(write_field(name, value))
    return json.dumps(value)


def _is_of_api(stored: TypeConfiguration) -> bool:
    return stored.content.get("managed") == "api"


def _is_plain(name: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum()
