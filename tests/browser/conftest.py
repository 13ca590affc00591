"""A dashboard on a shop's data, served over loopback, and a Chromium that can reach nothing else."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import uvicorn
from playwright.sync_api import sync_playwright

from pyasynq.embedded import EmbeddedServer
from pyasynq.web import dashboard
from tests.ports import free_port
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Request, Response

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    f"--{flag}"
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
    )
]
ABORTED = "net::ERR_ABORTED"
"""What Chromium says of a request that it does not need any more."""
AXE = Path(__file__).parents[2] / ".browser" / "node_modules" / "axe-core" / "axe.min.js"


class Site:
    """A dashboard that is being served, and the other sites that its pages lead to."""

    def __init__(self, url: str, address: str, *others: str) -> None:
        self.redis_url = url
        self.address = address
        self.others = others

    def client(self) -> redis.Redis:
        """Return a client of its Redis."""
        return connect(self.redis_url)


def connect(url: str) -> redis.Redis:
    """Return a client of an embedded server."""
    return redis.Redis(unix_socket_path=url.removeprefix("unix://").partition("?")[0])


@contextmanager
def serve(app: Any, port: int = 0) -> Iterator[str]:
    """Serve an application in a thread, at a free port unless given; give its address."""
    port = port or free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )

    async def run() -> None:
        await server.serve()
        await app.aclose()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    while not server.started:
        threading.Event().wait(0.02)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def shop_server() -> Iterator[str]:
    """Run a Redis with the data of a shop and of a task service; give its URL."""
    with EmbeddedServer() as server:
        fill_shop(connect(server.url), server.url, scale=40)
        fill_statistics(server.url)
        start_operations(server.url)
        configure_service(server.url)
        announce_commands(server.url, SHOP_COMMANDS)
        announce_deliveries(server.url)
        announce_doors(server.url)
        announce_lease_workers(server.url, held=first_active(connect(server.url), "shipping-labels"))
        yield server.url


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    """The URL of a Redis with the data of a shop."""
    with shop_server() as url:
        yield url


@pytest.fixture(scope="session")
def site(valkey: str) -> Iterator[Site]:
    """A dashboard on the shop."""
    with serve(dashboard(valkey, title="shop", environment=("production", "red"))) as address:
        yield Site(valkey, address)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The installed Chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def window(
    browser: Browser, site: Site, *, is_always_up: bool = True, **options: Any
) -> Iterator[BrowserContext]:
    """Open a window that can reach the dashboard alone.

    The test fails if a page complains, or if a resource of a page, such as its styles, does not arrive.
    A test that takes the dashboard away says so with `is_always_up`: then requests may fail.
    """
    context = browser.new_context(base_url=site.address, **options)
    troubles: list[str] = []

    def route(one: Any) -> None:
        if one.request.url.startswith((site.address, "data:", *site.others)):
            one.continue_()
        else:
            troubles.append(f"a request to {one.request.url}")
            one.abort()

    def note(kind: str, text: str) -> None:
        # `note_response` and `note_failure` say which resource it was.
        if kind in {"error", "warning"} and not text.startswith("Failed to load resource"):
            troubles.append(text)

    def note_response(response: Response) -> None:
        # A page that is not found is a page, and some tests want to see it.
        if response.status >= HTTPStatus.BAD_REQUEST and not response.request.is_navigation_request():
            troubles.append(f"{response.status} {response.url}")

    def note_failure(request: Request) -> None:
        # The browser aborts the requests of a page that it leaves, such as the stream of live updates.
        if is_always_up and request.failure != ABORTED:
            troubles.append(f"{request.failure} {request.url}")

    context.route("**/*", route)
    context.on("console", lambda message: note(message.type, message.text))
    context.on("response", note_response)
    context.on("requestfailed", note_failure)
    context.on("weberror", lambda error: troubles.append(str(error.error)))
    yield context
    context.close()
    assert [] == troubles
