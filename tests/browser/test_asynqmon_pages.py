"""asynqmon's own front end works on the dashboard's API: it lists, runs, archives, deletes and pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import TimeoutError as HasWaitedError

from pyasynq._wire.keys import queue_keys
from pyasynq.embedded import EmbeddedServer
from pyasynq.task import TaskState
from pyasynq.web import CredentialsFile, dashboard
from pyasynq.web.auth.credentials import make_token, token_line
from tests.browser.asynqmon_pages import AsynqmonPages, find_pages
from tests.browser.conftest import Site, serve, window
from tests.factories import Tasks
from tests.interop.go_peer import GoMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

QUEUE = "emails"
DESK: Final[dict[str, Any]] = {"viewport": {"width": 1440, "height": 900}}
DONE = 204


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Asynqmon's pages, on a dashboard that knows them by a token."""
    try:
        folder = find_pages()
    except GoMissingError as error:
        pytest.skip(str(error))
    token = make_token()
    people = tmp_path_factory.mktemp("people") / "people"
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    people.write_text(token_line("asynqmon", "operator", "*", tomorrow, token) + "\n", "utf-8")
    with (
        EmbeddedServer() as server,
        serve(dashboard(server.url, auth=CredentialsFile(people))) as api,
        serve(AsynqmonPages(folder, api, token)) as address,
    ):
        yield Site(server.url, address)


def test_its_pages_list_run_archive_delete_and_pause(browser: Browser, pages: Site) -> None:
    """Each button sends what asynqmon's server would get, and Redis holds the result."""
    tasks = Tasks(pages.client(), QUEUE)
    tasks.put(TaskState.ARCHIVED, "failed", type="mail.send", error_msg="full", last_failed_at=1)
    tasks.put(TaskState.RETRY, "again", type="mail.send", error_msg="full", score=4_000_000_000)
    tasks.put(TaskState.SCHEDULED, "later", type="mail.send", score=4_000_000_000)
    with window(browser, pages, **DESK) as context:
        page = context.new_page()
        page.goto("queues/emails?status=archived")
        press(page, row_of(page, "archived tasks table", "failed"), "Run")
        page.goto("queues/emails?status=scheduled")
        press(page, row_of(page, "scheduled tasks table", "later"), "Archive")
        page.goto("queues/emails?status=retry")
        press(page, row_of(page, "retry tasks table", "again"), "Delete")
        assert (["failed"], ["later"], []) == tuple(map(tasks.ids, ("pending", "archived", "retry")))
        page.goto("")
        press(page, row_of(page, "queues overview table", QUEUE), "Pause")
        assert tasks.client.exists(queue_keys(QUEUE).paused)
        press(page, row_of(page, "queues overview table", "paused"), "Resume")
        assert not tasks.client.exists(queue_keys(QUEUE).paused)


def row_of(page: Page, table: str, text: str) -> Locator:
    """Return the row with a text of one of the tables."""
    return page.get_by_role("table", name=table).get_by_role("row").filter(has_text=text)


def press(page: Page, row: Locator, label: str) -> None:
    """Press a button that a row shows under the pointer, and wait until the dashboard has done it."""
    with page.expect_response(lambda answer: answer.request.method != "GET", timeout=60_000) as asked:
        while not _click_under_pointer(page, row, label):
            pass
    assert DONE == asked.value.status, asked.value.url


def _click_under_pointer(page: Page, row: Locator, label: str) -> bool:
    """Click a button of a row; return False if the row was drawn again meanwhile, which hides its buttons."""
    page.mouse.move(0, 0)
    # Not in the middle: a button there would show its name under the pointer, and then have no title.
    row.get_by_role("cell").last.hover(position={"x": 2, "y": 2})
    try:
        row.get_by_title(label).click(timeout=2_000)
    except HasWaitedError:
        return False
    return True
