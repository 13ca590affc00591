"""The preview of new limits, and the keys on the help page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyasynq.web
from pyasynq.limits import UNLIMITED, QueueLimits
from pyasynq.operations import LimitReport
from pyasynq.web.limit_form import describe_effect
from pyasynq.web.pages.help import _KEYS
from pyasynq.web.pages.task import _VERBS

ASKED = {"server": QueueLimits(5)}


@pytest.mark.parametrize(
    ("active", "pending", "wanted", "expected"),
    [
        (1, 1, QueueLimits(3), "1 task runs now, and 1 task waits. 1 may start at once"),
        (2, 10, QueueLimits(3), "1 may start at once, as far as servers have free slots; 9 would wait"),
        (3, 10, QueueLimits(3), "0 may start at once, as far as servers have free slots; 10 would wait"),
        (8, 10, QueueLimits(3), "5 more than the limit: what runs goes on"),
        (0, 601, QueueLimits(None, 10, 1.0, 1), "At this rate it takes 1 min until all"),
        (2, 0, UNLIMITED, "then: no limits. 2 tasks run now, and 0 tasks wait. The limits that servers ask"),
    ],
)
def test_the_preview_counts_what_runs_and_what_would_wait(
    active: int, pending: int, wanted: QueueLimits, expected: str
) -> None:
    """With the numbers of now."""
    report = LimitReport("emails", QueueLimits(9), ASKED, active, pending, ("in Go",))

    text = describe_effect(report, wanted)

    assert expected in text
    assert "1 server in Go ignores limits." in text


def test_every_key_is_on_the_help_page() -> None:
    """Keys of buttons, and places that `g` leads to."""
    told = {key for keys, _ in _KEYS for key in keys.split()}
    script = (Path(pyasynq.web.__file__).parent / "static" / "keys.js").read_text("utf-8")
    places = re.search(r"PLACES = .*?\(\{ (.*?) \}\)", script)
    assert places
    cases = re.findall(r'case "(.{1,5})":', script)

    assert set() == {verb.key for verb in _VERBS.values()} - told
    assert set() == set(re.findall(r"(\w): ", places[1])) - {
        keys[2:] for keys, _ in _KEYS if keys[:2] == "g "
    }
    assert set() == set(cases) - told
