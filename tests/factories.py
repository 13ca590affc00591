"""Factory of tasks in any state, written directly to a real server, without the code under test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from pyasynq._broker.queue_registry import register_queues
from pyasynq._broker.settle import Claim
from pyasynq._clock import Instant
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq._wire.messages import TaskMessageFields, encode_task_message, new_task_message
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.invariants import RedisClient

T = TypeVar("T")

NOW = Instant(2_000_000_000, 250_000)
"""The present of contract tests: it has a fraction, to show who rounds which way, and lies in the future, so
that no expiry of theirs has passed."""

LEASE_SCORE = NOW.ceiling + 30
TOKEN = "server/1"
DAY = "2033-05-18"
PENDING_SINCE = b"2000000000250000000"


def message_bytes(task_id: str, in_queue: str = "default", /, **fields: Unpack[TaskMessageFields]) -> bytes:
    """Return the bytes of a message as a client makes it."""
    values: TaskMessageFields = {"type": "email:deliver", "payload": b"{}", "retry": 25, "timeout": 1800}
    values.update(fields)
    values.update({"id": task_id, "queue": in_queue})
    return encode_task_message(new_task_message(**values))


def claim(task_id: str, *, token: str = TOKEN, lease_score: int = LEASE_SCORE) -> Claim:
    """Return what the attempt of a task that `put_active` made would show."""
    return Claim(task_id, token, lease_score)


def registered(plan: Plan[T], queue: str) -> Plan[T]:
    """Return a plan that also writes the name of the queue that it puts tasks into, as a registrar does."""
    result = yield from plan
    yield from register_queues([queue])
    return result


class Tasks:
    """Makes tasks in one queue."""

    def __init__(self, client: RedisClient, queue: str = "default") -> None:
        self.client = client
        self.keys = queue_keys(queue)

    def put(
        self,
        state: TaskState,
        *ids: str,
        score: int | None = None,
        group: str = "",
        extra: dict[str, Any] | None = None,
        **fields: Unpack[TaskMessageFields],
    ) -> None:
        """Put tasks into a state. A score that is not given is now, or what the message's times ask for."""
        if group:
            fields["group_key"] = group
        if not ids:
            return
        self.client.sadd(ALL_QUEUES, self.keys.queue)
        batch = self.client.pipeline(transaction=False)
        for task_id in ids:
            data = message_bytes(task_id, self.keys.queue, **fields)
            values: dict[str, Any] = {"msg": data, "state": state.value, **(extra or {})}
            if state is TaskState.PENDING:
                values["pending_since"] = PENDING_SINCE
            if group:
                values["group"] = group
            if unique_key := fields.get("unique_key"):
                values["unique_key"] = unique_key
                batch.set(unique_key, task_id, ex=3600)
            batch.hset(self.keys.task(task_id), mapping=values)
            self._place(batch, state, task_id, NOW.seconds if score is None else score, group)
        batch.execute()

    def _place(self, batch: Any, state: TaskState, task_id: str, score: int, group: str) -> None:
        if state is TaskState.AGGREGATING:
            batch.zadd(self.keys.group(group), {task_id: score})
            batch.sadd(self.keys.groups, group)
        elif state in {TaskState.PENDING, TaskState.ACTIVE}:
            batch.lpush(getattr(self.keys, state.value), task_id)
        else:
            batch.zadd(getattr(self.keys, state.value), {task_id: score})

    def pending(self, *ids: str, **fields: Unpack[TaskMessageFields]) -> None:
        """Put tasks at the end of the queue, one after another."""
        self.put(TaskState.PENDING, *ids, **fields)

    def active(
        self,
        *ids: str,
        token: str = TOKEN,
        lease: int | None = LEASE_SCORE,
        crashes: int = 0,
        extra: dict[str, Any] | None = None,
        **fields: Unpack[TaskMessageFields],
    ) -> None:
        """Make tasks active; an empty token is what a worker in Go leaves, None as lease is damage."""
        own = {"x:attempt": token} if token else {}
        counted = {"x:crashes": crashes} if crashes else {}
        self.put(TaskState.ACTIVE, *ids, extra=own | counted | (extra or {}), **fields)
        if lease is not None:
            self.client.zadd(self.keys.lease, dict.fromkeys(ids, lease))

    def in_set(
        self, group: str, set_id: str, *ids: str, stale_at: int = NOW.ceiling + 120, **fields: Any
    ) -> None:
        """Make members of an aggregation set; the group itself is left without members."""
        self.put(TaskState.AGGREGATING, *ids, group=group, **fields)
        key = self.keys.aggregation_set(group, set_id)
        self.client.rename(self.keys.group(group), key)
        self.client.srem(self.keys.groups, group)
        self.client.zadd(self.keys.aggregation_sets, {key: stale_at})

    def members(self, group: str) -> dict[str, int]:
        """Return ids and scores of a group; `group:set` names an aggregation set."""
        return self._scores(self.keys.group(group))

    def groups(self) -> set[str]:
        """Return the members of the key `groups`."""
        return {name.decode() for name in self.client.smembers(self.keys.groups)}

    def sets(self) -> dict[str, int]:
        """Return `group:set` of each aggregation set, and the second it is stale."""
        scores = self._scores(self.keys.aggregation_sets)
        return {key.removeprefix(self.keys.group_prefix): score for key, score in scores.items()}

    def fields(self, task_id: str) -> dict[str, bytes]:
        """Return a task's hash."""
        return {name.decode(): value for name, value in self.client.hgetall(self.keys.task(task_id)).items()}

    def ids(self, collection: str) -> list[str]:
        """Return the ids of a collection: a list's in the order in which they are taken, a set's by score."""
        key = getattr(self.keys, collection)
        if self.client.type(key) == b"list":
            return [task_id.decode() for task_id in reversed(self.client.lrange(key, 0, -1))]
        return [task_id.decode() for task_id in self.client.zrange(key, 0, -1)]

    def scores(self, collection: str) -> dict[str, int]:
        """Return ids and scores of a sorted set."""
        return self._scores(getattr(self.keys, collection))

    def _scores(self, key: str) -> dict[str, int]:
        entries = self.client.zrange(key, 0, -1, withscores=True)
        return {task_id.decode(): int(score) for task_id, score in entries}

    def counts(self) -> dict[str, int]:
        """Return the four counters that are not zero; `_today` is that of the day of NOW."""
        names = {
            "processed": self.keys.processed,
            "failed": self.keys.failed,
            "processed_today": f"{self.keys.processed}:{DAY}",
            "failed_today": f"{self.keys.failed}:{DAY}",
        }
        values = {name: self.client.get(key) for name, key in names.items()}
        return {name: int(value) for name, value in values.items() if value}
