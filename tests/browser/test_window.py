"""The window of the browser tests: which requests of a page fail a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Site, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize(
    ("files", "status", "said"), [("*.css", 404, r"404 .*\.css"), ("*.js", None, r"ERR_FAILED .*\.js")]
)
def test_a_resource_that_does_not_arrive_fails_the_test(
    browser: Browser, site: Site, files: str, status: int | None, said: str
) -> None:
    """It is named, whether it is not found or nothing answers."""

    def visit() -> None:
        with window(browser, site) as context:
            context.route(
                f"**/static/**/{files}",
                lambda route: route.fulfill(status=status) if status else route.abort(),
            )
            context.new_page().goto("help")

    with pytest.raises(AssertionError, match=said):
        visit()


def test_a_page_that_is_not_found_is_a_page(browser: Browser, site: Site) -> None:
    """Its own status does not fail the test."""
    with window(browser, site) as context:
        answer = context.new_page().goto("queues/none")
        assert answer is not None
        assert 404 == answer.status
