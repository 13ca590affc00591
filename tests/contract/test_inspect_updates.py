"""Changing payload and time of tasks that wait or are archived."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting import updates
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import (
    DuplicateTaskError,
    InvalidOptionError,
    PayloadChangedError,
    TaskNotFoundError,
    TaskStateError,
)
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import aggregate, put
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer
from tests.waiting import set_to

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

CHANGEABLE = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED)
LATER = NOW.plus(5)
DUE = datetime.fromtimestamp(NOW.seconds + 500, UTC)


def update(payload: bytes | None = b"new", *, relock: bool = False, task_id: str = "a") -> Plan[None]:
    """Update the payload of a task."""
    return updates.update_payload("default", task_id, payload, relock=relock)


def reschedule(when: datetime = DUE, task_id: str = "a") -> Plan[None]:
    """Give a task another time, five seconds later."""
    return updates.update_process_at("default", task_id, when, now=LATER)


@pytest.mark.parametrize("state", CHANGEABLE)
def test_a_payload_is_replaced_and_nothing_else(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """Asynq does this for scheduled tasks; retry and archived ones wait for their time just as well."""
    tasks.put(state, "a", error_msg="oops", extra={"x:trace": "t"})
    before = tasks.fields("a")
    perform(update())
    assert before | {"msg": message_bytes("a", error_msg="oops", payload=b"new")} == tasks.fields("a")
    perform(update(None))
    assert b"" == decode_task_message(tasks.fields("a")["msg"]).payload


def test_w35_the_lock_stays_unless_it_is_asked_to_move(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """As in Asynq: the task keeps the lock of the payload that it had."""
    old = tasks.keys.unique("email:deliver", b"{}")
    tasks.put(TaskState.SCHEDULED, "a", unique_key=old)
    perform(update())
    assert [old.encode()] == redis_client.keys("*:unique:*")
    assert old == decode_task_message(tasks.fields("a")["msg"]).unique_key


@pytest.mark.parametrize("payload", [b"new", b"", None, b"{}"])
def test_w35_the_lock_moves_to_the_new_payload_with_the_time_it_has(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, payload: bytes | None
) -> None:
    """Hash and message name the new one."""
    old = tasks.keys.unique("email:deliver", b"{}")
    new = tasks.keys.unique("email:deliver", payload)
    tasks.put(TaskState.RETRY, "a", unique_key=old)
    redis_client.expire(old, 100)
    perform(update(payload, relock=True))
    assert [new.encode()] == redis_client.keys("*:unique:*")
    assert (b"a", set_to(100)) == (redis_client.get(new), redis_client.ttl(new))
    assert new.encode() == tasks.fields("a")["unique_key"]
    assert new == decode_task_message(tasks.fields("a")["msg"]).unique_key


def test_w35_a_lock_that_is_not_the_tasks_own_does_not_move(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It has lapsed, and another task took it; only the name changes."""
    old, new = (tasks.keys.unique("email:deliver", payload) for payload in (b"{}", b"new"))
    tasks.put(TaskState.ARCHIVED, "a", "b", unique_key=old)
    perform(update(relock=True))
    assert [old.encode()] == redis_client.keys("*:unique:*")
    assert new.encode() == tasks.fields("a")["unique_key"]


