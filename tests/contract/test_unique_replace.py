"""`on_duplicate="replace_payload"`: the task that holds the lock gets another payload, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.delayed import forward
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import DuplicateTaskError
from pyasynq.task import Task, TaskState
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.contract.uniqueness import KEY, bring_into, take, unique
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform
from tests.waiting import set_to

if TYPE_CHECKING:
    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq.task import EnqueueResult
    from tests.invariants import RedisClient

WAITING = ["pending", "scheduled", "retry", "aggregating"]


@pytest.fixture
def once(redis_client: RedisClient) -> Perform:
    """The simplest driver."""
    return BlockingPerformer(redis_client)


@pytest.fixture
def twice(redis_client: RedisClient) -> Perform:
    """Sends each call twice, as after a lost reply."""
    return BlockingPerformer(redis_client, replay=True)


def newer(task_id: str = "b", payload: bytes = b"new", **options: Any) -> Composed:
    """Return a task that replaces the payload of the one that holds its lock."""
    return unique(task_id, payload, on_duplicate="replace_payload", **options)


def replace(perform: Perform, **options: Any) -> EnqueueResult:
    """Enqueue a task whose duplicate waits; it takes the payload."""
    [result] = enqueue(perform, newer(**options))
    assert ("replaced", "a") == (result.status.value, result.task_id)
    return result


def payload_of(tasks: Tasks, task_id: str) -> bytes:
    """Return a stored task's payload."""
    return decode_task_message(tasks.fields(task_id)["msg"]).payload


@pytest.mark.parametrize("state", WAITING)
def test_a_task_that_waits_takes_the_payload_and_stays_where_it_is(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, state: str
) -> None:
    """The new task leaves no trace of its own."""
    bring_into(perform, state)
    before = {key: redis_client.dump(key) for key in redis_client.keys("*") if not key.endswith(b":t:a")}
    result = replace(perform)
    assert b"new" == payload_of(tasks, "a")
    assert before == {
        key: redis_client.dump(key) for key in redis_client.keys("*") if not key.endswith(b":t:a")
    }
    assert result.holder is not None
    assert (state, b"new", "a") == (result.holder.state.value, result.holder.payload, result.holder.id)
    assert "replaced" == result.holder.enqueue_status.value


def test_payload_and_headers_are_replaced_and_nothing_else(once: Perform, tasks: Tasks) -> None:
    """Headers tell how a payload is to be read, so they belong to it."""
    first = unique("a", b"old", headers={"codec": "zip", "tenant": "x"}, max_retry=3, timeout=9, retention=7)
    enqueue(once, first)
    replace(once, headers={"codec": "json"}, max_retry=99)
    expected = decode_task_message(first.encoded)
    expected.payload = b"new"
    expected.headers.clear()
    expected.headers["codec"] = "json"
    assert expected == decode_task_message(tasks.fields("a")["msg"])


def test_an_empty_payload_replaces_one(once: Perform, tasks: Tasks) -> None:
    """It takes no bytes in a message, so the old one must go."""
    enqueue(once, unique("a", b"old", headers={"a": "b"}))
    replace(once, payload=b"")
    message = decode_task_message(tasks.fields("a")["msg"])
    assert (b"", {}) == (message.payload, dict(message.headers))


def test_a_message_does_not_grow_with_each_replacement(once: Perform, tasks: Tasks) -> None:
    """A thousand changes leave one payload."""
    enqueue(once, unique("a", b"old"))
    for number in range(5):
        replace(once, payload=b"%d" % number * 300, headers={"number": str(number)})
    assert len(unique("a", b"4" * 300, headers={"number": "4"}).encoded) == len(tasks.fields("a")["msg"])


