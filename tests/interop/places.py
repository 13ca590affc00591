"""Where the tasks of a database are, and which transitions a step has made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.normal import Snapshot
    from tests.interop.steps import Step

Task: TypeAlias = tuple[str, str]
"""Queue and id."""

_COLLECTION = re.compile(
    r"asynq:\{(?P<queue>.*?)\}:(?:(?P<plain>pending|active|scheduled|retry|archived|completed)|g:(?P<group>.*))",
    re.DOTALL,
)


class Place(NamedTuple):
    """A collection: its name, and the group's where it is one."""

    name: str
    group: str = ""


def places(snapshot: Snapshot) -> dict[Task, Place]:
    """Return where each task is: in a state's collection, in a `group`, or in an aggregation `set`."""
    sets = {key for name, parts in snapshot.items() if name.endswith("}:aggregation_sets") for key in parts}
    found = {}
    for key, parts in snapshot.items():
        match = _COLLECTION.fullmatch(key)
        if match is None:
            continue
        ids = (
            parts["value"]
            if match["plain"] in {"pending", "active"}
            else [one for one in parts if one != "ttl"]
        )
        if match["plain"]:
            place = Place(match["plain"])
        elif key in sets:
            place = Place("set", match["group"].rpartition(":")[0])
        else:
            place = Place("group", match["group"])
        for task_id in ids:
            found[match["queue"], task_id] = place
    return found


class Row(NamedTuple):
    """One transition of a task."""

    name: str
    operations: frozenset[str]
    before: frozenset[str]
    after: frozenset[str]


def _row(name: str, operations: str, before: str, after: str) -> Row:
    return Row(name, frozenset(operations.split()), frozenset(before.split()), frozenset(after.split()))


ROWS = (
    _row("enqueue", "enqueue", "none", "pending"),
    _row("schedule", "enqueue", "none", "scheduled"),
    _row("add to group", "enqueue", "none", "group"),
    _row("dequeue", "take", "pending", "active"),
    _row("done or revoke", "finish", "active", "none"),
    _row("complete", "finish", "active", "completed"),
    _row("retry", "finish take cancel", "active pending", "retry"),
    _row("archive by a worker", "finish take cancel", "active pending", "archived"),
    _row("requeue", "stop", "active", "pending"),
    _row("recover", "recover", "active", "retry archived pending"),
    _row("forward to pending", "forward", "scheduled retry", "pending"),
    _row("forward to a group", "forward", "scheduled retry", "group"),
    _row("aggregation check", "aggregate", "group", "set"),
    _row("delete aggregation set", "aggregate", "group", "none"),
    _row("reclaim", "recover", "set", "group"),
    _row("run", "run_task run_all", "scheduled retry archived completed group", "pending"),
    _row(
        "archive by hand", "archive_task archive_all", "pending scheduled retry completed group", "archived"
    ),
    _row(
        "delete",
        "delete_task delete_all",
        "pending scheduled retry archived completed group",
        "none",
    ),
    _row("delete expired", "delete_expired", "completed", "none"),
    _row("trim the archive", "finish take cancel archive_task archive_all", "archived", "none"),
    _row("remove a queue", "remove_queue", "pending scheduled retry archived", "none"),
)
"""The transitions that there are."""


def rows_of(step: Step, before: dict[Task, Place], after: dict[Task, Place]) -> list[str]:
    """Return the rows that a step has made, one for each task that moved."""
    nowhere = Place("none")
    rows = []
    for task in before.keys() | after.keys():
        old, new = before.get(task, nowhere).name, after.get(task, nowhere).name
        if old != new:
            rows += [
                row.name
                for row in ROWS
                if step.operation in row.operations and old in row.before and new in row.after
            ]
    return rows


def in_place(found: dict[Task, Place], wanted: Callable[[Place], bool]) -> list[Task]:
    """Return the tasks in places of a kind, sorted."""
    return sorted(task for task, place in found.items() if wanted(place))
