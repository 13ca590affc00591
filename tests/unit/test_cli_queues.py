"""The values of the worker's options about queues."""

from __future__ import annotations

from typing import Any

import click
import pytest

from pyasynq.cli.queues import ordered_queues, queue_concurrency, queue_rates, queue_weights, with_limits
from pyasynq.limits import Queue, QueueLimits

CONTEXT: Any = click.Context(click.Command("worker"))
OPTION: Any = click.Option(["--queue-rate"])


def test_names_have_weights() -> None:
    """One where none is given."""
    assert {"critical": 6, "default": 1} == queue_weights(CONTEXT, OPTION, "critical=6, default")
    assert queue_weights(CONTEXT, OPTION, None) is None


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (QueueLimits(None, 50.0, 1.0, 5), "mail=50/s"),
        (QueueLimits(None, 100.0, 60.0, 1), "mail=100/m"),
        (QueueLimits(None, 1.0, 3_600.0, 1), "mail=1/h"),
        (QueueLimits(None, 0.5, 10.0, 1), "mail=0.5/10s"),
        (QueueLimits(None, 50.0, 1.0, 10), "mail=50/s+10"),
    ],
)
def test_rates_have_periods_and_bursts(expected: QueueLimits, text: str) -> None:
    """As people write them."""
    queues = with_limits({"mail": 2}, {}, queue_rates(CONTEXT, OPTION, text))
    queue = queues["mail"]
    assert isinstance(queue, Queue)
    assert (2, expected) == (queue.priority, queue.limits)


def test_both_limits_of_a_queue_become_one_setting() -> None:
    """Queues without limits stay plain numbers."""
    limits = queue_concurrency(CONTEXT, OPTION, "a=1"), queue_rates(CONTEXT, OPTION, "a=2/s,b=3/s")
    expected = {"a": Queue(concurrency=1, rate=2.0), "b": Queue(priority=4, rate=3.0), "c": 1}
    assert expected == with_limits({"a": 1, "b": 4, "c": 1}, *limits)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (queue_weights, "a=0"),
        (queue_weights, "a=x"),
        (queue_weights, "a,a"),
        (queue_weights, ",a"),
        (queue_weights, "a=²"),
        (queue_weights, f"a={'9' * 5_000}"),
        (queue_concurrency, "a"),
        (queue_concurrency, "a="),
        (queue_concurrency, "a=0"),
        (queue_concurrency, "a=x"),
        (queue_concurrency, "a=²"),
        (queue_concurrency, f"a={'9' * 5_000}"),
        (queue_concurrency, "a=1,a=2"),
        (queue_rates, "a"),
        (queue_rates, "a=50"),
        (queue_rates, "a=50/d"),
        (queue_rates, "a=0/s"),
        (queue_rates, "a=1.2.3/s"),
        (queue_rates, "a=1/0s"),
        (queue_rates, "a=1/s+0"),
        (queue_rates, f"a=1/s+{'9' * 5_000}"),
        (queue_rates, "=1/s"),
        (ordered_queues, "a=1"),
        (ordered_queues, "a,,b"),
        (ordered_queues, "a,a"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(read: Any, text: str) -> None:
    """And the message shows the part that is wrong."""
    with pytest.raises(click.BadParameter, match="'"):
        read(CONTEXT, OPTION, text)


def test_ordered_queues_are_named() -> None:
    """A rate goes with an order, several at once do not."""
    ordered = ordered_queues(CONTEXT, OPTION, "a, b")
    expected = {"a": Queue(ordered=True), "b": Queue(priority=2, ordered=True, rate=3.0), "c": 1}
    assert expected == with_limits({"a": 1, "b": 2, "c": 1}, queue_rates(CONTEXT, OPTION, "b=3/s"), ordered)
    with pytest.raises(click.UsageError, match="queue 'a': concurrency=2"):
        with_limits({"a": 1, "b": 1}, queue_concurrency(CONTEXT, OPTION, "a=2"), ordered)
