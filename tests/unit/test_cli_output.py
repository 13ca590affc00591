"""Records as tables, JSON, CSV and names."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import jsonschema
import pytest

from pyasynq._face_records.fields import Field, Kind, View, json_data
from pyasynq.cli import doctor
from pyasynq.cli.output import printer
from pyasynq.cli.output.cells import Moment, cell, choose_fields, human_bytes
from pyasynq.cli.output.printer import Printer, format_pairs, has_color
from pyasynq.cli.output.table import Look, TableLayout, cells, cut, table_lines, table_rows
from pyasynq.cli.schemas import VIEWS
from pyasynq.cli.stats import describe_redis
from pyasynq.cli.task.look import describe_attempts
from pyasynq.task import AttemptInfo, TaskInfo, TaskState

NOW = datetime(2026, 11, 25, 10, 0, tzinfo=UTC)
MOMENT = Moment(NOW, is_utc=True)
FIELDS = (
    Field("id", Kind.TEXT, "Id.", "ID"),
    Field("type", Kind.TEXT, "Type.", "TYPE", shrinks=True),
    Field("tries", Kind.COUNT, "Tries.", "TRIES"),
)
VIEW = View("example", "id", FIELDS, "Nothing.")
HOSTILE = "\x1b]0;title\x07\u202ename\nline"


def table(records: list[dict[str, Any]], width: int | None = None) -> list[str]:
    """Return the lines of a table."""
    return list(table_lines(FIELDS, records, MOMENT, Look(width)))


def test_a_table_aligns_words_to_the_left_and_numbers_to_the_right() -> None:
    """People read words from the left and compare numbers from the right."""
    records = [{"id": "a", "type": "mail", "tries": 1_204}, {"id": "bcd", "type": "x", "tries": 3}]
    assert ["ID   TYPE  TRIES", "a    mail  1,204", "bcd  x         3"] == table(records)


def test_a_column_that_may_shrink_makes_room_and_an_id_is_never_cut() -> None:
    """The other columns stay whole, also when the line is still too long."""
    records = [{"id": "0123456789" * 3, "type": "a very long type of a task", "tries": 1}]
    wide, narrow = table(records, 60)[1], table(records, 20)[1]
    assert len(wide) <= 60
    assert "a very long type of …" in wide
    assert narrow.startswith("0123456789" * 3 + "  a very …")


def test_a_later_row_with_a_longer_id_still_fits_the_terminal() -> None:
    """Its last column gives the cells: a line that wraps would tear the table apart."""
    fields = (FIELDS[0], FIELDS[2], FIELDS[1])
    look = Look(30)
    first, later = (
        table_rows(fields, [{"id": name, "type": "a very long type of a task", "tries": 1}], MOMENT)
        for name in ("a", "0123456789")
    )
    layout = TableLayout(fields, first, look)
    assert ["a       1  a very long type o…", "0123456789      1  a very lon…"] == [
        layout.row_line(*rows) for rows in (first, later)
    ]


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0)])
def test_wide_characters_take_two_cells_and_combining_ones_none(text: str, width: int) -> None:
    """Columns stay aligned in every script."""
    assert width == cells(text)


def test_a_wide_character_is_not_cut_in_half() -> None:
    """The text is a cell shorter instead."""
    assert "日…" == cut("日本語", 4)


@pytest.mark.parametrize("output", ["table", "wide", "csv", "name", "json", "jsonl"])
def test_no_format_lets_a_foreign_character_move_the_cursor(output: str) -> None:
    """Control characters and bidirectional controls are shown as symbols or escapes."""
    text = Printer(output).format_records(VIEW, [{"id": HOSTILE, "type": HOSTILE, "tries": 1}])
    assert not set("\x1b\x07\u202e") & set(text)
    assert {"table": 2, "wide": 2, "csv": 2, "name": 1, "jsonl": 1}.get(output, 7) == text.count("\n")


def test_json_has_all_fields_and_a_table_those_with_a_heading() -> None:
    """A field without a heading is for programs."""
    view = View("example", "id", (*FIELDS, Field("more", Kind.FLAG, "More.")), "Nothing.")
    record = {"id": "a", "type": "b", "tries": 1, "more": True}
    assert [record] == json.loads(Printer("json").format_records(view, [record]))
    assert "True" not in Printer("wide").format_records(view, [record])


def test_an_empty_list_is_an_empty_list_for_programs_and_a_sentence_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sentence goes to stderr, so that stdout holds data alone."""
    Printer("json").records(VIEW, [])
    Printer("table").records(VIEW, [])
    assert ("[]\n", "Nothing.\n") == capsys.readouterr()


