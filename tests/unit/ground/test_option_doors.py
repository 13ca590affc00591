"""Each option is checked in the same way at every door, and what is written has a bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, ConsumerConfig, Mux, PayloadTooLargeError, ServerConfig, Task, sync
from pyasynq._broker.enqueueing.chunks import compose_checked
from pyasynq._clock import Instant
from pyasynq.doctor import Doctor
from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import InvalidOptionError
from pyasynq.inspector import Inspector
from pyasynq.options import resolve_options

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "redis://nowhere.invalid"
LATER = datetime(2040, 1, 2, tzinfo=UTC)


def declare_task(**rules: Any) -> None:
    """Declare a typed task with rules of its own."""

    @App(URL).task("t", **rules)
    def handle() -> None: ...


def handle_in_mux(**rules: Any) -> None:
    """Register a handler with rules of its own."""
    Mux().handle("t", lambda task: None, **rules)


@pytest.mark.parametrize("door", [Inspector, Doctor, sync.Inspector])
def test_a_timeout_may_be_a_timedelta_everywhere(door: Callable[..., Any]) -> None:
    """A timeout takes the same types as every other duration. (D30)"""
    assert 1.5 == door(URL, timeout=timedelta(seconds=1.5))._driver.timeout


@pytest.mark.parametrize("door", [Inspector, Doctor])
@pytest.mark.parametrize("timeout", [0, -1, "5", None, float("inf"), True])
def test_a_timeout_that_cannot_be_is_refused_everywhere(door: Callable[..., Any], timeout: Any) -> None:
    """The error names the option. (D30)"""
    with pytest.raises(InvalidOptionError, match="timeout"):
        door(URL, timeout=timeout)


@pytest.mark.parametrize("timeout", [0, -1, "5", None])
def test_the_start_of_an_embedded_server_has_a_timeout_as_all_have(timeout: Any) -> None:
    """A `timedelta` or seconds. (D30)"""
    assert 1.5 == EmbeddedServer(start_timeout=timedelta(seconds=1.5))._start_timeout
    with pytest.raises(InvalidOptionError, match="start_timeout"):
        EmbeddedServer(start_timeout=timeout)


@pytest.mark.parametrize("door", [declare_task, handle_in_mux, ServerConfig, ConsumerConfig])
@pytest.mark.parametrize(
    "rules",
    [
        {"is_failure": 3},
        {"crash_limit": 1.5},
        {"crash_limit": "x"},
        {"crash_limit": True},
        {"crash_limit": -1},
    ],
    ids=str,
)
def test_rules_of_handlers_are_checked_at_every_door(door: Callable[..., Any], rules: dict[str, Any]) -> None:
    """Rules for one handler are checked like rules for all handlers of a server. (D30)"""
    with pytest.raises(InvalidOptionError, match=next(iter(rules))):
        door(**rules)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": timedelta(0)}])
def test_a_timeout_of_zero_does_not_become_half_an_hour(options: dict[str, Any]) -> None:
    """Asynq's "none of its own" needs a deadline, and the wire has no word for "none at all". (D30)"""
    with pytest.raises(InvalidOptionError, match=r"timeout.*deadline"):
        resolve_options(options)
    settings = resolve_options({**options, "deadline": LATER})
    assert (0, LATER.timestamp()) == (settings.timeout, settings.deadline)


@pytest.mark.parametrize("name", ["task_id", "queue", "group", "unique_key"])
@pytest.mark.parametrize(
    ("text", "fits"), [("x" * 1_000, True), ("x" * 1_001, False), ("\u20ac" * 334, False)]
)
def test_names_that_are_written_have_at_most_1_000_bytes(name: str, text: str, fits: bool) -> None:
    """As UTF-8; the error shows no more than the beginning. (D59)"""
    if fits:
        assert text == getattr(resolve_options({name: text, "unique": 60}), name)
        return
    with pytest.raises(InvalidOptionError, match=rf"{name}.*at most 1,000 bytes") as caught:
        resolve_options({name: text})
    assert len(str(caught.value)) < 300


def test_a_task_type_has_at_most_1_000_bytes() -> None:
    """Wherever a task is made. (D59)"""
    assert 1_000 == len(Task("x" * 1_000).type)
    with pytest.raises(InvalidOptionError, match="at most 1,000 bytes"):
        Task("x" * 1_001)
    with pytest.raises(InvalidOptionError, match="at most 1,000 bytes"):
        App(URL).task("x" * 1_001)(lambda: None)


def test_headers_have_at_most_65_536_bytes() -> None:
    """Names and values together; the error shows no values. (D59)"""
    assert {"a": "x" * 65_535} == resolve_options({"headers": {"a": "x" * 65_535}}).headers
    with pytest.raises(InvalidOptionError, match="at most 65,536 bytes together, and have 65,537") as caught:
        resolve_options({"headers": {"ab": "x" * 65_535}})
    assert "xxx" not in str(caught.value)


def test_headers_count_in_max_payload() -> None:
    """The limit is for payload and headers together. (D59)"""
    task = Task("t", bytes(90), headers={"a": "x" * 9})
    compose_checked(task, {}, now=Instant(1), max_payload=100)
    with pytest.raises(PayloadTooLargeError, match="payload and headers have 100 bytes and the limit is 99"):
        compose_checked(task, {}, now=Instant(1), max_payload=99)
