"""The dashboard inside other applications and behind proxies: every link holds under every prefix."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import httpx
import pytest
from a2wsgi import ASGIMiddleware
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from pyasynq.web import Everyone, dashboard
from tests.link_crawl import Crawl
from tests.run_async import run_async
from tests.shop import fill_shop
from tests.visiting import heading_of, send_form, visiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyasynq.web import Dashboard
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

PREFIX = "/a/b"


@pytest.fixture
def shop(redis_url: str, redis_client: RedisClient) -> str:
    """The URL of a Redis with the data of a shop."""
    fill_shop(redis_client, redis_url, scale=1_000)
    return redis_url


def in_fastapi(site: Dashboard) -> Any:
    """Mount it in an application of FastAPI."""
    app = FastAPI()
    app.mount(PREFIX, site)
    return app


def in_starlette(site: Dashboard) -> Any:
    """Mount it in an application of Starlette, which is itself mounted."""
    return Starlette(routes=[Mount("/a", routes=[Mount("/b", site)])])


def in_django(site: Dashboard) -> Any:
    """Put it before the ASGI handler of Django, which takes all other paths."""
    others = django_application()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith(f"{PREFIX}/"):
            await site({**scope, "root_path": PREFIX}, receive, send)
        else:
            await others(scope, receive, send)

    return app


@cache
def django_application() -> Any:
    """Return an application of Django without a page, as a project makes it in `asgi.py`."""
    import django  # noqa: PLC0415 - it reads its settings when it is set up
    from django.conf import settings  # noqa: PLC0415 - as above
    from django.core.asgi import get_asgi_application  # noqa: PLC0415 - as above

    settings.configure(ROOT_URLCONF=(), ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
    django.setup()
    return get_asgi_application()


def behind_a_stripping_proxy(site: Dashboard) -> Any:
    """Take the prefix away and tell nothing of it, as nginx does with a slash behind `proxy_pass`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix(PREFIX)
        await site({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return app


def behind_a_telling_proxy(site: Dashboard) -> Any:
    """Take the prefix away and tell it as `root_path`, as Django's handler and uvicorn's option do."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await site({**scope, "path": scope["path"].removeprefix(PREFIX), "root_path": PREFIX}, receive, send)

    return app


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "mount", [in_fastapi, in_starlette, in_django, behind_a_stripping_proxy, behind_a_telling_proxy]
)
def test_every_link_holds_under_a_prefix(shop: str, mount: Callable[[Dashboard], Any]) -> None:
    """All pages are crawled; no link leaves the prefix, and none leads nowhere. No lifespan runs."""

    @run_async
    async def crawl() -> None:
        site = dashboard(shop, auth=Everyone("admin"))
        async with visiting(site, host=mount(site)) as visitor:
            walk = Crawl(f"http://localhost{PREFIX}/")
            while walk.todo:
                address = walk.todo.pop()
                walk.read(address, await visitor.get(address))
            assert len(walk.seen) > 30

    crawl()


def test_every_link_holds_in_flask_where_changes_are_polled(shop: str) -> None:
    """WSGI has no streams: the address of the stream says so, and the snapshot answers."""
    with in_flask(dashboard(shop, auth=Everyone("admin"))) as visitor:
        walk = Crawl(f"http://localhost{PREFIX}/")
        while walk.todo:
            address = walk.todo.pop()
            walk.read(address, visitor.get(address))
        assert len(walk.seen) > 30
        assert 503 == visitor.get(f"{walk.start}live?page=/").status_code
        assert "cells" in visitor.get(f"{walk.start}live.json?page=/").text
        assert 404 == visitor.get("http://localhost/").status_code


@contextmanager
def in_flask(site: Dashboard) -> Iterator[httpx.Client]:
    """Mount it in an application of Flask; give a client of that. The event loop has a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    application: Any = site
    mounted: Any = ASGIMiddleware(application, loop=loop)
    app = DispatcherMiddleware(Flask("shop"), {PREFIX: mounted})
    try:
        with httpx.Client(transport=httpx.WSGITransport(app)) as visitor:
            yield visitor
    finally:
        asyncio.run_coroutine_threadsafe(site.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("mount", [in_fastapi, behind_a_stripping_proxy])
def test_forms_lead_back_under_a_prefix(shop: str, mount: Callable[[Dashboard], Any]) -> None:
    """The address that a form answers with is relative to the form's own."""

    @run_async
    async def visit() -> None:
        site = dashboard(shop, auth=Everyone("admin"))
        async with visiting(site, host=mount(site), base=f"http://localhost{PREFIX}/") as visitor:
            answer = await send_form(visitor, "queues/emails/pause", {"seconds": ""})
            there = urljoin(str(answer.request.url), answer.headers["location"])
            assert f"http://localhost{PREFIX}/queues/emails" == there
            assert "emails" == heading_of(await visitor.get(there))

    visit()


def test_several_redis_have_an_address_each(shop: str) -> None:
    """The root leads to the first; the switch leads to another."""

    @run_async
    async def visit() -> None:
        async with visiting({"eu": shop, "us": shop}) as visitor:
            assert "eu/" == (await visitor.get("")).headers["location"]
            page = await visitor.get("us/queues/emails")
            assert "emails" == heading_of(page)
            assert "<option selected>us</option>" in page.text
            assert "../eu/" == (await visitor.get("us/switch?to=eu")).headers["location"]
            assert "./" == (await visitor.get("us/switch?to=evil")).headers["location"]

    visit()
