"""The list of pages that the browser tests visit is whole."""

from __future__ import annotations

from starlette.routing import compile_path

from pyasynq.web import actions
from pyasynq.web.page_table import LIVE_PAGES, STILL_PAGES
from tests.browser.pages import LINKS, PAGES


def test_browser_tests_visit_each_page_and_each_question() -> None:
    """A new page needs a line in `tests/browser/pages.py`."""
    routes = [*LIVE_PAGES, *STILL_PAGES, *actions.QUESTIONS, "/tasks"]
    paths = ["/" + address.partition("?")[0] for name, address in PAGES.items() if name not in LINKS]
    visited = {route for _, _, route in LINKS.values()}
    visited |= {
        next((route for route in routes if compile_path(route)[0].match(path)), path) for path in paths
    }
    assert set() == set(routes) - visited, "pages that no browser test visits"
    assert set() == visited - set(routes), "addresses without a page"


def test_pages_behind_links_are_those_without_an_address() -> None:
    """So `go` finds each of them."""
    assert set(LINKS) == {name for name, address in PAGES.items() if not address} - {"overview"}