@pytest.mark.parametrize(
    "field",
    [
        b"\xa0\x06\x96\x01",  # 100: varint
        b"\xa1\x06\x02\x7a\x12\x02\x7a\x00\x00\x00",  # 100: 8 bytes that look like a payload and headers
        b"\xa5\x06\x12\x01\x7a\x00",  # 100: 4 bytes
        b"\xa2\x06\x04\x12\x02ab",  # 100: bytes that look like a payload
        b"\xa0\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 100: the longest varint
    ],
)
def test_unknown_fields_survive(once: Perform, tasks: Tasks, field: bytes) -> None:
    """Bytes of every kind; they end where the protobuf library says."""
    enqueue(once, unique("a", b"old"))
    stored = tasks.fields("a")["msg"]
    tasks.client.hset(tasks.keys.task("a"), "msg", field + stored + field)
    replace(once)
    expected = decode_task_message(field + stored + field)
    expected.payload = b"new"
    assert expected == decode_task_message(tasks.fields("a")["msg"])


@pytest.mark.parametrize(
    "last_field",
    [b"\x12\x05ab", b"\x12", b"\x0b", b"\xa0", b"\xa1\x06\x00", b"\xa5\x06\x00", b"\x12\x83", b"\x07", None],
)
def test_bytes_that_are_not_a_message_are_left_alone(
    damage_allowed: None, once: Perform, tasks: Tasks, last_field: bytes | None
) -> None:
    """Cut short, of an unknown kind, or missing: the new payload is refused, not lost."""
    enqueue(once, unique("a", b"old"))
    if last_field is None:
        tasks.client.hdel(tasks.keys.task("a"), "msg")
    else:
        tasks.client.hset(tasks.keys.task("a"), "msg", tasks.fields("a")["msg"] + last_field)
    before = tasks.fields("a")
    [result] = enqueue(once, newer())
    assert ["duplicate"] == statuses([result])
    assert before == tasks.fields("a")


@pytest.mark.parametrize("state", ["pending", "scheduled", "retry", "aggregating"])
def test_a_task_that_waits_takes_the_process_time(once: Perform, tasks: Tasks, state: str) -> None:
    """One that waited for its turn or in its group waits for its time now; a retry stays one."""
    bring_into(once, state)
    result = replace(once, process_in=40)
    place = "retry" if state == "retry" else "scheduled"
    assert {"a": NOW.ceiling + 40} == tasks.scores(place)
    assert place.encode() == tasks.fields("a")["state"]
    assert [] == tasks.ids("pending")
    assert {} == tasks.members("g")
    assert set() == tasks.groups()
    assert (b"g" if state == "aggregating" else None) == tasks.fields("a").get("x:group")
    assert result.holder is not None
    assert result.holder.next_process_at is not None
    assert NOW.ceiling + 40 == result.holder.next_process_at.timestamp()


