"""Requests of one instance, by host and queue: their counts, and the newest that failed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq.operations import (
    HIDDEN_VALUE,
    MOST_BODY,
    DeliveryReport,
    FailedExchange,
    class_of_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyasynq.gateway.service_metrics import ServiceMetrics

_MOST: Final = 500
"""Maximum number of pairs of host and queue; above it, the pair called longest ago is removed (LRU)."""
_FORGET_SECONDS: Final = 3_600.0
_EXCHANGE_SECONDS: Final = 2.0
"""Minimum seconds between two kept failures of a host and queue, which bounds the cost of many failures."""
_SECRET_HEADERS: Final = frozenset(
    {
        *("authorization", "cookie", "proxy-authorization", "set-cookie", "www-authenticate"),
        *("webhook-signature", "x-pyasynq-token"),
    }
)
_SHORTEST_SECRET: Final = 4
"""Minimum characters of a secret that is searched for in an answer; shorter ones may be ordinary words."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """Record of a sent request, for the dashboard.

    Attributes:
        host: host that was called, with its port unless it is 80 or 443.
        queue: queue of the task.
        task_id: the task's id.
        attempt: number of the attempt.
        method: method of the request.
        url: template of its URL.
        headers: headers by name, including secret ones, whose values are hidden when shown.
        secret_names: names of the headers that are sent to this host only.
        at: Unix time at which it was sent.
        began: monotonic time at which it was sent.
    """

    host: str
    queue: str
    task_id: str
    attempt: int
    method: str
    url: str
    headers: Mapping[str, str]
    secret_names: frozenset[str] = frozenset()
    at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)

    @property
    def secrets(self) -> list[str]:
        """Values of the secret headers; they are hidden in the answer, too, which may repeat them."""
        values = (value for name, value in self.headers.items() if self.is_secret(name))
        return [value for value in values if len(value) >= _SHORTEST_SECRET]

    def is_secret(self, name: str) -> bool:
        """Return whether the value of a header is a secret."""
        return name.lower() in _SECRET_HEADERS or name in self.secret_names


@dataclass(frozen=True, slots=True)
class ReceivedAnswer:
    """Answer to a request, or the fact that none has come (status 0).

    Attributes:
        status: status of the answer; 0 if there was none.
        headers: headers of the answer.
        body: beginning of the body.
    """

    status: int = 0
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


class DeliveryTable:
    """Counts an instance's requests to hosts, and keeps the newest failed request of each host and queue.

    It belongs to one event loop.

    Args:
        metrics: counts the requests, too.
        clock: returns Unix time.
        most: maximum number of pairs of host and queue; the one called longest ago is removed (LRU).
    """

    def __init__(
        self,
        metrics: ServiceMetrics | None = None,
        *,
        clock: Callable[[], float] = time.time,
        most: int = _MOST,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._most = most
        self._reports: dict[tuple[str, str], DeliveryReport] = {}
        """Reports by host and queue, the one that was called longest ago first."""
        self._changed: set[tuple[str, str]] = set()

    def note(self, request: SentRequest, status: int) -> None:
        """Count a request that has ended; status 0 means that no answer came."""
        seconds = time.monotonic() - request.began
        self._find(request).note(status, seconds, self._clock())
        if self._metrics is not None:
            self._metrics.note_delivery(request.host, class_of_status(status), seconds)

    def wants_failed(self, request: SentRequest) -> bool:
        """Return whether to store a request if it fails: none of its host and queue was stored recently."""
        kept = self._find(request).failed
        return kept is None or self._clock() - kept.at.timestamp() >= _EXCHANGE_SECONDS

    def note_failed(self, request: SentRequest, answer: ReceivedAnswer, reason: str) -> None:
        """Keep a request whose attempt failed, and the answer to it, without secrets."""
        secrets = request.secrets
        self._find(request).failed = FailedExchange(
            request.queue,
            request.task_id,
            request.attempt,
            at=datetime.fromtimestamp(request.at, UTC),
            seconds=time.monotonic() - request.began,
            method=request.method,
            url=request.url,
            headers=tuple(
                (name, HIDDEN_VALUE if request.is_secret(name) else value)
                for name, value in request.headers.items()
            ),
            status=answer.status,
            reason=_hide(reason, secrets),
            answer_headers=tuple(
                (name, HIDDEN_VALUE if name.lower() in _SECRET_HEADERS else _hide(value, secrets))
                for name, value in answer.headers
            ),
            answer_body=_hide_bytes(answer.body, secrets)[:MOST_BODY],
        )

    def note_throttled(self, request: SentRequest, seconds: float) -> None:
        """Record that the host asked for a pause of some seconds."""
        self._find(request).note_throttled(seconds, self._clock())

    def note_gone(self, request: SentRequest) -> None:
        """Record that the host has answered that the endpoint is gone (410)."""
        self._find(request).gone_at = self._clock()

    def take_changed(self) -> list[DeliveryReport]:
        """Return the reports that have changed since the last call, and delete old reports."""
        forgotten = self._clock() - _FORGET_SECONDS
        for key in [key for key, report in self._reports.items() if report.seen < forgotten]:
            del self._reports[key]
        changed = [self._reports[key] for key in self._changed if key in self._reports]
        self._changed.clear()
        return changed

    def put_back(self, reports: Iterable[DeliveryReport]) -> None:
        """Add reports that could not be stored to the next result of `take_changed`."""
        self._changed.update((report.host, report.queue) for report in reports)

    def _find(self, request: SentRequest) -> DeliveryReport:
        key = request.host, request.queue
        report = self._reports.pop(key, None) or DeliveryReport(*key, seen=request.at)
        self._reports[key] = report
        self._changed.add(key)
        if len(self._reports) > self._most:
            del self._reports[next(iter(self._reports))]
        return report


def _hide(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN_VALUE)
    return text


def _hide_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    for secret in secrets:
        data = data.replace(secret.encode("latin-1", "replace"), HIDDEN_VALUE.encode())
    return data
