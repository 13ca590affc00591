"""Fuzzers for what users hand us: URLs, cron expressions, durations, options, names, command lines."""

from __future__ import annotations

import functools
import inspect
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from click.testing import CliRunner
from hypothesis import strategies as st

from pyasynq._broker.enqueueing.compose import compose
from pyasynq._clock import Instant
from pyasynq._cron import parse_cron
from pyasynq._go_duration import format_go_duration, parse_go_duration
from pyasynq._redis.reply_errors import read_reply_error, translate
from pyasynq._redis.url import parse_redis_url
from pyasynq._scheduler.entry import entry_id, option_texts
from pyasynq._wire.keys import hash_slot, queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.cli import main
from pyasynq.errors import ConfigurationError, InvalidTextError
from pyasynq.options import OPTION_NAMES
from pyasynq.task import Task
from tests.fuzz.fuzzer import JSON_VALUES, TEXTS, as_text, fuzzer

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = Instant(2_000_000_000, 250_000)
SECRET = "s3cr3t-of-ours"
UNSAFE = st.text("/:@?#[]%{}&=\\ \x00\n.0123456789abcredisunx-", max_size=40)
SCHEMES = st.sampled_from(
    ["redis", "rediss", "unix", "redis-socket", "embedded", "redis-cluster", "redis-sentinel", ""]
)
URLS = (
    st.tuples(SCHEMES, UNSAFE).map("://".join)
    | st.tuples(SCHEMES, UNSAFE).map(lambda parts: f"{parts[0]}://u:{SECRET}@{parts[1]}")
    | st.tuples(SCHEMES, UNSAFE).map(lambda parts: f"{parts[0]}://u:{quote(parts[1], safe='')}{SECRET}@h:1/0")
    | TEXTS
)


@fuzzer(URLS, from_bytes=as_text)
def url(text: str) -> None:
    """A target, or an error that does not show the password."""
    # A server that we start ourselves has no password; what looks like one is a folder.
    secret = f"{SECRET}@" in text and not text.lower().startswith("embedded:")
    try:
        target = parse_redis_url(text)
    except ConfigurationError as error:
        assert not secret or SECRET not in str(error)  # noqa: PT017 - the others are URLs
        return
    assert not secret or SECRET not in repr(target) + target.address


CRON = st.text("0123456789*/,-? LWCTZRN_=@everyUTCmonjanhs.:\x00\n", max_size=40)
FIELD = st.text("0123456789*/,-", min_size=1, max_size=8)


@fuzzer(
    CRON | st.lists(FIELD, min_size=4, max_size=6).map(" ".join) | TEXTS,
    ConfigurationError,
    from_bytes=as_text,
)
def cron(text: str) -> None:
    """An expression whose next tick lies ahead, if there is one."""
    start = datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)
    tick = parse_cron(text).next_after(start, anchor=start)
    assert tick is None or tick > start


@fuzzer(st.text("0123456789.-+hmsuµn \x00", max_size=30) | TEXTS, ValueError, from_bytes=as_text)
def duration(text: str) -> None:
    """A duration of Go that is written as it is read."""
    nanoseconds = parse_go_duration(text)
    assert nanoseconds == parse_go_duration(format_go_duration(nanoseconds))


@fuzzer(TEXTS | UNSAFE, from_bytes=as_text)
def error_reply(text: str) -> None:
    """Any error that a server or a proxy may answer with."""
    translate(read_reply_error(text), "the command")