def test_a_group_keeps_its_name_while_it_has_other_tasks(once: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls EXISTS."""
    bring_into(once, "aggregating")
    enqueue(once, composed("other", b"x", group="g"))
    replace(once, process_in=40)
    assert ["other"] == list(tasks.members("g"))
    assert {"g"} == tasks.groups()


@pytest.mark.parametrize("state", WAITING)
@pytest.mark.parametrize("due", [{"process_in": 0}, {"process_at": NOW.plus(-9).to_datetime()}])
def test_a_time_that_has_come_makes_it_due_at_once(
    once: Perform, tasks: Tasks, state: str, due: dict[str, Any]
) -> None:
    """The forwarder takes it from there; one that waits for no time stays where it is."""
    bring_into(once, state)
    replace(once, **due)
    assert state.encode() == tasks.fields("a")["state"]
    if state in {"scheduled", "retry"}:
        assert {"a": NOW.seconds} == tasks.scores(state)
    once(forward("default", now=NOW))
    assert (["a"] if state != "aggregating" else []) == tasks.ids("pending")
    assert (state == "retry") == decode_task_message(tasks.fields("a")["msg"]).retried


@pytest.mark.parametrize(
    ("options", "seconds"), [({"unique": 700}, 700), ({"unique": 10}, 600), ({"process_in": 50}, 650)]
)
def test_a_lock_is_prolonged_and_never_cut_short(
    once: Perform, redis_client: RedisClient, options: dict[str, Any], seconds: int
) -> None:
    """Until the new time, and for its own after it."""
    bring_into(once, "pending")
    replace(once, **options)
    assert (b"a", set_to(seconds)) == (redis_client.get(KEY), redis_client.ttl(KEY))


@pytest.mark.parametrize(
    ("state", "word"), [("active", "active"), ("archived", "archived"), ("gone", "gone")]
)
def test_one_that_does_not_wait_is_named_with_its_state(
    once: Perform, redis_client: RedisClient, state: str, word: str
) -> None:
    """Otherwise the caller would believe that the payload will be run."""
    if state == "gone":
        redis_client.set(KEY, "a", ex=60)
    else:
        bring_into(once, state)
    [result] = enqueue(once, newer())
    assert isinstance(result.error, DuplicateTaskError)
    assert ("a", KEY) == (result.error.holder, result.error.unique_key)
    assert (
        f"task 'a' in queue 'default' holds its lock; it cannot take another payload, since it is {word}"
        in str(result.error)
    )


@pytest.mark.parametrize("replay", ["0", "1"])
def test_a_payload_is_given_to_a_task_of_its_own_type_only(
    once: Perform, redis_client: RedisClient, tasks: Tasks, replay: str
) -> None:
    """A name may be shared by types whose handlers cannot read each other's payloads, even equal ones."""
    bring_into(once, "pending")
    rules: Any = {"unique": 600, "unique_key": "k", "on_duplicate": "replace_payload"}
    items = [
        compose(Task("email:digest", payload, task_id="b", **rules), {}, now=NOW) for payload in (b"{}", b"")
    ]
    results = enqueue(once if replay == "0" else Replaying(redis_client), *items)
    assert ["duplicate"] * 2 == statuses(results)
    assert all("since it is of type 'email:deliver'" in str(result.error) for result in results)
    assert b"{}" == payload_of(tasks, "a")


def test_w25_a_replacement_whose_reply_was_lost_is_done_once(twice: Perform, tasks: Tasks) -> None:
    """The task is in one place, with the new payload."""
    bring_into(twice, "pending")
    replace(twice, process_in=40)
    assert {"a": NOW.ceiling + 40} == tasks.scores("scheduled")
    replace(twice, payload=b"newer", process_in=0)
    assert ({"a": NOW.seconds}, b"newer") == (tasks.scores("scheduled"), payload_of(tasks, "a"))


def test_w25_a_replacement_that_is_running_by_the_time_of_the_replay_was_done(
    once: Perform, redis_client: RedisClient
) -> None:
    """The first run wrote it, and a worker was quick; another payload is refused."""
    bring_into(once, "pending")
    replace(once)
    take(once)
    again = Replaying(redis_client)
    assert ["replaced", "duplicate"] == statuses(enqueue(again, newer(), newer("c", b"newer")))
    assert ["duplicate"] == statuses(enqueue(once, newer()))


def test_w25_a_task_that_was_enqueued_is_not_a_duplicate_of_itself(
    once: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Also when it runs by the time of the replay, or carries another's payload."""
    again = Replaying(redis_client)
    enqueue(once, newer("a", b"first"))
    assert ["enqueued"] == statuses(enqueue(again, newer("a", b"first")))
    replace(once)
    assert ["enqueued"] == statuses(enqueue(again, newer("a", b"first")))
    take(once)
    assert ["enqueued"] == statuses(enqueue(again, newer("a", b"other")))
    tasks.client.delete(tasks.keys.task("a"), tasks.keys.active, tasks.keys.lease)
    assert ["enqueued"] == statuses(enqueue(again, newer("a", b"first")))


def test_a_lock_of_a_task_of_go_gives_its_task_the_payload(once: Perform, tasks: Tasks) -> None:
    """Its hash says nothing about the lock's time, and goes on saying nothing."""
    item = composed("b", unique=60, on_duplicate="replace_payload", headers={"a": "b"})
    tasks.put(TaskState.PENDING, "a", unique_key=item.lock)
    assert ["replaced"] == statuses(enqueue(once, item))
    expected = decode_task_message(message_bytes("a", unique_key=item.lock, headers={"a": "b"}))
    assert expected == decode_task_message(tasks.fields("a")["msg"])
    assert "x:unique_ttl" not in tasks.fields("a")


class Replaying(BlockingPerformer):
    """Sends each call as a replay whose first run was long ago."""

    def _send(self, call: Any) -> Any:
        return self._send_once(call._replace(args=("1", *call.args[1:])) if hasattr(call, "args") else call)
