"""Tasks that are in no place, in several, or without what belongs there."""

# ruff: noqa: D103 - the names say it

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.damages._made import LOCK, OVER, PAST, K, damage, hash_of
from tests.factories import LEASE_SCORE, NOW, Tasks

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@damage(K.GHOST, "gone")
def ghost_in_pending(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "gone")


@damage(K.GHOST, "gone")
def w07_ghost_that_was_taken(client: RedisClient, tasks: Tasks) -> None:
    client.lpush(tasks.keys.active, "gone")
    client.zadd(tasks.keys.lease, {"gone": OVER})
    client.hset(tasks.keys.task("gone"), "state", "active")


@damage(K.GHOST, "gone")
def ghost_in_archived(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.archived, {"gone": OVER})


@damage(K.GHOST, "gone")
def ghost_in_completed(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.completed, {"gone": OVER})


@damage(K.GHOST, "gone")
def ghost_in_a_group(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("g"), {"gone": OVER})


@damage(K.GHOST, "gone")
def ghost_alone_in_a_group(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("lonely"), {"gone": OVER})
    client.sadd(tasks.keys.groups, "lonely")


@damage(K.GHOST, "gone")
def ghost_alone_in_a_set(client: RedisClient, tasks: Tasks) -> None:
    key = tasks.keys.aggregation_set("lonely", "1")
    client.zadd(key, {"gone": OVER})
    client.zadd(tasks.keys.aggregation_sets, {key: OVER})


@damage(K.GHOST, "gone")
def ghost_in_retry_and_twice_in_pending(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.retry, {"gone": OVER})
    client.lpush(tasks.keys.pending, "gone", "gone")


@damage(K.BLANK_TASK, "gone")
def w15_result_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("gone"), "result", "r")


@damage(K.BLANK_TASK, "gone")
def w15_state_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("gone"), "state", "pending")


@damage(K.ORPHAN, "lost", changed=["t:lost", "archived"])
def w06_done_after_its_lease_was_lost(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "active")


@damage(K.ORPHAN, "lost", changed=["t:lost", "active", "lease"])
def active_orphan_with_a_lease(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "active")
    client.zadd(tasks.keys.lease, {"lost": LEASE_SCORE})


@damage(K.ORPHAN, "lost", changed=["t:lost", "pending"])
def pending_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "pending")


@damage(K.ORPHAN, "lost", changed=["t:lost", "retry"])
def retry_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "retry")


@damage(K.ORPHAN, "lost", changed=["t:lost", "archived"])
def scheduled_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "scheduled")


@damage(K.ORPHAN, "lost", changed=["t:lost", "archived"])
def orphan_in_a_state_that_is_none(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "asleep")


@damage(K.ORPHAN, "lost", changed=["t:lost", "g:new", "groups"])
def aggregating_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "aggregating", group_key="new")


@damage(K.ORPHAN, "lost", changed=["t:lost", "completed"])
def completed_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "completed", completed_at=PAST, retention=9)


@damage(K.ORPHAN, "lost")
def w10_orphan_of_a_trimmed_archive(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "archived", unique_key=LOCK)
    client.hset(tasks.keys.task("lost"), "unique_key", LOCK)
    client.set(LOCK, "lost", ex=60)


@damage(K.IN_TWO_PLACES, "retry")
def retry_that_is_scheduled_too(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.scheduled, {"retry": OVER})


@damage(K.IN_TWO_PLACES, "pending")
def pending_twice(client: RedisClient, tasks: Tasks) -> None:
    client.lpush(tasks.keys.pending, "pending")


@damage(K.IN_TWO_PLACES, "active")
def active_that_waits_too(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "active")


@damage(K.IN_TWO_PLACES, "active", changed=["t:active"])
def active_whose_state_says_that_it_waits(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "active")
    client.hset(tasks.keys.task("active"), mapping={"state": "pending", "pending_since": 1})
    client.hdel(tasks.keys.task("active"), "x:crashes")


@damage(K.IN_TWO_PLACES, "pending")
def pending_that_is_active_without_a_lease(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.active, "pending")


@damage(K.IN_TWO_PLACES, "aggregating")
def member_of_two_groups(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("other"), {"aggregating": OVER})
    client.sadd(tasks.keys.groups, "other")


@damage(K.IN_TWO_PLACES, "in_set")
def member_of_a_set_that_waits_too(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "in_set")


@damage(K.IN_TWO_PLACES, "aggregating", changed=["t:aggregating", "g:g", "groups", "retry"])
def member_in_retry_whose_state_says_so(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("g"), {"aggregating": NOW.seconds})
    client.zadd(tasks.keys.retry, {"aggregating": NOW.seconds})
    client.hset(tasks.keys.task("aggregating"), "state", "retry")


@damage(K.ACTIVE_WITHOUT_LEASE, "active", changed=["lease"])
def active_without_a_lease(client: RedisClient, tasks: Tasks) -> None:
    client.zrem(tasks.keys.lease, "active")


@damage(K.LEASE_WITHOUT_ACTIVE, "gone")
def lease_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.lease, {"gone": OVER})


@damage(K.LEASE_WITHOUT_ACTIVE, "retry")
def lease_of_a_task_in_retry(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.lease, {"retry": LEASE_SCORE})
