"""The names of keys, letter by letter."""

from __future__ import annotations

from datetime import date

import pytest

from pyasynq._wire import keys
from pyasynq._wire.keys import queue_keys

EMAIL = queue_keys("email")


@pytest.mark.parametrize(
    ("expected", "key"),
    [
        ("asynq:{email}:pending", EMAIL.pending),
        ("asynq:{email}:active", EMAIL.active),
        ("asynq:{email}:lease", EMAIL.lease),
        ("asynq:{email}:scheduled", EMAIL.scheduled),
        ("asynq:{email}:retry", EMAIL.retry),
        ("asynq:{email}:archived", EMAIL.archived),
        ("asynq:{email}:completed", EMAIL.completed),
        ("asynq:{email}:paused", EMAIL.paused),
        ("asynq:{email}:processed", EMAIL.processed),
        ("asynq:{email}:failed", EMAIL.failed),
        ("asynq:{email}:groups", EMAIL.groups),
        ("asynq:{email}:aggregation_sets", EMAIL.aggregation_sets),
        ("asynq:{email}:t:", EMAIL.task_prefix),
        ("asynq:{email}:g:", EMAIL.group_prefix),
        ("asynq:{email}:x:cancel", EMAIL.cancellations),
        ("asynq:{email}:x:verdicts", EMAIL.verdicts),
        ("asynq:{email}:x:limits", EMAIL.limits),
        ("asynq:{email}:x:ticks", EMAIL.ticks),
        ("asynq:{email}:x:objectives", EMAIL.objectives),
        ("asynq:{email}:x:gone:op", EMAIL.gone("op")),
        ("asynq:{email}:x:gone:op:id:1", EMAIL.gone_task("op", "id:1")),
        ("asynq:{email}:x:step:op", EMAIL.step("op")),
        ("asynq:x:ops", keys.OPERATIONS_KEY),
        ("asynq:x:audit", keys.AUDIT_KEY),
        ("asynq:x:refused", keys.REFUSED_KEY),
        ("asynq:x:views", keys.VIEWS_KEY),
        ("asynq:x:conf", keys.CONFIGURATIONS_KEY),
        ("asynq:x:conf:resize", keys.configuration_versions_key("resize")),
        ("asynq:x:apikeys", keys.API_KEYS_KEY),
        ("asynq:x:bucket:3f9c2a71b0de", keys.api_key_bucket_key("3f9c2a71b0de")),
        ("asynq:x:gate:{a.example:8443}", keys.host_gate_key("a.example:8443")),
        ("asynq:sema:pyasynq:host:{[::1]}", keys.semaphore_key(keys.host_slots_scope("[::1]"))),
        ("asynq:x:leaseworkers", keys.LEASE_WORKERS_KEY),
        ("asynq:x:deliveries", keys.DELIVERIES_KEY),
        ("asynq:x:doors", keys.DOORS_KEY),
        ("asynq:x:commands", keys.COMMANDS_KEY),
        ("asynq:x:list:{resize:3}", keys.shard_keys("resize", 3).entries),
        ("asynq:x:list:{resize:3}:held:", keys.shard_keys("resize", 3).held_prefix),
        ("asynq:x:snoozed", keys.SNOOZED_KEY),
        ("asynq:x:signedout", keys.SIGNED_OUT_KEY),
        ("asynq:x:op:op", keys.operation_key("op")),
        ("asynq:{email}:t:id:1", EMAIL.task("id:1")),
        ("asynq:{email}:g:user:1", EMAIL.group("user:1")),
        ("asynq:{email}:g:user:1:set", EMAIL.aggregation_set("user:1", "set")),
        ("asynq:{email}:processed:2026-03-04", EMAIL.processed_on(date(2026, 3, 4))),
        ("asynq:{email}:failed:2026-12-31", EMAIL.failed_on(date(2026, 12, 31))),
        ("asynq:queues", keys.ALL_QUEUES),
        ("asynq:servers", keys.SERVERS_KEY),
        ("asynq:workers", keys.WORKERS_KEY),
        ("asynq:schedulers", keys.SCHEDULERS_KEY),
        ("asynq:cancel", keys.CANCEL_CHANNEL),
        ("asynq:servers:{h:7:s}", keys.server_key("h", 7, "s")),
        ("asynq:workers:{h:7:s}", keys.workers_key("h", 7, "s")),
        ("asynq:schedulers:{h:7:u}", keys.scheduler_key("h:7:u")),
        ("asynq:scheduler_history:e", keys.scheduler_history_key("e")),
        ("asynq:sema:api", keys.semaphore_key("api")),
    ],
)
def test_a_key_is_named_as_in_asynq(expected: str, key: str) -> None:
    """Peers in Go look under exactly these names."""
    assert expected == key