def test_nothing_to_print_may_be_an_exit_code() -> None:
    """An empty output is an exit code of its own with --fail-empty."""
    with pytest.raises(SystemExit) as caught:
        Printer("name", fail_empty=True).records(VIEW, [])
    assert 3 == caught.value.code


def test_a_wrong_field_is_a_usage_error_that_names_the_right_ones() -> None:
    """The most similar name comes first."""
    with pytest.raises(click.UsageError, match="unknown field 'typ'; did you mean 'type'"):
        choose_fields(VIEW, ["typ"], is_wide=False)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"plain", {"text": "plain"}),
        (b"\xff\x00", {"base64": "/wA="}),
        (b"NaN", {"text": "NaN"}),
        (b'{"n": 12345678901234567890}', {"n": 12345678901234567890}),
        (b'{"n": 0.1000000000000000055}', {"n": "0.1000000000000000055"}),
        (b"[" * 100_000, {"text": "[" * 100_000}),
        (None, None),
    ],
)
def test_a_payload_is_shown_as_the_json_it_is_or_as_text_or_as_base64(
    data: bytes | None, expected: Any
) -> None:
    """Numbers that a float would round are kept as text."""
    assert expected == json_data(data)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (3_400_000, "3.4 MB"), (5e12, "5000 GB")],
)
def test_sizes_are_human(size: float, text: str) -> None:
    """In powers of 1,000, as style guides of SI say."""
    assert text == human_bytes(size)


