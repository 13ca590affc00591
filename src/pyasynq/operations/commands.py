"""Commands of hosted task types: reports of the instances of the task service, and the merged view."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.operating.instance_reports import COMMAND_REPORTS, write_reports
from pyasynq.errors import CommandStateError, ReportNotFoundError

from .report_values import check_kind, from_base64, read_report_time, to_float
from .shown import HIDDEN, cut_down

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from pyasynq.operations.operator import Operator

    from .shown import Shown

REPORTED_OUTPUT: Final = 3_000
"""Maximum number of bytes in a report that are from the end of each output stream."""
COMMAND_STATES: Final = ("running", "done", "retried", "archived", "snoozed", "stopped", "lost")
"""States of a command; `lost` means that its instance stopped reporting before the command ended."""
_LOST_SECONDS: Final = 150
"""Age of a report, in seconds, from which a running command counts as lost; reports come once a minute."""
_MOST_TEXT: Final = 150
_MOST_ID: Final = 300
_TEXTS: Final = ("id", "queue", "program", "host", "end", "reason")


@dataclass(frozen=True, slots=True)
class HostedCommand:
    """A command that an instance of the task service runs, or has run within 10 minutes.

    Attributes:
        id: id of the run.
        queue: name of the task's queue, which is also its task type.
        task_id: the task's id.
        attempt: number of the attempt.
        program: path of the program.
        host: name of the machine.
        state: one of `COMMAND_STATES`.
        started: time at which the command was started.
        ended: time at which the command ended; None while it runs.
        end: the way in which the command ended, such as `exit code 3`; empty while it runs.
        reason: error of the attempt; empty if the attempt has not failed.
        cpu: CPU time of all its processes, in seconds; None until it has ended.
        memory: largest resident set of one of its processes, in bytes; None until it has ended.
        out: the last part of its standard output.
        out_bytes: size of its whole standard output, in bytes.
        err: the last part of its standard error.
        err_bytes: size of its whole standard error, in bytes.
    """

    id: str
    queue: str
    task_id: str
    attempt: int
    program: str
    host: str
    state: str
    started: datetime
    ended: datetime | None = None
    end: str = ""
    reason: str = ""
    cpu: float | None = None
    memory: int | None = None
    out: bytes = b""
    out_bytes: int = 0
    err: bytes = b""
    err_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CommandReport:
    """State of a command, and its slot in the reports of an instance.

    Attributes:
        place: index of the slot; a later command may reuse it.
        command: state of the command.
    """

    place: int
    command: HostedCommand


def encode_command(command: HostedCommand) -> bytes:
    """Return the report on a command as JSON of at most 16,000 bytes."""
    content = {
        "id": command.id,
        "queue": command.queue,
        "task": command.task_id[:_MOST_ID],
        "attempt": command.attempt,
        "program": command.program[:_MOST_TEXT],
        "host": command.host[:_MOST_TEXT],
        "state": command.state,
        "started": round(command.started.timestamp(), 3),
        "ended": None if command.ended is None else round(command.ended.timestamp(), 3),
        "end": command.end[:_MOST_TEXT],
        "reason": command.reason[:_MOST_TEXT],
        "cpu": command.cpu,
        "memory": command.memory,
        "out": base64.b64encode(command.out[-REPORTED_OUTPUT:]).decode(),
        "out_bytes": command.out_bytes,
        "err": base64.b64encode(command.err[-REPORTED_OUTPUT:]).decode(),
        "err_bytes": command.err_bytes,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_command(data: bytes) -> HostedCommand | None:
    """Decode a report from its JSON; return None for anything else."""
    try:
        content = json.loads(data)
        texts = {name: check_kind(content[name], str) for name in _TEXTS}
        return HostedCommand(
            task_id=check_kind(content["task"], str),
            attempt=check_kind(content["attempt"], int),
            state=_check_state(content["state"]),
            started=read_report_time(content["started"]),
            ended=None if content["ended"] is None else read_report_time(content["ended"]),
            cpu=None if content["cpu"] is None else to_float(content["cpu"]),
            memory=None if content["memory"] is None else check_kind(content["memory"], int),
            out=from_base64(content["out"]),
            out_bytes=check_kind(content["out_bytes"], int),
            err=from_base64(content["err"]),
            err_bytes=check_kind(content["err_bytes"], int),
            **texts,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def list_commands(reports: Iterable[tuple[int, HostedCommand]], now: float) -> list[HostedCommand]:
    """Return running commands, then ended ones; both are sorted by their start, the newest first.

    Args:
        reports: commands, each with the Unix second at which it was reported.
        now: the present, in Unix seconds.
    """
    commands = [
        replace(one, state="lost") if one.state == "running" and at < now - _LOST_SECONDS else one
        for at, one in reports
    ]
    commands.sort(key=lambda one: (one.started, one.id), reverse=True)
    return sorted(commands, key=lambda one: one.state != "running")


def find_command(commands: Iterable[HostedCommand], command_id: str) -> HostedCommand:
    """Return the command with this id.

    Raises:
        ReportNotFoundError: no command has this id.
    """
    for one in commands:
        if one.id == command_id:
            return one
    raise ReportNotFoundError("command", command_id)


def require_running(command: HostedCommand) -> None:
    """Check that a command still runs, before it is killed. The task of an ended one may run again.

    Raises:
        CommandStateError: the command does not run.
    """
    if command.state != "running":
        raise CommandStateError(command.id, command.state)


def _check_state(value: Any) -> str:
    if value not in COMMAND_STATES:
        raise ValueError
    return str(value)


async def report_commands(operator: Operator, instance: str, reports: Sequence[CommandReport]) -> int:
    """Store the state of an instance's commands, for 10 minutes.

    This is not a verb of an operator: the service calls it every few seconds, without an audit entry.

    Args:
        operator: operator with which the instance reaches Redis.
        instance: id of the instance; its next report with the same `place` replaces this one.
        reports: state of each command that has changed.

    Returns:
        The number of reports that were not stored, because the table of reports in Redis is full.
    """
    named = [(f"{report.place}.{instance}", encode_command(report.command)) for report in reports]
    inspector = operator._inspector  # noqa: SLF001 - of this package
    return await inspector.run(write_reports(COMMAND_REPORTS, named, inspector.redis_now()))


@cut_down.register(HostedCommand)
def _cut_command(command: HostedCommand, shown: Shown) -> Any:
    queue = command.queue
    if not shown.sees(queue):
        return HIDDEN
    return replace(
        command,
        reason=shown.error(queue, queue, command.reason),
        out=shown.payload(queue, queue, command.out),
        err=shown.payload(queue, queue, command.err),
    )
