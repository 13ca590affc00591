"""The pages of deliveries: hosts with their requests, failed requests, and what a role sees of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.operations import User
from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop_service import announce_deliveries, announce_failed_delivery, configure_service
from tests.visiting import ABROAD, heading_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@run_async
async def test_the_page_lists_hosts_of_all_instances(redis_url: str, redis_client: RedisClient) -> None:
    """The worst first; a configured host without requests is among them, and a filter finds types."""
    images = Tasks(redis_client, "images")
    images.pending("a")
    redis_client.set(images.keys.paused, "1")
    configure_service(redis_url)
    announce_deliveries(redis_url)
    async with visiting(redis_url) as visitor:
        page = await visitor.get("deliveries")
        assert "Deliveries" == heading_of(page)
        assert "3,578 requests to 3 hosts within the last hour; 1 throttled; 1 disabled" in page.text
        order = [page.text.index(f'data-row="{host}') for host in ("legacy", "notices", "billing")]
        assert sorted(order) == order
        assert "billing.example" not in (await visitor.get("deliveries?f=notices")).text
        assert "No host matches" in (await visitor.get("deliveries?f=nothing")).text
        redis_client.delete("asynq:x:deliveries")
    async with visiting(redis_url) as visitor:
        assert "0 requests to 2 hosts" in (await visitor.get("deliveries")).text


@run_async
async def test_a_host_shows_its_last_failed_request(redis_url: str, redis_client: RedisClient) -> None:
    """With the answer, and a button that runs its task again for users who may."""
    announce_failed_delivery(redis_url, "a.example", "emails", b'{"error": "deadlock", "token": "hush"}')
    again = "queues/emails/tasks/a/run_task"
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("deliveries/a.example")).text
        for text in (
            "POST https://a.example/",
            "X-Team: maps",
            "500 Internal Server Error",
            "deadlock",
            again,
        ):
            assert text in page
        assert "hush" not in page
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        page = (await visitor.get("deliveries/a.example")).text
        assert "500 Internal Server Error" in page
        for text in ("X-Team", "deadlock", "hush", again):
            assert text not in page


@run_async
async def test_a_user_sees_hosts_of_own_queues_alone(redis_url: str, redis_client: RedisClient) -> None:
    """The others are not there."""
    announce_failed_delivery(redis_url, "a.example", "emails")

    async def other_team(_: object) -> User:
        return User.with_role("olaf", "admin", queues="other-*")

    async with visiting(redis_url, auth=other_team, client=ABROAD) as visitor:
        assert "No task type calls a host" in (await visitor.get("deliveries")).text
        assert 404 == (await visitor.get("deliveries/a.example")).status_code


@run_async
async def test_the_page_of_a_type_leads_to_its_host(redis_url: str, redis_client: RedisClient) -> None:
    """A host's port is in its name unless it is a usual one."""
    configure_service(redis_url)
    async with visiting(redis_url) as visitor:
        assert "deliveries/billing.example" in (await visitor.get("task-types/invoices")).text
        page = await visitor.get("task-types/notices")
        assert "deliveries/notices.example:8443" in page.text
        assert "No attempt has failed" in (await visitor.get("deliveries/notices.example:8443")).text
        assert "deliveries/" not in (await visitor.get("task-types/emails")).text.partition("<main")[2]
