"""The login page: a form for name and password, and a link to the OpenID provider."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from pyasynq._human_text import counted
from pyasynq.operations import User
from pyasynq.web.auth.identify import client_address
from pyasynq.web.page import Page
from pyasynq.web.problems import not_found_page
from pyasynq.web.respond import page_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from pyasynq.web.doorkeeper import Doorkeeper
    from pyasynq.web.page import PageRequest

_MOST_HASHES: Final = 2
"""Maximum number of passwords hashed at once: each hash takes 32 MiB and a CPU core for about 70 ms."""


@dataclass(frozen=True, slots=True)
class LoginView:
    """View model of the login page."""

    brand: str
    action: str
    csrf: str
    next: str
    name: str = ""
    error: str = ""
    takes_passwords: bool = True
    provider: str = ""
    """Name of the OpenID provider; empty if there is none."""
    provider_href: str = ""


def login_page(door: Doorkeeper) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of the login page, which is open to all."""

    async def endpoint(request: Request) -> Response:
        began = time.perf_counter()
        ask = await door.admit(request)
        if not door.settings.has_login_page:
            return page_response(ask, not_found_page(ask), began)
        return page_response(ask, make_login_page(ask, ask.query.get("next", "")), began)

    return endpoint


async def sign_in(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Begin a session, or show the login page again with an error message."""
    began = time.perf_counter()
    name, following = fields.get("name", "")[:200], fields.get("next", "")
    address = client_address(ask.request)
    credentials = ask.settings.credentials
    if credentials is None:
        return page_response(ask, not_found_page(ask), began)
    of_name, of_address = ask.settings.login_tries, ask.settings.address_tries
    if not (of_address.allow(address) and of_name.allow((name, address))):
        wait = max(of_name.wait_seconds((name, address)), of_address.wait_seconds(address), 1)
        text = f"Too many tries. Wait {counted(round(wait), 'second')}."
        page = make_login_page(
            ask, following, name, text, status=429, headers={"Retry-After": str(round(wait))}
        )
        return page_response(ask, page, began)
    async with _hashes():
        found = await asyncio.to_thread(credentials.check_password, name, fields.get("password", ""))
    if found is None:
        # Unknown names are not recorded, because some people type their password as the name.
        known = credentials.find(name)
        why = "The name or the password was wrong."
        await note_failed_login(ask, why, login="password", name=known.name if known else "")
        left = counted(max(of_name.left((name, address)), 0), "more try", "more tries")
        text = f"Name or password is wrong. {left[:1].upper()}{left[1:]} this minute."
        return page_response(ask, make_login_page(ask, following, name, text, status=401), began)
    response = Response(status_code=303, headers={"Location": ask.links.back(following)})
    ask.settings.sessions.write(ask.request, response, ask.settings.sessions.begin(name, found.fingerprint))
    return response


async def note_failed_login(ask: PageRequest, why: str, *, login: str, name: str = "") -> None:
    """Record a failed sign-in in the audit log; `login` is the kind of login, such as `password`."""
    user = User(name, login=login, address=client_address(ask.request))
    request = f"{ask.request.method} {ask.links.path}"
    await ask.target.operator(user).note_refused_request(request, why)


def make_login_page(
    ask: PageRequest,
    following: str,
    name: str = "",
    error: str = "",
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Page:
    """Return the login page; `following` is the page to show after the sign-in."""
    openid = ask.settings.openid
    view = LoginView(
        brand=ask.settings.title,
        action=ask.links.to("login"),
        csrf=ask.csrf,
        next=following,
        name=name,
        error=error,
        takes_passwords=ask.settings.credentials is not None,
        provider=openid.label if openid else "",
        provider_href=ask.links.to("login", "oidc", next=following),
    )
    return Page("login.html", "Sign in", "", view, status=status, headers=headers or {})


_semaphores: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


def _hashes() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    for ended in [one for one in _semaphores if one.is_closed()]:
        del _semaphores[ended]
    return _semaphores.setdefault(loop, asyncio.Semaphore(_MOST_HASHES))
