"""The dashboard behind a proxy that ends TLS, mounted and on its own: cookies, origins, tries, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import httpx
import pytest
from fastapi import FastAPI, Request

from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.web import CredentialsFile, Everyone, TrustedProxy, dashboard
from pyasynq.web.auth.credentials import password_line
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import ABROAD, form_token, links_of, visiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyasynq.web import Dashboard
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

PROXY = ("10.0.0.7", 40_000)
PROXIES = ["10.0.0.0/8"]
TOLD = {
    "x-forwarded-proto": "https",
    "x-forwarded-host": "ops.example",
    "x-forwarded-for": "203.0.113.9",
}


def alone(site: Dashboard) -> tuple[Any, str]:
    """Return the site and its address behind the proxy."""
    return site, "http://app:8000/"


def in_fastapi(site: Dashboard) -> tuple[Any, str]:
    """Mount the site in an application, and return its address there."""
    app = FastAPI()
    app.mount("/tasks", site)
    return app, "http://app:8000/tasks/"


BOTH = pytest.mark.parametrize("place", [alone, in_fastapi])


@pytest.fixture
def people(tmp_path: Path, redis_client: RedisClient) -> Path:
    """A file with one operator, for a Redis with a queue."""
    Tasks(redis_client, "emails").pending("a")
    file = tmp_path / "people"
    file.touch(0o600)
    file.write_text(password_line("mira", "operator", "*", "correct horse") + "\n")
    return file


async def sign_in(
    visitor: httpx.AsyncClient, headers: dict[str, str], password: str = "correct horse"
) -> Any:
    """Send the login form through the proxy."""
    token = form_token((await visitor.get("login", headers=headers)).text)
    data = {"csrf": token, "name": "mira", "password": password}
    return await visitor.post("login", data=data, headers=headers)


@BOTH
def test_a_trusted_proxy_makes_the_cookie_secure(
    redis_url: str, people: Path, place: Callable[[Dashboard], tuple[Any, str]]
) -> None:
    """Headers of anyone else do not, and neither do those of a proxy that is not trusted."""

    @run_async
    async def visit() -> None:
        for client, proxies, is_secure in (
            (PROXY, PROXIES, True),
            (ABROAD, PROXIES, False),
            (PROXY, [], False),
        ):
            site = dashboard(redis_url, auth=CredentialsFile(people), trusted_proxies=proxies)
            host, base = place(site)
            async with visiting(site, host=host, base=base, client=client) as visitor:
                answer = await sign_in(visitor, TOLD)
                cookie = answer.headers["set-cookie"]
                assert 303 == answer.status_code
                assert (is_secure, is_secure) == ("Secure" in cookie, cookie.startswith("__Host-pyasynq-"))

    visit()


@BOTH
def test_a_session_holds_behind_tls_and_its_forms_are_taken(
    redis_url: str, people: Path, place: Callable[[Dashboard], tuple[Any, str]]
) -> None:
    """The origin is compared with the address that the browser sees, not with the one behind the proxy."""

    @run_async
    async def visit() -> None:
        site = dashboard(redis_url, auth=CredentialsFile(people), trusted_proxies=PROXIES)
        host, base = place(site)
        async with visiting(site, host=host, base=base, client=PROXY) as visitor:
            cookie = (await sign_in(visitor, TOLD)).headers["set-cookie"].partition(";")[0]
            headers = {**TOLD, "cookie": cookie}
            page = await visitor.get("queues/emails/pause", headers=headers)
            assert 200 == page.status_code
            data = {"csrf": form_token(page.text), "seconds": ""}
            for origin, status in (
                ("https://evil.example", 403),
                ("http://app:8000", 403),
                ("https://ops.example", 303),
            ):
                sent = {**headers, "origin": origin}
                answer = await visitor.post("queues/emails/pause", data=data, headers=sent)
                assert status == answer.status_code, origin

    visit()


@run_async
async def test_a_stranger_cannot_name_the_host_that_an_origin_is_compared_with(
    redis_url: str, people: Path
) -> None:
    """Without a trusted proxy the header `Host` alone counts."""
    site = dashboard(redis_url, auth=CredentialsFile(people), trusted_proxies=PROXIES)
    async with visiting(site, base="http://app:8000/", client=ABROAD) as visitor:
        await sign_in(visitor, {})
        page = await visitor.get("queues/emails/pause")
        data = {"csrf": form_token(page.text), "seconds": ""}
        headers = {"x-forwarded-host": "evil.example", "origin": "https://evil.example"}
        assert 403 == (await visitor.post("queues/emails/pause", data=data, headers=headers)).status_code


@run_async
async def test_tries_to_sign_in_are_counted_for_each_client_of_a_proxy(redis_url: str, people: Path) -> None:
    """One who guesses does not lock out the others, and does not get more tries by a forged address."""
    site = dashboard(redis_url, auth=CredentialsFile(people), trusted_proxies=PROXIES)
    async with visiting(site, base="http://app:8000/", client=PROXY) as visitor:
        for number in range(6):
            forged = {**TOLD, "x-forwarded-for": f"198.51.100.{number}, 203.0.113.9"}
            answer = await sign_in(visitor, forged, "guess")
            assert (429 if number == 5 else 401) == answer.status_code
        other = {**TOLD, "x-forwarded-for": "203.0.113.10"}
        assert 303 == (await sign_in(visitor, other)).status_code


@pytest.mark.usefixtures("people")
@run_async
async def test_the_audit_has_the_address_of_the_client(redis_url: str) -> None:
    """Also of a person whom the proxy names: its network is that of the connection."""
    auth = TrustedProxy(PROXIES, default_role="operator")
    site = dashboard(redis_url, auth=auth, trusted_proxies=PROXIES)
    headers = {**TOLD, "x-forwarded-for": "203.0.113.9, 10.0.0.8", "x-forwarded-user": "mira"}
    async with visiting(site, base="http://app:8000/", client=PROXY) as visitor:
        page = await visitor.get("queues/emails/pause", headers=headers)
        data = {"csrf": form_token(page.text), "seconds": ""}
        sent = {**headers, "origin": "https://ops.example"}
        assert 303 == (await visitor.post("queues/emails/pause", data=data, headers=sent)).status_code
    with Operator(redis_url, User.with_role("admin", "admin")) as admin:
        entries = admin.audit().entries
        assert [("mira", "203.0.113.9")] == [(one.user, one.address) for one in entries]


@BOTH
@pytest.mark.usefixtures("people")
def test_the_root_is_the_one_that_the_browser_sees(
    redis_url: str, place: Callable[[Dashboard], tuple[Any, str]]
) -> None:
    """A proxy strips `/ops` and says so: a function of the host gets the whole address; all links hold."""
    asked: list[str] = []

    async def who(request: Request) -> User:
        asked.append(str(request.url))
        return User.with_role("mira", "admin")

    @run_async
    async def visit() -> None:
        site = dashboard(redis_url, auth=who, trusted_proxies=PROXIES)
        host, base = place(site)
        async with visiting(site, host=host, base=base, client=PROXY) as visitor:
            page = await visitor.get("queues/emails", headers={**TOLD, "x-forwarded-prefix": "/ops"})
            assert 200 == page.status_code
            assert all(not link.startswith("/") for link in links_of(page.text))
            static = next(link for link in links_of(page.text) if "static/" in link)
            address = urljoin(f"{base}queues/emails", static)
            found = await visitor.get(address, headers={**TOLD, "x-forwarded-prefix": "/ops"})
            assert 200 == found.status_code
            below = httpx.URL(base).path
            assert f"https://ops.example/ops{below}queues/emails" == asked[0]

    visit()


@run_async
async def test_a_proxy_on_this_machine_is_not_a_local_user(redis_url: str) -> None:
    """Any header of a proxy says that the request came from elsewhere, whether or not it is trusted."""
    for proxies in ([], ["127.0.0.1"]):
        site = dashboard(redis_url, trusted_proxies=proxies)
        async with visiting(site) as visitor:
            assert 200 == (await visitor.get("queues")).status_code
            for name, value in (*TOLD.items(), ("x-forwarded-prefix", "/ops")):
                assert 403 == (await visitor.get("queues", headers={name: value})).status_code, name


def test_a_wrong_network_is_told_when_the_dashboard_is_made() -> None:
    """And not at the first request."""
    with pytest.raises(ValueError, match="trusted_proxies"):
        dashboard("redis://localhost", auth=Everyone("viewer"), trusted_proxies=["the proxy"])
