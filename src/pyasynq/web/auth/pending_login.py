"""Pending sign-ins at the OpenID provider, each stored in a signed cookie of the browser."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyasynq.web.auth.sign_in_error import SignInError
from pyasynq.web.auth.signed_cookie import CookieContent, SignedCookie

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pyasynq.web.auth.secret import SigningSecret

PENDING_SECONDS: Final = 600
"""Seconds in which a person has to sign in at the provider."""
_STATE_BYTES: Final = 32
_LONGEST_COOKIE: Final = 2_500
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


class _PendingContent(CookieContent, frozen=True):
    """Content of the cookie of a sign-in that has begun."""

    state: str
    following: str
    began: int

    @property
    def expires_at(self) -> int:
        """Last Unix second at which the provider's answer is accepted."""
        return self.began + PENDING_SECONDS


class PendingLogins:
    """Pending sign-ins: each is accepted once, and only from the browser that has its signed cookie.

    Args:
        secret: signs the cookies, and derives nonces and verifiers.
        fingerprint: hash of provider and client; a sign-in with another fingerprint is refused.
        clock: function that returns Unix time.
    """

    def __init__(
        self,
        secret: SigningSecret,
        fingerprint: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._fingerprint = fingerprint
        self._clock = clock
        self._cookie = SignedCookie(
            secret,
            _PendingContent,
            purpose=self._purpose("login"),
            longest=_LONGEST_COOKIE,
            suffix="-login",
            max_age=PENDING_SECONDS,
        )
        # States of completed sign-ins: a copied cookie is refused here. In other processes, the provider
        # refuses the reused code.
        self._used: OrderedDict[str, None] = OrderedDict()

    def begin(self, following: str) -> PendingLogin:
        """Return a new sign-in. A path that is too long for the cookie is replaced by the overview's."""
        login = self._derive(secrets.token_urlsafe(_STATE_BYTES), following)
        return login if self._cookie.fits(self._content(login)) else replace(login, following="")

    def write(self, request: Request, response: Response, login: PendingLogin) -> None:
        """Set the cookie of a sign-in in a response; it replaces an earlier one."""
        self._cookie.write(request, response, self._content(login))

    def take(self, request: Request, state: str) -> PendingLogin:
        """Return the sign-in of this browser with this state, and mark the sign-in as used.

        Raises:
            SignInError: the browser has no such sign-in, or the sign-in has expired or was used before.
        """
        found = self._cookie.read(request)
        expected = found.state if found is not None else ""
        is_right = hmac.compare_digest(expected.encode(), state.encode("utf-8", "replace"))
        if found is None or not is_right or expected in self._used:
            raise SignInError("This sign-in did not begin in this browser, or is over. Sign in again.")
        self._used[expected] = None
        if len(self._used) > _MOST_USED:
            self._used.popitem(last=False)
        if found.is_over(self._clock()):
            raise SignInError("The sign-in took longer than ten minutes. Sign in again.")
        return self._derive(expected, found.following)

    def take_away(self, request: Request, response: Response) -> None:
        """Remove the cookie of a sign-in from the browser."""
        self._cookie.remove(request, response)

    def _content(self, login: PendingLogin) -> _PendingContent:
        return _PendingContent(login.state, login.following, int(self._clock()))

    def _derive(self, state: str, following: str) -> PendingLogin:
        def derive(name: str) -> str:
            return self._secret.sign(self._purpose(name), state.encode())

        return PendingLogin(state, derive("nonce"), derive("verifier"), following)

    def _purpose(self, name: str) -> str:
        return f"web {name} of {self._fingerprint}"
