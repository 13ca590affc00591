"""Settings of a server for one queue, and the limits shared by all servers of a queue."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pyasynq._call_shape import name_unknown_arguments
from pyasynq._checks import check_switch, check_whole, is_whole, parse_positive_seconds, parse_whole_number
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.options import Duration


class Unchanged(enum.Enum):
    """Sentinel for a setting that is not given, where None already means "no limit"."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


class LimitChanges(TypedDict, total=False):
    """Changes of a queue's stored limits, as `Inspector.set_queue_limits` takes them."""

    max_run: int | Unchanged | None
    rate: float | Unchanged | None
    period: Duration | None
    burst: int | None
    ordered: bool | Unchanged | None


_MOST: Final = 1_000_000
_EVEN_SECONDS: Final = 0.1
_LONGEST_INTERVAL: Final = 36_500 * 86_400
_RATE: Final = re.compile(r"(?P<rate>[\d.]+)/(?P<period>[\d.]*)(?P<unit>[smh])(?:\+(?P<burst>\d+))?")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a queue across all servers together; None means unlimited.

    Made by `Queue` and by the inspector, which check the values.
    """

    max_run: int | None = None
    """Maximum number of the queue's tasks that run at once."""
    rate: float | None = None
    """Maximum number of the queue's tasks that start per `period`."""
    period: float = 1.0
    """Length of the period in seconds."""
    burst: int = 1
    """Number of tasks that may start at once after an idle time (size of the token bucket)."""
    ordered: bool | None = None
    """Whether the queue's tasks run strictly one after the other; None leaves that to other settings."""

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return self.max_run is not None or self.rate is not None or bool(self.ordered)

    def __str__(self) -> str:
        """Return the limits as text, such as `ordered, max_run 3, rate 50/1s, burst 10`."""
        parts = ["ordered"] if self.ordered else []
        if self.max_run is not None:
            parts.append(f"max_run {self.max_run}")
        if self.rate is not None:
            parts.append(f"rate {self.rate:g}/{self.period:g}s, burst {self.burst}")
        return ", ".join(parts)


UNLIMITED: Final = QueueLimits()


@name_unknown_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Settings of a server for one queue: `ServerConfig(queues={"deliver": Queue(max_run=1)})`.

    A limit is shared by all servers and processes that set it for this queue.

    Raises:
        InvalidOptionError: at construction, for an invalid value.
    """

    priority: int = 1
    """Weight of the queue in its server's weighted fair queueing, like a plain number in `queues`."""
    max_run: int | None = None
    """Maximum number of the queue's tasks that run at once, in all servers together; None means unlimited."""
    rate: float | str | None = None
    """Maximum number of the queue's tasks that start per `period`, in all servers; None means unlimited.

    The text `"100/m+10"` gives rate, period and burst at once; the attributes are then the parts of it.
    """
    period: Duration = 1.0
    """Period of `rate`: `rate=100, period=60` is 100 a minute."""
    burst: int | None = None
    """Number of tasks that may start at once after an idle time, at least 1 (size of the token bucket).

    In any time span of one `period`, at most `rate` + `burst` tasks start. By default `burst` is the number
    of tokens gained in a tenth of a second, so that starts are spread evenly.
    """
    ordered: bool = False
    """Whether the tasks run strictly one after the other (FIFO), in the order they became pending.

    From then on the queue is ordered for all servers, also those without this setting, until an inspector
    ends it.
    """

    def __post_init__(self) -> None:
        check_whole("priority", self.priority, 1)
        if isinstance(self.rate, str):
            self._take_rate(self.rate)
        check_switch("ordered", self.ordered)
        if check_max_run(self.max_run) not in {None, 1} and self.ordered:
            remedy = "an ordered queue runs one task at a time: leave it out"
            raise InvalidOptionError("max_run", self.max_run, remedy)
        _, seconds, _ = check_rate(self.rate, self.period, self.burst)
        if self.rate is None and seconds != 1.0:
            raise InvalidOptionError("period", self.period, "give a rate with it")

    def _take_rate(self, text: str) -> None:
        fields = read_rate("rate", text)
        if self.period != 1.0 or self.burst is not None:
            remedy = "has period and burst in its text: leave these out"
            raise InvalidOptionError("rate", text, remedy)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def limits(self) -> QueueLimits:
        """The limits, with the period in seconds and the effective burst."""
        rate = check_rate(self.rate, self.period, self.burst)
        return QueueLimits(self.max_run, *rate, ordered=self.ordered or None)


def read_rate(option: str, text: str, *, shown: str = "") -> dict[str, Any]:
    """Return rate, period and burst of `50/s`, `100/10m` or `50/s+10`.

    Raises:
        InvalidOptionError: for other text; the message shows `shown` instead of `text`.
    """
    match = _RATE.fullmatch(text.strip())
    remedy = "write 50/s, 100/m, 1/10s, or 50/s+10 when ten may start at once"
    if match is None:
        raise InvalidOptionError(option, shown or text, remedy)
    try:
        rate, period = float(match["rate"]), float(match["period"] or 1) * _UNIT_SECONDS[match["unit"]]
    except ValueError:
        raise InvalidOptionError(option, shown or text, remedy) from None
    fields: dict[str, Any] = {"rate": rate, "period": period}
    if match["burst"]:
        number = parse_whole_number(match["burst"])
        fields["burst"] = match["burst"] if number is None else number
    return fields


def complete_rate(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `Queue` to override others with: a rate replaces period and burst as well."""
    return {"period": 1.0, "burst": None, **fields} if "rate" in fields else {**fields}


def list_own_limits(queue: Queue) -> dict[str, Any]:
    """Return the limits that a queue sets, as arguments of `Queue`."""
    fields: dict[str, Any] = {}
    if queue.max_run is not None:
        fields["max_run"] = queue.max_run
    if queue.rate is not None:
        fields |= {"rate": queue.rate, "period": queue.period}
        if queue.burst is not None:
            fields["burst"] = queue.burst
    if queue.ordered:
        fields["ordered"] = True
    return fields


def check_max_run(max_run: object) -> int | None:
    """Return a number of tasks that may run at once, or None for no limit.

    Raises:
        InvalidOptionError: for anything else.
    """
    if max_run is None:
        return None
    return _count("max_run", max_run, ", or none for no limit; pausing the queue stops it")


def check_rate(rate: object, period: object, burst: object) -> tuple[float | None, float, int]:
    """Return rate, period in seconds and burst; a rate of None means unlimited.

    Raises:
        InvalidOptionError: for an invalid value, and for a burst without a rate.
    """
    seconds = parse_positive_seconds("period", period)
    if rate is None:
        if burst is not None:
            raise InvalidOptionError("burst", burst, "give a rate with it")
        return None, seconds, 1
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= _MOST * seconds:
        remedy = "must be a number above 0 and at most 1,000,000 a second, or none for no limit"
        raise InvalidOptionError("rate", rate, f"{remedy}; pausing the queue stops it")
    if seconds > _LONGEST_INTERVAL * rate:
        raise InvalidOptionError(
            "rate", rate, "must be at least one task in 36,500 days; pause it to stop it"
        )
    if burst is None:
        return float(rate), seconds, max(1, math.floor(rate / seconds * _EVEN_SECONDS))
    return float(rate), seconds, _count("burst", burst, "; 1 spreads the starts evenly")


def _count(name: str, value: object, hint: str) -> int:
    if not is_whole(value, 1) or value > _MOST:
        raise InvalidOptionError(name, value, f"must be a whole number from 1 to {_MOST}{hint}")
    return value
