"""Forms of the task service in the browser: a type is edited against someone else, and a key is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from tests.browser.conftest import Site, window
from tests.browser.test_every_page import violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PHONE: Final[dict[str, Any]] = {"viewport": {"width": 320, "height": 800}}
DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}


def test_a_type_is_edited_past_a_mistake_and_a_change_of_someone_else(browser: Browser, site: Site) -> None:
    """On a phone; axe finds no violation in the errors, the difference, and what both have changed."""
    with (
        window(browser, site, **PHONE) as context,
        Operator(site.redis_url, User.with_role("olaf", "admin")) as other,
    ):
        page = context.new_page()

        def check() -> None:
            assert page.evaluate("document.documentElement.scrollWidth") <= 320
            assert [] == violations(page)

        page.goto("task-types/payments")
        page.get_by_role("link", name="Edit…").click()
        page.get_by_label("Timeout").fill("soon")
        page.get_by_role("button", name="Preview…").click()
        page.get_by_text("Nothing was stored.").wait_for()
        check()
        page.get_by_label("Timeout").fill("2m")
        page.get_by_label("Schema of params").fill('{"type": "object"}')
        page.get_by_role("button", name="Preview…").click()
        page.get_by_role("heading", name="Change the task type payments?").wait_for()
        check()
        stored = other.type_configuration("payments")
        assert stored is not None
        other.set_type_configuration("payments", {**stored.content, "timeout": 90.0, "max_retry": 1})
        page.get_by_role("button", name="Store", exact=True).click()
        page.get_by_text("changed meanwhile by olaf").wait_for()
        check()
        page.get_by_role("button", name="Store mine over it").click()
        page.get_by_text("takes payments over within seconds").wait_for()
        stored = other.type_configuration("payments")
        assert stored is not None
        assert (120.0, 1) == (stored.content["timeout"], stored.content["max_retry"])


def test_a_request_is_enqueued_past_a_mistake(browser: Browser, site: Site) -> None:
    """On a phone: the field is what the URL needs, and axe finds no violation in the error at it."""
    with (
        window(browser, site, **PHONE) as context,
        Operator(site.redis_url, User.with_role("mira", "admin")) as admin,
    ):
        page = context.new_page()
        page.goto("enqueue?type=invoices&queue=invoices")
        assert [] == violations(page)
        page.get_by_label("order_id").fill("..")
        page.get_by_role("button", name="Enqueue", exact=True).click()
        page.get_by_text("The task was not enqueued.").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert [] == violations(page)
        page.get_by_label("order_id").fill("17")
        page.get_by_role("button", name="Enqueue", exact=True).click()
        page.get_by_text("The task was enqueued.").wait_for()
        [task] = admin.tasks("invoices", "pending")
        assert b'{"order_id":"17"}' == task.payload
        admin.delete_queue("invoices", force=True)


def test_a_key_is_made_and_its_text_is_not_on_the_page_before(browser: Browser, site: Site) -> None:
    """The way back shows the list without it, and loading the answer again makes no second key."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("keys")
        page.get_by_role("link", name="New key…").click()
        page.get_by_label("Name").fill("browser")
        page.get_by_label("work", exact=False).check()
        page.get_by_role("button", name="Make the key").click()
        text = page.get_by_role("region", name="The key", exact=True).inner_text()
        assert text.startswith("pq_")
        assert [] == violations(page)
        page.reload()
        page.get_by_role("heading", name="This key was made already").wait_for()
        assert text not in page.content()
        page.get_by_role("link", name="All keys").click()
        page.get_by_role("rowheader", name="browser").wait_for()
        assert text not in page.content()
