from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from bench.chart import OTHERS, OURS, bars
from bench.contestants import Length
from bench.figures import RATE, WORKER_CPU
from bench.goals import Goal, judged
from bench.measurements.wakes import COST, WOKEN
from bench.publish import BEGIN, END, generated, rewritten
from bench.report import markdown, shown, table_of
from bench.results import Results, Row, Table

SVG = "{http://www.w3.org/2000/svg}"


def row(key: str, *rates: float, floor: str | None = "floor-drain", reference: str | None = "asynq") -> Row:
    """Return a row with a rate for each round."""
    rounds = {at: {RATE.name: rate} for at, rate in enumerate(rates)}
    return Row(key, f"title of {key}", floor, reference, rounds)


def table(*rows: Row) -> Table:
    """Return a table of these rows."""
    return Table(
        "drain",
        "Drain: nothing",
        (RATE, WORKER_CPU),
        "Asynq in Go",
        ("A note.",),
        {row.key: row for row in rows},
    )


def results(*rows: Row) -> Results:
    """Return a run that has measured these rows."""
    peer = {
        "title": "Huey",
        "versions": {"huey": "3.5"},
        "setup": "threads",
        "after_a_crash": "**lost**",
        "at_least_once": False,
    }
    return Results({"machine": "a good one", "length": "default"}, {"huey": peer}, {"drain": table(*rows)})


MEASURED = (
    row("pyasynq", 60_000, 30_000, 66_000),
    row("asynq", 10_000, 5_000, 11_000),
    row("floor-drain", 120_000, 60_000, 132_000, floor=None, reference=None),
)


def test_a_table_has_medians_ranges_and_ratios_of_rounds() -> None:
    """The reference has a column, and so has the floor; a missing figure has none."""
    lines = table_of(table(*MEASURED)).splitlines()

    assert "|  | rate, /s | times Asynq in Go | share of the floor |" in lines
    assert "| title of pyasynq | 60,000 [30,000-66,000] | 6.00 | 50% |" in lines
    assert "| title of floor-drain | 120,000 [60,000-132,000] |  |  |" in lines


def test_a_row_that_failed_is_empty() -> None:
    """It does not look like zero."""
    assert "| title of broken |  |  |  |" in table_of(table(*MEASURED, row("broken"))).splitlines()


def test_without_the_reference_there_is_no_comparison() -> None:
    """Where Go is missing, for example."""
    assert "times" not in table_of(table(row("pyasynq", 1.0)))


def test_one_round_has_no_range() -> None:
    """Its ends are the median."""
    assert "1,234.5" == shown(row("a", 1234.5).summary(RATE.name), 1)


def test_the_report_names_machine_set_ups_and_failures() -> None:
    """What a reader needs to judge the figures."""
    found = results(*MEASURED)
    found.failures.append("drain, round 1, huey: it broke")

    text = markdown(found)

    for part in (
        "- machine: a good one",
        "| Huey | huey 3.5 | threads | **lost** |",
        "- drain, round 1, huey",
    ):
        assert part in text


def test_json_tells_all_and_can_be_read_again() -> None:
    """A page can be written from a run that has long ended."""
    found = results(*MEASURED)

    again = Results.from_json(json.loads(json.dumps(found.as_json())))

    assert found == again


def test_json_has_the_summaries() -> None:
    """For those who do not want to compute medians themselves."""
    (measurement,) = results(*MEASURED).as_json()["measurements"]

    assert {"median": 60_000, "least": 30_000, "most": 66_000, "count": 3} == measurement["rows"][0][
        "summary"
    ]["rate"]


@pytest.mark.parametrize(
    ("goal", "found", "reached"),
    [
        (Goal("", lambda _: 0, least=6), 6.0, True),
        (Goal("", lambda _: 0, least=6), 5.99, False),
        (Goal("", lambda _: 0, most=15), 15.0, True),
        (Goal("", lambda _: 0, most=15), 15.01, False),
        (Goal("", lambda _: 0), 1e9, True),
    ],
)
def test_a_goal_is_reached_at_its_bound(goal: Goal, found: float, *, reached: bool) -> None:
    """At least, and at most; without a bound it only reports."""
    assert reached == goal.is_reached(found)


