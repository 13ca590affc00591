"""Requests of hosted task types: what each instance of the task service reports, and the merged view."""

from __future__ import annotations

import base64
import hashlib
import json
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.operating.instance_reports import DELIVERY_REPORTS, MAX_REPORT_BYTES, write_reports

from .redaction import Withheld
from .report_values import check_kind, from_base64, to_seconds
from .shown import HIDDEN, cut_down

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq.operations.operator import Operator

    from .shown import Shown

SLOT_SECONDS: Final = 600
_SLOTS: Final = 6
"""Number of ten-minute slots in a report, which thus covers an hour."""
TIME_BOUNDS: Final = tuple(0.001 * 2 ** (step / 2) for step in range(44))
"""Upper bounds of the duration histogram's buckets, in seconds: from 1 ms, each 1.41 times the one before."""
UNANSWERED: Final = "none"
"""Status class of requests without an answer; the other classes are `1xx` to `5xx`."""
HIDDEN_VALUE: Final = "(hidden)"
"""Text that replaces the value of a secret header, and secrets in an answer."""
_FAILING_SHARE: Final = 0.5
"""Minimum share, from 0 to 1, of requests without a 2xx answer for a host to count as failing."""
_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx", UNANSWERED)
_MOST_TEXT: Final = 300
_MOST_URL: Final = 500
_MOST_HEADERS: Final = 30
MOST_BODY: Final = 2_000
"""Maximum number of bytes that are stored of the body of an answer."""
_DIGITS: Final = 16
_LONGEST_HEADERS: Final = 2_500
"""Maximum number of characters, as JSON, that are stored of the headers of a request or an answer."""


@dataclass(frozen=True, slots=True)
class FailedExchange:
    """A request whose attempt failed, and the answer to it. Secrets are hidden before they are stored.

    Attributes:
        queue: name of the task's queue, which is also its task type.
        task_id: the task's id.
        attempt: number of the attempt.
        at: when the request was sent.
        seconds: time until the answer, or until the timeout, in seconds.
        method: method of the request.
        url: URL template of the task type; its placeholders are not filled in.
        headers: headers of the request, without the values of secrets.
        status: status of the answer; 0 if there was none.
        reason: error of the attempt.
        answer_headers: headers of the answer, without the values of secrets.
        answer_body: the beginning of the answer's body.
    """

    queue: str
    task_id: str
    attempt: int
    at: datetime
    seconds: float
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    status: int
    reason: str
    answer_headers: tuple[tuple[str, str], ...] = ()
    answer_body: bytes = b""


@dataclass(frozen=True, slots=True)
class HostDeliveries:
    """Requests of one task type to one host within the last hour, of all instances.

    Attributes:
        host: name, with a port unless it is 80 or 443.
        queue: name of the tasks' queue, which is also their task type.
        statuses: number of requests by class of their answer: `2xx` and so on, or `none` for no answer.
        times: histogram of durations: number of requests in each bucket.
        throttled_since: time at which the host began to throttle our requests; None if it does not throttle
            them now.
        throttled_until: time until which no request is sent to the host.
        gone_at: time of the host's last answer that the endpoint is gone; None without such an answer.
        seen: when a request last ended.
        failed: the newest request whose attempt failed.
    """

    host: str
    queue: str
    statuses: Mapping[str, int]
    times: Mapping[int, int]
    throttled_since: datetime | None
    throttled_until: datetime | None
    gone_at: datetime | None
    seen: datetime
    failed: FailedExchange | None = None

    @property
    def calls(self) -> int:
        """Number of requests."""
        return sum(self.statuses.values())

    @property
    def state(self) -> str:
        """State: `idle`, `called`, `failing` or `throttled`."""
        is_throttled = self.throttled_since is not None
        return judge_requests(self.calls, self.statuses.get("2xx", 0), is_throttled=is_throttled)


