"""Sign-in at the OpenID provider: the redirect to the provider, and the callback."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.web.auth.identify import client_address
from pyasynq.web.auth.login import make_login_page, note_failed_login
from pyasynq.web.auth.openid_people import OPENID_LOGIN
from pyasynq.web.auth.sign_in_error import SignInError
from pyasynq.web.problems import not_found_page
from pyasynq.web.respond import page_response

if TYPE_CHECKING:
    from pyasynq.web.page import PageRequest

_log = logging.getLogger("pyasynq.web")
_ANSWER_FIELDS: Final = frozenset({"code", "error", "state"})


async def begin_openid_login(ask: PageRequest) -> Response:
    """Redirect a browser to the provider, and store the pending sign-in in a cookie."""
    began = time.perf_counter()
    openid = ask.settings.openid
    if openid is None:
        return page_response(ask, not_found_page(ask), began)
    login = openid.pending.begin(ask.query.get("next", ""))
    try:
        address = await openid.provider.authorization_url(
            openid.callback_url(ask.target.name),
            state=login.state,
            nonce=login.nonce,
            verifier=login.verifier,
        )
    except SignInError as error:
        return await _refuse(ask, error, login.following, began)
    response = Response(status_code=303, headers={"Location": address})
    openid.pending.write(ask.request, response, login)
    return response


async def finish_openid_login(ask: PageRequest) -> Response:
    """Begin a session for the person whom the provider names; show the login page after any failure.

    A request without parameters of the provider means that the browser returns after signing out there.
    """
    began = time.perf_counter()
    openid, sessions = ask.settings.openid, ask.settings.sessions
    if openid is None:
        return page_response(ask, not_found_page(ask), began)
    if not _ANSWER_FIELDS & ask.query.keys():
        return Response(status_code=303, headers={"Location": ask.links.to("login")})
    address = client_address(ask.request)
    if not ask.settings.address_tries.allow(address):
        return _slow_down(ask, address, began)
    following = ""
    try:
        login = openid.pending.take(ask.request, ask.query.get("state", ""))
        following = login.following
        person = await openid.provider.fetch_person(
            ask.query, openid.callback_url(ask.target.name), nonce=login.nonce, verifier=login.verifier
        )
        session = openid.begin_session(sessions, person.name, person.groups)
    except SignInError as error:
        response = await _refuse(ask, error, following, began)
    else:
        response = Response(status_code=303, headers={"Location": ask.links.back(following)})
        sessions.write(ask.request, response, session)
    openid.pending.take_away(ask.request, response)
    return response


async def _refuse(ask: PageRequest, error: SignInError, following: str, began: float) -> Response:
    _log.warning("a sign-in at the OpenID provider failed: %s", visible(error))
    await note_failed_login(ask, str(error), login=OPENID_LOGIN, name=error.name)
    page = make_login_page(ask, following, error=str(error), status=error.status)
    return page_response(ask, page, began)


def _slow_down(ask: PageRequest, address: str, began: float) -> Response:
    wait = max(round(ask.settings.address_tries.wait_seconds(address)), 1)
    text = f"Too many tries. Wait {counted(wait, 'second')}."
    page = make_login_page(ask, "", error=text, status=429, headers={"Retry-After": str(wait)})
    return page_response(ask, page, began)
