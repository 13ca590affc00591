"""Reports on doors: their bounds, their list, and what is not a report."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pyasynq._broker.operating.instance_reports import MAX_REPORT_BYTES
from pyasynq.operations import ServiceDoor
from pyasynq.operations.service_doors import decode_door, encode_door, list_doors

NOW = 1_800_000_000
DOOR = ServiceDoor(
    "d", "gearman", "h:4730", "h", "open", datetime.fromtimestamp(NOW, UTC), 2, 1, 1, {"resize": 2}
)


def test_a_door_is_read_as_it_was_written() -> None:
    """With its functions."""
    assert DOOR == decode_door(encode_door(DOOR))


def test_a_report_of_a_door_is_bounded() -> None:
    """However many functions there are, and however long their names are."""
    long = "\N{SNOWMAN}" * 1_000
    functions = {f"{number}{long}": 1 for number in range(1_000)}
    data = encode_door(replace(DOOR, functions=functions, address=long, host=long))

    assert len(data) <= MAX_REPORT_BYTES
    assert decode_door(data) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"{}",
        encode_door(DOOR).replace(b'"open"', b'"<b>"'),
        encode_door(DOOR).replace(b'"workers":2', b'"workers":true'),
        encode_door(DOOR).replace(b'{"resize":2}', b'{"resize":"2"}'),
        encode_door(DOOR).replace(b"1800000000.0", b"1e400"),
        b"[" * 100_000,
    ],
)
def test_anything_else_is_not_a_door(data: bytes) -> None:
    """It comes from Redis, where anybody may write."""
    assert decode_door(data) is None


def test_a_door_that_is_not_reported_any_more_is_lost() -> None:
    """A closed one stays closed; they come by address."""
    closed = replace(DOOR, address="a:4730", state="closed")
    reports = [(NOW - 100, DOOR), (NOW - 100, closed), (NOW, replace(DOOR, address="z:4730"))]

    assert ["closed", "lost", "open"] == [one.state for one in list_doors(reports, NOW)]
