"""The part of the stateful model that orders the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, LimitedBy, dequeue
from pyasynq._broker.stored_limits import set_limits
from pyasynq.limits import UNCHANGED, QueueLimits
from pyasynq.task import TaskState
from tests.properties.limit_rules import LimitRules
from tests.properties.operations import operation

if TYPE_CHECKING:
    from pyasynq._broker.dequeue import Dequeued


class OrderRules(LimitRules):
    """Redis, the model, and whose turn it is in both."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0
        """How many tasks were active or to be retried when the order began, less those that no longer are."""

    @operation(ordered=st.sampled_from([None, False, True, True]))
    def set_order(self, ordered: bool | None) -> None:
        self.perform(set_limits("default", UNCHANGED, UNCHANGED, None, None, ordered=ordered))
        if ordered and not self.model.ordered:
            self.under_way = len(self.tried())
        self.model.ordered = ordered

    def tried(self) -> list[str]:
        """Return the tasks that hold an ordered queue."""
        return self.model.ids(TaskState.ACTIVE) + self.model.ids(TaskState.RETRY)

    @invariant()
    def at_most_one_task_is_under_way_in_an_ordered_queue(self) -> None:
        """Suspects that were alone when the order started."""
        if self.model.ordered:
            number = len(self.tried())
            assert number <= max(1, self.under_way)
            self.under_way = min(self.under_way, number)

    def take(self, limit: int, token: str) -> list[tuple[str, int]]:
        """Take the task in front as a server does that learns of the order; return ids and crashes."""
        if not self.model.ordered:
            return super().take(limit, token)
        for terms in (DequeueTerms(), DequeueTerms(DequeueRules.LIMITED, QueueLimits(max_run=9))):
            refused = self.perform(dequeue("default", limit=limit, token=token, terms=terms, now=self.now))
            assert (DequeueRules.ORDERED, []) == (refused.rules, refused.tasks)
        is_held, tokens = bool(self.tried()), self.model.free_tokens(self.now.seconds)
        terms = DequeueTerms(DequeueRules.ORDERED)
        result = self.perform(dequeue("default", limit=limit, token=token, terms=terms, now=self.now))
        assert DequeueRules.ORDERED is result.rules
        assert self.kept_back(result, is_held=is_held, tokens=tokens) is result.limited_by
        return [(task.id, task.crashes) for task in result.tasks]

    def kept_back(self, result: Dequeued, *, is_held: bool, tokens: int) -> LimitedBy:
        """Return what keeps back the tasks that are left."""
        if self.model.paused or len(result.tasks) == len(self.model.pending):
            return LimitedBy.NOTHING
        if is_held or result.tasks:
            return LimitedBy.ORDER
        return LimitedBy.RATE if not tokens else LimitedBy.NOTHING
