"""The part of the stateful model that aggregates groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition

from pyasynq._broker.aggregation_sets import (
    AggregationSet,
    finish_set,
    read_set,
    reclaim_stale_sets,
    renew_sets,
)
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.groups import GroupLimits, check_groups
from pyasynq._clock import Instant
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import Task
from tests.factories import Tasks, registered
from tests.properties.model_queue import ModelQueue
from tests.properties.operations import operation

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Drivers
    from tests.invariants import RedisClient

GROUPS = ["g", "h:1"]
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "unique": st.just(3600),
        "process_in": st.sampled_from([10, 60]),
        "group": st.sampled_from(GROUPS),
    },
)
"""Fields of a new task: each of them may be missing."""
LIMITS = GroupLimits(grace=5, max_delay=15, max_size=2)


class GroupRules(RuleBasedStateMachine):
    """Redis, the model, and what aggregators do to both."""

    client: RedisClient
    drivers: Drivers

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.model = ModelQueue()
        self.tasks = Tasks(self.client)
        self.sets: list[AggregationSet] = []
        self.now = Instant(2_000_000_000)
        self.calls = 0

    def perform(self, plan: Plan[Any]) -> Any:
        return self.drivers.run(plan)

    @precondition(lambda self: self.model.tasks)
    @operation()
    def check_groups(self) -> None:
        self.calls += 1
        due = [group for group in GROUPS if self.model.is_due(group, LIMITS, self.now.seconds)]
        numbers = iter(range(1, 3))
        checked = self.perform(
            check_groups(
                "default",
                [(group, LIMITS) for group in GROUPS],
                most_sets=1,
                now=self.now,
                new_id=lambda: f"s{self.calls}-{next(numbers)}",
            )
        )
        assert due[:1] == [one.group for one in checked.sets]
        assert (len(due) > 1) <= (checked.next_due is not None and checked.next_due <= self.now.seconds)
        for one in checked.sets:
            expected = self.model.stage(one.group, one.id, LIMITS.max_size, self.now.seconds + 120)
            assert expected == [member.id for member in self.perform(read_set(one))]
            self.sets.append(one)

    @precondition(lambda self: self.sets)
    @operation(number=st.integers(0, 10), options=OPTIONS)
    def finish_set(self, number: int, options: dict[str, Any]) -> None:
        one = self.sets[number % len(self.sets)]
        item = compose(Task("t", b"1", **options), {}, now=self.now, new_id=lambda: one.id)
        members = self.perform(read_set(one)) or []
        locks = [(member.id, decode_task_message(member.message).unique_key) for member in members]
        plan = registered(finish_set(one, item, locks=locks, now=self.now), one.queue)
        expected = self.model.aggregate(one.id, item.lock, item.score, item.settings.group, self.now.seconds)
        assert expected == self.perform(plan).name

    @precondition(lambda self: self.sets)
    @operation()
    def renew_sets(self) -> None:
        lost = self.perform(renew_sets("default", self.sets, now=self.now))
        assert [one for one in self.sets if one.id not in self.model.sets] == lost
        self.model.sets = dict.fromkeys(self.model.sets, self.now.seconds + 120)

    @precondition(lambda self: self.sets)
    @operation()
    def reclaim_sets(self) -> None:
        reclaimed = self.perform(reclaim_stale_sets("default", now=self.now))
        assert self.model.reclaim(self.now.seconds) == reclaimed

    @invariant()
    def groups_are_as_in_the_model(self) -> None:
        model, tasks = self.model, self.tasks
        for group in GROUPS:
            assert {one: model.tasks[one].score for one in model.members(group)} == tasks.members(group)
            assert bool(model.members(group)) <= (group in tasks.groups())
        for one in self.sets:
            key = f"{one.group}:{one.id}"
            assert set(model.members(one.group, one.id)) == tasks.members(key).keys()
            assert model.sets.get(one.id) == tasks.sets().get(key)
