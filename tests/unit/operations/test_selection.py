"""Cursors and sentences of searches, and what Redis is not told of secrets."""

from __future__ import annotations

import threading

import pytest

from pyasynq._clock import Instant
from pyasynq.errors import InvalidOptionError
from pyasynq.operations.query import Place, parse_query
from pyasynq.operations.search_slots import SearchSlots
from pyasynq.operations.selection import Budget, SearchProgress, Selection, SelectionCursor
from pyasynq.task import TaskState
from tests.unit.operations.test_query_places import spelled

MASKS = ("[redacted]",)


def selection(cursor: str, matches: int, looked_at: int, total: int) -> Selection:
    """Return a selection without tasks."""
    place = SelectionCursor(matches=matches, looked_at=looked_at)
    progress = SearchProgress(place, 10, Budget())
    progress.total = total
    return progress.selection((), cursor, is_last=True)


def test_a_selection_says_how_far_it_is() -> None:
    """It also says whether there is more to look at."""
    found = selection("x", 37, 180_000, 1_000_000)
    assert "37 matches in 180,000 of 1,000,000 looked at: go on" == str(found)
    assert "1 match in all 5 looked at" == str(selection("", 1, 5, 4))


def test_a_cursor_goes_on_with_its_query_only() -> None:
    """That of another query, and nonsense, are refused."""
    cursor = SelectionCursor("retry", "mail", "", "inner", 3, 70)
    text = cursor.text("type:a")
    assert cursor == SelectionCursor.parse(text, "type:a")
    assert SelectionCursor() == SelectionCursor.parse("", "type:a")
    for wrong, query in ((text, "type:b"), ("x", "type:a"), (SelectionCursor("nope").text("q"), "q")):
        with pytest.raises(InvalidOptionError, match=r"^cursor="):
            SelectionCursor.parse(wrong, query)


def test_two_searches_work_at_once() -> None:
    """The third waits until one of them leaves its slot."""
    slots = SearchSlots(2)
    entered = threading.Event()
    with slots.enter_blocking():
        with slots.enter_blocking():

            def wait() -> None:
                with slots.enter_blocking():
                    entered.set()

            third = threading.Thread(target=wait)
            third.start()
            assert not entered.is_set()
        assert entered.wait(60)
        third.join()


@pytest.mark.parametrize(
    ("text", "pushed"),
    [
        ("payload:hunter2", ["hunter2"]),
        ("payload:red OR payload:hunter2", []),
        ("payload:red payload:hunter2", ["hunter2"]),
        ('payload:"]," OR payload:hunter2', []),
        ("type:red", ["red"]),
        ("type:red OR payload:x[y", []),
        ("payload.a:red", []),
        ("payload.a:hunter2", ["a=.. or hunter2"]),
        ("payload.a:>3", ["a=3.."]),
        ("size:>100kB", ["2=12500.."]),
        ("size:<100kB", []),
    ],
)
def test_redis_looks_for_no_text_that_may_be_part_of_a_mask(text: str, pushed: list[str]) -> None:
    """Where a mask matches, whether Redis finds the other text would tell of the secret."""
    placed = parse_query(text).at(Place(TaskState.RETRY, "mail"))
    texts = placed.scan_filter(Instant(1), MASKS).texts
    assert pushed == [spelled(one) for group in texts for one in group]
    of_unknown_masks = placed.scan_filter(Instant(1), None).texts
    assert ([], ["red"])[text == "type:red"] == [spelled(one) for group in of_unknown_masks for one in group]
