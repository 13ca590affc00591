from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.leases import (
    ExpiredTask,
    confirm_begin,
    confirm_extended,
    list_expired,
    list_server_tasks,
    list_unleased,
)
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient


def expired(perform: Perform, **arguments: Any) -> list[ExpiredTask]:
    """List at NOW."""
    return perform(list_expired("default", **({"now": NOW} | arguments)))


def ids(found: list[ExpiredTask]) -> list[str]:
    """Return the ids in the order in which they came."""
    return [task.id for task in found]


def test_h08_own_tasks_are_listed_five_seconds_after_their_lease(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZRANGEBYSCORE: at five seconds, not at four."""
    tasks.active("at", lease=NOW.seconds - 5, crashes=2)
    tasks.active("before", lease=NOW.seconds - 4)
    assert [ExpiredTask("at", message_bytes("at"), 2, TOKEN, NOW.seconds - 5)] == expired(perform)


def test_h08_tasks_of_go_are_listed_thirty_seconds_after_their_lease(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HMGET: without a token Go's own grace counts."""
    tasks.active("before", token="", lease=NOW.seconds - 29)
    tasks.active("at", token="", lease=NOW.seconds - 30)
    tasks.active("own", lease=NOW.seconds - 6)
    assert [("at", ""), ("own", TOKEN)] == [(task.id, task.token) for task in expired(perform)]


def test_the_longest_expired_come_first_up_to_the_limit(perform: Perform, tasks: Tasks) -> None:
    """The oldest come first, so no task waits for ever behind others."""
    for age in (50, 70, 60):
        tasks.active(f"{age}", lease=NOW.seconds - age)
    assert ["70", "60"] == ids(expired(perform, limit=2))


def test_h08_tasks_of_go_whose_grace_lasts_do_not_hide_our_own(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """However many of them ended before ours did: leases are looked at page by page, up to the last one."""
    tasks.active(*(f"{number}" for number in range(1999)), token="", lease=NOW.seconds - 20)
    tasks.active("own", lease=NOW.seconds - 6)
    perform = BlockingPerformer(redis_client)
    assert ["own"] == ids(expired(perform))
    assert 3 == len(perform.calls)


def test_a_full_list_of_expired_tasks_ends_the_look(redis_client: RedisClient, tasks: Tasks) -> None:
    """What is beyond the limit comes the next time."""
    tasks.active(*(f"{number}" for number in range(1500)), lease=NOW.seconds - 6)
    perform = BlockingPerformer(redis_client)
    assert 1000 == len(expired(perform))
    assert 1 == len(perform.calls)


def test_the_graces_are_the_callers(perform: Perform, tasks: Tasks) -> None:
    """Whichever of the two is the shorter."""
    tasks.active("own", lease=NOW.seconds - 15)
    tasks.active("go", token="", lease=NOW.seconds - 10)
    assert ["go"] == ids(expired(perform, own_slack=20, foreign_slack=10))
    assert ["own", "go"] == ids(expired(perform, own_slack=0, foreign_slack=0))


@pytest.mark.usefixtures("damage_allowed")
def test_h03_a_lease_without_a_task_is_listed_without_a_message(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """`recover` gets the id and drops it."""
    redis_client.zadd(tasks.keys.lease, {"ghost": NOW.seconds - 60})
    assert [ExpiredTask("ghost", b"", 0, "", NOW.seconds - 60)] == expired(perform)


def test_h21_w22_one_undecodable_message_hides_no_other_task(perform: Perform, tasks: Tasks) -> None:
    """Bytes are listed as they are; Asynq decodes them all and gives up at the first bad one."""
    tasks.active("bad", extra={"msg": b"\xff\xff"}, lease=NOW.seconds - 60)
    tasks.active("good", lease=NOW.seconds - 50)
    assert [b"\xff\xff", message_bytes("good")] == [task.message for task in expired(perform)]


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME."""
    tasks.active("past", lease=int(time.time()) - 10)
    tasks.active("future", lease=int(time.time()) + 20)
    assert ["past"] == ids(expired(perform, now=None))


@pytest.mark.usefixtures("damage_allowed")
def test_h07_active_tasks_without_a_lease_are_listed(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls LRANGE, ZMSCORE or HMGET; Asynq never finds them."""
    tasks.active("leased")
    tasks.active("own", lease=None, crashes=1)
    tasks.active("go", lease=None, token="")
    redis_client.lpush(tasks.keys.active, "ghost")
    assert [
        ExpiredTask("ghost", b"", 0, "", None),
        ExpiredTask("go", message_bytes("go"), 0, "", None),
        ExpiredTask("own", message_bytes("own"), 1, TOKEN, None),
    ] == perform(list_unleased("default"))


@pytest.mark.usefixtures("damage_allowed")
def test_h07_thousands_of_active_tasks_are_looked_at_page_by_page(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """1,000 ids a call, up to the last one."""
    tasks.active("last", lease=None)
    tasks.active(*(f"{number}" for number in range(1999)))
    tasks.active("first", lease=None)
    perform = BlockingPerformer(redis_client)
    assert ["first", "last"] == ids(perform(list_unleased("default")))
    assert 3 == len(perform.calls)


def test_h07_an_empty_page_ends_the_look(redis_client: RedisClient, tasks: Tasks) -> None:
    """A number of tasks that fills its pages is followed by one without ids."""
    tasks.active(*(f"{number}" for number in range(1000)))
    perform = BlockingPerformer(redis_client)
    assert [] == perform(list_unleased("default"))
    assert 2 == len(perform.calls)


def test_h08_tasks_of_a_server_are_found_by_its_tokens(perform: Perform, tasks: Tasks) -> None:
    """A server whose id only begins alike is another one; leases do not matter."""
    tasks.active("a", token="abc/1")
    tasks.active("b", token="abc/2")
    tasks.active("other", token="abcd/1")
    tasks.active("go", token="")
    found = perform(list_server_tasks("default", server_id="abc"))
    assert {("a", "abc/1", LEASE_SCORE), ("b", "abc/2", LEASE_SCORE)} == {
        (task.id, task.token, task.lease_score) for task in found
    }


def test_an_attempt_that_begins_is_noted_if_it_owns_its_task(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HGET or HSET; a second call, after a lost reply, repeats it.

    Defect D29.
    """
    tasks.active("a", token="dead/1+", lease=NOW.seconds - 60)
    assert [True] == [one.was_only_taken for one in expired(perform)]
    assert not perform(confirm_begin("default", "a", "dead/2+"))
    assert [True] == [one.was_only_taken for one in expired(perform)]
    assert perform(confirm_begin("default", "a", "dead/1+"))
    assert perform(confirm_begin("default", "a", "dead/1+"))
    assert [False] == [one.was_only_taken for one in expired(perform)]
    assert not perform(confirm_begin("default", "gone", "dead/1+"))


@pytest.mark.usefixtures("damage_allowed")
def test_a_worker_elsewhere_that_extends_is_noted(perform: Perform, tasks: Tasks) -> None:
    """By the attempt that it has, and only for attempts that are leased; lapses are listed, too."""
    tasks.active("a", token="dead/1/leased", lease=NOW.seconds - 60, extra={"x:lapses": 4})
    tasks.active("b", token="dead/1/leased", lease=None, extra={"x:extended": "dead/0/leased", "x:lapses": 2})
    tasks.active("own", token="dead/1", lease=NOW.seconds - 50)
    assert not perform(confirm_extended("default", "a", "dead/2/leased"))
    assert [("a", True, 4), ("own", False, 0)] == [
        (one.id, one.was_unanswered, one.lapses) for one in expired(perform)
    ]
    assert perform(confirm_extended("default", "a", "dead/1/leased"))
    assert [False, False] == [one.was_unanswered for one in expired(perform)]
    [b] = perform(list_unleased("default"))
    assert ("b", True, 2, "dead/0/leased") == (b.id, b.was_unanswered, b.lapses, b.extended)
    assert "x:begun" not in tasks.fields("a")


@pytest.mark.usefixtures("damage_allowed")
def test_other_servers_confirm_nothing_and_their_tasks_count_as_begun(perform: Perform, tasks: Tasks) -> None:
    """Servers without such a limit, consumers, and workers in Go. (D29)"""
    tasks.active("a", token="dead/1", lease=None)
    assert [False] == [one.was_only_taken for one in perform(list_unleased("default"))]
    tasks.active("b", token="dead/1+", lease=None)
    assert [True, False] == [
        one.was_only_taken for one in sorted(perform(list_unleased("default")), reverse=True)
    ]
