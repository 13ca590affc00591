"""Records that are printed while a search goes on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click
import pytest

from pyasynq._exit_codes import EXIT_NO_MATCH
from pyasynq._face_records.fields import Field, Kind, View
from pyasynq.cli.output import printer
from pyasynq.cli.output.printer import Printer
from pyasynq.cli.output.record_stream import RecordStream

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = (
    Field("id", Kind.TEXT, "Id.", "ID"),
    Field("type", Kind.TEXT, "Type.", "TYPE", shrinks=True),
)
VIEW = View("example", "id", FIELDS, "Nothing.")
FIRST: list[dict[str, Any]] = [{"id": "a", "type": "mail"}]
SECOND: list[dict[str, Any]] = [{"id": "long-id", "type": "report"}, {"id": "b", "type": "x"}]


def make_stream(printer: Printer, clear: Callable[[], object] = lambda: None) -> RecordStream:
    """Return a stream of example records."""
    return RecordStream(printer, VIEW, clear)


def make_late_stream(printer: Printer, clear: Callable[[], object] = lambda: None) -> RecordStream:
    """Return a stream that prints the first rows of a table as soon as there are any."""
    stream = make_stream(printer, clear)
    stream.begin()
    return stream


def test_rows_are_printed_as_they_come_in_the_columns_of_the_first_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A longer value is shown whole in a pipe, and moves the rest of its line."""
    stream = make_late_stream(Printer())
    stream.add(FIRST)
    assert "ID  TYPE\na   mail\n" == capsys.readouterr().out
    stream.add(SECOND)
    assert "long-id  report\nb   x\n" == capsys.readouterr().out
    stream.end()
    assert ("", "") == capsys.readouterr()


def test_later_texts_get_what_is_free_of_the_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a short first row would cut the texts of all later rows."""
    monkeypatch.setattr(printer, "terminal_width", lambda: 40)
    stream = make_late_stream(Printer())
    stream.add(FIRST)
    stream.add([{"id": "0123456789" * 2, "type": "a type with a long name" * 3}])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert ["a   mail", "01234567890123456789  a type with a lon…"] == rows


def test_the_widest_column_gives_cells_to_narrow_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name of a later row is longer than that of the first."""
    monkeypatch.setattr(printer, "terminal_width", lambda: 40)
    fields = (FIELDS[1], Field("error", Kind.TEXT, "Error.", "ERROR", shrinks=True))
    stream = RecordStream(Printer(), View("example", "type", fields, "Nothing."), lambda: None)
    stream.begin()
    for name in ("mail", "reports-of-all"):
        stream.add([{"type": name, "error": "timeout " * 9}])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert ["mail          timeout timeout timeout t…", "reports-of-…  timeout timeout timeout t…"] == rows


def test_a_wide_terminal_leaves_each_column_room_for_later_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One long name in the first row does not cut the types and errors of all later ones."""
    monkeypatch.setattr(printer, "terminal_width", lambda: 140)
    queue = Field("queue", Kind.TEXT, "Queue.", "QUEUE", shrinks=True)
    fields = (queue, FIELDS[1], Field("error", Kind.TEXT, "Error.", "ERROR", shrinks=True))
    stream = RecordStream(Printer(), View("example", "type", fields, "Nothing."), lambda: None)
    stream.begin()
    stream.add([{"queue": "a-long-name-" * 10, "type": "x", "error": "-"}])
    capsys.readouterr()
    row = {
        "queue": "mail",
        "type": "email.order_confirmation",
        "error": "timeout after 30 s, it is tried again",
    }
    stream.add([row])
    assert list(row.values()) == re.split(r"(?<=\S) {2,}", capsys.readouterr().out.rstrip("\n"))


@pytest.mark.parametrize("output", ["table", "wide", "json"])
def test_what_is_there_early_is_printed_as_one_list(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The columns fit all rows, and JSON is one array."""
    stream = make_stream(Printer(output))
    stream.add(FIRST)
    stream.add(SECOND)
    assert "" == capsys.readouterr().out
    stream.end()
    assert Printer(output).format_records(VIEW, FIRST + SECOND) == capsys.readouterr().out


@pytest.mark.parametrize("output", ["jsonl", "csv", "name"])
def test_programs_get_each_record_at_once(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV has its headings once."""
    stream = make_stream(Printer(output))
    stream.add(FIRST)
    first = capsys.readouterr().out
    assert Printer(output).format_records(VIEW, FIRST) == first
    stream.add(SECOND)
    stream.end()
    assert Printer(output).format_records(VIEW, FIRST + SECOND) == first + capsys.readouterr().out


def test_a_long_search_in_json_is_one_array(capsys: pytest.CaptureFixture[str]) -> None:
    """However late it is."""
    stream = make_late_stream(Printer("json"))
    stream.add(FIRST)
    stream.add(SECOND)
    stream.end()
    assert FIRST + SECOND == json.loads(capsys.readouterr().out)


def test_a_quick_search_goes_through_the_pager_as_any_other_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are shown together at its end, however many there are; `show` chooses the pager."""
    shown: list[str] = []
    monkeypatch.setenv("LINES", "3")
    monkeypatch.setattr(printer, "show", shown.append)
    stream = make_stream(Printer())
    stream.add(FIRST)
    stream.add(SECOND * 9)
    assert [] == shown
    stream.end()
    assert [Printer().format_records(VIEW, FIRST + SECOND * 9)] == shown


def test_kept_rows_are_printed_when_they_are_due_although_no_others_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A search of a large list may find nothing more for seconds."""
    stream = make_stream(Printer())
    stream.add(FIRST)
    assert "" == capsys.readouterr().out
    stream.begin()
    assert "a   mail" in capsys.readouterr().out


def test_the_line_of_progress_is_erased_before_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise both would be in one line on a terminal."""
    stream = make_late_stream(Printer(), lambda: click.echo("<erased>"))
    stream.add(FIRST)
    assert capsys.readouterr().out.startswith("<erased>\nID")


def test_no_records_are_a_sentence_and_with_fail_empty_an_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As for every list."""
    make_stream(Printer()).end()
    assert ("", "Nothing.\n") == capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        make_stream(Printer(fail_empty=True)).end()
    assert EXIT_NO_MATCH == caught.value.code


def test_an_unknown_field_is_an_error_before_the_search() -> None:
    """The user need not wait for it."""
    with pytest.raises(click.UsageError, match="nothing"):
        make_stream(Printer(fields=("nothing",)))
