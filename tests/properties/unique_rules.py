"""The part of the stateful model that enqueues by rules: locks of all kinds, and what is in a task's way."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition

from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import Task, TaskState
from tests.contract.enqueueing import results_of
from tests.factories import registered
from tests.properties.group_rules import GROUPS
from tests.properties.inspector_rules import IDS
from tests.properties.operations import operation
from tests.properties.order_rules import OrderRules

LOCKS = st.fixed_dictionaries(
    {"unique": st.just(3600), "until": st.sampled_from(["success", "start", "finish", "expiry"])},
    optional={
        "unique_key": st.sampled_from("kl"),
        "on_duplicate": st.sampled_from(["raise", "ignore", "return_existing", "replace_payload"]),
    },
)
PLACES = st.fixed_dictionaries(
    {"on_conflict": st.sampled_from(["raise", "replace_finished"])},
    optional={"process_in": st.sampled_from([0, 10, 60]), "group": st.sampled_from(GROUPS)},
)


class UniqueRules(OrderRules):
    """Redis, the model, and what producers with wishes do to both."""

    @operation(
        task_id=st.sampled_from(IDS), payload=st.sampled_from([b"1", b"2", b"3"]), lock=LOCKS, place=PLACES
    )
    def enqueue_by_rules(
        self, task_id: str, payload: bytes, lock: dict[str, Any], place: dict[str, Any]
    ) -> None:
        if (lock["until"], lock.get("on_duplicate")) == ("expiry", "replace_payload"):
            lock = lock | {"until": "start"}
        options = lock | place
        item = compose(Task("t", payload, task_id=task_id, **options), {}, now=self.now)
        [run] = split_runs([item])
        others = self.perform(registered(enqueue_run(run, now=self.now), run.queue))
        [result] = results_of(run, others)
        expected, holder = self.model.enqueue_by_rules(item, lock["until"], self.now.seconds)
        assert (expected, holder) == (result.status.value, result.task_id)

    @precondition(lambda self: self.model.locks)
    @operation()
    def renew_locks(self) -> None:
        running = self.model.ids(TaskState.ACTIVE)
        locks = [HeldLock(task_id, key) for key, task_id in self.model.locks.items()]
        assert len([one for one in locks if one.task_id in running]) == self.perform(
            renew_locks("default", locks)
        )

    @invariant()
    def payloads_and_rules_are_as_in_the_model(self) -> None:
        for task_id, task in self.model.tasks.items():
            fields = self.tasks.fields(task_id)
            if task.payload is not None:
                assert task.payload == decode_task_message(fields["msg"]).payload
            assert task.has_rule == ("x:unique_ttl" in fields)
