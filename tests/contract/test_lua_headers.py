"""The header of a Lua file declares what its body uses, and what Python passes."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pyasynq._broker.aggregation_sets import release_locks
from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.inspecting.actions import delete_tasks
from pyasynq._broker.inspecting.bulk import delete_all
from pyasynq._broker.inspecting.queues import memory_usage
from pyasynq._broker.inspecting.tasks import find_tasks
from pyasynq._broker.operating import worker_lists
from pyasynq._broker.operating.acts import ActStep, set_aside_step, undo_step
from pyasynq._broker.operating.api_keys import spend_request, write_api_key
from pyasynq._broker.operating.audit import write_audit, write_refusal
from pyasynq._broker.operating.configurations import write_configuration
from pyasynq._broker.operating.host_gates import close_gate, enter_gate, renew_slots
from pyasynq._broker.operating.moves import hold_and_take, release_step
from pyasynq._broker.operating.operations import (
    advance_operation,
    create_operation,
    set_operation_state,
    take_operation,
)
from pyasynq._broker.schedules import begin_entries
from pyasynq._broker.scripts import ALL_SCRIPTS, load_script
from pyasynq._broker.task_events import publish_events
from pyasynq._broker.task_types import publish_types, renew_types
from pyasynq._redis.plan import Plan, Replay, ScriptCall, ask
from pyasynq._wire.keys import hash_slot
from pyasynq.task_types import TaskTypeInfo
from tests.contract.aggregating import STAGED
from tests.contract.enqueueing import composed
from tests.contract.settling import archive
from tests.contract.test_full_redis import DRAINING, prepare, put_locked_as_go_does
from tests.contract.test_schedules import fire_tick
from tests.factories import NOW, Tasks, claim, registered
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from tests.invariants import RedisClient

FOLDER = resources.files("pyasynq._broker").joinpath("lua")
NAMES = sorted(
    f"{folder.name}/{file.name.removesuffix('.lua')}"
    for folder in FOLDER.iterdir()
    for file in folder.iterdir()
)
FRAGMENTS = [name.removeprefix("shared/") for name in NAMES if name.startswith("shared/")]
SCRIPTS = [name for name in NAMES if not name.startswith("shared/")]

HISTORY = "asynq:scheduler_"

every_script = pytest.mark.parametrize("name", SCRIPTS)


class Header(NamedTuple):
    """Declarations in the headers of scripts; `Each:` repeats at the end of ARGV, `From:` names the start."""

    keys: list[str]
    args: list[str]
    first: int
    tail: list[str]
    uses: list[str]


def source_of(name: str) -> str:
    """Return the text of a file."""
    return FOLDER.joinpath(f"{name}.lua").read_text("utf-8")


def parts_of(name: str) -> tuple[list[str], str]:
    """Return the lines of the header, and the body."""
    header, _, body = source_of(name).partition("\n\n")
    return header.splitlines(), body


def header_of(name: str) -> Header:
    """Return what the header declares."""
    lines, _ = parts_of(name)
    keys = _numbered(lines, "KEYS")
    args = _numbered(lines, "ARGV")
    tails = [match for line in lines if (match := re.match(r"-- ARGV\[(\d+)\.\.\.\] ([\w, ]+): ", line))]
    uses = [line.removeprefix("-- Uses: ").split(", ") for line in lines if line.startswith("-- Uses: ")]
    first, tail = (int(tails[0][1]), tails[0][2].split(", ")) if tails else (0, [])
    return Header(keys, args, first, tail, uses[0] if uses else [])


def _numbered(lines: list[str], table: str) -> list[str]:
    found = [match.groups() for line in lines if (match := re.match(rf"-- {table}\[(\d+)\] (\w+): \S", line))]
    assert [str(number) for number in range(1, len(found) + 1)] == [number for number, _ in found]
    return [name for _, name in found]


@every_script
def test_a_header_has_the_fixed_form(name: str) -> None:
    """Flags line if it drains or only reads; a sentence; keys; arguments; what it returns; fragments."""
    lines, _ = parts_of(name)
    form = r"(#!lua flags=(allow-oom|no-writes) )?S(K)*(A)*(T)?R(U)?"
    kinds = {"-- KEYS[": "K", "-- ARGV[": "A", "-- Returns: ": "R", "-- Uses: ": "U"}
    letters = ""
    for line in lines:
        if line.startswith("#!"):
            letters += line + " "
        elif "...]" in line:
            letters += "T"
        else:
            letters += next((letter for start, letter in kinds.items() if line.startswith(start)), "S")
    assert re.fullmatch(form, letters), letters
    sentence = lines[1] if lines[0].startswith("#!") else lines[0]
    assert re.fullmatch(r"-- [A-Z].*\.", sentence)


@every_script
def test_the_locals_bear_the_names_of_the_header(name: str) -> None:
    """KEYS and the fixed part of ARGV are named at once, in order."""
    header, body = header_of(name), parts_of(name)[1]
    assert header.keys == _locals(body, "KEYS", "")
    bounds = f", 1, {len(header.args)}" if header.tail else ""
    assert header.args == _locals(body, "ARGV", bounds)


def _locals(body: str, table: str, bounds: str) -> list[str]:
    many = re.search(rf"^local ([\w,\s]+?) =\s+unpack\({table}{bounds}\)$", body, re.MULTILINE)
    one = re.search(rf"^local (\w+) = {table}\[1\]$", body, re.MULTILINE)
    if many:
        return re.split(r",\s+", many[1])
    return [one[1]] if one else []


@every_script
def test_every_declared_name_is_used(name: str) -> None:
    """And names, not numbers, are what the body uses."""
    header, body = header_of(name), parts_of(name)[1]
    for declared in header.keys + header.args:
        assert len(re.findall(rf"\b{declared}\b", body)) >= 2, declared
    assert not re.search(r"KEYS\[[2-9]|ARGV\[[2-9]", body)


@every_script
def test_the_tail_of_the_arguments_is_walked_as_declared(name: str) -> None:
    """Where it begins, and how many arguments belong to one task."""
    header, body = header_of(name), parts_of(name)[1]
    walks = [(int(first), int(stride)) for first, stride in re.findall(r"at = (\d+), #ARGV, (\d+) do", body)]
    walks += [
        (int(first), int(stride))
        for first, stride in re.findall(r"take_\w+\(.*, (\d+), (\d+)\)$", body, re.MULTILINE)
    ]
    assert ([(header.first, len(header.tail))] if header.tail else []) == walks
    if header.tail:
        assert len(header.args) + 1 == header.first


@pytest.mark.parametrize("name", NAMES)
def test_the_fragments_declared_are_those_used(name: str) -> None:
    """No more and no fewer, so nothing is sent in vain; those that a fragment declares come along with it."""
    body = source_of(name) if name.startswith("shared/") else parts_of(name)[1]
    used = [fragment for fragment in FRAGMENTS if re.search(rf"(?<!local function )\b{fragment}\(", body)]
    assert used == sorted(header_of(name).uses)


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_a_fragment_is_one_function_of_its_name(fragment: str) -> None:
    """A comment in front of the function says what it does."""
    source = source_of(f"shared/{fragment}")
    assert [fragment] == re.findall(r"^local function (\w+)\(", source, re.MULTILINE)
    assert source.startswith("-- ")
    assert source.endswith("\nend\n")


def test_every_file_is_a_script_with_a_name_in_python() -> None:
    """No file is forgotten, and none is there in vain."""
    assert SCRIPTS == sorted(script.name for script in ALL_SCRIPTS)
    used = {fragment for name in NAMES for fragment in header_of(name).uses}
    assert set(FRAGMENTS) == used | {"take_step"}  # `as_step` puts it in front of scripts


def test_only_scripts_that_enqueue_do_not_drain() -> None:
    """And those that put tasks back. Everything else goes on while Redis is full."""
    enqueueing = {"task/enqueue", "task/enqueue_unique", "task/schedule", "task/schedule_unique"}
    enqueueing |= {"task/enqueue_by_rules", "task/enqueue_front", "schedule/begin", "schedule/fire"}
    enqueueing |= {"group/add", "group/schedule", "event/publish", "type/publish", "type/renew"}
    enqueueing |= {"type/configure", "api_key/write", "list/push"}
    enqueueing |= {"operate/hold", "operate/undo", "operation/create", "attempt/count"}
    assert enqueueing == {script.name for script in ALL_SCRIPTS if not script.drains}


_READING = {
    *("EXISTS", "GET", "HGET", "HMGET", "LINDEX", "LLEN", "LRANGE", "MEMORY", "PTTL", "SCARD", "SMEMBERS"),
    *("SRANDMEMBER", "SSCAN", "TIME", "TYPE", "ZCARD", "ZCOUNT", "ZRANGE", "ZREVRANGE", "ZREVRANK", "ZSCORE"),
}


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name.startswith("inspect/")])
def test_scripts_of_the_inspector_that_only_read_say_so(name: str) -> None:
    """They run on a replica, and for a user who may only read; the server holds them to it."""
    script = load_script(name)
    commands = set(re.findall(r"redis\.p?call\(\s*'(\w+)'", script.plain.text.decode()))

    assert script.only_reads is (commands <= _READING)


@every_script
def test_the_two_forms_differ_in_the_flags_line(name: str) -> None:
    """Redis 6.2 knows no such line; fragments stand between it and the body."""
    script = load_script(name)
    flags = b""
    if script.drains:
        flags = b"#!lua flags=no-writes\n" if script.only_reads else b"#!lua flags=allow-oom\n"
    assert script.form(True).text == flags + script.form(False).text
    assert script.form(False).text.decode().endswith(parts_of(name)[1])
    assert (script.form(True).sha == script.form(False).sha) is not script.drains


def _enqueue(**options: Any) -> Plan[Any]:
    [run] = split_runs([composed("x", **options), composed("y", b"y", **options)])
    return registered(enqueue_run(run, now=NOW), run.queue)


@pytest.fixture
def calls(damage_allowed: None, redis_client: RedisClient, tasks: Tasks) -> dict[str, ScriptCall]:
    """A call of every script, by its name."""
    perform = BlockingPerformer(redis_client)
    prepare(tasks)
    redis_client.zadd(tasks.keys.archived, {f"{number}": 1 for number in range(1_500)})
    redis_client.zadd(tasks.keys.completed, {"ghost": 1})
    perform(archive([claim("b")], cutoff=10))
    perform(delete_all("default", "completed", group="", progress=None))
    perform(memory_usage("default", 0))
    perform(find_tasks("default", ["a"], now=NOW))
    put_locked_as_go_does(tasks)
    perform(delete_tasks("default", ["locked"]))
    for plan in DRAINING.values():
        perform(plan())
    for options in ({}, {"unique": 60}, {"group": "g"}):
        perform(_enqueue(**options))
        perform(_enqueue(**options, process_in=60))
    perform(_enqueue(unique=60, on_duplicate="ignore"))
    perform(_enqueue(front=True))
    perform(begin_entries("default", ["e"], now=NOW))
    perform(fire_tick())
    perform(release_locks(STAGED, [("gone", "lock")]))
    perform(publish_events("default", [b"{}"], max_length=10))
    perform(publish_types([TaskTypeInfo("t")]))
    perform(_without_ledger(set_aside_step(ActStep("e", 1), "default", ["a"], "")))
    tasks.pending("moves")
    perform(hold_and_take("e", "default", "other", "moves", ""))
    perform(_without_ledger(release_step(ActStep("e", 3), "other", {"moves": "place"})))
    perform(_without_ledger(undo_step(ActStep("e", 2), "default", ["a"], "e")))
    perform(create_operation("e", {"state": "running"}, now=NOW))
    perform(take_operation("e", "me", now=NOW))
    perform(advance_operation("e", 1, {"done": 1}, now=NOW))
    perform(set_operation_state("e", "paused", ["running"]))
    perform(write_audit(b'{"at":1}'))
    perform(write_refusal(b'{"at":1}', "mira"))
    perform(renew_types(["t"]))
    perform(write_api_key("k", b"", b"{}"))
    perform(spend_request("e", (1.0, 1.0, 1), NOW))
    perform(enter_gate("e", ["a"], limits=(1.0, 1.0, 1), concurrency=1, now=NOW))
    perform(close_gate("e", 1_000, NOW))
    perform(renew_slots("e", ["a"], NOW))
    perform(worker_lists.push_entry("e", 0, "t", b"{}", "lease"))
    perform(write_configuration("t", b"{}", None, NOW))
    perform(count_attempts("default", {"t": [1]}, now=NOW))
    return {call.script.name: call for call in perform.calls if isinstance(call, ScriptCall)}


def _without_ledger(plan: Plan[Any]) -> Plan[Any]:
    """Return the call of a step as it is without the ledger, whose key comes first and arguments last."""
    call = next(plan)
    assert isinstance(call, ScriptCall)
    script = load_script(call.script.name)
    return ask(ScriptCall(script, call.keys[1:], call.args[:-2], call.replay))


def test_python_passes_what_the_headers_declare(calls: dict[str, ScriptCall]) -> None:
    """As many keys, the fixed arguments, and whole groups of the tail; a replay comes first."""
    assert SCRIPTS == sorted(calls)
    for name, call in calls.items():
        header = header_of(name)
        assert len(header.keys) == len(call.keys), name
        rest = len(call.args) - len(header.args)
        assert rest >= 0, name
        assert 0 == (rest % len(header.tail) if header.tail else rest), name
        assert (call.replay is Replay.BY_TOKEN) is (header.args[:1] == ["replay"]), name
        if call.replay is Replay.BY_TOKEN:
            assert "0" == call.args[0], name


def test_keys_bear_the_names_of_the_headers(calls: dict[str, ScriptCall]) -> None:
    """`pending` is the pending list, and so on; only a few keys may be one of several."""
    for name, call in calls.items():
        for declared, key in zip(header_of(name).keys, call.keys, strict=True):
            suffix = re.sub(r"^x:stats:(\w+):\d+$", r"\1", key.rpartition("}:")[2])
            if declared.endswith("_today"):
                assert re.fullmatch(declared.removesuffix("_today") + r":\d{4}-\d\d-\d\d", suffix), name
            elif declared not in {
                "source",
                "task",
                "index",
                "server",
                "workers",
                "collection",
                "lock",
                "set",
                "target",
                "gate",
                "scheduler",
                "semaphore",
                "request",
                "operation",
                "entries",
            }:
                bare = suffix.removeprefix("asynq:x:").removeprefix("x:").partition(":e")[0]
                assert declared == bare.removeprefix(HISTORY), name


def test_all_keys_of_a_call_are_in_one_slot(calls: dict[str, ScriptCall]) -> None:
    """Redis Cluster refuses anything else."""
    for name, call in calls.items():
        assert 1 == len({hash_slot(key) for key in call.keys}), name
