"""Every page in both themes and three widths, with and without scripts: it fits, and axe finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import AXE, Site, window
from tests.browser.pages import PAGES, THEMES, WIDTHS, chosen, go

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WATCH_POLICY = (
    "window.__csp = []; "
    "addEventListener('securitypolicyviolation', (e) => window.__csp.push(e.violatedDirective))"
)


@pytest.mark.parametrize("scripts", chosen("BROWSER_SCRIPTS", ("on", "off")))
@pytest.mark.parametrize("theme", chosen("BROWSER_THEMES", THEMES))
@pytest.mark.parametrize("width", chosen("BROWSER_WIDTHS", tuple(map(str, WIDTHS))))
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_axe_finds_no_violation(
    browser: Browser, site: Site, name: str, width: str, theme: str, scripts: str
) -> None:
    """Also with names of eighty characters. The strict content policy reports nothing.

    axe checks WCAG 2.0 to 2.2, A and AA, and best practices.
    """
    options: dict[str, Any] = {"viewport": {"width": int(width), "height": 900}, "color_scheme": theme}
    with window(browser, site, **options, java_script_enabled=scripts == "on") as context:
        page = context.new_page()
        page.add_init_script(WATCH_POLICY)
        go(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= int(width)
        assert [] == page.evaluate("window.__csp ?? []")
        assert 1 == page.locator("h1").count()
        if scripts == "on":
            assert [] == violations(page)
    if scripts == "off":
        # axe is a script itself: it judges a page whose own modules did not arrive.
        with window(browser, site, **options) as context:
            context.route("**/static/**/*.js", lambda route: route.abort("aborted"))
            page = context.new_page()
            go(page, name)
            assert [] == violations(page)


def violations(page: Page) -> list[str]:
    """Return what axe finds on a page: rule, sentence, and the first elements that break it."""
    # The debugger's evaluation is not subject to the content policy.
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:150] for node in one['nodes'][:3]]}"
        for one in found["violations"]
    ]
