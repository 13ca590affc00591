"""The rights that docs/redis.md lists for a cluster: with them the others are enough, and each is needed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.plan import CommandCall, Replay, ask
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import RedisPermissionError
from tests.contract import rights
from tests.contract.test_rights import DOCUMENT, WORK, rules
from tests.redis_6 import is_redis_6

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyasynq.events import RedisWarning
    from tests.fix_cluster import Cluster
    from tests.fix_drivers import DriverFace


def rules_of_a_cluster() -> list[str]:
    """Return what the document says that every user of a cluster needs besides."""
    [text] = re.findall(r"ACL SETUSER USER (.*?)\n```", DOCUMENT)
    return str(text).split()


@pytest.fixture
def as_user(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Makes users on all nodes, and returns the URL with their login; they are gone after the test."""
    with cluster.client() as admin:

        def make(user: str, *more: str) -> str:
            admin.execute_command("ACL", "SETUSER", user, "reset", "on", ">secret", *rules(user), *more)
            return cluster.url.replace("//", f"//{user}:secret@")

        rights.prepare_worker(admin)
        yield make
        admin.acl_deluser(*WORK)
        admin.flushall()


@pytest.mark.parametrize("user", WORK)
def test_the_documented_rights_and_those_of_a_cluster_are_enough(
    as_user: Callable[..., str], user: str
) -> None:
    """For all that this user's programs do; no warning is given."""
    url = as_user(user, *rules_of_a_cluster())
    warnings: list[RedisWarning] = []
    driver = BlockingDriver(parse_redis_url(url), on_warning=warnings.append)
    try:
        for plan in WORK[user]():
            driver.run(plan)
    finally:
        driver.close()
    assert [] == warnings


def test_a_missing_right_to_see_the_slots_is_named(
    cluster: Cluster, as_user: Callable[..., str], make_driver: Callable[..., DriverFace]
) -> None:
    """Without the right to `CLUSTER SLOTS` a client cannot locate keys."""
    if is_redis_6(cluster.nodes[0].client):
        pytest.skip("only on servers that can take away a subcommand alone")
    driver = make_driver(as_user("producer", *rules_of_a_cluster(), "-cluster|slots"))
    with pytest.raises(RedisPermissionError, match=r"CLUSTER.*'cluster\|slots'"):
        driver.run(rights.producer_work()[0])


def test_a_user_without_the_right_to_see_epochs_can_work(
    cluster: Cluster, as_user: Callable[..., str], make_driver: Callable[..., DriverFace]
) -> None:
    """A user whose rights were given for an older version goes on. (D50)"""
    if is_redis_6(cluster.nodes[0].client):
        pytest.skip("only on servers that can take away a subcommand alone")
    driver = make_driver(as_user("producer", *rules_of_a_cluster(), "-cluster|nodes"))
    driver.run(rights.producer_work()[0])


def test_a_missing_right_to_follow_a_migrating_slot_is_named(
    cluster: Cluster, as_user: Callable[..., str], make_driver: Callable[..., DriverFace]
) -> None:
    """It would be sent to and fro between the two nodes."""
    driver = make_driver(as_user("waiter", *rules_of_a_cluster(), "-asking"))
    key = "asynq:{gone}:t:a"
    slot = find_slot(key)
    source = cluster.owner(slot)
    to = cluster.other_than(source)
    cluster.begin_move(slot, source, to)
    try:
        with pytest.raises(RedisPermissionError, match="ASKING"):
            driver.run(ask(CommandCall(("HGET", key, "state"), key, Replay.SAFE)))
    finally:
        for node in cluster.primaries:
            node.cluster("SETSLOT", slot, "STABLE")
