"""Live pages when streams, the dashboard, Redis or the viewer's computer are away for a while."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq.task import TaskState
from pyasynq.web import Dashboard, dashboard
from tests.browser.conftest import Site, connect, serve, window
from tests.contract.test_recent_events import add
from tests.factories import Tasks
from tests.fix_proxy import Proxy
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.fix_drivers import OwnServer

DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}
PATIENCE = 60_000
"""Limit of a wait in milliseconds: the machine may be busy."""
_HIDE = """
    Object.defineProperty(document, "hidden", { configurable: true, get: () => HIDDEN });
    document.dispatchEvent(new Event("visibilitychange"));
"""


class LiveSite(Site):
    """A dashboard of one test, whose viewers are counted."""

    def __init__(self, url: str, address: str, app: Dashboard) -> None:
        super().__init__(url, address)
        self._app = app

    @property
    def viewers(self) -> int:
        """Number of open streams."""
        return sum(one.viewers for target in self._app._targets for one in target._channels.values())


@pytest.fixture
def tasks(own_server: OwnServer) -> Tasks:
    """Tasks in the queue `emails` of a Redis that only this test uses."""
    own_server.connect().close()
    tasks = Tasks(connect(own_server.url), "emails")
    tasks.put(TaskState.ARCHIVED, "a", "b", error_msg="full", last_failed_at=1)
    return tasks


@pytest.fixture
def live_site(own_server: OwnServer, tasks: Tasks) -> Iterator[LiveSite]:
    """A dashboard on that Redis."""
    app = dashboard(own_server.url)
    with serve(app) as address:
        yield LiveSite(own_server.url, address, app)


@pytest.fixture
def network(live_site: LiveSite) -> Iterator[tuple[Proxy, Site]]:
    """A proxy in front of the dashboard, and the dashboard as viewers reach it."""
    port = live_site.address.rstrip("/").rpartition(":")[2]
    with Proxy(f"redis://127.0.0.1:{port}") as proxy:
        yield proxy, Site(live_site.redis_url, f"http://127.0.0.1:{proxy.port}/")


@contextmanager
def looking(browser: Browser, site: Site) -> Iterator[Page]:
    """Look at the archived tasks until the page is live; the clock of the page is the test's."""
    with window(browser, site, is_always_up=False, **DESK) as context:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.clock.install()
        page.goto("queues/emails?state=archived")
        await_state(page, "Live")
        yield page


def await_state(page: Page, *texts: str) -> None:
    """Advance the clock of the page until its live state is one of these."""
    while page.locator("#live-state").inner_text().strip() not in texts:
        page.clock.run_for(500)
        threading.Event().wait(0.02)


def cut(proxy: Proxy, page: Page) -> None:
    """Cut the stream of a page, and refuse new ones; wait until the page has noticed."""
    proxy.refuse()
    proxy.cut_all()
    await_state(page, "Reconnecting")


def await_rows(page: Page, *ids: str) -> None:
    """Wait until the table has a row for each of these tasks, once."""
    wanted = sorted(f"emails/{one}" for one in ids)
    wait_until(lambda: rows_of(page) == wanted, f"{wanted}; it is {rows_of(page)}", seconds=60)


def rows_of(page: Page) -> list[str]:
    """Return the keys of the rows."""
    rows: list[str] = page.evaluate(
        "[...document.querySelectorAll('[data-row]')].map(row => row.dataset.row)"
    )
    return sorted(rows)


def hide(page: Page, *, hidden: bool) -> None:
    """Switch to another tab, or back: a browser without a screen has no tabs to switch."""
    page.evaluate(_HIDE.replace("HIDDEN", str(hidden).lower()))


def test_a_stream_that_was_cut_shows_what_changed_meanwhile(
    browser: Browser, tasks: Tasks, live_site: LiveSite, network: tuple[Proxy, Site]
) -> None:
    """Each row is there once, and the page has one stream."""
    proxy, site = network
    with looking(browser, site) as page:
        cut(proxy, page)
        tasks.put(TaskState.ARCHIVED, "c")
        tasks.client.zrem(tasks.keys.archived, "a")
        tasks.client.delete(tasks.keys.task("a"))
        proxy.refuse(refusing=False)
        await_state(page, "Live")
        await_rows(page, "b", "c")
        wait_until(lambda: live_site.viewers == 1)