def test_w35_a_lock_that_another_task_holds_is_in_the_way(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Nothing is changed."""
    old, new = (tasks.keys.unique("email:deliver", payload) for payload in (b"{}", b"new"))
    tasks.put(TaskState.SCHEDULED, "a", unique_key=old)
    tasks.put(TaskState.SCHEDULED, "b", payload=b"new", unique_key=new)
    before = tasks.fields("a")
    with pytest.raises(DuplicateTaskError, match="task 'b' in queue 'default' holds its lock") as duplicate:
        perform(update(relock=True))
    assert "b" == duplicate.value.holder
    assert (before, b"a", b"b") == (tasks.fields("a"), redis_client.get(old), redis_client.get(new))


def test_w35_a_lock_that_the_task_holds_already_is_not_in_the_way(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Someone moved the lock by hand."""
    old, new = (tasks.keys.unique("email:deliver", payload) for payload in (b"{}", b"new"))
    tasks.put(TaskState.SCHEDULED, "a", unique_key=old)
    redis_client.rename(old, new)
    perform(update(relock=True))
    assert b"a" == redis_client.get(new)


def test_w35_a_task_without_a_lock_gets_none(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It was not unique."""
    tasks.put(TaskState.SCHEDULED, "a")
    perform(update(relock=True))
    assert [] == redis_client.keys("*:unique:*")
    assert "unique_key" not in tasks.fields("a")


def test_w35_a_task_whose_hash_names_no_lock_can_be_relocked(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A unique task that Go put into a group."""
    tasks.put(TaskState.RETRY, "a", group="g", unique_key=tasks.keys.unique("email:deliver", b"{}"))
    redis_client.hdel(tasks.keys.task("a"), "unique_key")
    redis_client.delete(tasks.keys.unique("email:deliver", b"{}"))
    perform(update(relock=True))
    assert tasks.keys.unique("email:deliver", b"new").encode() == tasks.fields("a")["unique_key"]


@pytest.mark.parametrize("change", [update, reschedule])
@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.ACTIVE, TaskState.COMPLETED])
def test_tasks_in_other_states_are_left_as_they_are(
    perform: Perform, tasks: Tasks, state: TaskState, change: Any
) -> None:
    """Asynq's error, with the state."""
    put(tasks, state, "a")
    before = tasks.fields("a")
    with pytest.raises(TaskStateError, match=f"it is {state}"):
        perform(change())
    assert before == tasks.fields("a")


@pytest.mark.parametrize("change", [update, reschedule])
def test_aggregating_tasks_are_left_as_they_are(perform: Perform, tasks: Tasks, change: Any) -> None:
    """They are about to be read."""
    aggregate(tasks, "a")
    with pytest.raises(TaskStateError, match="it is aggregating"):
        perform(change())


@pytest.mark.parametrize("change", [update, reschedule])
def test_a_task_to_change_must_exist(perform: Perform, tasks: Tasks, change: Any) -> None:
    """The error is the one that Asynq returns."""
    tasks.pending("a")
    with pytest.raises(TaskNotFoundError):
        perform(change(task_id="b"))


@pytest.mark.parametrize("remains", [{"state": "scheduled"}, {"msg": "m"}])
@pytest.mark.usefixtures("damage_allowed")
def test_what_is_left_of_a_hash_cannot_be_changed(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, remains: dict[str, str]
) -> None:
    """There is no task."""
    tasks.pending("b")
    redis_client.hset(tasks.keys.task("a"), mapping=remains)
    with pytest.raises(TaskNotFoundError):
        perform(reschedule())


class Meddles(BlockingPerformer):
    """Does something before the first write of a payload."""

    meddle: Any = None

    def _send(self, call: Any) -> Any:
        if call[0] and getattr(call[0], "name", "") == "inspect/rewrite" and self.meddle:
            meddle, self.meddle = self.meddle, None
            meddle()
        return super()._send(call)


def test_a_task_that_changes_meanwhile_is_looked_at_again(redis_client: RedisClient, tasks: Tasks) -> None:
    """Asynq would bring back what it had read."""
    tasks.put(TaskState.RETRY, "a")
    perform = Meddles(redis_client)
    perform.meddle = lambda: tasks.put(TaskState.RETRY, "a", retried=7)
    perform(update())
    message = decode_task_message(tasks.fields("a")["msg"])
    assert (7, b"new") == (message.retried, message.payload)


@pytest.mark.parametrize("remains", [{}, {"state": "retry"}, {"msg": "m"}])
@pytest.mark.usefixtures("damage_allowed")
def test_a_task_that_goes_meanwhile_is_not_made_again(
    redis_client: RedisClient, tasks: Tasks, remains: dict[str, str]
) -> None:
    """W15: an orphan would be in the way of the next task of that id."""
    tasks.put(TaskState.RETRY, "a")
    perform = Meddles(redis_client)

    def remove() -> None:
        redis_client.delete(tasks.keys.task("a"))
        if remains:
            redis_client.hset(tasks.keys.task("a"), mapping=remains)

    perform.meddle = remove
    with pytest.raises(TaskNotFoundError):
        perform(update())
    assert remains.keys() == tasks.fields("a").keys()


def test_an_update_that_is_sent_again_is_the_same(redis_client: RedisClient, tasks: Tasks) -> None:
    """The message is as it is to be."""
    old = tasks.keys.unique("email:deliver", b"{}")
    tasks.put(TaskState.RETRY, "a", unique_key=old)
    BlockingPerformer(redis_client, replay=True)(update(relock=True))
    assert [tasks.keys.unique("email:deliver", b"new").encode()] == redis_client.keys("*:unique:*")