VALUES = (
    JSON_VALUES
    | st.timedeltas()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.binary(max_size=9)
    | st.sampled_from([timedelta(microseconds=1), "raise", "ignore", "replace_payload", "start", 1, 0.5])
)
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "queue": TEXTS,
    "max_retry": st.integers(),
    "timeout": st.floats() | st.integers(),
    "unique": st.floats(min_value=1) | st.timedeltas(),
    "process_in": st.floats() | st.timedeltas(),
    "process_at": st.datetimes(timezones=st.just(UTC)),
    "deadline": st.datetimes(timezones=st.just(UTC)),
    "retention": st.floats() | st.timedeltas(),
    "headers": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "task_id": TEXTS,
    "group": TEXTS,
}
_PARAMETERS = inspect.signature(Task.__init__).parameters
OPTIONS = st.dictionaries(
    st.sampled_from(sorted(OPTION_NAMES)) | TEXTS.filter(lambda name: name not in _PARAMETERS),
    VALUES,
    max_size=4,
) | st.fixed_dictionaries({}, optional=LIKELY)


@fuzzer(st.tuples(TEXTS, st.none() | st.binary(max_size=20), OPTIONS), ConfigurationError, InvalidTextError)
def enqueue(case: tuple[str, bytes | None, dict[str, Any]]) -> None:
    """A message that can be read again, or an error of ours, before anything is sent."""
    task_type, payload, options = case
    task = Task(task_type, payload, **options)
    composed = compose(task, {}, now=NOW)
    message = decode_task_message(composed.encoded)
    assert (composed.id, task_type, payload or b"") == (message.id, message.type, message.payload)
    for text in option_texts(task.options):
        text.encode()
    entry_id("@daily", task, 0)


@fuzzer(st.tuples(TEXTS, TEXTS, TEXTS))
def key_slots(names: tuple[str, str, str]) -> None:
    """All keys of a queue share a slot of Redis Cluster, whatever its name and those of tasks and groups."""
    queue, task_id, group = (name.encode("utf-8", "replace").decode() for name in names)
    if not queue.strip() or queue.startswith("}"):
        return  # no queue has a blank name; the other one makes an empty hash tag, and those do not count
    keys = queue_keys(queue)
    every = (*keys.places, keys.task(task_id), keys.group(group), keys.own_unique(task_id), keys.events)
    assert 1 == len({hash_slot(key) for key in every})
    assert not group or group == keys.find_group_of_set(keys.aggregation_set(group, "set"))


def _flags(group: click.Group) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        yield name
        command = group.get_command(context, name)
        for parameter in command.params if command else ():
            yield from (option for option in parameter.opts if option.startswith("-"))


STARTS_A_PROCESS = {"--reload", "--processes", "--max-tasks-per-child", "--max-memory"}
"""Command that starts the program again, as a child."""
FLAGS = st.sampled_from(sorted({*_flags(main)} - STARTS_A_PROCESS))
APPS = ["nosuch:app", "json:app", "json:dumps", "json", "os.path:join", "a:b:c", "::", "...:x", "x.", ".:app"]
NUMBERS = [
    "a=1,b=2",
    "a=²",
    "²/s",
    "mail=50/s",
    "mail=1/0m+9",
    "mail=9e9/s",
    "512M",
    "1e400G",
    "-1",
    "nan",
    "inf",
]
ANSWERS = st.sampled_from([*APPS, *NUMBERS, "0", "unix:///nosuch/socket", "redis://:p@h:x/0", "text", "json"])
ARGUMENTS = st.lists(FLAGS | ANSWERS | TEXTS | st.text(max_size=8), max_size=6)
STARTS = ("demo",)
"""Commands that would do something without any argument."""


@functools.cache
def _runner() -> CliRunner:
    return CliRunner()


@fuzzer(st.tuples(st.sampled_from(["worker", "scheduler", "doctor", "ping", ""]), ARGUMENTS))
def command_line(case: tuple[str, list[str]]) -> None:
    """An exit code and a line that says why: never a traceback."""
    command, arguments = case
    if any(name in STARTS or name.startswith(tuple(STARTS_A_PROCESS)) for name in arguments):
        return
    result = _runner().invoke(
        main, [command, *arguments] if command else arguments, env={"PYASYNQ_REDIS_URL": ""}
    )
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    assert "Traceback" not in result.output
    assert result.exit_code in (0, 1, 2, 5), result.output
