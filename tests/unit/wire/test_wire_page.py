"""The page on the wire format and the code say the same: names, numbers, fields and keys."""

from __future__ import annotations

import inspect
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from pyasynq._broker.task_events import KINDS, MISSED
from pyasynq._wire import asynq_pb2, keys
from pyasynq._wire.constants import TaskField
from pyasynq._wire.keys import QueueKeys
from pyasynq._wire.options_text import OptionName
from pyasynq.task import TaskState

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src" / "pyasynq"
PAGE = (ROOT / "docs" / "wire-format.md").read_text("utf-8")
VECTORS: dict[str, Any] = json.loads((ROOT / "docs" / "wire-vectors.json").read_text("utf-8"))
LUA = {file: file.read_text("utf-8") for file in SOURCES.rglob("*.lua")}
PYTHON = {file: file.read_text("utf-8") for file in SOURCES.rglob("*.py")}

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
FIRST_CELLS = {row[0].strip("| ") for row in ROWS}

OWN_NAME = re.compile(r"(?<![a-z])x:[a-z_]+")
HASH_FIELD = re.compile(r"redis\.call\(\s*'H(?:SET|GET|DEL|MGET)',\s*[^,']+,\s*(.*)\)")
WORD = re.compile(r"'([a-z_:]+)'")

QUEUE = QueueKeys("QUEUE")
PREFIXES = {
    "prefix",
    "queue",
    "task_prefix",
    "group_prefix",
    "own_unique_prefix",
    "gone_prefix",
    "once_prefix",
}
METHODS: dict[str, list[tuple[Any, ...]]] = {
    "task": [("ID",)],
    "group": [("GROUP",)],
    "aggregation_set": [("GROUP", "SET")],
    "processed_on": [(date(2000, 1, 1),)],
    "failed_on": [(date(2000, 1, 1),)],
    "attempt_counts": [("LEVEL", "START")],
    "gone": [("OPERATION",)],
    "gone_task": [("OPERATION", "ID")],
    "step": [("OPERATION",)],
    "once": [("ID",)],
    "unique": [("TYPE", b"")],
    "own_unique": [("NAME",)],
    "find_group_of_set": [],
}
"""The methods that make keys, with arguments whose key stands on the page."""
FUNCTIONS = {
    "server_key": ("HOST", "PID", "SERVER"),
    "workers_key": ("HOST", "PID", "SERVER"),
    "scheduler_key": ("SCHEDULER",),
    "scheduler_history_key": ("ENTRY",),
    "semaphore_key": ("SCOPE",),
    "server_request_key": ("SERVER",),
    "operation_key": ("OPERATION",),
    "configuration_versions_key": ("TYPE",),
    "api_key_bucket_key": ("KEY",),
    "host_gate_key": ("HOST",),
}


def queue_key_names() -> set[str]:
    """Return all keys of a queue as the page writes them."""
    ready_made = {getattr(QUEUE, name) for name in QueueKeys.__slots__ if name not in PREFIXES}
    made = {getattr(QUEUE, name)(*arguments) for name, calls in METHODS.items() for arguments in calls}
    return {
        key.replace("2000-01-01", "YYYY-MM-DD").replace("d41d8cd98f00b204e9800998ecf8427e", "MD5")
        for key in ready_made | made
    }


def test_every_way_to_make_a_key_is_known_here() -> None:
    """A new field must be added here, and to the page."""
    methods = {name for name, _ in inspect.getmembers(QueueKeys, inspect.isfunction) if name[0] != "_"}
    assert METHODS.keys() == methods
    functions = {
        name
        for name, function in inspect.getmembers(keys, inspect.isfunction)
        if name.endswith("_key") and function.__module__ == keys.__name__
    }
    assert FUNCTIONS.keys() == functions


def test_every_key_of_a_queue_has_a_row() -> None:
    """Each row names a key that exists."""
    rows = {cell.strip("`") for cell in FIRST_CELLS if cell.startswith("`asynq:{QUEUE}")}
    assert queue_key_names() == rows


def test_every_global_key_has_a_row() -> None:
    """Each row names a key that exists."""
    made = {getattr(keys, name)(*arguments) for name, arguments in FUNCTIONS.items()}
    lists = keys.shard_keys("TYPE", "SHARD")
    made |= {*lists[:4], f"{lists.alive_prefix}WORKER", f"{lists.held_prefix}WORKER"}
    constants = {
        keys.ALL_QUEUES,
        keys.SERVERS_KEY,
        keys.WORKERS_KEY,
        keys.SCHEDULERS_KEY,
        keys.CANCEL_CHANNEL,
    }
    constants |= {
        keys.TASK_TYPES_KEY,
        keys.CONFIGURATIONS_KEY,
        keys.API_KEYS_KEY,
        keys.LEASE_WORKERS_KEY,
        keys.DELIVERIES_KEY,
        keys.DOORS_KEY,
        keys.COMMANDS_KEY,
        keys.AUDIT_KEY,
        keys.REFUSED_KEY,
        keys.VIEWS_KEY,
        keys.OPERATIONS_KEY,
        keys.MARKS_KEY,
        keys.SNOOZED_KEY,
        keys.SIGNED_OUT_KEY,
    }
    rows = {cell.strip("`") for cell in FIRST_CELLS if cell.startswith("`asynq:") and "QUEUE" not in cell}
    assert made | constants == rows


