"""Retry rule of a task type: a list of delays, or exponential back-off with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from pyasynq._settings import Seconds
from pyasynq.errors import InvalidOptionError

from .field_names import join_path, read_table

_LONGEST_SECONDS: Final = 366 * 86_400
"""Maximum duration in a configuration, in seconds: a longer one is probably a mistake in the unit."""
_MOST_DELAYS: Final = 100
_MOST_FACTOR: Final = 100.0
_DEFAULTS: Final[dict[str, Any]] = {"first": 15.0, "factor": 2.0, "most": 3_600.0, "jitter": 0.1}


@dataclass(frozen=True, slots=True)
class RetryRule:
    """Delays between the attempts of a failed task, in seconds.

    With `delays`, the retry after failure number n waits for the n-th delay; the last delay repeats. Without
    them, the delay begins with `first` and is multiplied by `factor` after each failure, up to `most`.
    """

    delays: tuple[float, ...] = ()
    first: float = 15.0
    factor: float = 2.0
    most: float = 3_600.0
    jitter: float = 0.1
    """Jitter, a random change of each delay, as a fraction: 0.1 is up to 10 % shorter or longer."""

    def delay(self, retried: int) -> float:
        """Return the seconds to wait after a failure; `retried` is the number of earlier failures."""
        if self.delays:
            return self.delays[min(retried, len(self.delays) - 1)]
        try:
            seconds = min(self.most, self.first * self.factor**retried)
        except OverflowError:
            seconds = self.most
        return seconds * (1 + random.uniform(-self.jitter, self.jitter))  # noqa: S311 - spreads load

    def to_json(self) -> Any:
        """Return the rule as JSON that `parse_retry_rule` accepts."""
        if self.delays:
            return list(self.delays)
        return {name: getattr(self, name) for name in _DEFAULTS}


def parse_duration(path: str, value: object, *, positive: bool = False) -> float:
    """Return a duration in seconds: a number, or text such as `30s`, `10m`, `1h30m`, `2d`.

    Raises:
        InvalidOptionError: for anything else, and for more than a year.
    """
    seconds = Seconds(positive=positive).read(path, value) if isinstance(value, str) else value
    Seconds(positive=positive).check(path, seconds)
    assert isinstance(seconds, (int, float))  # noqa: S101 - JSON and TOML have no timedelta
    if seconds > _LONGEST_SECONDS:
        remedy = "must be at most 366 days; a number counts seconds, and text has a unit, as in 10m"
        raise InvalidOptionError(path, value, remedy)
    return float(seconds)


def parse_retry_rule(path: str, value: object) -> RetryRule:
    """Parse a retry rule: a list of delays, or a table with `first`, `factor`, `most` and `jitter`.

    Raises:
        InvalidOptionError: for anything else; it names the field.
    """
    if isinstance(value, list):
        if not 1 <= len(value) <= _MOST_DELAYS:
            raise InvalidOptionError(path, len(value), f"must list 1 to {_MOST_DELAYS} delays")
        return RetryRule(tuple(parse_duration(f"{path}[{place}]", one) for place, one in enumerate(value)))
    if not isinstance(value, dict):
        remedy = (
            'must be a list of delays, as in ["5s", "1m"], or a table with first, factor, most and jitter'
        )
        raise InvalidOptionError(path, type(value), remedy)
    fields = _DEFAULTS | read_table(path, value, _DEFAULTS)
    rule = RetryRule(
        first=parse_duration(join_path(path, "first"), fields["first"], positive=True),
        factor=_parse_number(join_path(path, "factor"), fields["factor"], 1.0, _MOST_FACTOR),
        most=parse_duration(join_path(path, "most"), fields["most"], positive=True),
        jitter=_parse_number(join_path(path, "jitter"), fields["jitter"], 0.0, 1.0),
    )
    if rule.most < rule.first:
        raise InvalidOptionError(join_path(path, "most"), rule.most, "must be at least as long as first")
    return rule


def _parse_number(path: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InvalidOptionError(path, value, f"must be a number from {least:g} to {most:g}")
    return float(value)
