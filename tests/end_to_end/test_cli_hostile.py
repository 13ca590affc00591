"""Hostile texts in everything that a command shows: each command, in each format."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.servers import write_server_state
from pyasynq._broker.task_events import encode_event, publish_events
from pyasynq._broker.task_types import publish_types
from pyasynq._clock import Instant
from pyasynq._face_records.fields import Kind
from pyasynq._wire.keys import queue_keys, scheduler_history_key
from pyasynq._wire.messages import SchedulerEnqueueEvent, ServerInfo, WorkerInfo
from pyasynq.cli.output.printer import FORMATS, Printer
from pyasynq.cli.schemas import VIEWS
from pyasynq.operations import (
    Act,
    HeldTask,
    LeaseWorkerReport,
    Operator,
    Targets,
    User,
    report_lease_workers,
)
from pyasynq.task import TaskState
from pyasynq.task_types import TaskTypeInfo
from tests.cli_runner import Cli
from tests.contract.test_inspect_schedulers import announce, entry
from tests.factories import Tasks
from tests.foreign_texts import HOSTILE_TEXTS
from tests.shop_service import (
    announce_commands,
    announce_doors,
    announce_hostile_deliveries,
    make_command,
)
from tests.terminal import Terminal

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Field, View
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

HIDDEN: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Characters that move the cursor, reorder or hide text; the line end alone is ours."""
TEXT: Final = "seen" + "".join(text.replace("\0", "") for text in HOSTILE_TEXTS)
LONG: Final = "seen" + "x" * 100_000 + "\x1b[2J"
STREAMS: Final = "stdout", "stderr"


def value(field: Field, text: str) -> Any:
    """Return a value of a field's kind that is as hostile as can be."""
    values: dict[Kind, Any] = {
        Kind.TEXT: text,
        Kind.NAMES: [text],
        Kind.TEXTS: {text: text},
        Kind.OBJECT: {text: text},
        Kind.OBJECTS: [{text: text}],
        Kind.NUMBERS: {text: 1},
        Kind.DATA: text.encode("utf-8", "surrogatepass"),
        Kind.TIME: datetime(2026, 11, 25, tzinfo=UTC),
    }
    return values.get(field.kind, 1)


@pytest.mark.sample(4)
@pytest.mark.parametrize("text", [TEXT, LONG, "seen\ud800"], ids=["hostile", "long", "undecodable"])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_no_format_of_a_view_lets_a_hidden_character_through(view: View, text: str) -> None:
    """Whatever the field: JSON escapes what tables show as symbols, and stays what it was."""
    record = {field.name: value(field, text) for field in view.fields}
    for format_ in FORMATS:
        shown = Printer(format_).format_records(view, [record])
        assert [] == HIDDEN.findall(shown), format_
        shown.encode()
        assert "seen" in shown or format_ in {"name", "table"}
    if not any(field.kind is Kind.DATA for field in view.fields):
        [read] = json.loads(Printer("json").format_records(view, [record]))
        assert [text] * len(read) == [
            read[field.name] if field.kind is Kind.TEXT else text for field in view.fields
        ]


def fill(redis_client: RedisClient, perform: Perform, text: str) -> None:
    """Put a text wherever other programs may put one."""
    now = Instant(int(time.time()))
    moment = now.to_datetime()
    tasks = Tasks(redis_client, text)
    fields: dict[str, Any] = {"type": text, "payload": text.encode(), "headers": {text: text}}
    failed = {**fields, "error_msg": text, "last_failed_at": now.seconds - 60}
    tasks.pending(text, **fields)
    redis_client.hset(tasks.keys.task(text), "pending_since", str((now.seconds - 3_600) * 10**9))
    tasks.put(TaskState.ARCHIVED, text + "2", extra={"x:trace": text, "result": text.encode()}, **failed)
    tasks.put(TaskState.RETRY, text + "3", **failed)
    tasks.put(TaskState.AGGREGATING, text + "4", group=text, score=now.seconds, **fields)
    redis_client.set(queue_keys(text).paused, str(now.seconds - 7_200))
    server = ServerInfo(
        host=text,
        pid=7,
        server_id=text,
        concurrency=4,
        queues={text: 1},
        strict_priority=False,
        status=text,
        start_time=moment,
        active_worker_count=1,
        engine=text,
    )
    worker = WorkerInfo(
        host=text,
        pid=7,
        server_id=text,
        task_id=text,
        task_type=text,
        task_payload=text.encode(),
        queue=text,
        start_time=moment,
        deadline=moment,
    )
    perform(write_server_state(server, [worker], now=now.plus(3_600)))
    for key in redis_client.keys("asynq:*{*:7:*}"):
        redis_client.persist(key)  # however long the commands take
    announce(
        redis_client,
        text,
        entry(text, f"Queue({json.dumps(text)})", task_type=text, payload=text.encode()),
        lapses=now.seconds + 60,
    )
    fired = SchedulerEnqueueEvent(task_id=text, enqueue_time=moment)
    redis_client.zadd(scheduler_history_key(text), {fired.encode(): now.seconds})
    perform(publish_types([TaskTypeInfo(text, queue=text, secrets=(text,), summary=text, version=text)], now))
    perform(count_attempts(text, {text: [1]}, now=now))


