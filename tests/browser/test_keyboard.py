"""The dashboard by keyboard alone, and what live rows do to somebody who reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq.task import TaskState
from tests.browser.conftest import Site, window
from tests.factories import Tasks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}


def test_rows_are_chosen_and_run_by_keys(browser: Browser, site: Site) -> None:
    """j, j, x, r: the second task goes back into its queue."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues/payments?state=archived")
        before = page.locator("tbody tr").count()
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("x")
        assert "1 selected" == page.locator("#bulk b").inner_text()
        page.keyboard.press("r")
        page.wait_for_url("**/payments?state=archived")
        assert "1 task was put back into the queue." in page.locator(".note").inner_text()
        assert before - 1 == page.locator("tbody tr").count()


def test_keys_lead_to_pages_and_can_be_switched_off(browser: Browser, site: Site) -> None:
    """Single letters do nothing while one types, and nothing at all if the viewer says so."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("")
        page.keyboard.press("g")
        page.keyboard.press("q")
        page.wait_for_url("**/queues")
        page.keyboard.press("/")
        page.keyboard.type("gq")
        assert "gq" == page.locator("#f").input_value()
        page.goto("settings")
        page.get_by_role("group", name="Keys of one letter").get_by_label("Off").check()
        page.get_by_role("button", name="Keep").click()
        page.keyboard.press("g")
        page.keyboard.press("o")
        assert page.url.endswith("/settings")


def test_a_question_opens_as_a_dialog_and_gives_the_focus_back(browser: Browser, site: Site) -> None:
    """Escape leaves everything as it was."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues/emails")
        page.get_by_role("link", name="Pause").press("Enter")
        page.get_by_role("dialog", name="Pause emails?").wait_for()
        page.keyboard.press("Escape")
        assert 0 == page.get_by_role("dialog").count()
        assert "Pause…" == page.evaluate("document.activeElement.textContent")


def test_the_palette_goes_to_a_queue(browser: Browser, site: Site) -> None:
    """Ctrl K, some letters, Enter."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("")
        page.keyboard.press("Control+k")
        page.keyboard.type("paym")
        page.get_by_role("option", name="Go to queue payments").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url("**/queues/payments")


def test_the_palette_acts_on_the_selection_and_on_the_page(browser: Browser, site: Site) -> None:
    """Its commands press the buttons: a question of the page opens as a dialog."""
    tasks = Tasks(site.client(), "palette")
    tasks.put(TaskState.ARCHIVED, "one", "two", type="trip.book", error_msg="full", last_failed_at=1)
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues/palette?state=archived")
        page.keyboard.press("Control+k")
        page.get_by_role("option", name="Pause…").wait_for()
        page.get_by_role("option", name="Go to Overview", selected=True).wait_for()
        assert 0 == page.get_by_role("option", name="selected").count()
        page.keyboard.type("pause")
        page.keyboard.press("Enter")
        page.get_by_role("dialog", name="Pause palette?").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.keyboard.press("Control+k")
        page.keyboard.type("run now")
        page.get_by_role("option", name="Run now: 1 selected").wait_for()
        page.keyboard.press("Enter")
        page.get_by_text("1 task was put back into the queue.").wait_for()
    assert 1 == len(tasks.ids("pending"))


def test_the_palette_offers_every_button_of_a_page_by_its_name(browser: Browser, site: Site) -> None:
    """Also those that are not in the head, such as the preview of limits and the act on all that match."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        for address, label in (
            ("queues/emails?tab=limits", "Preview"),
            ("tasks?q=state:archived", "Save"),
            ("attention", "Snooze"),
        ):
            page.goto(address)
            page.keyboard.press("Control+k")
            page.keyboard.type(label)
            page.get_by_role("option", name=label).first.wait_for()
            page.keyboard.press("Escape")


def test_a_change_is_shown_in_its_place(browser: Browser, site: Site) -> None:
    """A number changes, and a new row comes; `tests.dashboard_bars` measures after how many seconds."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues/newsletter?state=pending")
        page.locator("#live-state.good").wait_for()
        page.mouse.move(5, 500)
        Tasks(site.client(), "newsletter").pending("fresh")
        page.locator('[data-k="state.pending"]', has_text="1").wait_for()
        page.locator('[data-row="newsletter/fresh"]').wait_for()


def test_rows_do_not_move_under_the_pointer(browser: Browser, site: Site) -> None:
    """They are counted above the table, and shown when they are asked for."""
    with window(browser, site, **DESK) as context:
        page = context.new_page()
        page.goto("queues/exports?state=pending")
        page.locator("#live-state.good").wait_for()
        row = page.locator("tbody tr").nth(2)
        row.hover()
        before = row.bounding_box()
        Tasks(site.client(), "exports").pending("later")
        page.locator("#pill").wait_for()
        after = row.bounding_box()
        assert before is not None
        assert after is not None
        assert before["y"] == after["y"]
        count = page.locator("tbody tr").count()
        page.keyboard.press(".")
        page.locator("#pill").wait_for(state="detached")
        assert count + 1 == page.locator("tbody tr").count()


def test_reading_and_searching_and_single_verbs_work_without_javascript(browser: Browser, site: Site) -> None:
    """Sorting and filtering too; the way back is the page."""
    with window(browser, site, java_script_enabled=False, **DESK) as context:
        page = context.new_page()
        page.goto("queues")
        page.get_by_role("button", name="Pending").click()
        page.locator("th[aria-sort]", has_text="Pending").wait_for()
        page.goto("tasks")
        page.get_by_label("Query").fill("state:archived queue:payments")
        page.get_by_role("button", name="Search").click()
        page.locator("tbody tr").first.wait_for()
        page.locator("tbody tr th a").first.click()
        page.get_by_role("button", name="Run now").click()
        assert "The task was put back into the queue." in page.locator(".note").inner_text()
