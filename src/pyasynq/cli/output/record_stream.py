"""Printing of records while they are still being found."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pyasynq.cli.output.printer import has_color
from pyasynq.cli.output.stream_pager import StreamPager, find_pager
from pyasynq.cli.output.table import TableLayout, table_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyasynq._face_records.fields import View
    from pyasynq.cli.output.printer import Printer

    Record = Mapping[str, Any]


class RecordStream:
    """Prints records as they are found; a JSON array is printed at the end.

    The rows of a table are buffered until `begin`, and determine the column widths. If all records are found
    before `begin`, they are printed as `Printer.records` does, through a pager if they are longer than the
    terminal. Later rows are printed at once; on a terminal, through a pager that shows each row immediately.

    Args:
        printer: prints the records.
        view: fields of the records.
        clear: erases the status on the terminal's last line; called before each output.
        on_left: called if the user leaves the pager before `close`.
    """

    def __init__(
        self,
        printer: Printer,
        view: View,
        clear: Callable[[], object],
        on_left: Callable[[], object] = lambda: None,
    ) -> None:
        self._printer = printer
        self._view = view
        self._clear = clear
        self._on_left = on_left
        self._pager_command = find_pager()
        self._pager: StreamPager | None = None
        self._held: list[Record] = []
        self._layout: TableLayout | None = None
        self._is_begun = False
        self._is_late = False
        """Whether table rows are no longer buffered; written by `begin`."""
        # A field that the view does not have is an error before the search, not after it.
        self._fields = printer.table_fields(view)

    @property
    def is_empty(self) -> bool:
        """Whether no record was added yet."""
        return not self._is_begun and not self._held

    @property
    def is_paged(self) -> bool:
        """Whether a pager controls the terminal, so that nothing else should be written to it."""
        return self._pager is not None

    @property
    def is_left(self) -> bool:
        """Whether the user has left the pager, so that no more records are needed."""
        return self._pager is not None and self._pager.is_left

    def begin(self) -> None:
        """Print the buffered records, and later records at once; a JSON array is printed at the end."""
        self._is_late = True
        self.add(())

    def add(self, records: Sequence[Record]) -> None:
        """Print records, or buffer them until `begin`; without records, print the buffered ones if due."""
        self._held += records
        if self._held and self._is_due():
            self._print()

    def end(self) -> None:
        """Print the remaining records. Raise `SystemExit` if there were none and `fail_empty` is set."""
        if not self._is_begun:
            self._clear()
            self._printer.records(self._view, self._held)
        elif self._held:
            self._print()

    def close(self) -> None:
        """Wait until the user leaves the pager, if there is one."""
        if self._pager is not None:
            self._pager.close()

    def _is_due(self) -> bool:
        if self._printer.format == "json":
            return False
        return self._is_late or not (self._printer.is_for_people or self._pager_command)

    def _print(self) -> None:
        held, self._held = self._held, []
        if self._printer.is_for_people:
            text = self._format_rows(held)
        else:
            printer = replace(self._printer, has_header=False) if self._is_begun else self._printer
            text = printer.format_records(self._view, held)
        self._clear()
        if self._pager_command and not self._is_begun:
            self._pager = StreamPager(self._pager_command, self._on_left)
        self._is_begun = True
        if self._pager is not None:
            self._pager.write(text)
            return
        click.echo(text, nl=False, color=has_color())
        sys.stdout.flush()

    def _format_rows(self, records: Sequence[Record]) -> str:
        rows = table_rows(self._fields, records, self._printer.moment())
        lines = []
        if self._layout is None:
            self._layout = TableLayout(self._fields, rows, self._printer.look())
            self._layout.leave_room()
            lines += [self._layout.heading_line()] if self._printer.has_header else []
        lines += map(self._layout.row_line, rows)
        return "".join(f"{line}\n" for line in lines)
