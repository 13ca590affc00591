"""The page of doors: connections, functions with their jobs, and what a role sees of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.operations import User
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop_service import announce_doors, configure_service
from tests.visiting import ABROAD, heading_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@run_async
async def test_the_page_lists_doors_and_functions(redis_url: str, redis_client: RedisClient) -> None:
    """Each function leads to its task type; types that the service runs itself are not among them."""
    Tasks(redis_client, "emails").pending("a")
    configure_service(redis_url)
    announce_doors(redis_url)
    async with visiting(redis_url) as visitor:
        page = await visitor.get("doors")
        assert "Doors" == heading_of(page)
        assert "1 open door, with 12 workers and 3 clients" in page.text
        for text in ("10.4.0.17:4730", "service-2", "Closed", "task-types/emails", "exports"):
            assert text in page.text
        assert "invoices" not in page.text
        found = (await visitor.get("doors?f=emails")).text
        assert ("task-types/emails" in found, "task-types/exports" in found) == (True, False)
        assert "doors?f=emails" in (await visitor.get("task-types/emails")).text


@run_async
async def test_a_user_sees_functions_of_own_queues_alone(redis_url: str, redis_client: RedisClient) -> None:
    """A door itself belongs to no queue."""
    announce_doors(redis_url)

    async def other_team(_: object) -> User:
        return User.with_role("olaf", "viewer", queues="emails")

    async with visiting(redis_url, auth=other_team, client=ABROAD) as visitor:
        page = (await visitor.get("doors")).text
        assert ("10.4.0.17" in page, "emails" in page, "shipping-labels" in page) == (True, True, False)


@run_async
async def test_without_doors_the_page_says_how_to_open_one(redis_url: str, redis_client: RedisClient) -> None:
    """With lines for the service's file."""
    async with visiting(redis_url) as visitor:
        assert "[doors.gearman]" in (await visitor.get("doors")).text