@dataclass(slots=True)
class DeliverySlot:
    """Counts of the requests in one slot of ten minutes.

    Attributes:
        statuses: number of requests by class.
        times: histogram of durations: number of requests in each bucket.
    """

    statuses: dict[str, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class DeliveryReport:
    """Requests of one type to one host, counted by one instance of the task service, which updates it.

    Timestamps are Unix times in seconds; 0 means that the event has not occurred.
    """

    host: str
    queue: str
    slots: dict[int, DeliverySlot] = field(default_factory=dict)
    """Requests by slot number, which is the Unix time divided by the slot's length."""
    throttled_since: float = 0.0
    throttled_until: float = 0.0
    gone_at: float = 0.0
    seen: float = 0.0
    failed: FailedExchange | None = None

    @property
    def id(self) -> str:
        """Id of host and queue, the same in all instances."""
        return make_delivery_id(self.host, self.queue)

    def note(self, status: int, seconds: float, now: float) -> None:
        """Count a request that has ended; status 0 means no answer."""
        self.seen = now
        number = int(now) // SLOT_SECONDS
        slot = self.slots.get(number)
        if slot is None:
            slot = self.slots[number] = DeliverySlot()
            for old in [one for one in self.slots if one <= number - _SLOTS]:
                del self.slots[old]
        name = class_of_status(status)
        slot.statuses[name] = slot.statuses.get(name, 0) + 1
        place = bisect_left(TIME_BOUNDS, seconds)
        slot.times[place] = slot.times.get(place, 0) + 1

    def note_throttled(self, seconds: float, now: float) -> None:
        """Record that the host is throttled for `seconds` from now, so that no request is sent to it."""
        if self.throttled_until < now:
            self.throttled_since = now
        self.throttled_until = max(self.throttled_until, now + seconds)


def class_of_status(status: int) -> str:
    """Return the class of a status: `2xx` and so on, or `none`."""
    name = f"{status // 100}xx"
    return name if name in _CLASSES else UNANSWERED


def judge_requests(calls: int, good: int, *, is_throttled: bool) -> str:
    """Return the state of a host: `idle`, `called`, `failing` or `throttled`.

    Args:
        calls: number of requests.
        good: number of requests with a 2xx answer.
        is_throttled: whether the host throttles us now.
    """
    if is_throttled:
        return "throttled"
    if not calls:
        return "idle"
    return "failing" if calls - good >= calls * _FAILING_SHARE else "called"


def find_duration(times: Mapping[int, int], share: float) -> float | None:
    """Return the upper bound, in seconds, of the histogram bucket with the quantile `share` (0 to 1).

    Return None without requests.
    """
    total = sum(times.values())
    below = 0
    for place in sorted(times):
        below += times[place]
        if below >= total * share:
            return TIME_BOUNDS[min(place, len(TIME_BOUNDS) - 1)]
    return None


def make_delivery_id(host: str, queue: str) -> str:
    """Return the id of a pair of host and queue, by which reports on it are named."""
    return hashlib.sha256(json.dumps([host, queue]).encode()).hexdigest()[:_DIGITS]


def encode_delivery_report(report: DeliveryReport) -> bytes:
    """Return the report on requests as JSON of at most 16,000 bytes."""
    content = {
        "host": report.host,
        "queue": report.queue,
        "slots": {
            number: [slot.statuses, {str(place): count for place, count in slot.times.items()}]
            for number, slot in report.slots.items()
        },
        "throttled": [round(report.throttled_since, 3), round(report.throttled_until, 3)],
        "gone": round(report.gone_at, 3),
        "seen": round(report.seen, 3),
        "failed": None if report.failed is None else _encode_exchange(report.failed),
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    if len(data) > MAX_REPORT_BYTES:
        # If an id is too long for the report, drop the failed exchange and keep the counts.
        data = json.dumps({**content, "failed": None}, separators=(",", ":")).encode()
    return data


def decode_delivery_report(data: bytes) -> DeliveryReport | None:
    """Decode a report from its JSON; return None for anything else."""
    try:
        content = json.loads(data)
        since, until = check_kind(content["throttled"], list)
        report = DeliveryReport(
            check_kind(content["host"], str),
            check_kind(content["queue"], str),
            {int(number): _decode_slot(slot) for number, slot in check_kind(content["slots"], dict).items()},
            to_seconds(since),
            to_seconds(until),
            to_seconds(content["gone"]),
            to_seconds(content["seen"]),
        )
        if content["failed"] is not None:
            report.failed = _decode_exchange(report.queue, content["failed"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return report


def merge_deliveries(reports: Iterable[DeliveryReport], now: float) -> list[HostDeliveries]:
    """Return the deliveries of reports from several instances, by host and queue."""
    by_id: dict[tuple[str, str], list[DeliveryReport]] = {}
    for report in reports:
        by_id.setdefault((report.host, report.queue), []).append(report)
    return [_merge(some, now) for _, some in sorted(by_id.items())]


def _merge(reports: list[DeliveryReport], now: float) -> HostDeliveries:
    statuses: dict[str, int] = {}
    times: dict[int, int] = {}
    oldest = int(now) // SLOT_SECONDS - _SLOTS
    for report in reports:
        for number, slot in report.slots.items():
            if number > oldest:
                add_counts(statuses, slot.statuses)
                add_counts(times, slot.times)
    throttled = [one for one in reports if one.throttled_until > now]
    exchanges = [one.failed for one in reports if one.failed is not None]
    return HostDeliveries(
        reports[0].host,
        reports[0].queue,
        statuses,
        times,
        throttled_since=_to_time(min((one.throttled_since for one in throttled), default=0.0)),
        throttled_until=_to_time(max((one.throttled_until for one in throttled), default=0.0)),
        gone_at=_to_time(max(one.gone_at for one in reports)),
        seen=datetime.fromtimestamp(max(one.seen for one in reports), UTC),
        failed=max(exchanges, key=lambda one: one.at, default=None),
    )


def add_counts(total: dict[Any, int], counts: Mapping[Any, int]) -> None:
    """Add counts to `total` in place, key by key."""
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count


def _encode_exchange(one: FailedExchange) -> dict[str, Any]:
    return {
        "id": one.task_id,
        "attempt": one.attempt,
        "at": round(one.at.timestamp(), 3),
        "seconds": round(one.seconds, 4),
        "method": one.method,
        "url": one.url[:_MOST_URL],
        "headers": _cut_headers(one.headers),
        "status": one.status,
        "reason": one.reason[:_MOST_TEXT],
        "answer": _cut_headers(one.answer_headers),
        "body": base64.b64encode(one.answer_body[:MOST_BODY]).decode(),
    }


def _decode_exchange(queue: str, content: Any) -> FailedExchange:
    return FailedExchange(
        queue,
        check_kind(content["id"], str),
        check_kind(content["attempt"], int),
        datetime.fromtimestamp(to_seconds(content["at"]), UTC),
        to_seconds(content["seconds"]),
        check_kind(content["method"], str),
        check_kind(content["url"], str),
        _decode_headers(content["headers"]),
        check_kind(content["status"], int),
        check_kind(content["reason"], str),
        _decode_headers(content["answer"]),
        from_base64(content["body"]),
    )


def _cut_headers(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first headers that fit into a report, with names and values cut to 300 characters."""
    kept, left = [], _LONGEST_HEADERS
    for name, value in headers[:_MOST_HEADERS]:
        one = name[:_MOST_TEXT], value[:_MOST_TEXT]
        left -= len(json.dumps(one))
        if left < 0:
            break
        kept.append(one)
    return kept


def _decode_headers(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((check_kind(name, str), check_kind(text, str)) for name, text in check_kind(value, list))


def _decode_slot(value: Any) -> DeliverySlot:
    statuses, times = value
    return DeliverySlot(
        {_check_class(name): check_kind(count, int) for name, count in statuses.items()},
        {int(place): check_kind(count, int) for place, count in times.items()},
    )


def _check_class(name: str) -> str:
    if name not in _CLASSES:
        raise ValueError
    return name


def _to_time(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


async def report_deliveries(operator: Operator, instance: str, reports: Sequence[DeliveryReport]) -> int:
    """Store an instance's reports on its requests, for an hour.

    This is not a verb of an operator: the service calls it every few seconds, without an audit entry.

    Args:
        operator: operator with which the instance reaches Redis.
        instance: id of the instance; its next report on a host and queue replaces this one.
        reports: reports on each host and queue with new requests.

    Returns:
        The number of reports that were not stored, because the table of reports in Redis is full.
    """
    named = [(f"{report.id}.{instance}", encode_delivery_report(report)) for report in reports]
    inspector = operator._inspector  # noqa: SLF001 - of this package
    return await inspector.run(write_reports(DELIVERY_REPORTS, named, inspector.redis_now()))


@cut_down.register(FailedExchange)
def _cut_exchange(exchange: FailedExchange, shown: Shown) -> Any:
    queue = exchange.queue
    if not shown.sees(queue):
        return HIDDEN
    if shown.may_view_payload(queue):
        return shown.redactor.exchange(exchange)
    return replace(
        exchange,
        headers=(),
        reason=shown.error(queue, queue, exchange.reason),
        answer_headers=(),
        answer_body=Withheld(exchange.answer_body),
    )
