"""Form of an alert rule: conditions, duration, advice for the operator, and a test of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ON_QUEUE: Final = " and on (instance, queue) "
OR: Final = " or "


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a PromQL expression with a number. The expression alone must always return data."""

    expression: str
    comparison: str

    @property
    def text(self) -> str:
        """The comparison as PromQL."""
        return f"({self.expression}) {self.comparison}"


@dataclass(frozen=True, slots=True)
class Case:
    """Test of an alert: series in promtool's notation, one value a minute.

    Attributes:
        series: values by series.
        minute: minute at which the alert fires.
        labels: labels of the firing alert, besides name and severity.
        quiet: a minute at which it does not fire yet.
        says: its summary at that minute.
    """

    series: dict[str, str]
    minute: int
    labels: dict[str, str]
    quiet: int
    says: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule, with its runbook page and its test.

    Attributes:
        name: name without the prefix `Pyasynq`.
        conditions: PromQL expressions, joined by `joint`.
        joint: PromQL between the conditions.
        minutes: how long the conditions must hold.
        severity: `critical` or `warning`.
        summary: one line; may use labels.
        meaning: paragraph of the page about the meaning.
        causes: possible causes, the likeliest first.
        steps: what to do, in this order.
        case: its test.
    """

    name: str
    conditions: tuple[Condition, ...]
    minutes: int
    severity: str
    summary: str
    meaning: str
    causes: tuple[str, ...]
    steps: tuple[str, ...]
    case: Case
    joint: str = ON_QUEUE

    @property
    def full_name(self) -> str:
        """The name in Prometheus."""
        return f"Pyasynq{self.name}"

    @property
    def expression(self) -> str:
        """The whole rule as PromQL."""
        return self.joint.join(condition.text for condition in self.conditions)
