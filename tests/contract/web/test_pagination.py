"""Pages of a long table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@pytest.fixture(autouse=True)
def _queues(redis_client: RedisClient) -> None:
    """One queue more than two pages hold."""
    for number in range(101):
        Tasks(redis_client, f"queue-{number:03}").pending("waits")


@run_async
async def test_each_page_links_its_neighbors(redis_url: str) -> None:
    """The first has no newer page, the last no older one; a number behind the last one shows the last."""
    async with visiting(redis_url) as visitor:
        seen = {
            number: (await visitor.get(f"queues?sort=queue&page={number}")).text for number in (1, 2, 3, 4)
        }
    places = {1: "1 to 50 of 101", 2: "51 to 100 of 101", 3: "101 to 101 of 101", 4: "101 to 101 of 101"}
    for number, place in places.items():
        assert f"<p>{place}</p>" in seen[number]
    assert [(False, True), (True, True), (True, False), (True, False)] == [
        ('rel="prev"' in text, 'rel="next"' in text) for text in seen.values()
    ]
    assert "queue-100" in seen[3]
    assert "queue-099" not in seen[3]
    assert "queue-100" in seen[4]


@run_async
async def test_a_single_page_is_counted(redis_url: str) -> None:
    """It has no links."""
    async with visiting(redis_url) as visitor:
        text = (await visitor.get("queues?f=queue-00")).text
    assert "<p>10 queues</p>" in text
    assert 'rel="next"' not in text
