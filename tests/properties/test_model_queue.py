"""Any sequence of operations leaves the real queue as the model has it, and sound after each step."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    run_state_machine_as_test,
)

from pyasynq._broker.delayed import delete_expired_completed, forward
from pyasynq._broker.dequeue import find_dequeued
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.leases import RecoverTask, list_expired, recover, renew
from pyasynq._broker.order import retry_in_order
from pyasynq._broker.settle import (
    ArchiveTask,
    Claim,
    CompleteTask,
    RequeueTask,
    RetryTask,
    settle_archive,
    settle_complete,
    settle_done,
    settle_requeue,
    settle_retry,
)
from pyasynq._wire.history import HistoryEntry, ProgressJson, decode_attempts, encode_attempt
from pyasynq._wire.messages import copy_task_message, decode_task_message, encode_task_message
from pyasynq.task import Task, TaskState
from tests.contract.enqueueing import results_of
from tests.contract.settling import DoneTask
from tests.factories import registered
from tests.invariants import RedisClient, check_invariants
from tests.properties.group_rules import GROUPS, OPTIONS
from tests.properties.inspector_rules import MAX_ARCHIVED
from tests.properties.model_queue import LEASE, Attempt
from tests.properties.operations import drawn, operation
from tests.properties.unique_rules import UniqueRules

if TYPE_CHECKING:
    from pyasynq._broker.settle import Settled
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Drivers

STEPS = int(os.environ.get("PYASYNQ_MODEL_STEPS", "0"))
OFTEN_ENOUGH = STEPS // 200
MOST_TIMES = 8
"""Maximum number of draws of the steps, until the rarest operation has been drawn often enough."""
# A slow machine manages 150 steps a second.
TIME_LIMIT = max(120, STEPS * MOST_TIMES // 80)
CHOICES = st.lists(st.integers(0, 30), min_size=1, max_size=2)
NEWS = st.tuples(st.sampled_from("abcdef"), st.sampled_from([b"1", b"2"]), OPTIONS)
PROGRESS = ProgressJson(b'{"done":1,"at":2000000000}')
SORTED_SETS = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED)


class QueueMachine(UniqueRules):
    """Performs each operation on Redis and on the model. Time passes only when `wait` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[Attempt] = []

    @operation(news=st.lists(NEWS, min_size=1, max_size=4))
    def enqueue(self, news: list[tuple[str, bytes, dict[str, Any]]]) -> None:
        for task_id, payload, options in news:
            item = compose(Task("t", payload, task_id=task_id, **options), {}, now=self.now)
            [run] = split_runs([item])
            others = self.perform(registered(enqueue_run(run, now=self.now), run.queue))
            [result] = results_of(run, others)
            expected = self.model.enqueue(
                task_id, item.lock, item.score, item.settings.group, self.now.seconds
            )
            assert expected == result.status.value

    @initialize(ids=st.permutations("abcdef"), active=st.integers(3, 4), grouped=st.integers(0, 2))
    def begin_in_the_middle(self, ids: list[str], active: int, grouped: int) -> None:
        """Start with work under way: what settles tasks and sets would hardly find any otherwise."""
        self.enqueue(news=[(task_id, b"1", {}) for task_id in ids[:4]])
        self.dequeue(limit=active, lost=False)
        self.enqueue(news=[(task_id, b"1", {"group": GROUPS[0]}) for task_id in ids[4 : 4 + grouped]])
        self.check_groups()

    @operation(limit=st.integers(1, 4), lost=st.booleans())
    def dequeue(self, limit: int, lost: bool) -> None:
        self.calls += 1
        token, lease_score = f"server/{self.calls}", self.now.seconds + LEASE
        taken = self.take(limit, token)
        expected = self.model.dequeue(limit, token, lease_score, self.now.seconds)
        if lost:
            found = self.perform(find_dequeued("default", token=token))
            taken = [(task.id, task.crashes) for task in found]
        assert [(task_id, self.model.tasks[task_id].crashes) for task_id in expected] == taken
        self.attempts += [Attempt(task_id, token, lease_score) for task_id in expected]

    def chosen(self, numbers: list[int]) -> list[Attempt]:
        """Return some attempts, of different tasks; those that lost their task among them."""
        picked: dict[str, Attempt] = {}
        for number in numbers:
            attempt = self.attempts[number % len(self.attempts)]
            picked.setdefault(attempt.id, attempt)
        return list(picked.values())

    def settle(self, attempts: list[Attempt], plan: Plan[Settled]) -> tuple[list[Attempt], int]:
        """Perform a settle; return the attempts that own their task, and how many tasks were trimmed."""
        owned = [attempt for attempt in attempts if self.model.owns(attempt)]
        settled = self.perform(plan)
        assert {attempt.id for attempt in attempts if attempt not in owned} == settled.refused
        self.attempts = [attempt for attempt in self.attempts if attempt not in owned]
        return owned, settled.trimmed

    def message(self, task_id: str, **changes: int) -> bytes:
        stored = self.client.hget(self.tasks.keys.task(task_id), "msg")
        if stored is None:
            return b"gone"
        message = copy_task_message(decode_task_message(stored))
        for name, value in changes.items():
            setattr(message, name, value)
        return encode_task_message(message)

    def unique_key(self, task_id: str) -> str:
        task = self.model.tasks.get(task_id)
        return task.unique_key if task else ""

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES)
    def done(self, numbers: list[int]) -> None:
        attempts = self.chosen(numbers)
        decisions = [DoneTask(*claim(attempt), self.unique_key(attempt.id)) for attempt in attempts]
        owned, _ = self.settle(attempts, settle_done("default", decisions, now=self.now))
        self.model.finish(owned, 0)

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES)
    def complete(self, numbers: list[int]) -> None:
        attempts, expires_at = self.chosen(numbers), self.now.seconds + 20
        decisions = [
            CompleteTask(
                claim(attempt),
                self.unique_key(attempt.id),
                self.message(attempt.id, completed_at=self.now.seconds, retention=20),
                expires_at,
                b"result",
            )
            for attempt in attempts
        ]
        owned, _ = self.settle(attempts, settle_complete("default", decisions, now=self.now))
        self.model.finish(owned, expires_at)

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES)
    def retry(self, numbers: list[int]) -> None:
        attempts, at = self.chosen(numbers), self.now.seconds + 15
        decisions = []
        for attempt in attempts:
            task = self.model.tasks.get(attempt.id)
            data = self.message(attempt.id, retried=task.retried + 1 if task else 0)
            record = self.record("retried")
            key = self.unique_key(attempt.id)
            decisions.append(RetryTask(claim(attempt), data, at, True, b"trace", record, PROGRESS, key))
        owned, _ = self.settle(attempts, settle_retry("default", decisions, now=self.now))
        self.model.retry(owned, at)
        self.tell(owned, "retried")

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES, seconds=st.sampled_from([0, 1, 15]))
    def snooze(self, numbers: list[int], seconds: int) -> None:
        attempts, at = self.chosen(numbers), self.now.plus(seconds).ceiling
        decisions = [
            RetryTask(claim(attempt), b"", at, False, b"", self.record("snoozed")) for attempt in attempts
        ]
        owned, _ = self.settle(attempts, settle_retry("default", decisions, now=self.now))
        self.model.snooze(owned, at)
        self.tell(owned, "snoozed")

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES)
    def retry_at_once(self, numbers: list[int]) -> None:
        attempts, at = self.chosen(numbers), self.now.seconds
        decisions = []
        for attempt in attempts:
            task = self.model.tasks.get(attempt.id)
            data = self.message(attempt.id, retried=task.retried + 1 if task else 0)
            decisions.append(RetryTask(claim(attempt), data, at, True, b"", self.record("retried")))
        plan = retry_in_order("default", decisions, now=self.now, redis_now=self.now)
        owned, _ = self.settle(attempts, plan)
        self.model.retry(owned, at)
        self.tell(owned, "retried")
        self.model.forward_tried(at)

    def record(self, outcome: str) -> HistoryEntry:
        """Return the JSON of an attempt that ends now."""
        return encode_attempt(outcome, "", server="s", started_at=None, ended_at=self.now.seconds)

    def tell(self, attempts: list[Attempt], outcome: str) -> None:
        """Note in the model what `record` said."""
        self.model.tell([attempt.id for attempt in attempts], f"{outcome} {self.now.seconds}")

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES)
    def archive(self, numbers: list[int]) -> None:
        attempts, now = self.chosen(numbers), self.now.seconds
        decisions = [
            ArchiveTask(
                claim(attempt),
                self.message(attempt.id, last_failed_at=now),
                now,
                b"",
                self.record("archived"),
            )
            for attempt in attempts
        ]
        plan = settle_archive("default", decisions, max_size=MAX_ARCHIVED, cutoff=0, now=self.now)
        owned, trimmed = self.settle(attempts, plan)
        assert self.model.archive(owned, now, MAX_ARCHIVED) == trimmed
        self.tell(owned, "archived")

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES)
    def requeue(self, numbers: list[int]) -> None:
        attempts = self.chosen(numbers)
        decisions = [RequeueTask(claim(attempt)) for attempt in attempts]
        owned, _ = self.settle(attempts, settle_requeue("default", decisions, now=self.now))
        self.model.put_back([attempt.id for attempt in owned], crashed=False)

    @precondition(lambda self: self.attempts)
    @operation(numbers=CHOICES, vanished=st.booleans())
    def renew(self, numbers: list[int], vanished: bool) -> None:
        attempts = self.chosen(numbers)
        owned = [attempt for attempt in attempts if self.model.owns(attempt)]
        if vanished and owned:
            self.client.zrem(self.tasks.keys.lease, owned[0].id)
        renewed = self.perform(renew("default", [claim(attempt) for attempt in attempts], now=self.now))
        assert [attempt.id for attempt in attempts if attempt not in owned] == renewed.lost
        for attempt in owned:
            assert attempt.lease_score <= renewed.lease_score, "a lease never moves backward"
            attempt.lease_score = self.model.tasks[attempt.id].score = renewed.lease_score

    @precondition(lambda self: self.model.tasks)
    @operation()
    def recover(self) -> None:
        expired = self.model.expired(self.now.seconds)
        listed = self.perform(list_expired("default", now=self.now))
        assert expired == [task.id for task in listed]
        record = self.record("crashed")
        seen = [RecoverTask(task.id, task.token, task.lease_score, record) for task in listed]
        recovered = {task.id: task.losses for task in self.perform(recover("default", seen, now=self.now))}
        self.model.put_back(expired, crashed=True)
        self.model.tell(expired, f"crashed {self.now.seconds}")
        assert {task_id: self.model.tasks[task_id].crashes for task_id in expired} == recovered

    @precondition(lambda self: self.model.tasks)
    @operation()
    def forward(self) -> None:
        result = self.perform(forward("default", now=self.now, limit=2))
        assert self.model.forward(self.now.seconds) == result.moved
        waiting = [*self.model.ids(TaskState.SCHEDULED), *self.model.ids(TaskState.RETRY)]
        assert min((self.model.tasks[one].score for one in waiting), default=None) == result.next_due

    @precondition(lambda self: self.model.tasks)
    @operation()
    def delete_expired(self) -> None:
        deleted = self.perform(delete_expired_completed("default", batch=2, now=self.now))
        assert self.model.delete_expired(self.now.seconds) == deleted

    @operation(seconds=st.sampled_from([1, 5, 15, 36, 120]))
    def wait(self, seconds: int) -> None:
        self.now = self.now.plus(seconds)

    @invariant()
    def redis_is_as_the_model(self) -> None:
        check_invariants(self.client, max_archived=MAX_ARCHIVED, ids_return=True)
        model, tasks = self.model, self.tasks
        assert model.pending == tasks.ids("pending")
        for state in SORTED_SETS:
            assert {one: model.tasks[one].score for one in model.ids(state)} == tasks.scores(state.value)
        assert {one: model.tasks[one].score for one in model.ids(TaskState.ACTIVE)} == tasks.scores("lease")
        locks = {key.decode(): self.client.get(key).decode() for key in self.client.keys("*:unique:*")}
        assert model.locks == locks
        for task_id, task in model.tasks.items():
            attempts = decode_attempts(self.client.hget(tasks.keys.task(task_id), "x:attempts"))
            assert task.attempts == [f"{one.outcome} {one.ended_at.timestamp():.0f}" for one in attempts]
        counts = tasks.counts()
        assert (model.processed, model.failed) == (counts.get("processed", 0), counts.get("failed", 0))


