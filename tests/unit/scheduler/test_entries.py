"""Ids of entries, and the texts of their options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pyasynq._scheduler.entry import entry_id, free_id, make_entry, option_texts
from pyasynq._wire.options_text import Option, parse_option
from pyasynq.callbacks import Callback
from pyasynq.errors import InvalidOptionError
from pyasynq.options import OPTION_NAMES
from pyasynq.task import Task

SPEC = "*/5 * * * *"
MOMENT = datetime(2026, 3, 4, 12, tzinfo=UTC)


def test_h18_an_id_is_the_same_in_every_process() -> None:
    """So history and last tick survive a restart, and all schedulers mean the same entry."""
    task = Task("report", b"{}", queue="low", max_retry=3)
    assert "d836433a0a6b25cf833dbe165bb9807c" == entry_id(SPEC, task, 0)
    assert entry_id(SPEC, task, 0) == entry_id(SPEC, Task("report", b"{}", max_retry=3, queue="low"), 0)


@pytest.mark.parametrize(
    ("spec", "task", "number"),
    [
        ("* * * * *", Task("report", b"{}", queue="low"), 0),
        (SPEC, Task("reports", b"{}", queue="low"), 0),
        (SPEC, Task("report", b"{ }", queue="low"), 0),
        (SPEC, Task("report", b"{}", queue="high"), 0),
        (SPEC, Task("report", b"{}", queue="low", headers={"a": "b"}), 0),
        (SPEC, Task("report", b"{}", queue="low"), 1),
        (SPEC + "r", Task("eport", b"{}", queue="low"), 0),
    ],
)
def test_h18_whatever_is_enqueued_otherwise_has_another_id(spec: str, task: Task, number: int) -> None:
    """Expression, type, payload, options, headers among them, and the number among equals."""
    assert entry_id(SPEC, Task("report", b"{}", queue="low"), 0) != entry_id(spec, task, number)


BERLIN, TOKYO = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")


def test_an_id_holds_the_zone_that_the_expression_goes_by() -> None:
    """Otherwise schedulers in two zones would share the ticks of nine o'clock here and there. (D60)"""
    task = Task("report")
    ids = [entry_id("0 9 * * *", task, 0, zone) for zone in (UTC, BERLIN, TOKYO)]
    assert 3 == len(set(ids))
    assert ids[1] == entry_id("0 9 * * *", task, 0, ZoneInfo("Europe/Berlin"))
    assert entry_id("CRON_TZ=Local 0 9 * * *", task, 0) != entry_id("CRON_TZ=Local 0 9 * * *", task, 0, TOKYO)


@pytest.mark.parametrize("spec", ["@every 1h", "CRON_TZ=Europe/Berlin 0 9 * * *", "TZ=UTC @daily"])
def test_a_zone_that_makes_no_difference_is_not_in_the_id(spec: str) -> None:
    """So the schedulers of all zones mean the same entry. (D60)"""
    assert entry_id(spec, Task("t"), 0) == entry_id(spec, Task("t"), 0, TOKYO)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(0)), ZoneInfo("UTC")])
def test_utc_under_any_name_leaves_the_id_as_it_was(zone: tzinfo) -> None:
    """It is the zone that schedulers have unless told otherwise. (D60)"""
    assert "d836433a0a6b25cf833dbe165bb9807c" == entry_id(
        SPEC, Task("report", b"{}", queue="low", max_retry=3), 0, zone
    )


class Nameless(tzinfo):
    """A zone of a library that gives zones no names, and whose text changes with each process."""

    def __init__(self, hours: int) -> None:
        self._offset = timedelta(hours=hours)

    def utcoffset(self, when: datetime | None) -> timedelta:
        return self._offset

    def tzname(self, when: datetime | None) -> str:
        return ""

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)


def test_a_zone_without_a_name_is_known_by_its_offsets() -> None:
    """An address in memory would be another one after each restart. (D60)"""
    one, same, other = (entry_id(SPEC, Task("t"), 0, Nameless(hours)) for hours in (2, 2, 3))
    assert one == same
    assert one != other


def test_w28_no_payload_and_an_empty_one_are_two() -> None:
    """Their entry ids differ, as their uniqueness locks do."""
    assert entry_id(SPEC, Task("t"), 0) != entry_id(SPEC, Task("t", b""), 0)


