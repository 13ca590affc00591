"""Measurement of the dashboard in a slow browser: when pages are painted, and how fast keys are answered.

    python -m tests.browser.paint_times [PAGE...]

Chromium runs at a fourth of the CPU's speed. For each page it prints the largest contentful paint (LCP),
the median of three visits; for each interaction, the time from the key to the next paint (Event Timing API).
The data is that of the browser tests. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from playwright.sync_api import sync_playwright

from pyasynq.web import dashboard
from tests.browser.conftest import CHROMIUM, FLAGS, serve, shop_server
from tests.browser.pages import PAGES, go

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from playwright.sync_api import BrowserContext, Page

_SLOWDOWN: Final = 4
_VISITS: Final = 3
_PAINT_BAR: Final = 600.0
"""Milliseconds from the navigation to the largest contentful paint."""
_INTERACTION_BAR: Final = 100.0
"""Milliseconds from an input to the next paint."""
_SETTLED: Final = 500
"""Milliseconds after the load in which late paints are still seen."""

_LARGEST_PAINT: Final = """() => new Promise(resolve => new PerformanceObserver(
    list => resolve(list.getEntries().at(-1).startTime)
).observe({type: 'largest-contentful-paint', buffered: true}))"""
_RECORD_EVENTS: Final = """() => {
    window.longest = 0
    new PerformanceObserver(list => {
        for (const entry of list.getEntries())
            if (entry.interactionId) window.longest = Math.max(window.longest, entry.duration)
    }).observe({type: 'event', durationThreshold: 16})
}"""


class Interaction(NamedTuple):
    """What a person does on a page, in an order of keys."""

    name: str
    page: str
    act: Callable[[Page], None]


def _press(*keys: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        for key in keys:
            page.keyboard.press(key)
            page.wait_for_timeout(150)

    return act


INTERACTIONS: Final = (
    Interaction("move and select rows", "queue", _press("j", "j", "x", "j", "x")),
    Interaction("open the command palette and type", "queue", _press("Control+k", "p", "a", "y", "Escape")),
    Interaction("open the list of keys", "overview", _press("?", "Escape")),
    Interaction("type a search", "search", _press("/", "a", "b", "c", "Backspace")),
)


def main(names: Sequence[str]) -> int:
    """Measure pages, and interactions unless only pages are named; return 1 if a bar is missed."""
    missed: list[str] = []

    def report(name: str, milliseconds: float, bar: float) -> None:
        if milliseconds > bar:
            missed.append(name)
        mark = "  MISSED" if milliseconds > bar else ""
        print(f"{name:<40} {milliseconds:6.0f} ms   bar {bar:.0f}{mark}", flush=True)

    with shop_server() as url, serve(dashboard(url, title="shop")) as address, sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900})
        for name in names or PAGES:
            report(name, _measure_paint(context, name), _PAINT_BAR)
        for one in () if names else INTERACTIONS:
            report(one.name, _measure_interaction(context, one), _INTERACTION_BAR)
        browser.close()
    print(f"{len(missed)} bars missed")
    return 1 if missed else 0


def _slow_page(context: BrowserContext) -> Page:
    page = context.new_page()
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": _SLOWDOWN})
    return page


def _measure_paint(context: BrowserContext, name: str) -> float:
    times = []
    for _ in range(_VISITS):
        page = _slow_page(context)
        go(page, name)
        page.wait_for_timeout(_SETTLED)
        times.append(float(page.evaluate(_LARGEST_PAINT)))
        page.close()
    return statistics.median(times)


def _measure_interaction(context: BrowserContext, one: Interaction) -> float:
    page = _slow_page(context)
    go(page, one.page)
    page.wait_for_timeout(_SETTLED)
    page.evaluate(_RECORD_EVENTS)
    one.act(page)
    page.wait_for_timeout(_SETTLED)
    longest = float(page.evaluate("window.longest"))
    page.close()
    if not longest:
        raise RuntimeError(f"the browser has reported no input: {one.name}")
    return longest


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
