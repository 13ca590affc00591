"""Control values that handlers return or raise to choose the outcome of their task."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.control import Archive, Cancel, ControlFlow, Retry, Snooze, find_control
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(("delay", "seconds"), [(timedelta(minutes=5), 300.0), (2.5, 2.5), (0, 0.0)])
def test_a_delay_is_a_timedelta_or_seconds(delay: timedelta | float, seconds: float) -> None:
    """The attribute `after` is in seconds."""
    assert seconds == Snooze(delay).delay
    assert seconds == Retry(delay).after
    assert seconds == Retry(after=delay, spend=False).after


def test_a_retry_without_a_delay_leaves_it_to_retry_delay_and_spends() -> None:
    """`Retry()` without arguments behaves like an ordinary error."""
    assert (None, True) == (Retry().after, Retry().spend)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Snooze(-1), "delay=-1: a duration cannot be negative"),
        (lambda: Snooze(timedelta(days=36_501)), "must be at most 36,500 days"),
        (lambda: Snooze(float("nan")), "delay=nan: "),
        (lambda: Snooze("5m"), "delay=<str>: a duration is a timedelta or a number of seconds"),  # type: ignore[arg-type]
        (lambda: Snooze(None), "delay=None: "),  # type: ignore[arg-type]
        (lambda: Retry(reason=5), "reason=5: must be text"),  # type: ignore[arg-type]
        (lambda: Retry(spend="no"), "spend=<str>: must be True or False"),  # type: ignore[arg-type]
        (lambda: Retry(after=-0.5), "after=-0.5: a duration cannot be negative"),
        (lambda: Archive(ValueError("x")), "reason=<ValueError>: must be text"),  # type: ignore[arg-type]
        (lambda: Cancel(5), "reason=5: must be text"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_cannot_be_is_named_with_the_remedy(make: Callable[[], Any], text: str) -> None:
    """In the handler, so that the task fails with that error."""
    with pytest.raises(InvalidOptionError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("control", "text"),
    [
        (Snooze(300), "snoozed for 300 s"),
        (Retry(), "the handler asked for a retry"),
        (Retry(1.5, reason="no answer"), "no answer"),
        (Archive("no such user"), "no such user"),
        (Archive(""), "archived by its handler"),
        (Cancel(), ""),
        (Cancel("not wanted"), "not wanted"),
    ],
)
def test_each_says_what_it_means_and_survives_pickling(control: ControlFlow, text: str) -> None:
    """They come out of process pools like errors do."""
    assert text == str(control)
    for twin in (pickle.loads(pickle.dumps(control)), copy.copy(control)):
        assert (type(control), vars(control), text) == (type(twin), vars(twin), str(twin))


def test_a_class_stands_for_its_instance() -> None:
    """`find_control` makes an instance of the class, as `raise` does."""
    assert isinstance(find_control(Cancel), Cancel)
    assert isinstance(find_control(Retry), Retry)
    with pytest.raises(TypeError, match="delay"):
        find_control(Snooze)


@pytest.mark.parametrize("value", [None, "text", b"", 0, ValueError(), int])
def test_an_ordinary_result_asks_for_nothing(value: object) -> None:
    """Returned errors are not control values either."""
    assert find_control(value) is None
