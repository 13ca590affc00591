"""Whole journeys by keyboard alone, and pages for people who have changed colours or motion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.task import TaskState
from tests.browser.conftest import Site, window
from tests.browser.pages import go
from tests.browser.test_every_page import violations
from tests.factories import Tasks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESK = {"viewport": {"width": 1280, "height": 900}}
MOST_TABS = 60


def test_failed_tasks_are_found_previewed_and_run_again_by_keyboard(browser: Browser, site: Site) -> None:
    """From the errors to one kind of error, to a preview of all its tasks, to their run."""
    failed = Tasks(site.client(), "journey")
    failed.put(
        TaskState.ARCHIVED, "one", "two", type="trip.book", error_msg="NoSeatError: full", last_failed_at=1
    )
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("errors")
        page.keyboard.press("/")
        page.keyboard.type("NoSeat")
        page.keyboard.press("Enter")
        page.wait_for_url("**/errors?f=NoSeat")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/tasks?q=*")
        page.locator("tbody tr").nth(1).wait_for()
        page.keyboard.press("m")
        page.get_by_role("heading", name="Run 2 tasks?").wait_for()
        tab_to(page, "confirm")
        page.keyboard.type("2")
        tab_to(page, "reason")
        page.keyboard.type("seats are free again")
        page.keyboard.press("Enter")
        page.get_by_text("2 tasks were put back into the queue.").wait_for()
    assert ["one", "two"] == sorted(failed.ids("pending"))


def tab_to(page: Page, name: str) -> None:
    """Press the tabulator until a field of this name has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == name:
            return
    raise AssertionError(f"{name} cannot be reached")


@pytest.mark.parametrize("name", ["overview", "queue", "task", "type", "bulk", "operation"])
def test_pages_hold_in_forced_colours_and_without_motion(browser: Browser, site: Site, name: str) -> None:
    """Every state keeps its word, nothing moves, and axe finds no violation."""
    options = {**DESK, "forced_colors": "active", "reduced_motion": "reduce"}
    with window(browser, site, **options) as context:
        page = context.new_page()
        go(page, name)
        assert page.evaluate("matchMedia('(forced-colors: active)').matches")
        assert 0 == page.evaluate("document.getAnimations().length")
        assert page.evaluate("[...document.querySelectorAll('.st')].every((one) => one.textContent.trim())")
        assert [] == violations(page)