def test_times_are_relative_in_tables_and_exact_in_json() -> None:
    """In a table one asks how long ago; a program needs the time."""
    field = Field("at", Kind.TIME, "When.", "AT")
    assert "3 min ago" == cell(field, NOW - timedelta(minutes=3), MOMENT)
    assert "in 2 h" == cell(field, NOW + timedelta(hours=2, minutes=5), MOMENT)
    assert "22 d ago" == cell(field, NOW - timedelta(days=22, hours=5), MOMENT)
    view = View("times", "at", (field,), "")
    assert [{"at": "2026-11-25T10:00:00Z"}] == json.loads(Printer("json").format_records(view, [{"at": NOW}]))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_each_view_has_a_valid_schema_and_a_key(view: View) -> None:
    """The schemas are shipped with the pages."""
    jsonschema.Draft202012Validator.check_schema(view.schema())
    assert view.key in {field.name for field in view.fields}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, False), ({"CLICOLOR_FORCE": "1"}, True), ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False)],
)
def test_colors_follow_the_conventions(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, expected: bool
) -> None:
    """NO_COLOR wins; what is not a terminal has none unless CLICOLOR_FORCE asks for them."""
    for name in ("NO_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == has_color()


WAYS_TO_FAIL = (
    Field("id", Kind.TEXT, "Id.", "ID"),
    Field("first", Kind.TEXT, "First time.", "FIRST", gives_way=True),
    Field("types", Kind.TEXT, "Types.", "TYPES", shrinks=True, gives_way=True),
    Field("error", Kind.TEXT, "Error.", "ERROR", shrinks=True),
)
FAILURE = {"id": "1f0c9a2b", "first": "an hour ago", "types": "mail, " * 6, "error": "no such user " * 3}


@pytest.mark.parametrize(
    ("width", "columns"),
    [(100, "ID FIRST TYPES ERROR"), (50, "ID FIRST ERROR"), (40, "ID ERROR"), (10, "ID ERROR")],
)
def test_columns_give_way_before_others_are_cut_too_short_to_be_read(width: int, columns: str) -> None:
    """From the right; what is left has 20 cells or more, if the terminal has them."""
    [head, row] = table_lines(WAYS_TO_FAIL, [FAILURE], MOMENT, Look(width, drops=True))
    assert columns.split() == head.split()
    assert len(row) <= max(width, 18)


def test_columns_that_were_asked_for_do_not_give_way() -> None:
    """`--fields` names them."""
    assert "FIRST" in next(table_lines(WAYS_TO_FAIL, [FAILURE], MOMENT, Look(20)))


def test_what_a_dropped_column_leaves_is_used_by_the_others() -> None:
    """Otherwise they would be cut although the line has room."""
    fields = (
        Field("id", Kind.TEXT, "Id.", "ID"),
        Field("type", Kind.TEXT, "Type.", "TYPE", shrinks=True),
        Field("error", Kind.TEXT, "Error.", "ERROR", shrinks=True),
    )
    record = {"id": "0123456789" * 3, "type": "email:deliver", "error": "timeout " * 9}
    [_, row] = table_lines(fields, [record], MOMENT, Look(48, drops=True))
    assert f"{record['id']}  email:deliver" == row


def test_few_long_texts_are_cut_before_those_of_other_columns() -> None:
    """One long name of a queue does not cost the errors of all tasks."""
    fields = (
        Field("queue", Kind.TEXT, "Queue.", "QUEUE", shrinks=True),
        Field("error", Kind.TEXT, "Error.", "ERROR", shrinks=True),
    )
    error = "the provider answered 503 Service Unavailable"
    names = ["a-queue-with-a-name-that-is-longer-than-all-the-others", *["mail"] * 9]
    lines = list(table_lines(fields, [{"queue": name, "error": error} for name in names], MOMENT, Look(70)))
    assert all(line.endswith(f"  {error}") for line in lines[1:])
    assert lines[1].startswith("a-queue-with-a-name-th…  ")


@pytest.mark.parametrize(
    ("days", "seconds", "text"),
    [("0", "7200", "up 2 h,"), ("1", "90000", "up 1 day,"), ("0", "", "up 0 days,")],
)
def test_the_first_day_of_a_server_is_told_in_hours(days: str, seconds: str, text: str) -> None:
    """`up 0 days` would hide that it has just been started."""
    facts = {"redis_version": "7.0", "uptime_in_days": days, "uptime_in_seconds": seconds}
    assert text in describe_redis(facts)


def test_findings_of_the_doctor_are_wrapped_with_their_indent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal would break words, and begin the next line at its edge; a pipe gets one line."""
    doctor._echo_indented("Lists are very long, or the machine is too slow.")
    assert "    Lists are very long, or the machine is too slow.\n" == capsys.readouterr().out
    monkeypatch.setattr(doctor, "terminal_width", lambda: 30)
    doctor._echo_indented("Lists are very long, or the machine is too slow.")
    expected = "    Lists are very long, or\n    the machine is too slow.\n"
    assert expected == capsys.readouterr().out


def test_attempts_are_aligned_and_wrapped_next_to_their_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal would break words, and begin the next line at its edge."""
    zero = timedelta(0)
    crash = AttemptInfo(None, NOW - timedelta(minutes=32, seconds=50), "server", "crashed", "")
    failure = AttemptInfo(NOW, NOW - timedelta(seconds=9), "server", "retried", "404 from the parcel API")
    info = TaskInfo("a", "mail", "send", b"", TaskState.RETRY, 25, 2, None, None, None, zero)
    monkeypatch.setattr(printer, "terminal_width", lambda: 46)
    assert (
        "Attempts\n"
        "  32 min 50 s ago  crashed\n"
        "          9 s ago  retried: 404 from the\n"
        "                   parcel API\n"
    ) == describe_attempts(replace(info, attempts=(crash, failure)), MOMENT)


def test_a_column_says_how_wide_it_must_be_to_be_read() -> None:
    """Errors that differ at their ends need more cells than names."""
    fields = (
        Field("first", Kind.TEXT, "First time.", "FIRST", gives_way=True),
        Field("error", Kind.TEXT, "Error.", "ERROR", shrinks=True, readable=30),
    )
    record = {"first": "an hour ago", "error": "no such user " * 3}
    assert [["FIRST", "ERROR"], ["ERROR"]] == [
        next(table_lines(fields, [record], MOMENT, Look(width, drops=True))).split() for width in (43, 42)
    ]


def test_a_long_value_goes_on_below_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids stay whole, and a pipe gets each value in one line."""
    pairs = [("Tasks", "12 pending, 3 active, 400 archived"), ("Id", "0123456789" * 4)]
    assert 2 == format_pairs(pairs).count("\n")
    monkeypatch.setattr("pyasynq.cli.output.printer.terminal_width", lambda: 30)
    assert [
        "Tasks  12 pending, 3 active,",
        "       400 archived",
        "Id     " + "0123456789" * 4,
    ] == format_pairs(pairs).splitlines()
