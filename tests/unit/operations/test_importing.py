"""Lines of an export, read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyasynq.errors import InvalidOptionError
from pyasynq.operations import MASK, parse_task_line
from pyasynq.operations.export import export_line
from pyasynq.task import TaskInfo, TaskState

DUE = datetime(2026, 11, 25, 14, 5, tzinfo=UTC)
SECRET = "hunter2"


def info(**fields: Any) -> TaskInfo:
    """Return a retry task with everything that travels."""
    values: dict[str, Any] = {
        "id": "a",
        "queue": "mail",
        "type": "email:deliver",
        "payload": b"\xff\x00",
        "state": TaskState.RETRY,
        "max_retry": 0,
        "retried": 3,
        "timeout": timedelta(seconds=30),
        "deadline": DUE + timedelta(hours=1),
        "next_process_at": DUE,
        "retention": timedelta(hours=2),
        "headers": {"tenant": "a"},
        "last_error": "boom",
        "last_failed_at": DUE,
        "traceback": "Traceback",
        "unique_key": "k",
    }
    return TaskInfo(**values | fields)


def line(**fields: Any) -> str:
    """Return a line with the least that a task needs, except for these fields."""
    return json.dumps({"id": "a", "queue": "mail", "type": "t", "payload": SECRET, **fields})


def test_what_was_exported_is_read() -> None:
    """Id, payload, headers, limits and time; not what the task has been through."""
    queue, task = parse_task_line(export_line(info()))
    assert ("mail", "email:deliver", b"\xff\x00") == (queue, task.type, task.payload)
    assert {
        "task_id": "a",
        "max_retry": 0,
        "timeout": 30.0,
        "retention": 7_200.0,
        "deadline": DUE + timedelta(hours=1),
        "process_at": DUE,
        "headers": {"tenant": "a"},
    } == task.options


def test_a_group_is_kept() -> None:
    """The task joins it again."""
    _, task = parse_task_line(
        export_line(info(state=TaskState.AGGREGATING, group="g", next_process_at=None, payload=b""))
    )
    assert ("g", b"") == (task.options.get("group"), task.payload)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "line"),
        ("{", "line"),
        ("[]", "line"),
        ("[" * 100_000, "line"),
        (line(id=""), "id"),
        (line(id=7), "id"),
        (line(id="x" * 1_001), "task_id"),
        (line(queue=None), "queue"),
        (line(queue=" "), "queue"),
        (line(type=[]), "type"),
        (line(payload=7), "payload"),
        (line(payload="\udc80"), "payload"),
        (line(payload_base64="AA=="), "payload"),
        (line(payload=f'{{"password":"{MASK}"}}'), "payload"),
        (line(headers={"a": MASK}), "headers"),
        (line(headers={"a": 1}), "headers"),
        (line(headers=SECRET), "headers"),
        (line(max_retry=True), "max_retry"),
        (line(max_retry=-1), "max_retry"),
        (line(timeout="1"), "timeout"),
        (line(retention=float("inf")), "retention"),
        (line(deadline="soon"), "deadline"),
        (line(next_process_at="2026-11-25T14:05:00"), "next_process_at"),
        (line(max_retries=1), "max_retries"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(text: str, field: str) -> None:
    """The message has the field, and no text of the line."""
    with pytest.raises(InvalidOptionError) as raised:
        parse_task_line(text)
    assert field == raised.value.option
    assert SECRET not in str(raised.value)


def test_base64_that_is_damaged_is_refused() -> None:
    """Instead of a payload that lacks the wrong characters."""
    facts = json.loads(line())
    del facts["payload"]
    with pytest.raises(InvalidOptionError, match="payload_base64"):
        parse_task_line(json.dumps({**facts, "payload_base64": "A*A=="}))
