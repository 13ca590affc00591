"""Rates of API keys: their notation, and the quota and window that answers tell."""

from __future__ import annotations

from typing import Any

import pytest

from pyasynq.errors import InvalidOptionError
from pyasynq.gateway.auth.key_rates import make_rate_fields
from pyasynq.operations import KeyAllowance, RequestRate
from pyasynq.operations.request_rate import parse_request_rate


@pytest.mark.parametrize(
    ("text", "rate", "window"),
    [
        ("60/m", (60.0, 60.0, 1), (60, 60)),
        ("50/s+10", (50.0, 1.0, 10), (50, 1)),
        (" 50/s ", (50.0, 1.0, 5), (50, 1)),
        ("1/m+10", (1.0, 60.0, 10), (10, 600)),
        ("0.5/s", (0.5, 1.0, 1), (1, 2)),
        ("1/0.4s", (1.0, 0.4, 1), (2, 1)),
        ("2.5/s", (2.5, 1.0, 1), (2, 1)),
        ("1/744h", (1.0, 744 * 3_600.0, 1), (1, 744 * 3_600)),
    ],
)
def test_a_rate_has_a_quota_that_is_never_less_than_its_burst(
    text: str, rate: tuple[float, float, int], window: tuple[int, int]
) -> None:
    """With a window of whole seconds."""
    parsed = parse_request_rate("rate", text)
    assert RequestRate(text.strip(), *rate) == parsed
    assert window == parsed.window


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (50, "must be text"),
        (None, "must be text"),
        ("", "write 50/s"),
        ("50", "write 50/s"),
        ("50/d", "write 50/s"),
        ("-1/s", "write 50/s"),
        ("1.2.3/s", "write 50/s"),
        ("0/s", "rate must be a number above 0"),
        ("1000001/s", "at most 1,000,000 a second"),
        ("1/0s", "period"),
        ("5/s+0", "burst must be a whole number"),
        ("5/s+1000001", "burst must be a whole number"),
        ("1/745h", "within 31 days"),
        ("1/h+745", "within 31 days"),
        ("1" * 41 + "/s", "at most 40 characters"),
    ],
)
def test_another_rate_is_refused_with_its_remedy(value: Any, remedy: str) -> None:
    """Under the name of the option; no remedy is about queues."""
    with pytest.raises(InvalidOptionError) as caught:
        parse_request_rate("rate", value)
    assert ("rate", True) == (caught.value.option, remedy in caught.value.remedy)
    assert "queue" not in str(caught.value)


def test_the_fields_are_structured_with_whole_numbers() -> None:
    """A part of a second counts as one."""
    fields = make_rate_fields(parse_request_rate("rate", "60/m+13"), KeyAllowance(True, 10, 0.0, 2.1))
    assert [(b"ratelimit-policy", b'"key";q=60;w=60'), (b"ratelimit", b'"key";r=10;t=3')] == fields
