"""Log formats of the command line: lines for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import click

import pyasynq
from pyasynq._human_text import shorten_middle
from pyasynq._visible_text import escape_json, visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

LogFormat = Literal["text", "json"]

TASK_FIELDS: Final = ("task_id", "task_type", "queue", "attempt")
_STANDARD_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_COLOURS: Final = {
    logging.DEBUG: "bright_black",
    logging.INFO: "green",
    logging.WARNING: "yellow",
    logging.ERROR: "red",
    logging.CRITICAL: "bright_red",
}
_LEVEL_WIDTH: Final = 7
_PACKAGE: Final = str(Path(pyasynq.__file__).parent) + os.sep
_SHORT_ID: Final = 8
_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_IN_LINE: Final = re.compile(rf"\btask ({_UUID.pattern})\b")
_INDENT: Final = "    "
"""Indent of each further line of a record, so that text in a message cannot look like another record."""
_OWN_LOGGERS: Final = ("pyasynq", "pyasynq.outcomes")


class TextFormatter(logging.Formatter):
    """Formatter of log lines for people: short and wrapped on a terminal, complete elsewhere.

    Args:
        terminal: whether the output is a terminal.
        colour: whether the level is coloured.
        width: columns of the terminal.
        process: name of this process, such as `worker 2`; empty for a single process.
    """

    def __init__(self, *, terminal: bool, colour: bool, width: int = 80, process: str = "") -> None:
        super().__init__()
        self._terminal = terminal
        self._colour = colour
        self._width = width
        self._process = _process_text(process, terminal=terminal)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one or more lines."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        time = moment.strftime("%H:%M:%S") if self._terminal else moment.isoformat(timespec="milliseconds")
        head = f"{time} {record.levelname:<{_LEVEL_WIDTH}} "
        message = f"{self._process}{self._about_task(record)}{self._message(record)}"
        lines = [visible(line) for line in message.split("\n")]
        if self._terminal:
            lines = list(self._wrap_lines(lines, len(head)))
        indent = " " * len(head) if self._terminal else _INDENT
        text = head + f"\n{indent}".join(lines)
        if self._colour:
            level = click.style(f"{record.levelname:<{_LEVEL_WIDTH}}", fg=_COLOURS.get(record.levelno))
            text = text.replace(f"{record.levelname:<{_LEVEL_WIDTH}}", level, 1)
        if trace := _traceback(self, record):
            text = f"{text}\n{textwrap.indent(visible_lines(trace), _INDENT)}"
        return text

    def _message(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if self._terminal and record.name in _OWN_LOGGERS:
            return _ID_IN_LINE.sub(_shorten_id, message)
        return message

    def _about_task(self, record: logging.LogRecord) -> str:
        # Messages of pyasynq's own loggers name the task already.
        if record.name in _OWN_LOGGERS or not getattr(record, "task_id", ""):
            return ""
        fields = {name: visible(record.__dict__.get(name, "")) for name in TASK_FIELDS}
        task_id = _cut_id(fields["task_id"]) if self._terminal else fields["task_id"]
        return f"[{fields['task_type']} {task_id} {fields['queue']} attempt {fields['attempt']}] "

    def _wrap_lines(self, lines: Iterable[str], indent: int) -> Iterable[str]:
        for line in lines:
            if line.startswith(" "):  # already laid out, such as a stack trace
                yield line
                continue
            yield from textwrap.wrap(
                line,
                max(self._width - indent, _LEVEL_WIDTH),
                break_long_words=False,
                break_on_hyphens=False,
            ) or [""]


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object a line: time, level, logger, message, task fields, and extra fields.

    Args:
        process: name of this process, such as `worker 2`; empty for a single process.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process: dict[str, object] = {"process": process, "pid": os.getpid()} if process else {}

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
        }
        if getattr(record, "task_id", ""):
            fields |= {name: record.__dict__[name] for name in TASK_FIELDS if name in record.__dict__}
        for name, value in record.__dict__.items():
            if name not in _STANDARD_FIELDS and name not in TASK_FIELDS:
                fields.setdefault(name, value)
        if trace := _traceback(self, record):
            fields["exception"] = trace
        return escape_json(json.dumps(fields, ensure_ascii=False, default=str))


def _process_text(process: str, *, terminal: bool) -> str:
    if not process:
        return ""
    return f"[{process}] " if terminal else f"[{process}, pid {os.getpid()}] "


def _shorten_id(match: re.Match[str]) -> str:
    return f"task {_cut_id(match[1])}"


def _cut_id(task_id: str) -> str:
    """Return the first characters of a generated task id; an id chosen by the user stays unchanged."""
    return task_id[:_SHORT_ID] if _UUID.fullmatch(task_id) else task_id


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        return shorten_middle(formatter.formatException(_drop_own_frames(record)))
    # Records of outcomes have a formatted traceback; records from a child process have only that.
    return shorten_middle(record.exc_text or "")


def _drop_own_frames(record: logging.LogRecord) -> Any:
    """Return the `exc_info` of a log record; for a task's record, without pyasynq's own first frames."""
    if not record.exc_info or not getattr(record, "task_id", ""):
        return record.exc_info
    kind, error, trace = record.exc_info
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    return kind, error, first or trace


def install_handler(
    level: str, log_format: LogFormat, stream: TextIO | None = None, *, process: str = ""
) -> None:
    """Add a handler to the root logger that writes records from this level on to a stream, by default stderr.

    The loggers of asyncio and watchfiles write only warnings and errors.

    Levels are coloured only on a terminal, and not with NO_COLOR in the environment.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_choose_formatter(log_format, stream, process))
    handler.addFilter(pyasynq.TaskFieldsFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for noisy in ("asyncio", "watchfiles"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _choose_formatter(log_format: LogFormat, stream: TextIO, process: str) -> logging.Formatter:
    if log_format == "json":
        return JsonFormatter(process)
    terminal = stream.isatty()
    return TextFormatter(
        terminal=terminal,
        colour=terminal and not os.environ.get("NO_COLOR"),
        width=shutil.get_terminal_size().columns,
        process=process,
    )
