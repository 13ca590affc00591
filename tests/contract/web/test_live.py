"""Live updates: streams of changes, snapshots for polling, and what Redis is asked for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pyasynq.task import TaskState
from pyasynq.web import dashboard
from pyasynq.web.live import endpoints
from pyasynq.web.page_table import LIVE_PAGES
from pyasynq.web.pages.task import task_page
from pyasynq.web.rendering import row_signature
from tests.factories import Tasks
from tests.live_stream import stream_of
from tests.run_async import run_async
from tests.visiting import visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("it restarts and watches one server")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render every 20 ms."""
    for path, page in LIVE_PAGES.items():
        monkeypatch.setitem(LIVE_PAGES, path, page._replace(interval=0.02))


@run_async
async def test_a_change_in_redis_reaches_the_viewer(redis_url: str, redis_client: RedisClient) -> None:
    """As cells by their keys, and as rows in their order."""
    Tasks(redis_client, "emails").pending("a")
    site = dashboard(redis_url)
    async with stream_of(site, "page=/queues/emails&p.state=pending") as stream:
        rows = await stream.next("rows")
        assert ("tasks", ["emails/a"], ["emails/a"]) == (rows["table"], rows["order"], list(rows["put"]))
        assert "1" == (await stream.next("cells"))["state.pending"]
        Tasks(redis_client, "emails").pending("b")
        rows = await stream.next("rows")
        assert ["emails/a", "emails/b"] == sorted(rows["order"])
        assert ["emails/b"] == list(rows["put"])
        assert "2" == (await stream.next("cells"))["state.pending"]
    await site.aclose()


@run_async
async def test_a_page_is_rendered_at_its_own_interval(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a task reaches its page although all other pages are rendered once an hour."""
    for path, page in LIVE_PAGES.items():
        seconds = 0.02 if page.function is task_page else 3_600
        monkeypatch.setitem(LIVE_PAGES, path, page._replace(interval=seconds))
    made = Tasks(redis_client, "emails")
    made.pending("a")
    site = dashboard(redis_url)
    async with stream_of(site, "page=/queues/emails/tasks/a") as stream:
        assert "Pending" == (await stream.next("cells"))["task.state"]
        made.client.lrem(made.keys.pending, 1, "a")
        made.client.hdel(made.keys.task("a"), "pending_since")
        made.put(TaskState.ARCHIVED, "a")
        assert "Archived" == (await stream.next("cells"))["task.state"]
    await site.aclose()


@run_async
async def test_a_row_that_has_not_changed_is_not_sent_again(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The age of a time and the text of a cell do not change a row."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", "b")
    site = dashboard(redis_url)
    async with stream_of(site, "page=/queues/emails&p.state=archived") as stream:
        await stream.next("rows")
        made.client.zrem(made.keys.archived, "a")
        made.client.delete(made.keys.task("a"))
        rows = await stream.next("rows")
        assert (["emails/b"], {}) == (rows["order"], rows["put"])
    await site.aclose()


@run_async
async def test_two_viewers_of_one_page_cost_one_rendering(redis_url: str, redis_client: RedisClient) -> None:
    """They share the channel; when the last one leaves, Redis is asked nothing more."""
    Tasks(redis_client, "emails").pending("a")
    site = dashboard(redis_url)
    query = "page=/queues/emails"
    async with stream_of(site, query) as one, stream_of(site, query) as other:
        await asyncio.gather(one.next("cells"), other.next("cells"))
        [target] = site._targets
        channels = target.channels()
        assert (2, 1) == (channels.viewers, len(channels.open))
    assert 0 == channels.viewers
    assert all(one.is_idle and one._task is None for one in channels.open.values())
    await site.aclose()


@run_async
async def test_a_stream_without_changes_is_never_silent_for_long(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies cut silent connections, and a browser cannot tell them from lost ones."""
    monkeypatch.setattr(endpoints, "_ALIVE_SECONDS", 0.1)
    Tasks(redis_client, "emails").pending("a")
    site = dashboard(redis_url)
    async with stream_of(site, "page=/queues/emails/tasks/a") as stream:
        await stream.next("cells")
        assert {} == await stream.next("alive")
        assert {} == await stream.next("alive")
    await site.aclose()


@run_async
async def test_a_snapshot_holds_everything(redis_url: str, redis_client: RedisClient) -> None:
    """For browsers that poll, and hosts that cannot stream."""
    Tasks(redis_client, "emails").pending("a")
    async with visiting(redis_url) as visitor:
        answer = (await visitor.get("live.json?page=/queues")).json()
        assert ["fresh", "rows", "cells"] == [one["event"] for one in answer["events"]]
        assert ["queues"] == answer["events"][0]["data"]["tables"]
        assert "1" == answer["events"][2]["data"]["q.emails.pending"]
        assert 404 == (await visitor.get("live.json?page=/nope")).status_code


@run_async
async def test_rows_come_from_the_template_of_the_page(redis_url: str, redis_client: RedisClient) -> None:
    """A stream sends, byte for byte, the row of the page."""
    Tasks(redis_client, "emails").put(TaskState.ARCHIVED, "a<b>", type="<script>alert(1)</script>")
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("queues/emails?state=archived")).text
        answer = (await visitor.get("live.json?page=/queues/emails&p.state=archived")).json()
        [rows] = [one["data"] for one in answer["events"] if one["event"] == "rows"]
        [html] = rows["put"].values()
        assert "&lt;script&gt;" in html
        assert row_signature(html) in row_signature(page)


@pytest.mark.usefixtures("impatient")
@run_async
async def test_redis_away_is_told_and_the_numbers_stay(redis_url: str, redis_client: RedisClient) -> None:
    """A first look without Redis says so; nothing is shown as if it were current."""
    site = dashboard("redis://127.0.0.1:1")
    async with stream_of(site, "page=/queues") as stream:
        assert "Redis does not answer" in (await stream.next("stale"))["text"]
    await site.aclose()
