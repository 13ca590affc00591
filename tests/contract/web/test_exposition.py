"""The metrics at the dashboard's own address."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@run_async
async def test_a_scrape_gets_the_queues_of_the_dashboard(redis_url: str, redis_client: RedisClient) -> None:
    """They are those of `pyasynq metrics --attention`, for the queues that the dashboard shows."""
    for queue in ("mail", "secret"):
        Tasks(redis_client, queue).pending("a")
    async with visiting(redis_url, queues="mail") as visitor:
        response = await visitor.get("metrics", headers={"Accept": "text/plain"})
        assert "text/plain" in response.headers["content-type"]
        sizes = {
            sample.labels["queue"]: sample.value
            for family in parse(response.text)
            for sample in family.samples
            if sample.name == "asynq_queue_size"
        }
        assert {"mail": 1} == sizes
        assert "pyasynq_queue_wait_objective_seconds" in response.text
        assert "secret" not in response.text


@run_async
async def test_the_format_is_what_the_scraper_asks_for(redis_url: str) -> None:
    """Prometheus asks for OpenMetrics first."""
    async with visiting(redis_url) as visitor:
        response = await visitor.get("metrics", headers={"Accept": "application/openmetrics-text"})
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        assert response.text.endswith("# EOF\n")
