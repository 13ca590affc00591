"""Tasks with other options and headers, as client middleware makes them."""

from __future__ import annotations

import pytest

from pyasynq import Task
from pyasynq.errors import UnknownOptionError

TASK = Task("mail", b"{}", queue="low", headers={"tenant": "acme", "trace": "1"})


def test_headers_are_added_and_a_new_value_wins() -> None:
    """The task itself stays as it is."""
    changed = TASK.with_headers({"x-id": "7"}, trace="2")
    assert {"tenant": "acme", "trace": "2", "x-id": "7"} == changed.headers
    assert ("mail", b"{}", "low") == (changed.type, changed.payload, changed.options["queue"])
    assert {"tenant": "acme", "trace": "1"} == TASK.headers


def test_options_are_added_and_headers_replaced() -> None:
    """Options of a call are merged with those of a task in the same way."""
    changed = TASK.with_options(max_retry=3, headers={"trace": "2"})
    assert {"queue": "low", "max_retry": 3, "headers": {"trace": "2"}} == changed.options
    assert {"trace": "2"} == changed.headers


def test_a_misspelt_option_is_refused() -> None:
    """The error suggests the nearest option."""
    with pytest.raises(UnknownOptionError, match="max_retry"):
        TASK.with_options(max_retries=3)  # type: ignore[call-arg]