def claim(attempt: Attempt) -> Claim:
    """Return what an attempt shows."""
    return Claim(attempt.id, attempt.token, attempt.lease_score)


@pytest.mark.timeout(TIME_LIMIT)
def test_any_sequence_of_operations_is_as_the_model(redis_client: RedisClient, drivers: Drivers) -> None:
    """A failure prints the sequence and how to run it again.

    It takes about 500 steps. With PYASYNQ_MODEL_STEPS=10000 it takes 10,000, and each operation must have
    been drawn 50 times: once in 200 steps.
    """

    class Machine(QueueMachine):
        client = redis_client

    Machine.drivers = drivers
    limits = settings(
        max_examples=100 if STEPS else 12, stateful_step_count=40, deadline=None, print_blob=True
    )
    for name in drawn:
        drawn[name] = 0
    run_state_machine_as_test(Machine, settings=limits)
    # Chance may neglect an operation; then it gets more chances.
    while drawn.total() < STEPS or (
        min(drawn.values()) < OFTEN_ENOUGH and drawn.total() < MOST_TIMES * STEPS
    ):
        run_state_machine_as_test(Machine, settings=limits)
    check_invariants(redis_client, max_archived=MAX_ARCHIVED, ids_return=True)
    redis_client.flushall()  # the check after each test does not know that ids return here
    if STEPS:
        lines = [f"{times:7} {name}" for name, times in drawn.most_common()]
        sys.stdout.write("\n".join(["", f"{drawn.total()} operations, of which", *lines, ""]))
        assert {} == {name: times for name, times in drawn.items() if times < OFTEN_ENOUGH}
