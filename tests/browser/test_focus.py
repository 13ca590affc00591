"""Keyboard focus is visible wherever Tab leads (WCAG 2.4.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.browser.conftest import Site, window
from tests.browser.pages import THEMES, go

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}
MOST_STOPS = 200
FOCUSED = """() => {
    const one = document.activeElement;
    if (one === document.body) return null;
    const style = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    const outline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
        && style.outlineColor !== "rgba(0, 0, 0, 0)";
    const seen = window.__stops ??= new Set();
    const is_new = !seen.has(one);
    seen.add(one);
    return {
        isNew: is_new,
        isMarked: outline && box.width > 0 && box.height > 0 && style.opacity !== "0",
        html: one.outerHTML.slice(0, 150),
    };
}"""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("name", "least"), [("queue", 30), ("enqueue", 20), ("delete-queue", 20)])
def test_each_stop_of_tab_is_marked(browser: Browser, site: Site, name: str, least: int, theme: str) -> None:
    """A list and forms, from the first stop to the last: each has an outline."""
    with window(browser, site, color_scheme=theme, **DESK) as context:
        page = context.new_page()
        go(page, name)
        stops = []
        for _ in range(MOST_STOPS):
            page.keyboard.press("Tab")
            stop = page.evaluate(FOCUSED)
            if stop is None or not stop["isNew"]:
                break
            stops.append(stop)
        assert [] == [stop["html"] for stop in stops if not stop["isMarked"]]
        assert least <= len(stops) < MOST_STOPS
