"""Sign-out: ends a session in this process, in Redis for other processes, and at the OpenID provider."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.responses import Response

from pyasynq._visible_text import visible
from pyasynq.errors import RedisError
from pyasynq.operations import User
from pyasynq.web.problems import NextStep, Trouble, trouble_page
from pyasynq.web.respond import page_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.web.auth.sessions import LoginSession
    from pyasynq.web.page import PageRequest
    from pyasynq.web.targets import Target

_log = logging.getLogger("pyasynq.web")


async def sign_out(targets: Sequence[Target], ask: PageRequest, _: dict[str, str]) -> Response:
    """End the session of this browser here and, if the OpenID provider supports it, at the provider."""
    began = time.perf_counter()
    session, openid, sessions = ask.session, ask.settings.openid, ask.settings.sessions
    response = Response(status_code=303, headers={"Location": ask.links.to("login")})
    if session is not None:
        sessions.end(session)
        failures = await _record(targets, session)
        address = label = ""
        if openid is not None and openid.began(session):
            address = await openid.provider.end_session_url(openid.callback_url(ask.target.name))
            label = openid.label
        if failures or address:
            trouble = _explain_end(ask, session, failures, address, label)
            # CSP forbids a redirect to the provider as the answer to a form. A failure is to be read first.
            headers = {} if failures else {"Refresh": f"0; url={address}"}
            page = replace(trouble_page(200, trouble), headers=headers)
            response = page_response(replace(ask, user=User(""), session=None), page, began)
    sessions.take_away(ask.request, response)
    return response


async def _record(targets: Sequence[Target], session: LoginSession) -> list[str]:
    """Record the end of a session in each Redis; return an error sentence for each Redis that failed."""
    results = await asyncio.gather(
        *(target.signed_out.add(session) for target in targets), return_exceptions=True
    )
    failures = []
    for target, result in zip(targets, results, strict=True):
        if isinstance(result, RedisError):
            text = visible(str(result)).rstrip(".")
            _log.warning("the end of a session was not recorded in Redis: %s", text)
            failures.append(f"{target.name}: {text}." if target.name else f"{text[:1].upper()}{text[1:]}.")
        elif isinstance(result, BaseException):
            raise result
    return failures


def _explain_end(
    ask: PageRequest, session: LoginSession, failures: Sequence[str], address: str, provider: str
) -> Trouble:
    step = (
        NextStep(f"Sign out of {provider}", address)
        if address
        else NextStep("Sign in", ask.links.to("login"))
    )
    if not failures:
        return Trouble(
            "You are signed out", f"Your session here is over. Now {provider} ends its own.", (step,)
        )
    until = datetime.fromtimestamp(session.longest_until, UTC)
    text = (
        "This process has ended your session, and Redis has not recorded it. A copy of its cookie works at "
        f"other processes of the dashboard, and after a restart, until {until:%Y-%m-%d %H:%M} UTC at most. "
        f"{' '.join(failures)}"
    )
    return Trouble("You are signed out here only", text, (step,))
