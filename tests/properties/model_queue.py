"""A queue as it ought to be, in a few dictionaries: what the real one is compared with after each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from pyasynq._broker.enqueueing.compose import ConflictRules
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._broker.groups import GroupLimits

INTERVAL, BURST = 5, 2
"""Seconds from one token to the next, and how many are saved, while there is a rate."""
OWN_SLACK = 5
_FINISHED = (TaskState.ARCHIVED, TaskState.COMPLETED)
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
    attempts: list[str] = field(default_factory=list)
    """What is told of each attempt that did not succeed, oldest first."""
    until: str = "success"
    """When the lock goes; one until its expiry has no `unique_key`, since it only expires."""
    has_rule: bool = False
    """Whether Redis remembers for how long the lock was asked for: as long as it may be the task's."""
    payload: bytes | None = None


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
    ordered: bool | None = None
    """Whether tasks run one after the other; False and None differ only in the stored value."""
    concurrency: int | None = None
    has_rate: bool = False
    level: Fraction = Fraction(BURST)
    """Tokens, as of a second; they flow whether there is a rate or not."""
    level_at: int = 0

    def ids(self, state: TaskState) -> list[str]:
        """Ids of a state by score, equal ones by id, as in a sorted set."""
        found = [task_id for task_id, task in self.tasks.items() if task.state is state]
        return sorted(found, key=lambda task_id: (self.tasks[task_id].score, task_id))

    def enqueue(
        self, task_id: str, unique_key: str, due: int, group: str, now: int, until: str = "success"
    ) -> str:
        """Add a task: scheduled if it is due at a time, else in its group; return the outcome."""
        if task_id in self.tasks:
            return "conflict"
        if unique_key in self.locks:
            return "duplicate"
        if unique_key:
            self.locks[unique_key] = task_id
        named = unique_key if until != "expiry" else ""
        task = ModelTask(TaskState.SCHEDULED, named, due, group=group, until=until, has_rule=bool(named))
        self.tasks[task_id] = task
        if not due:
            self._release_from_time(task_id, now)
        return "enqueued"

    def enqueue_by_rules(self, item: Composed, until: str, now: int) -> tuple[str, str]:
        """Add a task, or do what its rules say about those in its way; return a word and an id."""
        rules = item.rules or ConflictRules("raise", "raise", None, b"")
        task_id = item.id
        task, holder = self.tasks.get(task_id), self.locks.get(item.lock)
        goes = task and rules.on_conflict == "replace_finished" and task.state in _FINISHED
        if goes and holder == task_id:
            holder = None
        if task and not goes and (holder != task_id or rules.on_duplicate == "raise"):
            return "conflict", task_id
        if holder is not None:
            return self._meet(item, rules, holder, now)
        if goes:
            self._release(task_id)
            del self.tasks[task_id]
        word = self.enqueue(task_id, item.lock, item.score, item.settings.group, now, until)
        self.tasks[task_id].payload = item.payload
        return word, task_id

    def _meet(self, item: Composed, rules: ConflictRules, holder: str, now: int) -> tuple[str, str]:
        task = self.tasks.get(holder)
        waits = task and not task.set_id and task.state not in {TaskState.ACTIVE, *_FINISHED}
        if rules.on_duplicate == "ignore":
            return "ignored", item.id
        if rules.on_duplicate == "return_existing" and task:
            return "existing", holder
        if rules.on_duplicate != "replace_payload" or not task or not waits:
            return "duplicate", item.id
        task.payload = item.payload
        is_timed = task.state in {TaskState.SCHEDULED, TaskState.RETRY}
        if rules.process_at:
            self._leave_pending(holder)
            task.score = rules.process_at
            task.state = task.state if is_timed else TaskState.SCHEDULED
        elif rules.process_at == 0 and is_timed:
            task.score = now
        return "replaced", holder

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
        """Replace a set by a task with the set's id; return the outcome."""
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

    def free_slots(self, now: int) -> int:
        """How many more tasks may run?"""
        if self.ordered:
            return 0 if self.ids(TaskState.ACTIVE) or self.ids(TaskState.RETRY) else 1
        if self.concurrency is None:
            return len(self.tasks) + 1_000
        running = [one for one in self.ids(TaskState.ACTIVE) if self.tasks[one].score > now]
        return max(0, self.concurrency - len(running))

    def free_tokens(self, now: int) -> int:
        """How many more tasks may start?"""
        self.level = min(Fraction(BURST), self.level + Fraction(now - self.level_at, INTERVAL))
        self.level_at = now
        return int(self.level) if self.has_rate else len(self.tasks) + 1_000

    def dequeue(self, limit: int, token: str, lease_score: int, now: int) -> list[str]:
        """Take tasks from the front, as many as the limits leave."""
        room = min(limit, self.free_slots(now), self.free_tokens(now))
        taken = [] if self.paused else self.pending[:room]
        if self.has_rate:
            self.level -= len(taken)
        self.pending = self.pending[len(taken) :]
        for task_id in taken:
            task = self.tasks[task_id]
            task.state, task.token, task.score = TaskState.ACTIVE, token, lease_score
            if task.until == "start":
                self._release(task_id)
                task.has_rule = False
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
        self.snooze(attempts, at)
        for attempt in attempts:
            self.tasks[attempt.id].retried += 1
            self._count_failure()

    def snooze(self, attempts: list[Attempt], at: int) -> None:
        """Set tasks aside that have not failed."""
        for attempt in attempts:
            self._end(attempt.id, TaskState.RETRY, at)

    def tell(self, task_ids: list[str], what: str) -> None:
        """Keep what is told of an attempt at each of these tasks, the newest ten."""
        for task_id in task_ids:
            self.tasks[task_id].attempts = [*self.tasks[task_id].attempts[-9:], what]

    def archive(self, attempts: list[Attempt], now: int, max_size: int) -> int:
        """Archive tasks, room is made first; return how many were trimmed."""
        archived = self.ids(TaskState.ARCHIVED)
        trimmed = archived[: max(0, len(archived) + len(attempts) - max_size)]
        for task_id in trimmed:
            self._release(task_id)
            del self.tasks[task_id]
        for attempt in attempts:
            self._end(attempt.id, TaskState.ARCHIVED, now)
            self._release_finished(attempt.id)
            self._count_failure()
        return len(trimmed)

    def put_back(self, task_ids: list[str], *, crashed: bool) -> None:
        """Put active tasks to the front."""
        for task_id in task_ids:
            self.tasks[task_id].crashes += crashed
        self._to_front(task_ids)

    def expired(self, now: int) -> list[str]:
        """Active tasks whose lease ended some seconds ago."""
        return [one for one in self.ids(TaskState.ACTIVE) if self.tasks[one].score <= now - OWN_SLACK]

    def forward(self, now: int) -> int:
        """Move due tasks to the end; return how many."""
        moved = 0
        for task_id in self.ids(TaskState.SCHEDULED):
            if self.tasks[task_id].score <= now:
                self._release_from_time(task_id, now)
                moved += 1
        return moved + self.forward_tried(now)

    def forward_tried(self, now: int) -> int:
        """Move tried ones to the end, or to the front of an ordered queue; return how many."""
        due = [task_id for task_id in self.ids(TaskState.RETRY) if self.tasks[task_id].score <= now]
        if self.ordered:
            self._to_front(due)
        else:
            for task_id in due:
                self._release_from_time(task_id, now)
        return len(due)

    def delete_expired(self, now: int) -> int:
        """Delete completed tasks whose time is over; return how many."""
        over = [one for one in self.ids(TaskState.COMPLETED) if self.tasks[one].score <= now]
        for task_id in over:
            del self.tasks[task_id]
        return len(over)

    def run_by_hand(self, task_ids: list[str]) -> None:
        """Put tasks at the end; in an ordered queue, those that were tried in front."""
        tried = [one for one in task_ids if self.ordered and self.tasks[one].state is TaskState.RETRY]
        for task_id in task_ids:
            if task_id not in tried:
                task = self.tasks[task_id]
                task.state, task.score = TaskState.PENDING, 0
                self.pending.append(task_id)
        self._to_front(tried)

    def archive_by_hand(self, task_ids: list[str], now: int, max_size: int) -> int:
        """Archive tasks, uncounted; room is made as for a worker. Return how many were trimmed."""
        archived = self.ids(TaskState.ARCHIVED)
        trimmed = archived[: max(0, len(archived) + len(task_ids) - max_size)]
        self.delete_by_hand(trimmed)
        for task_id in task_ids:
            self._leave_pending(task_id)
            self._end(task_id, TaskState.ARCHIVED, now)
            self._release_finished(task_id)
        return len(trimmed)

    def delete_by_hand(self, task_ids: list[str]) -> None:
        """Delete tasks with the locks they own."""
        for task_id in task_ids:
            self._leave_pending(task_id)
            self._release(task_id)
            del self.tasks[task_id]

    def reschedule(self, task_id: str, at: int) -> None:
        """Give a task another time."""
        task = self.tasks[task_id]
        task.score = at
        if task.state is TaskState.ARCHIVED:
            task.state = TaskState.SCHEDULED

    def remove(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc] # a removed queue is a new one

    def _to_front(self, task_ids: list[str]) -> None:
        for task_id in task_ids:
            task = self.tasks[task_id]
            task.state, task.token, task.score = TaskState.PENDING, "", 0
        self.pending = task_ids + self.pending

    def _leave_pending(self, task_id: str) -> None:
        if task_id in self.pending:
            self.pending.remove(task_id)

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

    def _release_finished(self, task_id: str) -> None:
        if self.tasks[task_id].until in {"start", "finish"}:
            self._release(task_id)

    def _count_failure(self) -> None:
        self.processed += 1
        self.failed += 1
