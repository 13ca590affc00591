"""Whole journeys by keyboard alone, and pages for people who have changed colours or motion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq._wire.keys import queue_keys
from pyasynq.task import TaskState
from tests.browser.conftest import Site, window
from tests.browser.journeys import (
    FOLDER,
    JOURNEYS,
    Album,
    Journey,
    render_journey,
    shop_site,
)
from tests.browser.pages import go
from tests.browser.test_every_page import violations
from tests.factories import Tasks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = Path(__file__).parents[2] / "docs"
DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}
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
        delete_by_keyboard(page, "queue:journey state:pending", "never mind")
        assert [] == failed.ids("pending")
        page.goto("operations")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/operations/*")
        press_button(page, "Put back 2 tasks")
        page.locator(".head .st", has_text="Done").wait_for()
    assert ["one", "two"] == sorted(failed.ids("pending"))


def delete_by_keyboard(page: Page, query: str, reason: str) -> None:
    """Preview the deletion of two tasks, confirm it, and wait for its end."""
    page.goto(f"bulk?act=delete&q={query}")
    tab_to(page, "confirm")
    page.keyboard.type("2")
    tab_to(page, "reason")
    page.keyboard.type(reason)
    page.keyboard.press("Enter")
    page.get_by_text("2 tasks were deleted.").wait_for()


@pytest.mark.parametrize("journey", JOURNEYS, ids=[one.name for one in JOURNEYS])
def test_the_journeys_of_the_page_can_be_made(browser: Browser, journey: Journey) -> None:
    """Each step is in the documentation, with a picture; `make journeys` records them."""
    album = Album(journey.name)
    with shop_site() as site, window(browser, site, **journey.window) as context:
        journey.make(context.new_page(), site, album)
    assert render_journey(journey, album) in (DOCS / "journeys.md").read_text()
    assert all((DOCS / FOLDER / step.picture).is_file() for step in album.steps)


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


def test_a_typed_task_is_enqueued_by_keyboard_and_followed(browser: Browser, site: Site) -> None:
    """From the palette to the form, past a mistake, to the page of the task."""
    client = site.client()
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues")
        page.keyboard.press("Control+k")
        page.keyboard.type("label.print")
        page.get_by_role("option", name="Enqueue label.print").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url("**/enqueue?type=label.print")
        assert [] == violations(page)
        tab_to(page, "p:order_id")
        page.keyboard.type("many")
        tab_to(page, "p:recipient")
        page.keyboard.type("Ada")
        tab_to(page, "p:items")
        page.keyboard.type('["desk"]')
        tab_to(page, "reason")
        press_button(page, "Enqueue")
        page.get_by_text("The task was not enqueued.").wait_for()
        assert [] == violations(page)
        assert "Ada" == page.locator("[name='p:recipient']").input_value()
        page.locator("[name='p:order_id']").focus()
        page.keyboard.press("Control+a")
        page.keyboard.type("918273")
        press_button(page, "Enqueue")
        page.get_by_text("The task was enqueued.").wait_for()
        page.get_by_text("918273").first.wait_for()
        task_id = page.url.rpartition("/")[2]
    assert task_id.encode() in client.lrange(queue_keys("shipping-labels").pending, 0, -1)


def test_a_queue_is_paused_for_an_hour_by_keyboard_and_resumed(browser: Browser, site: Site) -> None:
    """From the palette to the queue, through the dialog with its durations, and back."""
    client = site.client()
    pause = queue_keys("payments").paused
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues")
        page.keyboard.press("Control+k")
        page.keyboard.type("payments")
        page.get_by_role("option", name="payments").first.wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url("**/queues/payments")
        tab_to_text(page, "Pause…")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Pause payments?").wait_for()
        tab_to(page, "seconds")
        while not page.get_by_role("dialog").get_by_label("1 hour").is_checked():
            page.keyboard.press("ArrowDown")
        tab_to(page, "reason")
        page.keyboard.type("the bank is down")
        page.keyboard.press("Enter")
        page.get_by_text("payments is paused.").wait_for()
        assert 1 == client.exists(pause)
        press_button(page, "Resume")
        page.get_by_text("payments is running again.").wait_for()
    assert 0 == client.exists(pause)


def press_button(page: Page, label: str) -> None:
    """Press the tabulator until a button with this label has the focus, then the space bar."""
    tab_to_text(page, label)
    page.keyboard.press("Space")


def tab_to_text(page: Page, text: str) -> None:
    """Press the tabulator until an element with this text has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if text == page.evaluate("document.activeElement.textContent.trim()"):
            return
    raise AssertionError(f"{text} cannot be reached")


@pytest.mark.parametrize(
    ("path", "button"),
    [
        ("servers/server-1", "Stop…"),
        ("servers?version=2026.11.2", "Stop all…"),
        ("schedules/entry-cart.remind", "Run now…"),
        ("queues/shipping-labels", "Pause…"),
        ("task-types/payments", "Delete…"),
        ("keys", "Rotate…"),
        ("queues/journey-dialogs/tasks/s", "Reschedule…"),
        ("queues/journey-dialogs/tasks/s", "Edit payload…"),
        ("queues/journey-dialogs/tasks/s", "Enqueue again…"),
    ],
)
def test_axe_finds_no_violation_in_a_dialog(browser: Browser, site: Site, path: str, button: str) -> None:
    """The dialog opens over the page, and Escape leaves it."""
    tasks = Tasks(site.client(), "journey-dialogs")
    tasks.put(TaskState.SCHEDULED, "s", type="label.print", payload=b"{}", score=4_000_000_000)
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto(path)
        page.get_by_role("link", name=button).first.click()
        page.get_by_role("dialog").wait_for()
        assert [] == violations(page)
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        assert path in page.url
