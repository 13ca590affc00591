"""The part of the stateful model that inspects: what people do by hand."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from hypothesis import strategies as st

from pyasynq._broker.inspecting.actions import (
    ArchiveLimits,
    Moved,
    archive_tasks,
    delete_tasks,
    run_tasks,
)
from pyasynq._broker.inspecting.bulk import act_on_all
from pyasynq._broker.inspecting.queues import pause_queue, unpause_queue
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._broker.inspecting.updates import update_process_at
from pyasynq.errors import (
    QueueBusyError,
    QueueNotEmptyError,
    QueueNotFoundError,
    TaskNotFoundError,
    TaskStateError,
)
from pyasynq.info import BulkResult
from pyasynq.task import TaskState
from tests.properties.group_rules import GroupRules
from tests.properties.operations import operation

IDS = "abcdef"
MAX_ARCHIVED = 3


class InspectorRules(GroupRules):
    """Redis, the model, and what an inspector does to both."""

    @operation()
    def pause_or_go_on(self) -> None:
        self.model.paused = not self.model.paused
        if self.model.paused:
            self.perform(pause_queue("default", now=self.now))
        else:
            self.perform(unpause_queue("default"))

    def by_hand(self, task_ids: list[str], forbidden: set[TaskState]) -> tuple[list[str], dict[str, str]]:
        """Return which tasks an inspector may touch, and why it may not touch the others."""
        found: dict[str, str] = {}
        for task_id in task_ids:
            task = self.model.tasks.get(task_id)
            if task is None or task.state in forbidden:
                found[task_id] = task.state.value if task else "missing"
            elif task.state is TaskState.AGGREGATING and task.set_id:
                found[task_id] = "aggregated"
        return [task_id for task_id in task_ids if task_id not in found], found

    @operation(ids=st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=3))
    def run_by_hand(self, ids: list[str]) -> None:
        expected, refused = self.by_hand(ids, {TaskState.ACTIVE, TaskState.PENDING})
        assert Moved(len(expected), refused) == self.perform(run_tasks("default", ids, now=self.now))
        self.model.run_by_hand(expected)

    @operation(ids=st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=3))
    def archive_by_hand(self, ids: list[str]) -> None:
        expected, refused = self.by_hand(ids, {TaskState.ACTIVE, TaskState.ARCHIVED})
        limits = ArchiveLimits(MAX_ARCHIVED, 0)
        moved = self.perform(archive_tasks("default", ids, limits=limits, now=self.now))
        trimmed = self.model.archive_by_hand(expected, self.now.seconds, MAX_ARCHIVED) if expected else 0
        assert Moved(len(expected), refused, trimmed) == moved

    @operation(ids=st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=3))
    def delete_by_hand(self, ids: list[str]) -> None:
        expected, refused = self.by_hand(ids, {TaskState.ACTIVE})
        assert Moved(len(expected), refused) == self.perform(delete_tasks("default", ids))
        self.model.delete_by_hand(expected)

    @operation(state=st.sampled_from([TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED]))
    def run_all(self, state: TaskState) -> None:
        act = functools.partial(run_tasks, "default", now=self.now)
        expected = self.model.ids(state)
        assert BulkResult(len(expected), 0) == self.perform(act_on_all("default", state, act))
        self.model.run_by_hand(expected)

    @operation(state=st.sampled_from([TaskState.PENDING, TaskState.RETRY, TaskState.COMPLETED]))
    def delete_all(self, state: TaskState) -> None:
        act = functools.partial(delete_tasks, "default")
        expected = self.model.ids(state)
        assert BulkResult(len(expected), 0) == self.perform(act_on_all("default", state, act))
        self.model.delete_by_hand(expected)

    @operation(task_id=st.sampled_from(IDS), delay=st.sampled_from([-5, 10]))
    def reschedule(self, task_id: str, delay: int) -> None:
        task, at = self.model.tasks.get(task_id), self.now.plus(delay)
        plan = update_process_at("default", task_id, at.to_datetime(), now=self.now)
        if task and task.state in {TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED}:
            self.perform(plan)
            self.model.reschedule(task_id, at.seconds)
        else:
            with pytest.raises((TaskStateError, TaskNotFoundError, QueueNotFoundError)):
                self.perform(plan)

    @operation(force=st.booleans())
    def remove_queue(self, force: bool) -> None:
        states = Counter(task.state for task in self.model.tasks.values())
        plan = remove_queue("default", force=force, progress=None)
        if not self.client.sismember("asynq:queues", "default"):
            with pytest.raises(QueueNotFoundError):
                self.perform(plan)
        elif states[TaskState.ACTIVE] and force:
            with pytest.raises(QueueBusyError):
                self.perform(plan)
        elif states and not force:
            with pytest.raises(QueueNotEmptyError):
                self.perform(plan)
        else:
            assert states.total() == self.perform(plan)
            assert [] == self.client.keys("*")
            self.model.remove()