def test_a_list_that_was_emptied_during_a_cut_loses_its_rows(
    browser: Browser, tasks: Tasks, network: tuple[Proxy, Site]
) -> None:
    """The new stream has no rows for it."""
    proxy, site = network
    with looking(browser, site) as page:
        cut(proxy, page)
        tasks.client.delete(tasks.keys.archived, tasks.keys.task("a"), tasks.keys.task("b"))
        proxy.refuse(refusing=False)
        await_state(page, "Live")
        await_rows(page)


def test_a_task_that_failed_again_between_two_renderings_shows_it(
    browser: Browser, tasks: Tasks, live_site: LiveSite
) -> None:
    """Its state is the same in both; its attempts and times are not."""
    due = int(time.time()) + 3_600
    tasks.put(TaskState.RETRY, "r", score=due, retried=1, error_msg="full", last_failed_at=1)
    with window(browser, live_site, **DESK) as context:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("queues/emails/tasks/r")
        page.locator("dd", has_text="1 of").wait_for()
        with tasks.client.pipeline(transaction=True) as pipeline:
            Tasks(pipeline, "emails").put(
                TaskState.RETRY, "r", score=due, retried=2, error_msg="full", last_failed_at=2
            )
            pipeline.execute()
        page.locator("dd", has_text="2 of").wait_for()


def test_unchanged_rows_under_the_pointer_are_not_counted_after_a_cut(
    browser: Browser, tasks: Tasks, network: tuple[Proxy, Site]
) -> None:
    """A new stream begins with all rows; the pill counts the one that is new."""
    proxy, site = network
    with looking(browser, site) as page:
        page.locator("tbody tr").first.hover()
        cut(proxy, page)
        tasks.put(TaskState.ARCHIVED, "c")
        proxy.refuse(refusing=False)
        await_state(page, "Live")
        page.locator("#pill", has_text="1 change – show").wait_for()  # noqa: RUF001
        assert ["emails/a", "emails/b"] == rows_of(page)


def test_a_row_that_was_held_back_is_shown_with_its_newest_numbers(
    browser: Browser, tasks: Tasks, live_site: LiveSite
) -> None:
    """Its cells have changed while the pointer was in the table."""
    with looking(browser, live_site) as page:
        page.goto("queues")
        await_state(page, "Live")
        page.locator("tbody tr").first.hover()
        Tasks(tasks.client, "labels").pending("x")
        page.locator("#pill").wait_for()
        Tasks(tasks.client, "labels").pending("y")
        page.locator('[data-k="q.emails.pending"]').wait_for()
        Tasks(tasks.client, "emails").pending("z")
        # The rendering that shows this one also has the second label.
        page.locator('[data-k="q.emails.pending"]', has_text="1").wait_for()
        page.keyboard.press(".")
        assert "2" == page.locator('[data-k="q.labels.pending"]').inner_text()


def test_a_list_that_was_empty_shows_its_first_row(
    browser: Browser, tasks: Tasks, live_site: LiveSite
) -> None:
    """And loses the last one."""
    with looking(browser, live_site) as page:
        page.goto("queues/emails?state=pending")
        await_state(page, "Live")
        await_rows(page)
        tasks.pending("first")
        page.locator('[data-row="emails/first"]').wait_for()
        await_state(page, "Live")
        tasks.client.delete(tasks.keys.pending, tasks.keys.task("first"))
        await_rows(page)


def test_a_page_that_had_to_poll_returns_to_its_stream(
    browser: Browser, tasks: Tasks, live_site: LiveSite, network: tuple[Proxy, Site]
) -> None:
    """The server was away for longer than the first attempts to reconnect."""
    proxy, site = network
    with looking(browser, site) as page:
        proxy.refuse()
        proxy.cut_all()
        await_state(page, "No answer")
        wait_until(lambda: live_site.viewers == 0)
        tasks.put(TaskState.ARCHIVED, "c")
        proxy.refuse(refusing=False)
        await_state(page, "Live")
        wait_until(lambda: live_site.viewers == 1)
        await_rows(page, "a", "b", "c")


