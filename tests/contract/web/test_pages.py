"""Every page of the dashboard on the data of a shop: what it shows, and that it is whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import httpx
import pytest

from pyasynq import web
from pyasynq.task import TaskState
from pyasynq.web.page_table import LIVE_PAGES, STILL_PAGES
from tests.caching_browser import CachingBrowser
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop import fill_shop
from tests.shop_service import configure_service
from tests.shop_statistics import fill_statistics
from tests.visiting import heading_of, links_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

MODULES = {path.name for path in Path(web.__file__).with_name("static").glob("*.js")}
PAGES = {
    "": "Overview",
    "attention": "Attention",
    "queues": "Queues",
    "queues/shipping-labels": "shipping-labels",
    "queues/shipping-labels?state=archived": "shipping-labels",
    "queues/emails?state=aggregating": "emails",
    "queues/shipping-labels?tab=types": "shipping-labels",
    "queues/shipping-labels?tab=errors": "shipping-labels",
    "queues/emails?tab=groups": "emails",
    "queues/emails?tab=limits": "emails",
    "queues/emails?tab=history": "emails",
    "queues/emails?tab=consumers": "emails",
    "queues/emails/pause": "Pause emails?",
    "queues/emails/delete": "Delete the queue emails?",
    "task-types": "Task types",
    "task-types/payments": "payments",
    "task-types/payments/edit": "Edit payments",
    "new-task-type": "New task type",
    "workers": "Remote workers",
    "deliveries": "Deliveries",
    "commands": "Commands",
    "doors": "Doors",
    "keys": "API keys",
    "keys/new": "New API key",
    "servers": "Servers",
    "servers/server-1": "worker-1:3900",
    "schedules": "Schedules",
    "schedules/entry-cart.remind": "cart.remind",
    "events": "Events",
    "enqueue?type=label.print": "Enqueue a task",
    "errors": "Errors",
    "types": "Types",
    "types/label.print": "label.print",
    "operations": "Operations",
    "views": "Saved views",
    "views/new?q=state:archived": "Save this view?",
    "bulk?act=archive&q=queue:nowhere": "No task to archive",
    "doctor": "Doctor",
    "audit": "Audit",
    "audit?show=refused": "Audit",
    "redis": "Redis",
    "settings": "Settings",
    "help": "Help",
}


@pytest.fixture
def shop(redis_url: str, redis_client: RedisClient) -> str:
    """The URL of a Redis with the data of a shop."""
    fill_shop(redis_client, redis_url, scale=100)
    configure_service(redis_url)
    return redis_url


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_shown(shop: str, path: str) -> None:
    """Each page has one heading, and all security headers."""

    @run_async
    async def visit() -> None:
        async with visiting(shop) as visitor:
            response = await visitor.get(path)
            assert (200, PAGES[path]) == (response.status_code, heading_of(response))
            assert "no-store" == response.headers["cache-control"]
            assert "require-trusted-types-for 'script'" in response.headers["content-security-policy"]
            assert not re.search(r" style=| on[a-z]+=|<script>", response.text), "inline style or script"

    visit()


@pytest.mark.long
def test_every_link_leads_to_a_page(shop: str) -> None:
    """All pages are crawled from the overview; none leaves the dashboard, and none is missing."""

    @run_async
    async def crawl() -> None:
        async with visiting(shop) as visitor:
            seen: set[str] = set()
            todo = ["http://localhost/"]
            while todo and len(seen) < 150:
                address = todo.pop()
                response = await visitor.get(address)
                assert response.status_code == 200, f"{address}: {response.status_code}"
                if "text/html" not in response.headers["content-type"]:
                    continue
                for link in links_of(response.text):
                    whole = urljoin(address, link)
                    if whole.startswith("data:"):
                        continue
                    assert whole.startswith("http://localhost/"), link
                    if _is_new(whole, seen):
                        seen.add(_shape(whole))
                        todo.append(whole)

    crawl()


def _shape(address: str) -> str:
    """Return an address without ids, so that one task stands for all."""
    return (
        re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", httpx.URL(address).path)
        + "?"
        + str(sorted(httpx.URL(address).params.keys()))
    )


def _is_new(address: str, seen: set[str]) -> bool:
    # Addresses of forms that only take POST are not pages.
    return _shape(address) not in seen and not address.rstrip("/").endswith(
        ("/act", "/snooze", "/unsnooze", "/views", "/bulk", "/examine", "/logout", "/resume", "/limits")
    )


@pytest.mark.parametrize("page", ["errors", "types"])
def test_a_queue_that_has_just_been_deleted_is_left_out(
    shop: str, redis_client: RedisClient, page: str
) -> None:
    """The list of queues is cached for some seconds, so the page still asks for the queue's tasks."""

    @run_async
    async def visit() -> None:
        async with visiting(shop) as visitor:
            await visitor.get("queues")
            redis_client.srem("asynq:queues", "shipping-labels")
            response = await visitor.get(page)
            redis_client.sadd("asynq:queues", "shipping-labels")
            assert 200 == response.status_code
            assert "label.print" not in response.text
            assert "queues/emails" in response.text or "types/email" in response.text

    visit()


