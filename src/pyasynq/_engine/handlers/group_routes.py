"""Routes of groups: the aggregator of a group, and the limits of the group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from pyasynq._broker.groups import GroupLimits
from pyasynq._checks import check_name, parse_seconds
from pyasynq._engine.handlers.routes import is_coroutine_handler
from pyasynq.config import GroupRule
from pyasynq.errors import ConfigurationError, describe_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.config import GroupAggregator, ServerConfig
    from pyasynq.options import Duration

_T = TypeVar("_T")

ALL_GROUPS = "*"


@dataclass(frozen=True, slots=True)
class DeclaredAggregator:
    """A function that aggregates many tasks into one, with the rule of its declaration.

    Attributes:
        pattern: pattern that matches the names of its groups; a `*` at the end matches any ending.
        call: takes a group's name and its tasks; returns a task or None, or an awaitable of it.
        plain: whether `call` is not a coroutine function; it may block, so it runs in a thread.
        rule: limits of its groups, unless the server's configuration overrides them.
        max_payload: maximum size of the payload of its tasks in bytes; None for the server's setting.
    """

    pattern: str
    call: GroupAggregator
    plain: bool
    rule: GroupRule
    max_payload: int | None = None


@runtime_checkable
class GroupRouter(Protocol):
    """Router with its own aggregators, such as the one of an `App`."""

    def aggregators(self) -> Mapping[str, DeclaredAggregator]:
        """Return the aggregators by the names of their groups; a name may end in `*`."""


def declare_aggregator(
    pattern: str, function: GroupAggregator, rule: GroupRule, max_payload: int | None = None
) -> DeclaredAggregator:
    """Build an aggregator for a pattern.

    Raises:
        InvalidOptionError: for a blank pattern.
        ConfigurationError: if `function` cannot be called.
    """
    check_name("the name of a group", pattern)
    if not callable(function):
        raise ConfigurationError(
            f"the aggregator of {pattern!r} must be a function, and is {describe_value(type(function))}"
        )
    plain = not is_coroutine_handler(function)
    return DeclaredAggregator(pattern, function, plain=plain, rule=rule, max_payload=max_payload)


class GroupPatterns(Generic[_T]):
    """Table of entries by group name, or by a prefix with `*`.

    An exact name matches first, then the longest prefix.
    """

    def __init__(self, table: Mapping[str, _T]) -> None:
        self._table = table
        self._beginnings = sorted((name[:-1] for name in table if name.endswith("*")), key=len, reverse=True)

    def find(self, group: str) -> _T | None:
        """Return the entry whose name or prefix matches this group; None if there is none."""
        if group in self._table:
            return self._table[group]
        for beginning in self._beginnings:
            if group.startswith(beginning):
                return self._table[f"{beginning}*"]
        return None


class GroupRoutes:
    """All aggregators of a server: its app's, then its configuration's for the remaining groups."""

    def __init__(self, config: ServerConfig, router: object) -> None:
        aggregators = dict(router.aggregators()) if isinstance(router, GroupRouter) else {}
        if config.group_aggregator is not None:
            aggregators.setdefault(
                ALL_GROUPS, declare_aggregator(ALL_GROUPS, config.group_aggregator, GroupRule())
            )
        self._config = config
        self._aggregators = GroupPatterns(aggregators)
        self._rules = GroupPatterns(config.groups)
        self._declared = tuple(aggregators.values())

    def __bool__(self) -> bool:
        return bool(self._declared)

    @property
    def count(self) -> int:
        """Number of aggregators."""
        return len(self._declared)

    def find(self, group: str) -> DeclaredAggregator | None:
        """Return the aggregator of a group; None if this server has none, and leaves the group to others."""
        return self._aggregators.find(group)

    def limits(self, group: str, aggregator: DeclaredAggregator) -> GroupLimits:
        """Return the limits of a group: from the configuration's rule for it, else from its aggregator's."""
        config, rules = self._config, (self._rules.find(group) or GroupRule(), aggregator.rule)
        return GroupLimits(
            _seconds(*(rule.grace_period for rule in rules), config.group_grace_period),
            _seconds(*(rule.max_delay for rule in rules), config.group_max_delay),
            next(
                size
                for size in (*(rule.max_size for rule in rules), config.group_max_size)
                if size is not None
            ),
        )

    @property
    def shortest_grace(self) -> float:
        """The shortest grace period of any group, in seconds."""
        rules = (*self._config.groups.values(), *(one.rule for one in self._declared))
        periods = [rule.grace_period for rule in rules if rule.grace_period is not None]
        return min(_seconds(period) for period in (*periods, self._config.group_grace_period))


def _seconds(*durations: Duration | None) -> int:
    first = next(duration for duration in durations if duration is not None)
    return math.ceil(parse_seconds("duration", first))