def test_a_connection_that_is_silent_is_given_up(
    browser: Browser, tasks: Tasks, live_site: LiveSite, network: tuple[Proxy, Site]
) -> None:
    """A computer wakes up: its connection is gone without a sign."""
    proxy, site = network
    with looking(browser, site) as page:
        proxy.hold()
        page.clock.fast_forward(60_000)
        await_state(page, "Reconnecting")
        proxy.release()
        tasks.put(TaskState.ARCHIVED, "c")
        await_state(page, "Live")
        await_rows(page, "a", "b", "c")
        wait_until(lambda: live_site.viewers == 1)


def test_a_restarted_dashboard_is_found_again(browser: Browser, own_server: OwnServer, tasks: Tasks) -> None:
    """At the same address; the page need not be loaded again."""
    port = free_port()
    with serve(dashboard(own_server.url), port) as address:
        visit = looking(browser, Site(own_server.url, address))
        page = visit.__enter__()
    await_state(page, "Reconnecting")
    tasks.put(TaskState.ARCHIVED, "c")
    page.evaluate("window.isSamePage = true")
    with serve(dashboard(own_server.url), port):
        await_state(page, "Live")
        await_rows(page, "a", "b", "c")
        assert page.evaluate("window.isSamePage")
        visit.__exit__(None, None, None)


@pytest.mark.usefixtures("impatient")
def test_redis_is_restarted(
    browser: Browser, own_server: OwnServer, tasks: Tasks, live_site: LiveSite
) -> None:
    """The page says since when its numbers are old, offers no buttons, and recovers."""
    client: Any = tasks.client
    with looking(browser, live_site) as page:
        button = page.locator("button[data-off]")
        assert 0 == button.count()
        client.save()
        own_server.stop()
        notice = page.get_by_text("Redis does not answer. The numbers below are the last ones known.")
        notice.wait_for()
        page.locator("#live-state", has_text="As of").wait_for()
        assert ["emails/a", "emails/b"] == rows_of(page)
        own_server.start()
        Tasks(own_server.connect(), "emails").put(TaskState.ARCHIVED, "c")
        await_state(page, "Live")
        notice.wait_for(state="detached")
        await_rows(page, "a", "b", "c")
        assert 0 == button.count()


def test_a_hidden_page_pauses_and_is_current_when_it_is_visible(
    browser: Browser, tasks: Tasks, live_site: LiveSite
) -> None:
    """It has no stream meanwhile."""
    with looking(browser, live_site) as page:
        hide(page, hidden=True)
        page.clock.run_for(6_000)
        wait_until(lambda: live_site.viewers == 0)
        tasks.put(TaskState.ARCHIVED, "c")
        assert ["emails/a", "emails/b"] == rows_of(page)
        hide(page, hidden=False)
        await_rows(page, "a", "b", "c")
        assert 1 == live_site.viewers


def test_a_glance_at_another_tab_does_not_end_the_stream(
    browser: Browser, tasks: Tasks, live_site: LiveSite
) -> None:
    """The pause begins after five seconds."""
    with looking(browser, live_site) as page:
        hide(page, hidden=True)
        page.clock.run_for(3_000)
        hide(page, hidden=False)
        page.clock.run_for(6_000)
        assert 1 == live_site.viewers
        tasks.put(TaskState.ARCHIVED, "c")
        await_rows(page, "a", "b", "c")


def test_the_feed_of_events_is_frozen_by_a_button(
    browser: Browser, tasks: Tasks, live_site: LiveSite
) -> None:
    """While it is frozen, no stream is open and no row comes; it resumes with all that was published."""
    add(tasks.client, "emails", "1-0")
    with window(browser, live_site, **DESK) as context:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("events")
        add(tasks.client, "emails", "2-0")
        await_rows(page, "1-0", "2-0")
        page.get_by_role("button", name="Freeze").click()
        wait_until(lambda: live_site.viewers == 0)
        assert "Frozen" == page.locator("#live-state").inner_text().strip()
        add(tasks.client, "emails", "3-0")
        page.get_by_role("button", name="Resume").click()
        await_rows(page, "1-0", "2-0", "3-0")
        assert page.get_by_role("button", name="Freeze").is_visible()