async def act(url: str, text: str) -> str:
    """Let an operator with a hostile name and hostile words act; return the id of an operation."""
    user = User.with_role(text, "admin", login=text, address=text)
    async with Operator(url, user) as operator:
        await operator.set_queue_limits(text, max_run=1, reason=text)
        await operator.add_mark(text)
        await operator.share_view(text[:100], "search", "state:archived")
        await operator.make_api_key(text[:100], ["work"], [text], reason=text)
        texts: dict[str, Any] = dict.fromkeys(("name", "language", "version", "host", "key_id"), text)
        report = LeaseWorkerReport("w", **texts, pid=7, queues=(text,), seen=time.time())
        report.hold(HeldTask(text, text, int(time.time()) + 600))
        assert 0 == await report_lease_workers(operator, text, [report])
        found = await operator.start_operation(Act.ARCHIVE, Targets({text: [text + "3"]}), reason=text)
        return found.operation


def report(url: str, text: str) -> None:
    """Let an instance of the task service report a text wherever hosts, programs and workers may put one."""
    announce_hostile_deliveries(url, [text])
    fields: dict[str, Any] = dict.fromkeys(("id", "task_id", "program", "host", "end", "reason"), text)
    data = text.encode("utf-8", "surrogatepass")
    streams = {"out": data, "out_bytes": len(data), "err": data, "err_bytes": len(data)}
    announce_commands(url, [make_command(text, state="archived", **fields, **streams)])
    announce_doors(url, [text])


COMMANDS: Final = {
    "stats": ("stats",),
    "queue list": ("queue", "ls"),
    "queue inspect": ("queue", "inspect", "{text}"),
    "queue history": ("queue", "history", "{text}"),
    "task list": ("task", "ls", "-q", "{text}", "-s", "archived"),
    "task inspect": ("task", "inspect", "{text}", "{text}2"),
    "task run": ("task", "run", "{text}2", "--dry-run"),
    "task export": ("task", "export", "-q", "{text}"),
    "server list": ("server", "ls"),
    "server remote": ("server", "remote"),
    "server quiet": ("server", "quiet", "{text}"),
    "server stop": ("server", "stop", "no{text}"),
    "delivery list": ("delivery", "ls"),
    "delivery inspect": ("delivery", "inspect", "{text}"),
    "command list": ("command", "ls"),
    "command inspect": ("command", "inspect", "{text}"),
    "command kill": ("command", "kill", "{text}", "no{text}"),
    "door list": ("door", "ls"),
    "cron list": ("cron", "ls"),
    "cron history": ("cron", "history", "{text}"),
    "cron pause": ("cron", "pause", "{text}"),
    "cron run": ("cron", "run", "no{text}"),
    "group list": ("group", "ls", "-q", "{text}"),
    "audit": ("audit",),
    "view list": ("view", "ls"),
    "view run": ("view", "run", TEXT[:100]),
    "view remove": ("view", "rm", "no{text}"),
    "key list": ("key", "ls"),
    "key delete": ("key", "rm", "no{text}"),
    "types": ("types",),
    "limits": ("limits",),
    "limits of one": ("limits", "{text}", "--max-run", "2"),
    "mark": ("mark", "--list"),
    "mark anew": ("mark", "{text}"),
    "op list": ("op", "ls"),
    "op view": ("op", "view", "{operation}"),
    "op stop": ("op", "stop", "no{text}"),
    "errors": ("errors",),
    "search": ("search", "state:archived"),
    "search wrong": ("search", "state:{text}"),
    "top": ("top",),
    "top types": ("top", "--types"),
    "latency": ("latency",),
    "attention": ("attention",),
    "attention snooze": ("attention", "snooze", "no{text}", "--for", "1h", "--reason", "r"),
    "doctor": ("doctor", "--pause", "0"),
    "enqueue": ("enqueue", "{text}", "{text}", "--raw", "-q", "{text}"),
    "queue resume": ("queue", "resume", "{text}", "no{text}"),
    "unknown": ("{text}",),
    "unknown verb": ("queue", "{text}"),
}
WITHOUT_FORMATS: Final = frozenset({"doctor", "unknown", "unknown verb"})


def test_no_command_lets_a_hidden_character_through(
    redis_url: str, redis_client: RedisClient, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stdout and stderr, as table, wide table and JSON; with any exit code, and never a traceback."""
    # The servers of this test never answer.
    monkeypatch.setattr("pyasynq.cli.server._WAIT", 0.1)
    fill(redis_client, perform, TEXT)
    operation = asyncio.run(act(redis_url, TEXT))
    report(redis_url, TEXT)
    cli = Cli(redis_url)
    for name, command in COMMANDS.items():
        words = [word.format(text=TEXT, operation=operation) for word in command]
        for format_ in ("table",) if name in WITHOUT_FORMATS else ("table", "wide", "json"):
            formatted = words if name in WITHOUT_FORMATS else [*words, "-o", format_]
            result = cli.run(*formatted)
            where = f"{name} -o {format_}"
            assert result.exception is None or isinstance(result.exception, SystemExit), where
            for stream in STREAMS:
                assert [] == HIDDEN.findall(getattr(result, stream)), where
            assert "seen" in result.output or name in {"view run", "queue history", "op view"}, where


def test_events_reach_a_terminal_without_hidden_characters(
    redis_url: str, redis_client: RedisClient, perform: Perform
) -> None:
    """Live, as they are published."""
    Tasks(redis_client, "default").pending("a")
    now = Instant(int(time.time()))
    event = encode_event("retried", "default", now, type=TEXT, task_id=TEXT, server=TEXT, error=TEXT)
    with Terminal(
        "events", "--for", "600", "--redis", redis_url, columns=200, env={"NO_COLOR": "1"}
    ) as terminal:
        while "seen" not in terminal.text:
            perform(publish_events("default", [event], max_length=10))
            terminal._read()
        terminal.type("\x03")
        terminal.finish()
        assert [] == HIDDEN.findall(terminal.raw.decode().replace("\r", "").replace("^C", ""))
