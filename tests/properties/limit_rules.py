"""The part of the stateful model that limits the queue."""

from __future__ import annotations

from hypothesis import strategies as st

from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, LimitedBy, dequeue
from pyasynq._broker.stored_limits import set_limits
from pyasynq.limits import UNCHANGED
from tests.properties.inspector_rules import InspectorRules
from tests.properties.model_queue import BURST, INTERVAL
from tests.properties.operations import operation


class LimitRules(InspectorRules):
    """Redis, the model, and how many tasks both let out."""

    @operation(
        concurrency=st.sampled_from([UNCHANGED, None, 1, 2]),
        limited=st.sampled_from([UNCHANGED, None, True]),
    )
    def set_limits(self, concurrency: object, limited: object) -> None:
        rate = 1 if limited is True else limited
        period, burst = (INTERVAL, BURST) if limited is True else (None, None)
        self.perform(set_limits("default", concurrency, rate, period, burst))  # type: ignore[arg-type]
        if concurrency is not UNCHANGED:
            self.model.concurrency = concurrency  # type: ignore[assignment]
        if limited is not UNCHANGED:
            self.model.has_rate = limited is True

    def take(self, limit: int, token: str) -> list[tuple[str, int]]:
        """Take tasks as a server does that learns of limits; return ids and crashes."""
        terms = DequeueTerms()
        rules = DequeueRules.LIMITED if self.model.ordered is None else DequeueRules.UNORDERED
        limited = rules is DequeueRules.UNORDERED or self.model.has_rate or self.model.concurrency is not None
        waiting, now = bool(self.model.pending) and not self.model.paused, self.now.seconds
        slots, tokens = self.model.free_slots(now), self.model.free_tokens(now)
        if limited:
            refused = self.perform(dequeue("default", limit=limit, token=token, now=self.now))
            assert (rules, [], False) == (refused.rules, refused.tasks, refused.empty)
            terms = DequeueTerms(rules)
        result = self.perform(dequeue("default", limit=limit, token=token, terms=terms, now=self.now))
        left = len(self.model.pending) - len(result.tasks)
        if limited and waiting and left and min(slots, tokens) < limit:
            by = LimitedBy.CONCURRENCY if slots <= tokens else LimitedBy.RATE
            assert by is result.limited_by
            assert result.wait > 0
        else:
            assert LimitedBy.NOTHING is result.limited_by
        return [(task.id, task.crashes) for task in result.tasks]
