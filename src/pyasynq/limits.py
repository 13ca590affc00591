"""How a server works on one queue, and the limits that all servers of a queue share."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._checks import check_switch, check_whole, is_whole, positive_seconds_of
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyasynq.options import Duration


class Unchanged(enum.Enum):
    """Stands for a setting that is not given, where None has a meaning of its own."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

_MOST: Final = 1_000_000
_EVEN_SECONDS: Final = 0.1
_LONGEST_INTERVAL: Final = 36_500 * 86_400


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a queue that hold for all servers together; None is no limit.

    Made by `Queue` and by the inspector, which check the values.
    """

    concurrency: int | None = None
    """How many of its tasks run at once."""
    rate: float | None = None
    """How many of its tasks start per `period`."""
    period: float = 1.0
    """Seconds."""
    burst: int = 1
    """How many may start at once after a quiet time."""
    ordered: bool | None = None
    """Whether its tasks run strictly one after the other; None says nothing about it."""

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return self.concurrency is not None or self.rate is not None or bool(self.ordered)

    def __str__(self) -> str:
        """Return `ordered, concurrency 3, rate 50/1s, burst 10`, or as much of it as is limited."""
        parts = ["ordered"] if self.ordered else []
        if self.concurrency is not None:
            parts.append(f"concurrency {self.concurrency}")
        if self.rate is not None:
            parts.append(f"rate {self.rate:g}/{self.period:g}s, burst {self.burst}")
        return ", ".join(parts)


UNLIMITED: Final = QueueLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What a server does with one queue: `ServerConfig(queues={"deliver": Queue(concurrency=1)})`.

    The limits hold across all servers and processes that give them for this queue.

    Raises:
        InvalidOptionError: at construction, for a value that a setting cannot have.
    """

    priority: int = 1
    """Shares out the slots of the server by weight, as a plain number in `queues` does."""
    concurrency: int | None = None
    """How many tasks of the queue run at once, in all servers together; None is no limit."""
    rate: float | None = None
    """How many tasks of the queue start per `period`, in all servers together; None is no limit."""
    period: Duration = 1.0
    """What `rate` is counted over: `rate=100, period=60` is 100 a minute."""
    burst: int | None = None
    """How many tasks may start at once after a quiet time, at least 1.

    No stretch of a period has more than `rate` and `burst` together. Unless given, it is what the rate
    brings in a tenth of a second, so that starts are spread evenly.
    """
    ordered: bool = False
    """Run the tasks strictly one after the other, in the order in which they became pending.

    The queue is ordered for all servers from then on, those that do not say so too, until an inspector
    ends it.
    """

    def __post_init__(self) -> None:
        check_whole("priority", self.priority, 1)
        check_switch("ordered", self.ordered)
        if check_concurrency(self.concurrency) not in {None, 1} and self.ordered:
            remedy = "an ordered queue runs one task at a time: leave it out"
            raise InvalidOptionError("concurrency", self.concurrency, remedy)
        _, seconds, _ = check_rate(self.rate, self.period, self.burst)
        if self.rate is None and seconds != 1.0:
            raise InvalidOptionError("period", self.period, "give a rate with it")

    @property
    def limits(self) -> QueueLimits:
        """The limits, in seconds and with the burst that applies."""
        rate = check_rate(self.rate, self.period, self.burst)
        return QueueLimits(self.concurrency, *rate, ordered=self.ordered or None)


def check_concurrency(concurrency: object) -> int | None:
    """Return a number of tasks that may run at once, or None for no limit.

    Raises:
        InvalidOptionError: for what is neither.
    """
    if concurrency is None:
        return None
    return _count("concurrency", concurrency, "None is no limit, and pausing the queue stops it")


def check_rate(rate: object, period: object, burst: object) -> tuple[float | None, float, int]:
    """Return rate, period in seconds and burst; a rate of None is no limit.

    Raises:
        InvalidOptionError: for a value that cannot be, and for a burst without a rate.
    """
    seconds = positive_seconds_of("period", period)
    if rate is None:
        if burst is not None:
            raise InvalidOptionError("burst", burst, "give a rate with it")
        return None, seconds, 1
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= _MOST * seconds:
        remedy = "must be a number above 0 and at most 1,000,000 a second; None is no limit, and pausing the"
        raise InvalidOptionError("rate", rate, f"{remedy} queue stops it")
    if seconds > _LONGEST_INTERVAL * rate:
        raise InvalidOptionError(
            "rate", rate, "must be at least one task in 36,500 days; pause it to stop it"
        )
    if burst is None:
        return float(rate), seconds, max(1, math.floor(rate / seconds * _EVEN_SECONDS))
    return float(rate), seconds, _count("burst", burst, "1 spreads the starts evenly")


def _count(name: str, value: object, hint: str) -> int:
    if not is_whole(value, 1) or value > _MOST:
        raise InvalidOptionError(name, value, f"must be a whole number from 1 to {_MOST}; {hint}")
    return value
