"""The page of events: of several queues, filtered and paged."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pyasynq.web.pages.events import MOST_FEED_QUEUES
from tests.contract.test_recent_events import add, stream
from tests.run_async import run_async
from tests.shop import announce_servers
from tests.visiting import heading_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


def publish(client: RedisClient, queue: str, count: int, kind: str = "started", type: str = "t") -> None:  # noqa: A002 - the term of tasks
    """Publish events of a queue, one each millisecond from now on."""
    client.sadd("asynq:queues", queue)
    newest = client.xrevrange(stream(queue), count=1)
    begin = int(newest[0][0].partition(b"-")[0]) + 1 if newest else int(datetime.now(UTC).timestamp() * 1_000)
    for number in range(count):
        add(client, queue, f"{begin + number}-0", kind, type)


def links_to_tasks(page: str) -> list[str]:
    """Return the queue in the link of each row."""
    return re.findall(r'<a href="\./queues/([^/"]+)/tasks/', page)


def link_named(page: str, text: str) -> str:
    """Return the address of a link."""
    found = re.search(rf'href="([^"]+)"[^>]*>{text}</a>', page)
    assert found is not None, text
    return found[1].replace("&amp;", "&")


@run_async
async def test_events_are_listed_by_pages(redis_url: str, redis_client: RedisClient) -> None:
    """An older page is not live: it stays as it is."""
    publish(redis_client, "mail", 30)
    publish(redis_client, "images", 30)
    async with visiting(redis_url) as visitor:
        first = (await visitor.get("events")).text
        assert 50 == len(links_to_tasks(first))
        assert "of 2 queues, newest first" in first
        assert "data-live=" in first
        second = (await visitor.get(link_named(first, "Older"))).text
        assert 10 == len(links_to_tasks(second))
        assert "data-live=" not in second
        assert "events" == link_named(second, "Newest").partition("?")[0]


@run_async
async def test_events_are_filtered_by_kind_queue_and_type(redis_url: str, redis_client: RedisClient) -> None:
    """The filters keep each other."""
    publish(redis_client, "mail", 2, "retried")
    publish(redis_client, "mail", 3, "archived", "u")
    publish(redis_client, "images", 4, "succeeded")
    async with visiting(redis_url) as visitor:
        for query, count in {
            "kinds=failed": 5,
            "kinds=succeeded": 4,
            "kinds=enqueued": 0,
            "kinds=no-such": 9,
            "queue=ma*": 5,
            "queue=mail&type=u": 3,
            "queue=nowhere": 0,
        }.items():
            assert count == len(links_to_tasks((await visitor.get(f"events?{query}")).text)), query
        page = (await visitor.get("events?queue=mail&kinds=failed")).text
        assert {"queue=mail", "kinds=succeeded"} <= set(
            link_named(page, "Succeeded")[len("events?") :].split("&")
        )
        assert "There is no such queue" in (await visitor.get("events?queue=nowhere")).text
        assert "No event matches" in (await visitor.get("events?type=nothing")).text
        assert 400 == (await visitor.get("events?after=nonsense")).status_code


@run_async
async def test_a_filter_that_finds_nothing_yet_looks_further_back(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The newest 500 events of each queue are examined at once."""
    publish(redis_client, "mail", 1, "archived")
    publish(redis_client, "mail", 600)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("events?kinds=failed")).text
        assert "The newest 500 events were examined." in page
        assert 1 == len(links_to_tasks((await visitor.get(link_named(page, "Look further back"))).text))


@run_async
async def test_events_of_the_busiest_queues_are_shown(redis_url: str, redis_client: RedisClient) -> None:
    """So that a thousand queues cost Redis no more than these."""
    today = datetime.now(UTC).date()
    for number in range(MOST_FEED_QUEUES + 2):
        publish(redis_client, f"q{number:02}", 1)
        redis_client.set(f"asynq:{{q{number:02}}}:processed:{today}", number, ex=90 * 86_400)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("events")).text
        assert f"of the {MOST_FEED_QUEUES} busiest of {MOST_FEED_QUEUES + 2} queues" in page
        assert {f"q{number:02}" for number in range(2, MOST_FEED_QUEUES + 2)} == set(links_to_tasks(page))


@run_async
async def test_servers_without_events_are_named(redis_url: str, redis_client: RedisClient) -> None:
    """Otherwise an operator takes their silence for rest. A filter says nothing about them."""
    announce_servers(redis_url)
    publish(redis_client, "emails", 1)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("events")).text
        assert "The newest events include none of go-a:7, worker-1:3900, worker-2:3901 and 1 more." in page
        assert "Events" == heading_of(await visitor.get("events"))
        assert "include none of" not in (await visitor.get("events?kinds=started")).text


@run_async
async def test_an_event_without_a_task_has_no_link(redis_url: str, redis_client: RedisClient) -> None:
    """Dropped events are counted, whatever the filter."""
    redis_client.sadd("asynq:queues", "mail")
    redis_client.xadd(
        stream("mail"), {"event": '{"kind":"dropped","queue":"mail","at":1767323045,"count":12}'}
    )
    redis_client.expire(stream("mail"), 86_400)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("events?kinds=failed")).text
        assert ("12 events" in page, "Not published" in page, links_to_tasks(page)) == (True, True, [])
