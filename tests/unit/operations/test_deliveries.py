"""Reports on requests of hosted types: their bounds, their merged view, and what is not a report."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pyasynq._broker.operating.instance_reports import MAX_REPORT_BYTES
from pyasynq.operations import DeliveryReport, FailedExchange, find_duration
from pyasynq.operations.deliveries import (
    SLOT_SECONDS,
    TIME_BOUNDS,
    decode_delivery_report,
    encode_delivery_report,
    merge_deliveries,
)

NOW = 1_800_000_000.0
EXCHANGE = FailedExchange(
    "deliver",
    "a",
    1,
    datetime.fromtimestamp(NOW, UTC),
    0.25,
    "POST",
    "https://a.example/{id}",
    (("X-Team", "maps"),),
    500,
    "the host answered 500",
    (("Server", "x"),),
    b"\xff no",
)


def report(**fields: object) -> DeliveryReport:
    """Return a report with one request."""
    made = DeliveryReport("a.example", "deliver")
    made.note(200, 0.1, NOW)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_report_is_read_as_it_was_written() -> None:
    """With the bytes of an answer."""
    made = report(failed=EXCHANGE, throttled_since=NOW, throttled_until=NOW + 9, gone_at=NOW)

    assert made == decode_delivery_report(encode_delivery_report(made))


def test_a_report_is_bounded() -> None:
    """However long the texts of a host are, and however many kinds of answers there were."""
    long = "\N{SNOWMAN}" * 10_000
    headers = tuple((f"{number}{long}", long) for number in range(1_000))
    made = report(
        failed=replace(
            EXCHANGE,
            url=long,
            headers=headers,
            reason=long,
            answer_headers=headers,
            answer_body=bytes(1_000_000),
        )
    )
    for number in range(20):
        for status in (0, 100, 200, 300, 400, 500):
            for bound in TIME_BOUNDS:
                made.note(status, bound, NOW + number * SLOT_SECONDS)

    read = decode_delivery_report(encode_delivery_report(made))

    assert len(encode_delivery_report(made)) <= MAX_REPORT_BYTES
    assert read is not None
    assert read.failed is not None
    made.failed = replace(EXCHANGE, task_id="i" * 20_000)
    assert len(encode_delivery_report(made)) <= MAX_REPORT_BYTES


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"host": 1}',
        encode_delivery_report(report()).replace(b'"2xx"', b'"<b>"'),
        encode_delivery_report(report()).replace(b"1800000000.0", b"1e400"),
        encode_delivery_report(report(failed=EXCHANGE)).replace(b'"body":"', b'"body":"!'),
        b"[" * 100_000,
    ],
)
def test_anything_else_is_not_a_report(data: bytes) -> None:
    """It comes from Redis, where anybody may write."""
    assert decode_delivery_report(data) is None


def test_requests_count_for_an_hour() -> None:
    """In slots of ten minutes; those of all instances are added up."""
    old, new = report(), report()
    new.note(0, 0.1, NOW + 1_800)

    [merged] = merge_deliveries([old, new], NOW + 1_800)
    [later] = merge_deliveries([old, new], NOW + 3_700)

    assert ({"2xx": 2, "none": 1}, 3) == (merged.statuses, merged.calls)
    assert {"none": 1} == later.statuses


def test_a_host_is_throttled_while_an_instance_leaves_it_alone() -> None:
    """Since the first time that it asked, whichever instance it was."""
    one, two = report(), report()
    one.note_throttled(60, NOW)
    one.note_throttled(60, NOW + 50)
    two.note_throttled(10, NOW - 5)

    [now] = merge_deliveries([one, two], NOW + 1)
    [later] = merge_deliveries([one, two], NOW + 120)

    assert now.throttled_since is not None
    assert NOW - 5 == now.throttled_since.timestamp()
    assert later.throttled_since is None


def test_the_newest_failure_is_kept() -> None:
    """Whichever instance has it."""
    newer = replace(EXCHANGE, at=datetime.fromtimestamp(NOW + 1, UTC), task_id="b")

    [merged] = merge_deliveries([report(failed=newer), report(failed=EXCHANGE)], NOW)

    assert newer == merged.failed


def test_a_duration_is_read_from_the_histogram() -> None:
    """As the bound below which this share of requests ended; none without requests."""
    made = report()
    for _ in range(97):
        made.note(200, 0.1, NOW)
    for _ in range(2):
        made.note(200, 3, NOW)
    [merged] = merge_deliveries([made], NOW)

    p50, p99 = find_duration(merged.times, 0.5), find_duration(merged.times, 0.99)

    assert p50 is not None
    assert p99 is not None
    assert 0.1 <= p50 <= 0.15
    assert 3 <= p99 <= 4.5
    assert find_duration({}, 0.5) is None
