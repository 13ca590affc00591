"""Outcome of a task by the status and headers of the answer to its request."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.control import Archive, Cancel, Retry, Snooze
from pyasynq.gateway.hosted.outcome import Throttled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyasynq.control import Control

OUTCOME_HEADER: Final = "Pyasynq-Outcome"
_LONGEST_WAIT: Final = 3_600.0
"""Maximum seconds of a wait that an answer requests, by `Retry-After` or as a snooze."""
_DEFAULT_WAIT: Final = 30.0
"""Pause in seconds for a throttled host whose answer does not say how long to wait."""
_THROTTLING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_WORTH_RETRYING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY})
_LOWEST_ERROR: Final = 400
_LOWEST_SERVER_ERROR: Final = 500
_LOWEST_REDIRECT: Final = 300


class Gone(Archive):
    """Archive outcome: the endpoint is gone for good, so no other task of the type is sent to it."""


def judge_answer(
    status: int,
    headers: Mapping[str, str],
    *,
    retry_on: Collection[int] = (),
    archive_on: Collection[int] = (),
    now: datetime | None = None,
) -> Control | Throttled | None:
    """Return the outcome for an answer; None if the task is done.

    Args:
        status: status of the answer.
        headers: headers of the answer, by name in any case.
        retry_on: statuses after which the type's tasks are retried; they override the usual meaning.
        archive_on: statuses after which the type's tasks are archived.
        now: the present, an aware `datetime`; a parameter for tests.
    """
    said = _read_outcome(headers.get(OUTCOME_HEADER, ""))
    if said is not None:
        return said
    reason = f"the host answered {describe_status(status)}"
    if status in archive_on:
        return Archive(reason)
    if status in retry_on:
        return Retry(reason=reason)
    if status in _THROTTLING:
        return Throttled(read_retry_after(headers.get("Retry-After"), now), reason)
    return _judge_status(status, reason)


def _judge_status(status: int, reason: str) -> Control | None:
    if status >= _LOWEST_SERVER_ERROR or status in _WORTH_RETRYING:
        return Retry(reason=reason)
    if status == HTTPStatus.GONE:
        return Gone(reason)
    if status >= _LOWEST_ERROR:
        return Archive(reason)
    if status >= _LOWEST_REDIRECT:
        return Retry(reason=f"{reason}: redirects are not followed")
    return None


def describe_status(status: int) -> str:
    """Return a status with its phrase: `503 Service Unavailable`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def read_retry_after(value: str | None, now: datetime | None = None) -> float:
    """Parse a `Retry-After` header, a number of seconds or a date; return seconds, at most an hour."""
    if value is None:
        return _DEFAULT_WAIT
    text = value.strip()
    if text.isascii() and text.isdigit():
        # A number with more digits than any real wait also counts as an hour.
        return min(_LONGEST_WAIT, float(text[:20]))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return _DEFAULT_WAIT
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    seconds = (at - (now or datetime.now(UTC))).total_seconds()
    return min(_LONGEST_WAIT, max(0.0, seconds))


def _read_outcome(text: str) -> Control | None:
    """Return the outcome that a host requests by header: `snooze=30`, `archive` or `cancel`; else None."""
    word, _, number = (part.strip() for part in text.lower().partition("="))
    if word == "snooze" and number.isascii() and number.isdigit():
        return Snooze(min(_LONGEST_WAIT, float(number[:20])))
    if word == "archive":
        return Archive("the host asked to archive it")
    if word == "cancel":
        return Cancel("the host asked to cancel it")
    return Retry(reason=f"the host asked for an unknown outcome: {visible(text[:40])}") if text else None
