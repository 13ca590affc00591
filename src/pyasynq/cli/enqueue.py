"""The command `pyasynq enqueue`, which is also `pyasynq task enqueue`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from pyasynq._face_records.tasks import describe_task, tasks_view
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, TIME, reason_option
from pyasynq.cli.completion import complete_types
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.errors import RedisPermissionError, nearest
from pyasynq.options import DEFAULT_QUEUE, EnqueueOptions
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.cli.operator_command import Session
    from pyasynq.task_types import TaskTypeInfo


def enqueue_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the task options of Asynq's command line."""
    options = (
        click.option(
            "-q",
            "--queue",
            metavar="NAME",
            help="Its queue. Unless given: the queue that workers publish for the type, or else default.",
        ),
        click.option("--id", "task_id", metavar="ID", help="Its id, instead of a random one."),
        click.option(
            "--retry", "--max-retry", "max_retry", type=click.IntRange(min=0), help="Retries that it has."
        ),
        click.option("--timeout", type=DURATION, help="How long an attempt may take."),
        click.option("--deadline", type=TIME, help="Until when it must end."),
        click.option("--unique", type=DURATION, help="How long no equal task may be enqueued."),
        click.option("--process-at", "--process_at", "process_at", type=TIME, help="When it is due."),
        click.option(
            "--process-in", "--process_in", "process_in", type=DURATION, help="After what time it is due."
        ),
        click.option("--retention", type=DURATION, help="How long it is kept after its success."),
        click.option("--group", metavar="NAME", help="The group that it joins."),
        click.option(
            "-H",
            "--header",
            "headers",
            metavar="NAME=VALUE",
            multiple=True,
            help="A header; may be repeated.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "enqueue",
    cls=OperatorCommand,
    examples=(
        """pyasynq enqueue email:deliver '{"user_id": 42, "template": "welcome"}'""",
        "pyasynq enqueue report:render --file arguments.json --queue reports --process-in 1h",
        "generate | pyasynq enqueue image:resize --file -",
    ),
)
@click.argument("task_type", metavar="TYPE", required=False, shell_complete=complete_types)
@click.argument("payload", required=False)
@click.option("-t", "--type_name", "--type-name", "type_name", hidden=True)
@click.option("-l", "--payload", "payload_option", hidden=True)
@click.option("--file", "file", metavar="PATH", help="Read the payload from a file; - is stdin.")
@click.option("--raw", is_flag=True, help="The payload need not be JSON.")
@enqueue_options
@reason_option
@operator_command
async def enqueue_command(
    session: Session,
    task_type: str | None,
    payload: str | None,
    queue: str | None,
    reason: str,
    **options: Any,
) -> None:
    """Enqueue a task of a type, with a payload in JSON."""
    name = task_type or options.pop("type_name")
    text = payload if payload is not None else options.pop("payload_option")
    if not name:
        raise click.UsageError("a task of which type? Write  pyasynq enqueue TYPE PAYLOAD")
    data = read_payload(text, options.pop("file"), raw=options.pop("raw"))
    options["headers"] = parse_headers(options["headers"])
    names = EnqueueOptions.__annotations__
    given = {key: value for key, value in options.items() if value is not None and key in names}
    task = Task(name, data, **cast("EnqueueOptions", given))
    published = _find_type(name, await _read_types(session))
    if queue is None:
        queue = (published and published.queue) or DEFAULT_QUEUE
        if queue != DEFAULT_QUEUE:
            click.echo(f"To queue {visible(queue)}, as workers say.", err=True)
    info = await session.operator.enqueue(queue, task, reason=reason)
    if session.printer.is_for_people:
        click.echo(f"Enqueued task {visible(info.id)} to queue {visible(info.queue)}.")
    else:
        session.printer.records(tasks_view(), [describe_task(info)])


async def _read_types(session: Session) -> list[TaskTypeInfo]:
    """Return the types that workers have published; none if this user of Redis may not read them."""
    try:
        return await session.operator.task_types()
    except RedisPermissionError:
        return []


def _find_type(name: str, known: list[TaskTypeInfo]) -> TaskTypeInfo | None:
    """Return the published description of a type, or of its longest prefix; None if there is neither.

    Print a warning if others are published, because the type may be misspelt.
    """
    fitting = [one for one in known if one.type == name or (one.is_prefix and name.startswith(one.type))]
    if not fitting and known:
        hint = nearest(name, [one.type for one in known])
        click.echo(f"Warning: no worker says that it handles {visible(repr(name) + hint)}", err=True)
    return max(fitting, key=lambda one: (one.type == name and not one.is_prefix, len(one.type)), default=None)


def read_payload(text: str | None, file: str | None, *, raw: bool) -> bytes | None:
    """Return the payload from an argument or a file; None if there is neither.

    Raises:
        click.UsageError: if both are given, or the file is unreadable, or the payload is not JSON. Without
            `raw` it must be JSON.
    """
    if text is not None and file is not None:
        raise click.UsageError("give the payload or --file, not both")
    if file is not None:
        try:
            data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    elif text is not None:
        data = text.encode("utf-8", "surrogateescape")
    else:
        return None
    if not raw:
        try:
            json.loads(data)
        except ValueError as error:
            place = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
            raise click.UsageError(
                f"the payload is not JSON{place}; with --raw it may be any bytes"
            ) from None
    return data


def parse_headers(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse headers of the form `NAME=VALUE`.

    Raises:
        click.UsageError: for a header without a name or without an equals sign.
    """
    headers = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise click.UsageError("write a header as NAME=VALUE")
        headers[name] = value
    return headers
