"""Journeys through the dashboard as people make them, with a picture of each step.

    .venv/bin/python -m tests.browser.journeys docs

It writes `journeys.md` and the pictures of `journeys/`; the tests make the same journeys without pictures.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from playwright.sync_api import expect, sync_playwright

from pyasynq import App, Server, ServerConfig
from pyasynq.embedded import EmbeddedServer
from pyasynq.web import dashboard
from tests.browser.conftest import CHROMIUM, FLAGS, Site, connect, serve, window
from tests.shop import fill_shop
from tests.shop_statistics import fill_statistics, start_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

_MOST_LOOKS: Final = 30
FOLDER: Final = "journeys"
DESK: Final[dict[str, Any]] = {"viewport": {"width": 1200, "height": 760}, "color_scheme": "light"}
PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 390, "height": 780},
    "color_scheme": "dark",
    "has_touch": True,
    "is_mobile": True,
}
_INTRODUCTION: Final = """# Journeys through the dashboard

After reading this page you know how three jobs are done in the [dashboard](dashboard.md), step by step.
`make journeys` records the pictures again; the tests of the browser tier make the same journeys.
"""


class RecordedStep(NamedTuple):
    """A step of a journey: the name of its picture, and what is done and seen."""

    picture: str
    caption: str


class Album:
    """The steps of one journey; takes their pictures if there is a folder for them."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self.name = name
        self.steps: list[RecordedStep] = []
        self._folder = folder

    def take(self, page: Page, caption: str) -> None:
        """Add the step that the page shows."""
        picture = f"{self.name}-{len(self.steps) + 1}.png"
        self.steps.append(RecordedStep(picture, caption))
        if self._folder is not None:
            page.wait_for_timeout(500)  # what fades in has done so
            page.screenshot(path=self._folder / picture)


class Journey(NamedTuple):
    """A journey: its name, a title, the window, and the function that makes it."""

    name: str
    title: str
    window: dict[str, Any]
    make: Callable[[Page, Site, Album], None]


def repair_failing_type(page: Page, site: Site, album: Album) -> None:
    """Find the type that fails, see why, run its tasks again, and take a deletion back."""
    page.goto("types")
    album.take(page, "*Types* lists where the time goes, and the share of attempts that fail.")
    page.get_by_role("link", name="label.print", exact=True).click()
    page.get_by_role("heading", name="label.print").wait_for()
    album.take(page, "A click on the type shows since when: the failures begin at the mark of a deployment.")
    page.get_by_role("link", name="Failed tasks").click()
    page.locator("tbody tr").nth(1).wait_for()
    page.locator("tbody tr th a").first.click()
    page.get_by_role("heading", name="label.print").wait_for()
    album.take(page, "The newest failed task tells why, with its traceback and its earlier attempts.")
    page.go_back()
    page.locator("tbody tr").nth(1).wait_for()
    _preview(page, "run")
    album.take(page, "*Preview…* below the list counts all that match; nothing is changed yet.")
    _confirm(page, "the carrier is back")
    expect(page.get_by_text("put back into the queue.")).to_be_visible()
    album.take(page, "After a reason and the number, which production asks for, the tasks run again.")
    page.goto("tasks?q=state:archived queue:payments")
    page.locator("tbody tr").first.wait_for()
    _preview(page, "delete")
    album.take(page, "A deletion says until when it can be undone.")
    _confirm(page, "are these really old?")
    expect(page.get_by_text("deleted.")).to_be_visible()
    page.goto("operations")
    page.locator("tbody tr th a").first.click()
    undo = page.get_by_role("button", name="Put back ")
    undo.wait_for()
    album.take(page, "The deleted tasks were still needed: the page of the operation has the undo.")
    undo.click()
    page.get_by_role("heading", name="Put back ").wait_for()
    page.locator(".head .st", has_text="Done").wait_for()
    album.take(page, "One click puts every task back where it was.")


def _find_in_palette(page: Page, text: str, option: str) -> None:
    """Type into the palette until it has an option; it may know the types of half a minute ago."""
    for _ in range(_MOST_LOOKS):
        page.goto("queues")
        page.keyboard.press("Control+k")
        page.keyboard.type(text)
        try:
            page.get_by_role("option", name=option).wait_for(timeout=3_000)
        except PlaywrightTimeoutError:
            continue
        return
    raise AssertionError(f"the palette does not offer {option}")


def _preview(page: Page, act: str) -> None:
    """Ask for the preview of what is done to all tasks that match."""
    page.locator("#act").select_option(act)
    page.get_by_role("button", name="Preview…").click()
    page.locator("[data-question] h1").wait_for()


def _confirm(page: Page, reason: str) -> None:
    """Type number and reason into the form of an operation, and send it."""
    form = page.locator("[data-question]")
    number = "".join(filter(str.isdigit, form.locator("h1").inner_text()))
    form.locator("[name=confirm]").fill(number)
    form.locator("[name=reason]").fill(reason)
    form.locator("button[type=submit]").click()