def test_every_page_of_the_table_of_routes_is_tested() -> None:
    """A new page needs a line here."""
    shown = {re.sub(r"^queues/[^/?]+", "queues/{queue}", path.partition("?")[0]) for path in PAGES}
    shown = {re.sub(r"^(servers|schedules|task-types|types)/[^/]+", r"\1/{}", path) for path in shown}
    known = {
        re.sub(r"^/(servers|schedules|task-types|types)/[^/]+", r"/\1/{}", path)
        for path in LIVE_PAGES | STILL_PAGES
    }
    assert known - {f"/{path}" for path in shown} == {
        "/queues/{queue}/tasks/{task}",
        "/operations/{operation}",
        "/doctor/repair",
        # `test_deliveries.py` and `test_commands.py` have what these show.
        "/deliveries/{host}",
        "/commands/{command}",
    }


def test_the_first_visit_is_light(shop: str) -> None:
    """The page, the styles and all modules together, compressed."""

    @run_async
    async def weigh() -> None:
        async with visiting(shop) as visitor:
            browser = CachingBrowser(visitor)
            assert 0 < await browser.visit("") <= 45_000
            names = {path.rpartition("/")[2] for path in browser.loaded}
            assert {"", "dashboard.css", *MODULES} == names

    weigh()


def test_the_second_visit_loads_the_page_alone(shop: str) -> None:
    """The styles and modules are immutable: a browser keeps them, also for the other pages."""

    @run_async
    async def weigh() -> None:
        async with visiting(shop) as visitor:
            browser = CachingBrowser(visitor)
            await browser.visit("")
            assert 0 < await browser.visit("") <= 20_000
            assert ["/"] == list(browser.loaded)
            assert 0 < await browser.visit("queues") <= 20_000
            assert ["/queues"] == list(browser.loaded)

    weigh()


def test_a_queue_that_is_not_there_names_the_nearest(shop: str) -> None:
    """And its page says that a queue appears with its first task."""

    @run_async
    async def visit() -> None:
        async with visiting(shop) as visitor:
            response = await visitor.get("queues/shiping-labels")
            assert (404, "There is no queue “shiping-labels”") == (response.status_code, heading_of(response))
            assert "Do you mean shipping-labels?" in response.text

    visit()


def test_a_task_that_is_gone_has_a_page_that_says_so(shop: str) -> None:
    """The answer is not an error of the server."""

    @run_async
    async def visit() -> None:
        async with visiting(shop) as visitor:
            response = await visitor.get("queues/emails/tasks/nope")
            assert (404, "This task is gone") == (response.status_code, heading_of(response))

    visit()


def test_an_empty_redis_says_how_to_begin(redis_url: str) -> None:
    """Overview, queues, servers and schedules each name the next step."""

    @run_async
    async def visit() -> None:
        async with visiting(redis_url) as visitor:
            for path, text in {
                "": "Nothing has been enqueued in this Redis",
                "queues": "Nothing has been enqueued in this Redis",
                "servers": "pyasynq worker",
                "schedules": "pyasynq scheduler",
                "events": "--publish-events",
            }.items():
                assert text in (await visitor.get(path)).text

    visit()


@pytest.mark.usefixtures("impatient")
def test_redis_away_is_a_page_that_says_so() -> None:
    """The page has a link that tries again."""

    @run_async
    async def visit() -> None:
        async with visiting("redis://127.0.0.1:1/0") as visitor:
            response = await visitor.get("queues")
            assert (503, "Redis does not answer") == (response.status_code, heading_of(response))
            assert "Try again" in response.text

    visit()


def test_names_of_queues_and_ids_of_tasks_may_be_anything(redis_url: str, redis_client: RedisClient) -> None:
    """Slashes, percent signs, brackets, dots, controls: each has an address, and leads to its own page."""
    names = (
        "a/b",
        "100%",
        "<b>bold</b>",
        "..",
        ".",
        "ünï cödé",
        "a?b#c",
        "\u202egpj.exe",
        "~2F",
        "a\x1b[31m",
        "co:lon",
    )
    for name in names:
        Tasks(redis_client, name).put(TaskState.ARCHIVED, f"id-of-{name}", type=name)

    @run_async
    async def visit() -> None:
        async with visiting(redis_url) as visitor:
            index = await visitor.get("queues")
            found = [
                urljoin("http://localhost/queues", link) for link in links_of(index.text) if "queues/" in link
            ]
            assert len(names) == len(set(found))
            for address in found:
                page = await visitor.get(address + "?state=archived")
                [task] = {urljoin(address, link) for link in links_of(page.text) if "/tasks/" in link}
                assert "<b>" not in page.text.replace("<b data-selected>", "").replace("<b>bold</b>", "")
                assert 200 == (await visitor.get(task)).status_code
                assert "<b>bold" not in page.text
                shown = re.sub(r"<[^>]*>", "", page.text)
                assert "\x1b" not in shown
                assert "\u202e" not in shown

    visit()


@pytest.mark.long
def test_the_types_of_a_queue_show_what_workers_have_counted(shop: str) -> None:
    """As the page of types does, for the attempts of this queue alone."""
    fill_statistics(shop)

    @run_async
    async def visit() -> None:
        async with visiting(shop) as visitor:
            page = (await visitor.get("queues/shipping-labels?tab=types")).text
            assert "attempts since yesterday" in page
            [row] = re.findall(r"<tr[^>]*><th[^>]*><a[^>]*>label\.print</a>.*?</tr>", page)
            cells = dict(re.findall(r'data-l="([^"]*)">(?:<span[^>]*>)?([^<]*)', row))
            assert re.fullmatch(r"[\d.]+ \S+", cells["Run p95"])
            assert re.fullmatch(r"[\d.]+ \S+.*", cells["Wait p95"])
            assert "image.resize" not in page

    visit()
