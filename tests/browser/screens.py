"""Screenshots of every page of the dashboard in both themes and three widths.

    .venv/bin/python -m tests.browser.screens FOLDER [PAGE...]

The data is that of the browser tests. A sheet of all pictures, `index.html`, makes them easy to compare.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from pyasynq.embedded import EmbeddedServer
from pyasynq.web import dashboard
from tests.browser.conftest import CHROMIUM, FLAGS, connect, serve
from tests.browser.pages import PAGES, THEMES, WIDTHS, go
from tests.shop import fill_shop
from tests.shop_service import (
    SHOP_COMMANDS,
    announce_commands,
    announce_deliveries,
    announce_doors,
    announce_lease_workers,
    configure_service,
    first_active,
)
from tests.shop_statistics import fill_statistics, start_operations


def main(folder: Path, names: list[str]) -> None:
    """Take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with EmbeddedServer() as server:
        fill_shop(connect(server.url), server.url, scale=40)
        fill_statistics(server.url)
        start_operations(server.url)
        configure_service(server.url)
        announce_commands(server.url, SHOP_COMMANDS)
        announce_deliveries(server.url)
        announce_doors(server.url)
        announce_lease_workers(server.url, held=first_active(connect(server.url), "shipping-labels"))
        site = dashboard(server.url, title="shop", environment=("production", "red"))
        with serve(site) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for width in WIDTHS:
                for theme in THEMES:
                    context = browser.new_context(
                        base_url=address, viewport={"width": width, "height": 900}, color_scheme=theme
                    )
                    page = context.new_page()
                    for name in names:
                        go(page, name)
                        page.wait_for_timeout(400)
                        file = f"{name}-{width}-{theme}.png"
                        page.screenshot(path=folder / file, full_page=True)
                        made.append(file)
                    context.close()
            browser.close()
    figures = "\n".join(
        f'<figure><img src="{file}" alt=""><figcaption>{file}</figcaption></figure>' for file in made
    )
    style = "body{display:grid;grid-template-columns:repeat(3,1fr);gap:1rem}img{width:100%}"
    (folder / "index.html").write_text(f"<!doctype html><style>{style}</style>{figures}\n")
    print(f"{len(made)} pictures in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(PAGES))
