"""Sign-ins that wait for the OpenID provider's answer, in a signed cookie of the browser."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq.web.auth.openid import SignInError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pyasynq.web.auth.secret import SigningSecret
    from pyasynq.web.auth.sessions import Sessions

PENDING_SECONDS: Final = 600
"""Seconds in which a person has to sign in at the provider."""
_STATE_BYTES: Final = 32
_LONGEST_COOKIE: Final = 3_000
_LONGEST_PATH: Final = 1_500
_MOST_USED: Final = 10_000


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A sign-in that has begun. Nonce and verifier are derived from the state and the dashboard's secret."""

    state: str
    nonce: str
    verifier: str
    """PKCE verifier (RFC 7636)."""
    following: str
    """Path below the dashboard's root to which the person returns."""


class PendingLogins:
    """Begins sign-ins, and takes each one once. The cookie binds a sign-in to its browser.

    Args:
        secret: signs the cookies, and derives nonces and verifiers.
        sessions: names the cookies.
        fingerprint: provider and client; a sign-in with others is not taken.
        clock: Unix time.
    """

    def __init__(
        self,
        secret: SigningSecret,
        sessions: Sessions,
        fingerprint: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._sessions = sessions
        self._fingerprint = fingerprint
        self._clock = clock
        # States of completed sign-ins: a copied cookie is refused here. In other processes, the provider
        # refuses the reused code.
        self._used: OrderedDict[str, None] = OrderedDict()

    def begin(self, following: str) -> PendingLogin:
        """Return a new sign-in; a path that is too long becomes the overview."""
        state = secrets.token_urlsafe(_STATE_BYTES)
        return self._derive(state, following if len(following) <= _LONGEST_PATH else "")

    def write(self, request: Request, response: Response, login: PendingLogin) -> None:
        """Set the cookie of a sign-in in a response; it replaces an earlier one."""
        fields = [login.state, login.following, int(self._clock())]
        body = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
        response.set_cookie(
            self._cookie_name(request),
            f"{body}.{self._secret.sign(self._purpose('login'), body.encode())}",
            max_age=PENDING_SECONDS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def take(self, request: Request, state: str) -> PendingLogin:
        """Return the sign-in of this browser and this state, which cannot be taken again.

        Raises:
            SignInError: there is none, it is too old, or it was taken before.
        """
        again = SignInError("This sign-in did not begin in this browser, or is over. Sign in again.")
        text = request.cookies.get(self._cookie_name(request), "")
        fields = self._parse(text) if 0 < len(text) <= _LONGEST_COOKIE else None
        if fields is None:
            raise again
        expected, following, began = fields
        is_right = hmac.compare_digest(expected.encode(), state.encode("utf-8", "replace"))
        if not is_right or expected in self._used:
            raise again
        self._used[expected] = None
        if len(self._used) > _MOST_USED:
            self._used.popitem(last=False)
        if self._clock() - began > PENDING_SECONDS:
            raise SignInError("The sign-in took longer than ten minutes. Sign in again.")
        return self._derive(expected, following)

    def take_away(self, request: Request, response: Response) -> None:
        """Delete the cookie of the browser."""
        response.delete_cookie(
            self._cookie_name(request),
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def _derive(self, state: str, following: str) -> PendingLogin:
        def derive(name: str) -> str:
            return self._secret.sign(self._purpose(name), state.encode())

        return PendingLogin(state, derive("nonce"), derive("verifier"), following)

    def _purpose(self, name: str) -> str:
        return f"web {name} of {self._fingerprint}"

    def _cookie_name(self, request: Request) -> str:
        return f"{self._sessions.cookie_name(request)}-login"

    def _parse(self, text: str) -> tuple[str, str, int] | None:
        body, _, signature = text.partition(".")
        if not self._secret.verify(self._purpose("login"), body.encode("utf-8", "replace"), signature):
            return None
        try:
            state, following, began = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            return None
        return state, following, began