def pause_from_a_phone(page: Page, site: Site, album: Album) -> None:
    """Pause a queue for an hour on a narrow screen, by touch."""
    page.goto("queues")
    album.take(page, "On a phone each queue is a card.")
    page.get_by_role("link", name="payments", exact=True).tap()
    page.get_by_role("heading", name="payments").wait_for()
    # Before its scripts run, the link leads to a page instead of a dialog.
    page.locator("#live-state.good").wait_for(state="attached")
    album.take(page, "A tap opens the queue.")
    page.get_by_role("link", name="Pause…").first.tap()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("heading", name="Pause payments?").wait_for()
    dialog.get_by_label("1 hour").check()
    dialog.locator("[name=reason]").fill("the bank is down")
    album.take(page, "*Pause…* asks for how long, and why.")
    dialog.get_by_role("button", name="Pause").tap()
    page.get_by_text("payments is paused.").wait_for()
    album.take(page, "No server takes its tasks for an hour; *Resume* ends that earlier.")
    page.get_by_role("button", name="Resume").first.tap()
    page.get_by_text("payments is running again.").wait_for()


def enqueue_typed_task(page: Page, site: Site, album: Album) -> None:
    """Enqueue a task by the form that its handler describes, and follow it to its result."""
    app = App(site.redis_url, version="2026.11.2")
    release = threading.Event()

    @app.task("parcel.quote", queue="quotes", result_ttl=3_600)
    def quote_parcel(weight_kg: float, country: str, express: bool = False) -> dict[str, Any]:
        """Ask the carriers for the price of a parcel."""
        release.wait()
        return {"carrier": "North Post", "price": round(4.9 + weight_kg * 1.2 + 6 * express, 2)}

    with working(app), ExitStack() as stack:
        stack.callback(release.set)
        _find_in_palette(page, "parcel.quote", "Enqueue parcel.quote")
        album.take(page, "The palette, Ctrl+K, knows the types that workers describe.")
        page.keyboard.press("Enter")
        page.wait_for_url("**/enqueue?type=parcel.quote")
        page.locator("[name='p:weight_kg']").fill("a lot")
        page.locator("[name='p:country']").fill("NO")
        page.get_by_role("button", name="Enqueue", exact=True).click()
        page.get_by_text("The task was not enqueued.").wait_for()
        album.take(page, "The form has a field for each argument; an error stands at its field.")
        page.locator("[name='p:weight_kg']").fill("2.5")
        page.get_by_role("button", name="Enqueue", exact=True).click()
        page.get_by_text("The task was enqueued.").wait_for()
        page.locator(".head .st", has_text="Active").wait_for()
        album.take(page, "The page of the task follows it live: a server runs it.")
        release.set()
        page.locator(".head .st", has_text="Completed").wait_for()
        page.get_by_role("link", name="Result").click()
        page.get_by_text("North Post").first.wait_for()
        album.take(page, "It is done, and its result is there.")


JOURNEYS: Final = (
    Journey(
        "repair",
        "Find the failing type, run its tasks again, take a deletion back",
        DESK,
        repair_failing_type,
    ),
    Journey("phone", "Pause a queue from a phone", PHONE, pause_from_a_phone),
    Journey("enqueue", "Enqueue a typed task and follow it to its result", DESK, enqueue_typed_task),
)


@contextmanager
def working(app: App) -> Iterator[None]:
    """Run a server of an app in a thread for the time of a block; it runs when the block begins."""
    ready = threading.Event()
    told: list[tuple[asyncio.AbstractEventLoop, Server]] = []

    async def run() -> None:
        server = app.server(ServerConfig(queues={"quotes": 1}))
        await server.start(app)
        told.append((asyncio.get_running_loop(), server))
        over = asyncio.Event()
        ends.append(over)
        ready.set()
        await over.wait()
        await server.shutdown()

    ends: list[asyncio.Event] = []
    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        told[0][0].call_soon_threadsafe(ends[0].set)
        thread.join()


def render_journey(journey: Journey, album: Album) -> str:
    """Return the part of the page that shows a journey."""
    parts = [f"## {journey.title}\n"]
    for number, step in enumerate(album.steps, 1):
        parts.append(f"\n{number}. {step.caption}\n\n   ![Step {number}]({FOLDER}/{step.picture})\n")
    return "".join(parts)


@contextmanager
def shop_site() -> Iterator[Site]:
    """Serve a dashboard on the data of a shop, in production."""
    with EmbeddedServer() as server:
        fill_shop(connect(server.url), server.url, scale=40)
        fill_statistics(server.url)
        start_operations(server.url)
        app = dashboard(server.url, title="shop", environment=("production", "red"))
        with serve(app) as address:
            yield Site(server.url, address)


def main(folder: Path) -> None:
    """Make all journeys; write their pictures and the page."""
    pictures = folder / FOLDER
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.png"):
        old.unlink()
    parts = []
    with shop_site() as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for journey in JOURNEYS:
            album = Album(journey.name, pictures)
            with window(browser, site, **journey.window) as context:
                journey.make(context.new_page(), site, album)
            parts.append(render_journey(journey, album))
        browser.close()
    (folder / "journeys.md").write_text("\n".join([_INTRODUCTION, *parts]))
    print(f"{len(list(pictures.glob('*.png')))} pictures in {pictures}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