def test_every_name_of_ours_is_on_the_page() -> None:
    """All that begins with `x:` in Python and Lua; the page names no others."""
    used = {name for text in [*LUA.values(), *PYTHON.values()] for name in OWN_NAME.findall(text)}
    rows = {name for cell in FIRST_CELLS for name in OWN_NAME.findall(cell)}
    assert len(used) > 10
    assert used == rows
    assert used == set(OWN_NAME.findall(PAGE))


def test_every_field_of_a_hash_in_lua_is_on_the_page() -> None:
    """Fields of tasks and of our own keys, in every script that reads or writes them."""
    words = {
        word
        for text in LUA.values()
        for arguments in HASH_FIELD.findall(text)
        for word in WORD.findall(arguments)
    }
    fields = (
        {word.removeprefix(":") for word in words} - {state.value for state in TaskState} - {"WITHVALUES"}
    )
    assert {"full_at", "since", "concurrency", "x:attempt", "msg"} <= fields
    on_page = set(re.findall(r"[a-z_:]+", PAGE)) | {"since" if "ENTRY:since" in PAGE else ""}
    assert set() == fields - on_page


def test_every_field_of_a_task_has_a_row() -> None:
    """The row is in one of the two tables of fields."""
    assert set() == {f"`{field.value}`" for field in TaskField} - FIRST_CELLS


def test_every_state_has_a_row() -> None:
    """The row has the number of the state in Go's API."""
    numbers = {row[0].strip("| `"): row[-1].strip("| ") for row in ROWS if row[0].strip().startswith("`")}
    order = ["active", "pending", "scheduled", "retry", "archived", "completed", "aggregating"]
    assert {state.value for state in TaskState} == set(order)
    for number, state in enumerate(order, 1):
        assert str(number) == numbers[state]


@pytest.mark.parametrize("name", VECTORS["numbers"])
def test_every_number_is_that_of_the_code(name: str) -> None:
    """The vectors hold what the code says."""
    [row] = [row for row in ROWS if row[0].strip("| ") == name and row[1].isdigit()]
    assert VECTORS["numbers"][name] == int(row[1])


@pytest.mark.parametrize("name", sorted(asynq_pb2.DESCRIPTOR.message_types_by_name))
def test_every_field_of_a_message_has_a_row(name: str) -> None:
    """Number, name and type, in order."""
    section = PAGE.split(f"### {name}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE)
    fields = asynq_pb2.DESCRIPTOR.message_types_by_name[name].fields
    assert [(str(field.number), field.name, type_of(field)) for field in fields] == rows


def type_of(field: FieldDescriptor) -> str:
    """Return a field's type as the page writes it."""
    names = {
        FieldDescriptor.TYPE_STRING: "string",
        FieldDescriptor.TYPE_BYTES: "bytes",
        FieldDescriptor.TYPE_INT32: "int32",
        FieldDescriptor.TYPE_INT64: "int64",
        FieldDescriptor.TYPE_BOOL: "bool",
    }
    if field.message_type is None:
        return ("repeated " if field.is_repeated else "") + names[field.type]
    if field.message_type.GetOptions().map_entry:
        return "map " + " → ".join(names[part.type] for part in field.message_type.fields)
    return field.message_type.name


def test_the_texts_of_options_are_those_of_the_vectors() -> None:
    """One row for each option."""
    texts = {cell.strip("`") for cell in FIRST_CELLS if re.match(r"`[A-Z]\w+\(", cell)}
    assert {vector["text"] for vector in VECTORS["options"]} == texts
    assert {name.value for name in OptionName} == {text.partition("(")[0] for text in texts}


def test_locks_and_bytes_on_the_page_are_vectors() -> None:
    """Nothing is written there that no test computes."""
    locks = {vector["key"] for vector in VECTORS["locks"]}
    assert set() == set(re.findall(r"`(asynq:\{default\}:unique:[^`]*)`", PAGE)) - locks
    known = {vector["hex"] for vector in VECTORS["messages"]}
    found = set(re.findall(r"`([0-9a-f]{16,})`", PAGE))
    assert len(found) >= 4
    assert set() == found - known


def test_the_example_of_field_1001_is_a_vector() -> None:
    """It is text, so it is in a block of its own."""
    assert f"\n{VECTORS['additions']['field 1001 of ServerInfo, with limits']}\n" in PAGE


def test_every_kind_of_event_is_named() -> None:
    """All but the one that readers make themselves."""
    item = PAGE.partition("\n- **Event**")[2].partition("\n- ")[0]
    assert set(re.findall(r"`(\w+)`", item.partition("Kinds:")[2])) == KINDS - {MISSED}


def test_every_member_of_the_vectors_is_explained() -> None:
    """The table at the end of the page explains them."""
    explained = {name for cell in FIRST_CELLS for name in re.findall(r"`([^`]+)`", cell)}
    assert set() == VECTORS.keys() - explained


def test_every_pitfall_has_a_test() -> None:
    """The number of each is in a test's name, such as `test_w05_...`."""
    numbers = {
        f"_{number[0].lower()}{int(number[1:]):02}_"
        for cell in FIRST_CELLS
        if re.fullmatch(r"[WH]\d+(, [WH]\d+)*", cell)
        for number in cell.split(", ")
    }
    tests = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(numbers) > 20
    assert {number for number in numbers if not re.search(rf"def test_\w*{number[1:]}", tests)} == set()


def test_every_link_leads_somewhere() -> None:
    """To a heading of the page, or to a file next to it."""
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        if target.startswith("#"):
            assert target[1:] in headings
        else:
            assert (ROOT / "docs" / target).exists()
