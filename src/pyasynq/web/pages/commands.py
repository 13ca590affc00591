"""Pages of the commands that the task service runs for tasks: state, resources, and live output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._human_text import bytes_text, counted
from pyasynq._visible_text import visible, visible_lines
from pyasynq.operations import Withheld
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter
from pyasynq.web.pages.task_types import read_type_links
from pyasynq.web.problems import NextStep, Trouble, trouble_page
from pyasynq.web.shown_task import short_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq.operations import HostedCommand
    from pyasynq.web.page import PageRequest

COMMANDS_SECTION: Final = "commands"
_SECONDS: Final = 1.0


class CommandLook(NamedTuple):
    """Appearance of a command's state: word, symbol and color tone."""

    word: str
    symbol: str
    tone: str


_LOOKS: Final = {
    "running": CommandLook("Running", "active", "busy"),
    "done": CommandLook("Done", "completed", ""),
    "retried": CommandLook("Failed, retried", "retry", "warn"),
    "archived": CommandLook("Failed, archived", "archived", "bad"),
    "snoozed": CommandLook("Put off", "scheduled", ""),
    "stopped": CommandLook("Stopped", "paused", ""),
    "lost": CommandLook("Lost", "lost", "bad"),
}
_UNKNOWN: Final = CommandLook("Unknown", "info", "")


@dataclass(frozen=True, slots=True)
class CommandRow:
    """View model of a command in the list."""

    key: str
    task: str
    href: str
    type: str
    type_href: str
    look: CommandLook
    end: str
    ran: str
    """Duration; for a running command, the time from its start until the page was rendered."""
    cpu: str
    memory: str
    output: str
    host: str
    started: datetime


@dataclass(frozen=True, slots=True)
class CommandsView:
    """View model of the list of commands."""

    total: int
    summary: str
    filter: str
    pages: Pagination[CommandRow]


@dataclass(frozen=True, slots=True)
class CommandView:
    """View model of a command's page."""

    row: CommandRow
    is_running: bool
    task_href: str
    kill_href: str
    """Address of the form that cancels the task; empty if it does not run, or without the permission."""
    reason: str
    facts: tuple[tuple[str, str], ...]
    ended: datetime | None
    out: str
    out_note: str
    err: str
    err_note: str


async def commands_page(ask: PageRequest) -> Page:
    """Return the page `/commands`."""
    commands = await read_commands(ask)
    running = sum(one.state == "running" for one in commands)
    ask.target.note_count(ask.user, COMMANDS_SECTION, formats.number(running) if running else "")
    text = read_filter(ask)
    link_type = await read_type_links(ask)
    rows = [build_command_row(ask, one, link_type(one.queue)) for one in commands]
    found = [
        row
        for row in rows
        if text.lower() in f"{row.task} {row.type} {row.look.word} {row.end} {row.host}".lower()
    ]
    view = CommandsView(
        total=len(rows),
        summary=_summarize(commands, running),
        filter=text,
        pages=paginate(ask, found, counted(len(found), "command")),
    )
    title = f"({running:,}) Commands" if running else "Commands"
    return Page("commands.html", title, COMMANDS_SECTION, view, is_live=True)


async def command_page(ask: PageRequest) -> Page:
    """Return the page `/commands/{command}`."""
    name = ask.name("command")
    found = [one for one in await read_commands(ask) if one.id == name]
    if not found:
        steps = (NextStep("Show all commands", ask.links.to(COMMANDS_SECTION)),)
        sentence = "It ended long ago, or many others have ended since. Its task has the outcome."
        return trouble_page(404, Trouble("This command is not known any more", sentence, steps))
    [command] = found
    row = build_command_row(ask, command, (await read_type_links(ask))(command.queue))
    is_running = command.state == "running"
    may_kill = is_running and ask.may("cancel_task", command.queue)
    task = ("queues", command.queue, "tasks", command.task_id)
    view = CommandView(
        row,
        is_running,
        ask.links.to(*task),
        ask.links.to(*task, "cancel_task") if may_kill else "",
        visible(command.reason),
        facts=(
            ("Program", visible(command.program)),
            ("Machine", row.host),
            ("Attempt", str(command.attempt)),
            ("Ran", row.ran),
            ("CPU", row.cpu),
            ("Memory", row.memory),
        ),
        ended=command.ended,
        out=_show_output(command.out),
        out_note=_note_output(command.out, command.out_bytes, is_running=is_running),
        err=_show_output(command.err),
        err_note=_note_output(command.err, command.err_bytes, is_running=is_running),
    )
    title = f"{row.task}: {row.look.word.lower()}"
    return Page("command.html", title, COMMANDS_SECTION, view, is_live=True)


async def read_commands(ask: PageRequest) -> Sequence[HostedCommand]:
    """Return the commands that run or ended within 10 minutes; cached for a second."""
    return await ask.target.recent(ask.user, "commands", ask.operator.commands, _SECONDS)


def build_command_row(ask: PageRequest, command: HostedCommand, type_href: str) -> CommandRow:
    """Return the row of a command; `type_href` is the address of its type, or empty."""
    return CommandRow(
        key=command.id,
        task=short_id(command.task_id),
        href=ask.links.to(COMMANDS_SECTION, command.id),
        type=visible(command.queue),
        type_href=type_href,
        look=_LOOKS.get(command.state, _UNKNOWN),
        end=visible(command.end),
        ran=formats.span(max(0.0, ((command.ended or ask.now) - command.started).total_seconds())),
        cpu=formats.span(command.cpu),
        memory=formats.size(command.memory),
        output=bytes_text(command.out_bytes + command.err_bytes),
        host=visible(command.host),
        started=command.started,
    )


def _show_output(data: bytes) -> str:
    return visible_lines(data.decode("utf-8", "replace"))


def _note_output(data: bytes, total: int, *, is_running: bool) -> str:
    """Return a note on how much of a command's output stream is shown."""
    if not total:
        return "nothing so far" if is_running else "nothing"
    if len(data) < total and not isinstance(data, Withheld):
        return f"the last {bytes_text(len(data))} of {bytes_text(total)}"
    return bytes_text(total)


def _summarize(commands: Sequence[HostedCommand], running: int) -> str:
    words = f"{counted(running, 'command')} running; {len(commands) - running:,} ended within 10 minutes"
    failed = sum(one.state in {"retried", "archived", "lost"} for one in commands)
    return words + (f", {failed:,} of them failed" if failed else "")
