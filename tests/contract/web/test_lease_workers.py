"""The page of remote workers, and what the pages of task types say of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop_service import announce_lease_workers, configure_service
from tests.visiting import ABROAD, heading_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@pytest.fixture(autouse=True)
def _workers(redis_url: str, redis_client: RedisClient) -> None:
    """Three workers of one type; one holds a task."""
    tasks = Tasks(redis_client, "shipping-labels")
    tasks.active("held", token="lease", lease=4_000_000_000)
    tasks.pending("waits")
    configure_service(redis_url)
    announce_lease_workers(redis_url, held="held")


@run_async
async def test_the_page_lists_workers_with_what_they_hold(redis_url: str) -> None:
    """A worker may have no name; a filter finds queues, hosts and keys."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("workers")
        assert "Remote workers" == heading_of(page)
        assert "3 remote workers, with 1 task; 1 away" in page.text
        for text in ("packing station", "no name", "php 8.3 2.4.0", "warehouse-3:71", "shipping-labels"):
            assert text in page.text
        for word in ("At work", "Waits for tasks", "Away"):
            assert 1 == page.text.count(f"</svg>{word}")
        assert "keys?f=f40012bb2b0d" in page.text
        assert "1 worker that asked" in (await visitor.get("workers?f=:72")).text
        assert "3 workers that asked" in (await visitor.get("workers?f=LABELS")).text
        assert "No worker matches" in (await visitor.get("workers?f=nothing")).text


@run_async
async def test_a_user_sees_workers_of_own_queues_alone(redis_url: str) -> None:
    """And no link to keys that the user may not see."""

    async def other_team(_: object) -> User:
        return User.with_role("olaf", "admin", queues="other-*")

    async with visiting(redis_url, auth=other_team, client=ABROAD) as visitor:
        page = (await visitor.get("workers")).text
        assert "packing station" not in page
        assert "No worker leases tasks from the task service" in page
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        page = (await visitor.get("workers")).text
        assert ("packing station" in page, "keys?f=" in page) == (True, False)


@run_async
async def test_without_workers_the_page_says_how_to_connect_one(
    redis_url: str, redis_client: RedisClient
) -> None:
    """With a request that can be sent as it stands."""
    redis_client.flushall()
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("workers")).text
        assert ("No worker leases tasks from the task service" in page, "/v1/leases" in page) == (True, True)


@run_async
async def test_a_type_is_served_by_workers_that_are_not_away(
    redis_url: str, redis_client: RedisClient
) -> None:
    """One that went away takes no tasks."""
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("task-types/shipping-labels")).text
        assert "no worker takes tasks" not in page
        assert 2 == page.count("workers?f=packing+station")
        listed = (await visitor.get("task-types")).text
        assert re.search(r't\.shipping-labels\.workers"[^>]*>2<', listed)
    redis_client.flushall()
    Tasks(redis_client, "shipping-labels").pending("waits")
    with Operator(redis_url, User.with_role("mira", "admin")) as admin:
        admin.set_type_configuration("shipping-labels", {"managed": "api"})
    async with visiting(redis_url) as visitor:
        assert "no worker takes tasks" in (await visitor.get("task-types/shipping-labels")).text
