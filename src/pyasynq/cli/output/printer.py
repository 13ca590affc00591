"""Printing of records in the format that the user asked for: data on stdout, everything else on stderr."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import shutil
import sys
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import EXIT_NO_MATCH
from pyasynq._face_records.fields import json_value
from pyasynq._visible_text import escape_json, visible
from pyasynq.cli.output.cells import Moment, choose_fields, csv_value
from pyasynq.cli.output.table import Look, table_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyasynq._face_records.fields import Field, View

    Describe = Callable[[Mapping[str, Any], "Printer"], str]

FORMATS: Final = ("table", "wide", "json", "jsonl", "csv", "name")
_LEAST_ROOM: Final = 20
"""Minimum width in terminal cells to which text is wrapped, however narrow the terminal is."""


@dataclass(frozen=True, slots=True)
class Printer:
    """Printer of a command's records.

    Attributes:
        format: one of `FORMATS`.
        fields: names of the fields to print; None means the default fields of the format.
        has_header: whether tables and CSV have a line of headings.
        is_utc: whether exact times are in UTC.
        fail_empty: whether the command exits with code 3 if nothing was found.
    """

    format: str = "table"
    fields: tuple[str, ...] | None = None
    has_header: bool = True
    is_utc: bool = False
    fail_empty: bool = False

    @property
    def is_for_people(self) -> bool:
        """Whether people read the output, not programs."""
        return self.format in {"table", "wide"}

    def records(
        self, view: View, records: Sequence[Mapping[str, Any]], describe: Describe | None = None
    ) -> None:
        """Print records. Without records, print a sentence on stderr, unless the format is for programs.

        Raises:
            click.UsageError: for a field that the view does not have.
            SystemExit: with `EXIT_NO_MATCH`, if nothing was found and `fail_empty` is set.
        """
        text = self.format_records(view, records, describe)
        if text:
            show(text)
        if not records:
            if self.is_for_people:
                click.echo(view.empty, err=True)
            if self.fail_empty:
                raise SystemExit(EXIT_NO_MATCH)

    def format_records(
        self, view: View, records: Sequence[Mapping[str, Any]], describe: Describe | None = None
    ) -> str:
        """Format records as `records` prints them, without the sentence for no records."""
        if describe is not None:
            return "\n".join(describe(record, self) for record in records)
        match self.format:
            case "json":
                return _format_json([self._build_object(view, record) for record in records]) + "\n"
            case "jsonl":
                return "".join(
                    _format_json(self._build_object(view, record), indent=None) + "\n" for record in records
                )
            case "csv":
                return self._format_csv(view, records)
            case "name":
                return "".join(f"{visible(record[view.key])}\n" for record in records)
            case _:
                return self._format_table(view, records)

    def _build_object(self, view: View, record: Mapping[str, Any]) -> dict[str, Any]:
        fields = view.fields if self.fields is None else choose_fields(view, self.fields, is_wide=True)
        return {one.name: json_value(one, record[one.name]) for one in fields}

    def _format_csv(self, view: View, records: Sequence[Mapping[str, Any]]) -> str:
        fields = view.fields if self.fields is None else choose_fields(view, self.fields, is_wide=True)
        lines = io.StringIO(newline="")
        writer = csv.writer(lines, lineterminator="\n")
        if self.has_header:
            writer.writerow(one.name for one in fields)
        writer.writerows([csv_value(one, record[one.name]) for one in fields] for record in records)
        return lines.getvalue()

    def _format_table(self, view: View, records: Sequence[Mapping[str, Any]]) -> str:
        fields = self.table_fields(view)
        if not records:
            return ""
        return "".join(line + "\n" for line in table_lines(fields, records, self.moment(), self.look()))

    def table_fields(self, view: View) -> Sequence[Field]:
        """Return the fields of a table. Raise `click.UsageError` for a name that the view does not have."""
        return choose_fields(view, self.fields, is_wide=self.format == "wide")

    def look(self) -> Look:
        """Return the width of this stdout, and the options for headings, colors and columns of a table."""
        return Look(
            width=terminal_width() if self.format == "table" else None,
            has_header=self.has_header,
            has_color=has_color(),
            drops=self.fields is None,
        )

    def moment(self) -> Moment:
        """Return the current time as the reference for ages."""
        return Moment(datetime.now(UTC), is_utc=self.is_utc)

    def style(self, text: str, color: str | None) -> str:
        """Return a text in a color, if stdout shows colors."""
        return click.style(text, fg=color) if color and has_color() else text

    def value(self, content: Any) -> None:
        """Print one JSON value."""
        show(_format_json(content) + "\n")


def _format_json(content: Any, indent: int | None = 2) -> str:
    return escape_json(json.dumps(content, indent=indent, ensure_ascii=False))


def terminal_width() -> int | None:
    """Return the width of the terminal on stdout; None without a terminal, so that programs get all text."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def has_color() -> bool:
    """Return whether stdout is to be colored (https://no-color.org, https://bixense.com/clicolors)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(text: str) -> None:
    """Write text to stdout, through a pager if it is longer than the terminal."""
    lines = text.count("\n")
    if sys.stdout.isatty() and sys.stdin.isatty() and lines >= shutil.get_terminal_size().lines:
        # With None, click tells `less` to pass colors on, and removes them for a pager that cannot show them.
        click.echo_via_pager(text, color=None if has_color() else False)
    else:
        click.echo(text, nl=False, color=has_color())


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the output options; it gets them as `printer`."""

    @click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Format of the output.",
    )
    @click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
    @click.option("--fields", metavar="NAME,...", help="Print these fields, in this order.")
    @click.option("--no-header", is_flag=True, help="Print no line of headings.")
    @click.option("--utc", is_flag=True, help="Print exact times in UTC.")
    @click.option("--fail-empty", is_flag=True, help="Exit with 3 if there is nothing to print.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        output_format: str,
        as_json: bool,
        fields: str | None,
        no_header: bool,
        utc: bool,
        fail_empty: bool,
        **kwargs: Any,
    ) -> Any:
        printer = Printer(
            format="json" if as_json else output_format,
            fields=None
            if fields is None
            else tuple(name.strip() for name in fields.split(",") if name.strip()),
            has_header=not no_header,
            is_utc=utc,
            fail_empty=fail_empty,
        )
        return command(*args, printer=printer, **kwargs)

    return wrapped


def format_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Format labels and values as aligned lines; the caller escapes control characters.

    In a terminal a long value is wrapped, and its lines are aligned.
    """
    listed = list(pairs)
    indent = max((len(label) for label, _ in listed), default=0) + 2
    columns = terminal_width()
    lines = []
    for label, value in listed:
        parts = [value] if columns is None else wrap_text(value, columns - indent)
        lines += [f"{label if at == 0 else '':<{indent}}{part}\n" for at, part in enumerate(parts)]
    return "".join(lines)


def wrap_text(text: str, width: int) -> list[str]:
    """Wrap a text into lines of a width; an id or address is not broken, so that it can be copied."""
    room = max(width, _LEAST_ROOM)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [text]