def test_h18_equal_entries_are_numbered() -> None:
    """The first number that is free."""
    task = Task("t")
    first = free_id(SPEC, task, [])
    second = free_id(SPEC, task, [first])
    assert [entry_id(SPEC, task, 0), entry_id(SPEC, task, 1)] == [first, second]
    assert first == free_id(SPEC, task, [second])


ALL_OPTIONS: dict[str, tuple[Any, list[str]]] = {
    "max_retry": (3, ["MaxRetry(3)"]),
    "queue": ("low", ['Queue("low")']),
    "task_id": ("one)", [r'TaskID("one\x29")']),
    "timeout": (90, ["Timeout(1m30s)"]),
    "deadline": (MOMENT, ["Deadline(Wed Mar  4 12:00:00 UTC 2026)"]),
    "unique": (3600, ["Unique(1h0m0s)"]),
    "process_at": (MOMENT, ["ProcessAt(Wed Mar  4 12:00:00 UTC 2026)"]),
    "process_in": (1.5, ["ProcessIn(1.5s)"]),
    "retention": (86_400, ["Retention(24h0m0s)"]),
    "group": ("g", ['Group("g")']),
    "headers": ({"k": "v", "a": "b"}, ['Header(["k","v"])', 'Header(["a","b"])']),
}


@pytest.mark.parametrize("name", ALL_OPTIONS)
def test_w28_every_option_has_a_text_that_can_be_read_back(name: str) -> None:
    """Asynq drops id and group when it reads; ours does not."""
    value, texts = ALL_OPTIONS[name]
    assert texts == list(option_texts({name: value}))
    assert all(isinstance(parse_option(text), Option) for text in texts)


OWN_OPTIONS: dict[str, Any] = {
    "until": "start",
    "unique_key": "k",
    "on_duplicate": "ignore",
    "on_conflict": "replace_finished",
    "once_for": 60,
    "on_finished": Callback("ready"),
}


def test_every_option_is_in_that_table() -> None:
    """A new one is given its text there, unless Asynq knows of no such thing."""
    assert OPTION_NAMES == ALL_OPTIONS.keys() | OWN_OPTIONS.keys() | {"durable", "front"}


def test_a_task_that_no_replica_is_to_have_is_the_entry_it_was() -> None:
    """`durable=False` is how a task that is declared durable is scheduled."""
    assert entry_id(SPEC, Task("t"), 0) == entry_id(SPEC, Task("t", durable=False), 0)


@pytest.mark.parametrize("name", OWN_OPTIONS)
def test_an_option_that_asynq_does_not_know_has_no_text_and_tells_entries_apart(name: str) -> None:
    """Readers in Go would not know what to make of it."""
    options: dict[str, Any] = {"unique": 60, "task_id": "one"}
    other: dict[str, Any] = options | {name: OWN_OPTIONS[name]}
    assert list(option_texts(options)) == list(option_texts(other))
    assert entry_id(SPEC, Task("t", **options), 0) != entry_id(SPEC, Task("t", **other), 0)


def test_options_that_mean_nothing_together_make_no_entry() -> None:
    """At once, and not at the first tick."""
    with pytest.raises(InvalidOptionError, match="needs unique="):
        make_entry("e", SPEC, Task("t", until="start"), "skip", UTC)


def test_w24_parts_of_a_second_are_rounded_as_they_are_in_the_message() -> None:
    """The displayed entry is the one that runs."""
    assert ["Timeout(1s)", "Retention(1s)"] == list(option_texts({"timeout": 0.2, "retention": 0.5}))


def test_a_tick_has_a_task_id_of_its_own() -> None:
    """By which one sees what tick a task belongs to, unless the options name an id."""
    entry = make_entry("e", SPEC, Task("t", b"p", queue="low"), "skip", UTC)
    task = entry.build_tick_task(MOMENT)
    assert ("t", b"p", {"queue": "low", "task_id": "e:1772625600"}) == (task.type, task.payload, task.options)
    fixed = make_entry("e", SPEC, Task("t", task_id="mine"), "skip", UTC)
    assert "mine" == fixed.build_tick_task(MOMENT).options["task_id"]


def test_an_entry_is_shown_with_all_its_options() -> None:
    """The options of the task are among them."""
    entry = make_entry("e", SPEC, Task("t", queue="low", timeout=60), "skip", UTC)
    record = entry.record()
    assert ('Queue("low")', "Timeout(1m0s)") == record.enqueue_options
    assert ("e", SPEC, "t", b"") == (record.id, record.spec, record.task_type, record.task_payload)
    assert (None, None) == (record.prev_enqueue_time, record.next_enqueue_time)
