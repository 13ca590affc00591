"""Helpers of the tests about groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq._broker.aggregation_sets import AggregationSet, finish_set
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.groups import GroupCheck, GroupLimits, check_groups
from pyasynq.task import Task
from tests.factories import NOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._broker.aggregation_sets import Finish
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform

LIMITS = GroupLimits(grace=60)
STAGED = AggregationSet("default", "user:1", "staged-set")
"""A set for `Tasks.in_set`."""


def finish(
    one: AggregationSet, *, locks: Iterable[tuple[str, str]] = (), payload: bytes = b"all", **options: Any
) -> Plan[Finish]:
    """Finish a set at NOW with a task of these options; its id is the set's unless they say otherwise."""
    aggregate = compose(
        Task("digest", payload, **options), {"queue": one.queue}, now=NOW, new_id=lambda: one.id
    )
    return finish_set(one, aggregate, locks=locks, now=NOW)


def check(perform: Perform, **limits: GroupLimits) -> GroupCheck:
    """Check groups at NOW; their sets are called `set-1` and so on."""
    numbers = iter(range(1, 100))
    plan = check_groups(
        "default", list(limits.items()), most_sets=3, now=NOW, new_id=lambda: f"set-{next(numbers)}"
    )
    return perform(plan)
