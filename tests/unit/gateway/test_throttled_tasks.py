"""How long a task waits for a throttled host, by its header alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq.control import Archive, Cancel, Retry, Snooze
from pyasynq.errors import InvalidOptionError
from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.gateway.hosted.outcome import WAITS_SINCE_HEADER, HandedOver, PutBack, Throttled, settle
from pyasynq.gateway.hosted.throttled_tasks import DEFAULT_MAX_AGE, put_off_task
from pyasynq.task import Task
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.consumer import Attempt

NOW = 1_800_000_000.5
ASKS = Throttled(60.0, "the host answered 429 Too Many Requests")
HTTP = {"name": "deliver", "kind": "http", "url": "https://a.example/"}


class Leased:
    """An attempt with headers that can be set, which notes how it is settled."""

    queue = "deliver"
    retried = 0

    def __init__(self, **headers: str) -> None:
        self.headers = headers
        self.settled: list[str] = []

    @property
    def task(self) -> Task:
        """The task with the headers as they are now."""
        return Task("deliver").with_headers(self.headers)

    def set_header(self, name: str, value: str | None) -> None:
        """Set or remove a header."""
        self.headers = {key: text for key, text in self.headers.items() if key != name}
        if value is not None:
            self.headers[name] = value

    def __getattr__(self, name: str) -> Any:
        async def note(*_: object) -> None:
            self.settled.append(name)

        return note


def since(seconds: str) -> Leased:
    """Return an attempt at a task that waits since a second."""
    return Leased(**{WAITS_SINCE_HEADER: seconds, "team": "maps"})


def put_off(attempt: Leased, max_age: float = DEFAULT_MAX_AGE) -> Any:
    """Return the outcome of an attempt whose host is throttled."""
    return put_off_task(cast("Attempt", attempt), ASKS, max_age, NOW)


def test_a_task_is_put_off_and_notes_since_when() -> None:
    """Later attempts keep the first time; no retry is spent."""
    attempt = Leased(team="maps")
    first = put_off(attempt)
    assert {"team": "maps", WAITS_SINCE_HEADER: "1800000000"} == attempt.headers
    assert isinstance(first, Retry)
    assert (False, ASKS.reason) == (first.spend, first.reason)
    assert first.after is not None
    assert 60 <= first.after <= 66
    waiting = since("1799990000")
    assert isinstance(put_off(waiting), Retry)
    assert "1799990000" == waiting.headers[WAITS_SINCE_HEADER]


def test_a_task_that_has_waited_longer_is_archived() -> None:
    """With the host's answer, how long it has waited, and the field that allows no more."""
    limit = int(NOW - DEFAULT_MAX_AGE)
    assert isinstance(put_off(since(str(limit + 1))), Retry)
    archived = put_off(since(str(limit)))
    assert isinstance(archived, Archive)
    assert f"{ASKS.reason}: it has waited for 1 day, and max_age is 1 day" == archived.reason
    assert isinstance(put_off(since("1799999990"), 10.0), Archive)
    assert isinstance(put_off(since("1799999991"), 10.0), Retry)


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "1" * 13, "9" * 12, "\N{ARABIC-INDIC DIGIT SEVEN}", "1.5"]
)
def test_a_header_that_holds_nothing_of_use_is_written_again(text: str) -> None:
    """Anybody may have written it, also a time to come."""
    attempt = since(text)
    assert isinstance(put_off(attempt, 1.0), Retry)
    assert "1800000000" == attempt.headers[WAITS_SINCE_HEADER]


@pytest.mark.parametrize(
    ("outcome", "is_kept"),
    [
        (Retry(60, spend=False), True),
        (PutBack(), True),
        (Retry(60), False),
        (Archive("old"), False),
        (Snooze(60), False),
        (Cancel(), False),
        (HandedOver(30), False),
        (b"done", False),
        (None, False),
    ],
)
@run_async
async def test_an_attempt_that_took_place_ends_the_wait(outcome: Any, *, is_kept: bool) -> None:
    """So a task that somebody runs again has its whole time."""
    attempt = since("1799990000")
    await settle(cast("Attempt", attempt), outcome, lambda *_: 1.0)
    assert is_kept == (WAITS_SINCE_HEADER in attempt.headers)
    assert "maps" == attempt.headers["team"]
    assert 1 == len(attempt.settled)


def test_a_type_says_how_long_its_tasks_wait() -> None:
    """As a duration, in either spelling; the field is for requests alone."""
    found = parse_task_configuration("t", HTTP | {"MaxAge": "6h"})
    assert (21_600.0, 21_600.0) == (found.max_age, found.to_json()["max_age"])
    assert "max_age" not in parse_task_configuration("t", HTTP).to_json()
    for wrong in (0, "soon", True, "400d"):
        with pytest.raises(InvalidOptionError, match=r"t\.max_age"):
            parse_task_configuration("t", HTTP | {"max_age": wrong})
    with pytest.raises(InvalidOptionError, match=r"t\.max_age.*is for kind = \"http\" only"):
        parse_task_configuration("t", {"name": "resize", "max_age": "6h"})
