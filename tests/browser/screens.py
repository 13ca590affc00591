"""Screenshots of every page of the dashboard in both themes and three widths.

    .venv/bin/python -m tests.browser.screens FOLDER [PAGE...]

The data is that of the browser tests. A sheet of all pictures, `index.html`, makes them easy to compare.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

from pyasynq.web import CredentialsFile, OpenIdConnect, dashboard
from pyasynq.web.auth.credentials import password_line
from tests.browser.conftest import CHROMIUM, FLAGS, serve, shop_server
from tests.browser.pages import PAGES, THEMES, WIDTHS, go

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Browser

    from pyasynq.web import Dashboard

LOGIN: Final = "login"
"""The page of a dashboard that knows its users, as the one of the other pictures does not."""


def main(folder: Path, names: list[str]) -> None:
    """Take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with shop_server() as url, tempfile.TemporaryDirectory() as private:
        site = dashboard(url, title="shop", environment=("production", "red"))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            made = _take_pictures(browser, site, folder, [name for name in names if name != LOGIN])
            if LOGIN in names:
                made += _take_pictures(browser, _make_guarded(url, Path(private)), folder, [LOGIN])
            browser.close()
    figures = "\n".join(
        f'<figure><img src="{file}" alt=""><figcaption>{file}</figcaption></figure>' for file in made
    )
    style = "body{display:grid;grid-template-columns:repeat(3,1fr);gap:1rem}img{width:100%}"
    (folder / "index.html").write_text(f"<!doctype html><style>{style}</style>{figures}\n")
    print(f"{len(made)} pictures in {folder}")


def _take_pictures(browser: Browser, site: Dashboard, folder: Path, names: Sequence[str]) -> list[str]:
    """Take pictures of pages in each width and theme; return the names of the files."""
    made = []
    with serve(site) as address:
        for width in WIDTHS:
            for theme in THEMES:
                context = browser.new_context(
                    base_url=address, viewport={"width": width, "height": 900}, color_scheme=theme
                )
                page = context.new_page()
                for name in names:
                    if name == LOGIN:
                        page.goto(LOGIN)
                    else:
                        go(page, name)
                    page.wait_for_timeout(400)
                    file = f"{name}-{width}-{theme}.png"
                    page.screenshot(path=folder / file, full_page=True)
                    made.append(file)
                context.close()
    return made


def _make_guarded(url: str, folder: Path) -> Dashboard:
    """Return a dashboard that takes passwords and people of an OpenID provider."""
    people = folder / "people"
    people.write_text(password_line("mira", "admin", "*", "correct horse battery") + "\n")
    openid = OpenIdConnect(
        issuer="https://login.shop.example",
        client_id="tasks",
        url="https://ops.shop.example",
        roles={"ops": "operator"},
        name="Keycloak",
    )
    return dashboard(url, title="shop", auth=[openid, CredentialsFile(people)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*PAGES, LOGIN])