def test_goals_are_judged_by_what_was_measured() -> None:
    """The others are left out."""
    found = {goal.text: value for goal, value in judged(results(*MEASURED))}

    assert {"drain, 100 slots (the default), times Asynq in Go": 6.0} == found


def test_the_fastest_safe_peer_decides() -> None:
    """A peer that loses tasks does not count, however fast."""
    found = results(*MEASURED, row("dramatiq", 5_000, 2_500, 5_500), row("huey", 50_000, 25_000, 55_000))
    found.peers["dramatiq"] = {**found.peers["huey"], "at_least_once": True}

    values = {goal.text: value for goal, value in judged(found)}

    assert 12.0 == values["drain, 100 slots, times the fastest at-least-once peer in Python"]


def test_a_wake_costs_what_the_vain_ones_add() -> None:
    """A woken client reads the key again."""
    found = results(*MEASURED)
    found.tables["wakes"] = Table("wakes", "Wakes", (COST, WOKEN))
    for number, cost, woken in ((1, 100.0, 4.0), (20, 480.0, 23.0), (200, 1_500.0, 54.0)):
        key = f"{number}-idle"
        found.tables["wakes"].rows[key] = Row(key, key, None, None, {0: {COST.name: cost, WOKEN.name: woken}})

    values = {goal.text: value for goal, value in judged(found)}

    assert 20.0 == values["Redis CPU for an idle worker that is woken, µs"]
    assert 51.0 == values["how many of 200 idle workers a task wakes"]


def test_a_smoke_run_judges_nothing() -> None:
    """A thousand tasks on a busy machine say nothing."""
    found = results(*MEASURED)
    found.facts["length"] = Length.SMOKE.name.lower()

    assert [] == judged(found)


def test_a_chart_is_well_formed_and_sorted() -> None:
    """The best comes first, ours stands out, and a name with special characters does no harm."""
    rows = [
        row("asynq", 10.0),
        row("pyasynq", 60.0),
        Row("odd", "a < b & c", None, None, {0: {RATE.name: 1.0}}),
    ]

    drawn = ET.fromstring(bars("Drain", rows, RATE))

    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert ["title of pyasynq", "60", "title of asynq", "10", "a < b & c", "1"] == texts[1:]
    widths = [(float(bar.get("width", "")), bar.get("fill")) for bar in drawn.iter(f"{SVG}rect")]
    assert [OURS, OTHERS, OTHERS] == [colour for _, colour in widths]
    assert widths[0][0] == pytest.approx(6 * widths[1][0], rel=0.01)


def test_less_comes_first_where_less_is_better() -> None:
    """A chart of costs puts the cheapest bar first."""
    rows = [
        Row(key, key, None, None, {0: {WORKER_CPU.name: cost}})
        for key, cost in (("dear", 70.0), ("cheap", 9.0))
    ]

    drawn = ET.fromstring(bars("Cost", rows, WORKER_CPU))

    assert ["cheap", "9.0", "dear", "70.0"] == [text.text for text in drawn.iter(f"{SVG}text")][1:]


def test_a_chart_of_nothing_is_refused() -> None:
    """It would be an empty picture in the docs."""
    with pytest.raises(ValueError, match="no row of 'Drain'"):
        bars("Drain", [row("broken")], RATE)


def test_the_page_is_rewritten_between_its_markers() -> None:
    """Twice in a row gives the same, and the words around stay."""
    page = f"Before.\n\n{BEGIN}\n\nold\n\n{END}\n\nAfter.\n"
    text = generated(results(*MEASURED))

    once = rewritten(page, text)

    assert once == rewritten(once, text)
    assert once.startswith("Before.\n")
    assert once.endswith("After.\n")
    assert "old" not in once
    assert "\n### Drain: nothing\n" in once
    assert "![benchmark-drain.svg](benchmark-drain.svg)" in once


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}"])
def test_a_page_without_its_markers_is_left_alone(page: str) -> None:
    """An error says which lines are missing."""
    with pytest.raises(ValueError, match="once, in this order"):
        rewritten(page, "text")