def test_a_payload_must_be_bytes(perform: Perform, tasks: Tasks) -> None:
    """Text has more than one encoding."""
    tasks.put(TaskState.RETRY, "a")
    with pytest.raises(InvalidOptionError, match=r"^payload="):
        perform(updates.update_payload("default", "a", "text", relock=False))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", CHANGEABLE)
def test_a_task_gets_another_time(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """An archived one is scheduled then; its message stays."""
    tasks.put(state, "a", score=NOW.seconds + 100)
    before = tasks.fields("a")
    perform(reschedule())
    target = "scheduled" if state is TaskState.ARCHIVED else state.value
    assert {"a": NOW.seconds + 500} == tasks.scores(target)
    assert before | {"state": target.encode()} == tasks.fields("a")


def test_w05_an_archived_task_of_a_group_waits_as_a_scheduled_one_does(
    perform: Perform, tasks: Tasks
) -> None:
    """A forwarder of Go then delivers it singly, where it would lose it with a plain `group`."""
    tasks.put(TaskState.ARCHIVED, "a", group="g")
    perform(reschedule())
    assert {"msg", "state", "x:group"} == tasks.fields("a").keys()
    assert b"g" == tasks.fields("a")["x:group"]


def test_h13_a_time_is_rounded_up(perform: Perform, tasks: Tasks) -> None:
    """No task runs early; an aware time is needed."""
    tasks.put(TaskState.SCHEDULED, "a")
    perform(reschedule(DUE.replace(microsecond=1)))
    assert {"a": NOW.seconds + 501} == tasks.scores("scheduled")
    with pytest.raises(InvalidOptionError, match="time zone"):
        perform(reschedule(DUE.replace(tzinfo=None)))


@pytest.mark.parametrize(
    ("state", "score", "longer"),
    [
        (TaskState.SCHEDULED, NOW.seconds + 100, 400),
        (TaskState.RETRY, NOW.seconds - 100, 495),
        (TaskState.ARCHIVED, NOW.seconds - 9, 495),
        (TaskState.SCHEDULED, NOW.seconds + 900, 0),
    ],
)
def test_a_lock_holds_longer_by_as_much_as_its_task_waits_longer(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, state: TaskState, score: int, longer: int
) -> None:
    """It would lapse before the task runs; an earlier time does not cut it."""
    lock = tasks.keys.unique("email:deliver", b"{}")
    tasks.put(state, "a", score=score, unique_key=lock)
    perform(reschedule())
    assert longer + 3_595 <= redis_client.ttl(lock) <= longer + 3_600


def test_a_lock_of_another_task_is_left_alone(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The task's own has lapsed."""
    lock = tasks.keys.unique("email:deliver", b"{}")
    tasks.put(TaskState.SCHEDULED, "a", "b", unique_key=lock)
    perform(reschedule())
    assert redis_client.ttl(lock) <= 3_600


def test_a_new_time_that_is_sent_again_is_the_same(redis_client: RedisClient, tasks: Tasks) -> None:
    """The lock does not hold longer and longer."""
    lock = tasks.keys.unique("email:deliver", b"{}")
    tasks.put(TaskState.ARCHIVED, "a", unique_key=lock)
    BlockingPerformer(redis_client, replay=True)(reschedule())
    assert redis_client.ttl(lock) <= 4_095


@pytest.mark.usefixtures("damage_allowed")
def test_a_task_that_lost_its_score_can_be_rescheduled(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It is in its collection again."""
    tasks.put(TaskState.SCHEDULED, "a")
    redis_client.delete(tasks.keys.scheduled)
    perform(reschedule())
    assert ["a"] == tasks.ids("scheduled")


def test_a_payload_that_somebody_else_has_changed_is_kept(perform: Perform, tasks: Tasks) -> None:
    """The caller expects the one that it has read."""
    tasks.put(TaskState.ARCHIVED, "a", payload=b"theirs")
    with pytest.raises(PayloadChangedError, match="of task 'a' in queue 'default' has changed"):
        perform(updates.update_payload("default", "a", b"mine", relock=False, expected=b"old"))
    perform(updates.update_payload("default", "a", b"mine", relock=False, expected=b"theirs"))
    assert b"mine" == decode_task_message(tasks.fields("a")["msg"]).payload
