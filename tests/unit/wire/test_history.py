"""The JSON of attempts and progress."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from pyasynq._wire.history import decode_attempts, decode_progress, encode_attempt, encode_progress
from pyasynq.task import AttemptInfo, TaskProgress

START, END = 2_000_000_000.25, 2_000_000_001.5


def at(seconds: float) -> datetime:
    """Return a Unix time as people see it."""
    return datetime.fromtimestamp(seconds, UTC)


def test_an_attempt_is_one_line_of_compact_json() -> None:
    """Frozen: other versions and other languages read it. Scripts find attempts by their line ends."""
    line = encode_attempt("retried", 'a "b"\nü', server="s", started_at=START + 0.000_4, ended_at=END)
    assert (
        '{"start":2000000000.25,"end":2000000001.5,"server":"s","outcome":"retried","error":"a \\"b\\"\\nü"}'
        == line.decode()
    )
    assert "\n" not in line.decode()


def test_attempts_come_back_oldest_first() -> None:
    """Redis has the newest in front."""
    first = encode_attempt("crashed", "", server="s", started_at=None, ended_at=START)
    second = encode_attempt("archived", "no", server="t", started_at=START, ended_at=END)
    assert (
        AttemptInfo(None, at(START), "s", "crashed", ""),
        AttemptInfo(at(START), at(END), "t", "archived", "no"),
    ) == decode_attempts(b"[" + second + b",\n" + first + b"]")


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"[",
        b"5",
        b"null",
        b"{}",
        b"[5]",
        b"[{}]",
        b'[{"start":"x","end":1,"server":"","outcome":"","error":""}]',
        b'[{"start":1,"end":1e300,"server":"","outcome":"","error":""}]',
        b'[{"start":1,"end":NaN,"server":"","outcome":"","error":""}]',
        b"\xff",
    ],
)
def test_bytes_that_are_not_a_list_of_attempts_are_read_as_none(data: bytes | None) -> None:
    """A task that somebody has scribbled on can still be looked at."""
    assert () == decode_attempts(data)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (TaskProgress(3, 10, "rows", at(START)), '{"done":3,"at":2000000000.25,"total":10,"note":"rows"}'),
        (TaskProgress(0.5, None, "", at(END)), '{"done":0.5,"at":2000000001.5}'),
        (TaskProgress(1, 0, "\ud800", at(END)), '{"done":1,"at":2000000001.5,"total":0,"note":"?"}'),
    ],
)
def test_progress_goes_there_and_back(progress: TaskProgress, text: str) -> None:
    """Unset fields are not written."""
    data = encode_progress(progress)
    assert text == data.decode()
    found = decode_progress(data)
    assert found is not None
    assert (progress.done, progress.total, progress.at) == (found.done, found.total, found.at)
    assert json.loads(text).get("note", "") == found.note


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"null",
        b"5",
        b"0",
        b"[]",
        b"[1]",
        b"{}",
        b"{",
        b'{"done":"half","at":1}',
        b'{"done":1,"total":"ten","at":1}',
        b'{"done":true,"at":1}',
        b'{"done":1,"at":"now"}',
        b'{"done":1,"at":1e300}',
        b"\xff",
    ],
)
def test_bytes_that_are_not_progress_are_read_as_none(data: bytes | None) -> None:
    """A task that somebody has scribbled on can still be looked at."""
    assert decode_progress(data) is None
