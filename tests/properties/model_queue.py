"""A queue as it ought to be, in a few dictionaries: what the real one is compared with after each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq.task import TaskState

if TYPE_CHECKING:
    from pyasynq._broker.groups import GroupLimits

OWN_SLACK = 5
LEASE = 30


@dataclass
class ModelTask:
    """A task; `score` is that of its sorted set, the end of its lease while it is active.

    It has a `group` from its first day on; `set_id` names the aggregation set that it is in.
    """

    state: TaskState
    unique_key: str = ""
    score: int = 0
    token: str = ""
    crashes: int = 0
    retried: int = 0
    group: str = ""
    set_id: str = ""


@dataclass
class Attempt:
    """What a worker believes: that it has the task, until this second. It may be wrong."""

    id: str
    token: str
    lease_score: int


@dataclass
class ModelQueue:
    """The queue. Every method takes the present in whole seconds, and rounds nothing."""

    tasks: dict[str, ModelTask] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    locks: dict[str, str] = field(default_factory=dict)
    paused: bool = False
    processed: int = 0
    failed: int = 0
    sets: dict[str, int] = field(default_factory=dict)
    """Id of each aggregation set, and the second at which it is stale."""

    def ids(self, state: TaskState) -> list[str]:
        """Ids of a state by score, equal ones by id, as in a sorted set."""
        found = [task_id for task_id, task in self.tasks.items() if task.state is state]
        return sorted(found, key=lambda task_id: (self.tasks[task_id].score, task_id))

    def enqueue(self, task_id: str, unique_key: str, due: int, group: str, now: int) -> str:
        """Add a task: scheduled if it is due at a time, else in its group; return what becomes of it."""
        if task_id in self.tasks:
            return "conflict"
        if unique_key in self.locks:
            return "duplicate"
        if unique_key:
            self.locks[unique_key] = task_id
        self.tasks[task_id] = ModelTask(TaskState.SCHEDULED, unique_key, due, group=group)
        if not due:
            self._release_from_time(task_id, now)
        return "enqueued"

    def members(self, group: str, set_id: str = "") -> list[str]:
        """Ids of a group, or of one of its aggregation sets, by the second at which they joined."""
        ids = self.ids(TaskState.AGGREGATING)
        return [one for one in ids if (self.tasks[one].group, self.tasks[one].set_id) == (group, set_id)]

    def is_due(self, group: str, limits: GroupLimits, now: int) -> bool:
        """Is the group to be aggregated?"""
        scores = [self.tasks[one].score for one in self.members(group)]
        return bool(scores) and (
            len(scores) >= limits.max_size
            or scores[-1] <= now - limits.grace
            or scores[0] <= now - limits.max_delay
        )

    def stage(self, group: str, set_id: str, most: int, stale_at: int) -> list[str]:
        """Move the oldest members into a set; return them."""
        taken = self.members(group)[:most]
        for task_id in taken:
            self.tasks[task_id].set_id = set_id
        self.sets[set_id] = stale_at
        return taken

    def aggregate(self, set_id: str, unique_key: str, due: int, group: str, now: int) -> str:
        """Replace a set by a task with the set's id; return what becomes of it."""
        if set_id not in self.sets:
            return "LOST"
        members = [one for one, task in self.tasks.items() if task.set_id == set_id]
        if self.locks.get(unique_key, members[0]) not in members:
            return "DUPLICATE"
        for task_id in members:
            self._release(task_id)
            del self.tasks[task_id]
        del self.sets[set_id]
        assert self.enqueue(set_id, unique_key, due, group, now) == "enqueued"
        return "DONE"

    def reclaim(self, now: int) -> tuple[int, int]:
        """Put members of stale sets back into their groups; return how many sets, and members."""
        stale = [set_id for set_id, stale_at in self.sets.items() if stale_at <= now]
        back = [task for task in self.tasks.values() if task.set_id in stale]
        for task in back:
            task.set_id = ""
        for set_id in stale:
            del self.sets[set_id]
        return len(stale), len(back)

    def dequeue(self, limit: int, token: str, lease_score: int) -> list[str]:
        """Take tasks from the front."""
        taken = [] if self.paused else self.pending[:limit]
        self.pending = self.pending[len(taken) :]
        for task_id in taken:
            task = self.tasks[task_id]
            task.state, task.token, task.score = TaskState.ACTIVE, token, lease_score
        return taken

    def owns(self, attempt: Attempt) -> bool:
        """Does the attempt still have its task?"""
        task = self.tasks.get(attempt.id)
        return bool(
            task
            and task.state is TaskState.ACTIVE
            and task.token == attempt.token
            and task.score <= attempt.lease_score
        )

    def finish(self, attempts: list[Attempt], expires_at: int) -> None:
        """Delete tasks, or keep them until a second; release their locks."""
        for attempt in attempts:
            self._release(attempt.id)
            self.processed += 1
            if expires_at:
                self._end(attempt.id, TaskState.COMPLETED, expires_at)
            else:
                del self.tasks[attempt.id]

    def retry(self, attempts: list[Attempt], at: int) -> None:
        """Set failed tasks aside."""
        for attempt in attempts:
            self._end(attempt.id, TaskState.RETRY, at)
            self.tasks[attempt.id].retried += 1
            self._count_failure()

    def archive(self, attempts: list[Attempt], now: int, max_size: int) -> int:
        """Archive tasks, room is made first; return how many were trimmed."""
        archived = self.ids(TaskState.ARCHIVED)
        trimmed = archived[: max(0, len(archived) + len(attempts) - max_size)]
        for task_id in trimmed:
            self._release(task_id)
            del self.tasks[task_id]
        for attempt in attempts:
            self._end(attempt.id, TaskState.ARCHIVED, now)
            self._count_failure()
        return len(trimmed)

    def put_back(self, task_ids: list[str], *, crashed: bool) -> None:
        """Put active tasks to the front."""
        for task_id in task_ids:
            task = self.tasks[task_id]
            task.state, task.token, task.score = TaskState.PENDING, "", 0
            task.crashes += crashed
        self.pending = task_ids + self.pending

    def expired(self, now: int) -> list[str]:
        """Active tasks whose lease ended some seconds ago."""
        return [one for one in self.ids(TaskState.ACTIVE) if self.tasks[one].score <= now - OWN_SLACK]

    def forward(self, now: int) -> int:
        """Move due tasks to the end; return how many."""
        moved = 0
        for state in (TaskState.SCHEDULED, TaskState.RETRY):
            for task_id in self.ids(state):
                task = self.tasks[task_id]
                if task.score <= now:
                    self._release_from_time(task_id, now)
                    moved += 1
        return moved

    def delete_expired(self, now: int) -> int:
        """Delete completed tasks whose time is over; return how many."""
        over = [one for one in self.ids(TaskState.COMPLETED) if self.tasks[one].score <= now]
        for task_id in over:
            del self.tasks[task_id]
        return len(over)

    def _release_from_time(self, task_id: str, now: int) -> None:
        task = self.tasks[task_id]
        if task.group:
            task.state, task.score = TaskState.AGGREGATING, now
        else:
            task.state, task.score = TaskState.PENDING, 0
            self.pending.append(task_id)

    def _end(self, task_id: str, state: TaskState, score: int) -> None:
        task = self.tasks[task_id]
        task.state, task.score, task.token, task.crashes = state, score, "", 0

    def _release(self, task_id: str) -> None:
        key = self.tasks[task_id].unique_key
        if self.locks.get(key) == task_id:
            del self.locks[key]

    def _count_failure(self) -> None:
        self.processed += 1
        self.failed += 1
