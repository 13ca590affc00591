"""Sign-in at an OpenID provider in Chromium, which applies the content policy to each redirect."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pyasynq.web import CredentialsFile, OpenIdConnect, dashboard
from pyasynq.web.auth.credentials import password_line
from tests.browser.conftest import Site, serve, window
from tests.browser.pages import THEMES
from tests.browser.test_every_page import WATCH_POLICY, violations
from tests.openid_provider import CLIENT_ID, Provider, serve_provider
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser


@contextmanager
def signing_in(redis_url: str, people: Path | None = None) -> Iterator[tuple[Site, Provider]]:
    """Serve a dashboard and a provider of another site, `localhost`; with a file there are passwords too."""
    port = free_port()
    with serve_provider("localhost") as provider:
        openid = OpenIdConnect(
            issuer=provider.issuer,
            client_id=CLIENT_ID,
            url=f"http://127.0.0.1:{port}",
            roles={"ops": "operator"},
            name="Keycloak",
        )
        auth: list[OpenIdConnect | CredentialsFile] = [openid]
        if people is not None:
            auth.append(CredentialsFile(people))
        with serve(dashboard(redis_url, auth=auth), port) as address:
            yield Site(redis_url, address, provider.issuer), provider


@pytest.mark.parametrize("scripts", [True, False])
def test_a_person_signs_in_at_another_site_and_out_again(
    browser: Browser, valkey: str, scripts: bool
) -> None:
    """The link leads there and back to the page that was asked for; signing out ends both sessions."""
    with (
        signing_in(valkey) as (site, _),
        window(browser, site, java_script_enabled=scripts) as context,
    ):
        page = context.new_page()
        page.add_init_script(WATCH_POLICY)
        page.goto("queues?sort=queue")
        page.get_by_role("link", name="Sign in with Keycloak").click()
        page.wait_for_url(f"{site.address}queues?sort=queue")
        assert "mira" in page.locator("header .meta").inner_text()
        page.goto("settings")
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Signed out of the provider").wait_for()
        page.get_by_role("link", name="Back").click()
        page.get_by_role("link", name="Sign in with Keycloak").wait_for()
        assert [] == page.evaluate("window.__csp ?? []")
        assert [] == [one for one in context.cookies() if one["name"].startswith("pyasynq-")]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [320, 1440])
@pytest.mark.parametrize("passwords", [True, False])
def test_the_login_page_fits_and_axe_finds_no_violation(
    browser: Browser, valkey: str, tmp_path: Path, theme: str, width: int, passwords: bool
) -> None:
    """Also after a failure, and on the page of a person without a role."""
    people = tmp_path / "people"
    people.write_text(password_line("leo", "viewer", "*", "correct horse battery") + "\n")
    with (
        signing_in(valkey, people if passwords else None) as (site, provider),
        window(
            browser,
            site,
            viewport={"width": width, "height": 700},
            color_scheme=theme,
        ) as context,
    ):
        page = context.new_page()
        page.goto("login")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [] == violations(page)
        provider.claims["groups"] = []
        page.get_by_role("link", name="Sign in with Keycloak").click()
        page.get_by_role("alert").get_by_text("none of your groups may use this dashboard").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [] == violations(page)