@pytest.mark.parametrize(
    ("expected", "payload"),
    [
        ("asynq:{default}:unique:reindex:", None),
        ("asynq:{default}:unique:reindex:d41d8cd98f00b204e9800998ecf8427e", b""),
        ("asynq:{default}:unique:reindex:99914b932bd37a50b983c5e7c90ae93b", b"{}"),
    ],
)
def test_a_lock_tells_no_payload_from_an_empty_one(expected: str, payload: bytes | None) -> None:
    """The lock is named after the MD5 of the payload; without a payload that part is empty."""
    assert expected == queue_keys("default").unique("reindex", payload)


@pytest.mark.parametrize("group", ["g", "user:1", "a:b:c", ":", "g:1", " "])
def test_the_group_of_an_aggregation_set_is_found_again(group: str) -> None:
    """A group's name may hold colons, the id of a set does not."""
    assert group == EMAIL.find_group_of_set(EMAIL.aggregation_set(group, "0ad1ce62-accc"))


@pytest.mark.parametrize(
    "key",
    [
        "",
        "asynq:{other}:g:group:set",
        "asynq:{email}:g:group",
        "asynq:{email}:g:group:",
        "asynq:{email}:g::set",
    ],
)
def test_a_key_that_is_not_an_aggregation_set_is_refused(key: str) -> None:
    """The error names the key and the queue."""
    with pytest.raises(ValueError, match="is not the key of an aggregation set of queue 'email'"):
        EMAIL.find_group_of_set(key)


@pytest.mark.parametrize(("slot", "queue"), [(5718, "default"), (8726, "dump_feature")])
def test_a_queue_has_the_slot_that_redis_cluster_gives_it(slot: int, queue: str) -> None:
    """Slots as CLUSTER KEYSLOT answers them."""
    assert slot == keys.hash_slot(queue_keys(queue).pending)


def test_all_keys_of_a_queue_share_a_slot() -> None:
    """A script may touch them together on Redis Cluster."""
    names = [getattr(EMAIL, name) for name in EMAIL.__slots__ if name != "queue"]
    made = [EMAIL.task("{t}"), EMAIL.unique("{a}", b"x"), EMAIL.aggregation_set("{g}", "s")]
    assert {keys.hash_slot("email")} == {keys.hash_slot(key) for key in [*names, *made]}


def test_the_keys_of_a_server_share_a_slot() -> None:
    """Its record and its running tasks are written together."""
    assert keys.hash_slot(keys.server_key("h", 7, "s")) == keys.hash_slot(keys.workers_key("h", 7, "s"))


def test_a_key_without_braces_is_hashed_whole() -> None:
    """The check value of CRC16 as Redis documents it: 123456789 gives 0x31C3."""
    assert 0x31C3 == keys.hash_slot("123456789")


def test_the_keys_of_a_queue_are_made_once() -> None:
    """The hot path asks for them with every task."""
    assert queue_keys("email") is queue_keys("email")


def test_the_keys_of_many_queues_do_not_pile_up() -> None:
    """A program that names queues after its users keeps a bounded number of them."""
    kept = queue_keys.cache_info().maxsize
    assert kept is not None
    for number in range(kept + 1):
        queue_keys(f"queue-{number}")
    assert kept == queue_keys.cache_info().currsize


@pytest.mark.parametrize(
    ("queue", "tag"), [("mail", "mail"), ("a}b", "a"), ("{a", "{a"), ("a{b}", "a{b"), ("a\x00\n", "a\x00\n")]
)
def test_a_queue_with_braces_in_its_name_has_one_slot_too(queue: str, tag: str) -> None:
    """That of the text up to the first closing brace; those in names of tasks and groups do not matter."""
    names = queue_keys(queue)
    every = [*names.places, names.lease, names.task("}{x}"), names.group("{y}"), names.own_unique("{z}")]
    assert {keys.hash_slot(f"{{{tag}}}")} == {keys.hash_slot(key) for key in every}


def test_a_queue_whose_name_begins_with_a_closing_brace_has_no_slot_of_its_own() -> None:
    """An empty tag does not count, so each key is hashed whole: a cluster can serve no such queue."""
    names = queue_keys("}a")
    assert len({keys.hash_slot(key) for key in names.places}) > 1
