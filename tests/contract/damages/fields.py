"""Tasks whose hash, message or score says something wrong."""

# ruff: noqa: D103 - the names say it

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.task import TaskState
from tests.contract.damages._made import OVER, K, damage, hash_of
from tests.contract.test_invariants import LOCK as SOUND_LOCK
from tests.factories import NOW, Tasks, message_bytes

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@damage(K.WRONG_STATE, "archived")
def w11_archive_that_failed_half_way(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("archived"), "state", "active")


@damage(K.WRONG_STATE, "active")
def active_whose_state_is_pending(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("active"), "state", "pending")


@damage(K.WRONG_STATE, "aggregating")
def member_whose_state_is_retry(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("aggregating"), "state", "retry")


@damage(K.WRONG_STATE, "scheduled")
def scheduled_without_state_or_group(client: RedisClient, tasks: Tasks) -> None:
    client.hdel(tasks.keys.task("scheduled"), "state")
    client.hset(tasks.keys.task("scheduled"), "x:attempt", "server/1")


@damage(K.WRONG_GROUP, "aggregating")
def w05_member_whose_hash_names_no_group(client: RedisClient, tasks: Tasks) -> None:
    client.hdel(tasks.keys.task("aggregating"), "group")


@damage(K.WRONG_GROUP, "in_set")
def member_of_a_set_whose_hash_names_another_group(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("in_set"), "group", "g")


@damage(K.UNDECODABLE, "bad", changed=["t:bad", "archived"])
def w22_message_that_cannot_be_decoded(client: RedisClient, tasks: Tasks) -> None:
    tasks.put(TaskState.RETRY, "bad", extra={"msg": b"\xff\xff"})


@damage(K.UNDECODABLE, "bad", changed=["t:bad", "archived"])
def w22_undecodable_message_whose_worker_died(client: RedisClient, tasks: Tasks) -> None:
    tasks.active("bad", lease=OVER, extra={"msg": b"\xff\xff"})


@damage(K.FOREIGN_MESSAGE, "retry", changed=["t:retry", "retry", "archived"])
def message_of_another_task(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("retry"), "msg", message_bytes("other", retried=1))


@damage(K.FOREIGN_MESSAGE, "renamed", changed=["t:renamed", "archived"])
def task_of_a_queue_that_was_renamed(client: RedisClient, tasks: Tasks) -> None:
    lock = "asynq:{low}:unique:x"
    hash_of(client, tasks, "renamed", "pending")
    message = message_bytes("renamed", "low", unique_key=lock)
    client.hset(tasks.keys.task("renamed"), mapping={"msg": message, "unique_key": lock})
    client.rpush(tasks.keys.pending, "renamed")


@damage(K.FOREIGN_MESSAGE, "completed", changed=["t:completed"])
def completed_message_of_another_task(client: RedisClient, tasks: Tasks) -> None:
    message = message_bytes("other", completed_at=NOW.seconds - 60, retention=60)
    client.hset(tasks.keys.task("completed"), "msg", message)


@damage(K.WRONG_RETRIES, "retry", changed=["t:retry"])
def retried_more_often_than_it_may_be(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("retry"), "msg", message_bytes("retry", retried=4, retry=3))


@damage(K.WRONG_RETRIES, "pending", changed=["t:pending"])
def w37_retried_less_often_than_never(client: RedisClient, tasks: Tasks) -> None:
    message = message_bytes("pending", retried=-1, retry=-3, unique_key=SOUND_LOCK)
    client.hset(tasks.keys.task("pending"), "msg", message)


@damage(K.WRONG_SCORE, "completed")
def completed_until_another_time(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.completed, {"completed": NOW.seconds + 60})


@damage(K.WRONG_SCORE, "completed", changed=["t:completed"])
def completed_without_retention(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("completed"), "msg", message_bytes("completed"))


@damage(K.WRONG_SCORE, "completed")
def completed_at_no_time(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("completed"), "msg", message_bytes("completed", retention=60))


@damage(K.WRONG_SCORE, "archived")
def archived_before_it_failed(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.archived, {"archived": OVER})


@damage(K.WRONG_SCORE, "retry", changed=["retry"])
def score_with_a_fraction(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.retry, {"retry": OVER + 0.5})


@damage(K.WRONG_SCORE, "aggregating", "in_set", changed=["g:g", "g:h:1"])
def members_whose_scores_have_fractions(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("g"), {"aggregating": OVER + 0.5})
    client.zadd(tasks.keys.aggregation_set("h", "1"), {"in_set": OVER + 0.25})


@damage(K.WRONG_SCORE, "scheduled", changed=["scheduled"])
def score_that_is_not_a_time(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.scheduled, {"scheduled": "inf"})


@damage(K.WRONG_LOCK, "locked", changed=["t:locked", "g:g", "unique:locked"])
def w09_member_whose_hash_names_no_lock(client: RedisClient, tasks: Tasks) -> None:
    lock = "asynq:{default}:unique:locked"
    tasks.put(TaskState.AGGREGATING, "locked", group="g", unique_key=lock)
    client.hdel(tasks.keys.task("locked"), "unique_key")


@damage(K.WRONG_LOCK, "retry")
def hash_with_the_lock_of_another_task(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("retry"), "unique_key", SOUND_LOCK)


@damage(K.WRONG_GROUP, "aggregating")
def member_whose_message_names_another_group(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("aggregating"), "msg", message_bytes("aggregating", group_key="other"))


@damage(K.WRONG_GROUP, "retry", "pending")
def tasks_that_would_join_a_group_without_a_request(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("retry"), "group", "g")
    client.hset(tasks.keys.task("pending"), "group", "g")


@damage(K.WRONG_GROUP, "scheduled")
def scheduled_task_that_would_join_another_group(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("scheduled"), "x:group", "other")


@damage(K.STALE_FIELDS, "pending", changed=["t:pending"])
def w13_run_by_hand_without_pending_since(client: RedisClient, tasks: Tasks) -> None:
    client.hdel(tasks.keys.task("pending"), "pending_since")


@damage(K.STALE_FIELDS, "archived", "retry")
def w13_fields_of_other_states(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("archived"), "pending_since", 1)
    client.hset(tasks.keys.task("retry"), mapping={"x:attempt": "server/1", "x:crashes": 1})


@damage(K.STALE_FIELDS, "retry", changed=["t:retry"])
def w05_retry_with_a_group_to_join(client: RedisClient, tasks: Tasks) -> None:
    message = message_bytes("retry", group_key="g", retried=1)
    client.hset(tasks.keys.task("retry"), mapping={"x:group": "g", "msg": message})
