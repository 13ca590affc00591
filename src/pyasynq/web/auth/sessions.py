"""Login sessions in a signed cookie. A session ends after 12 hours without a request, or after a week."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from pyasynq.web.auth.signed_cookie import CookieContent, SignedCookie

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pyasynq.web.auth.secret import SigningSecret

IDLE_SECONDS: Final = 12 * 3_600
"""Seconds without a request after which a session ends (idle timeout)."""
LONGEST_SECONDS: Final = 7 * 86_400
"""Longest life of a session, in seconds (absolute timeout): a week."""
RENEW_SECONDS: Final = 600
"""Age of the session cookie, in seconds, after which a request renews the cookie (sliding expiration)."""
_ID_BYTES: Final = 32
_MOST_ENDED: Final = 10_000
_LONGEST_COOKIE: Final = 3_500


class LoginSession(CookieContent, frozen=True):
    """Content of the session cookie. It has no role: each request looks the role up, which may change."""

    id: str
    name: str
    fingerprint: str
    """Fingerprint of the password, or of the OpenID provider, at login; a change ends the session."""
    began: int
    seen: int
    """Unix time at which the cookie was last written."""
    groups: tuple[str, ...] = ()
    """Groups with a role, as received from the OpenID provider at login."""

    @property
    def expires_at(self) -> int:
        """Last Unix second of the session, unless a request renews it."""
        return min(self.seen + IDLE_SECONDS, self.longest_until)

    @property
    def longest_until(self) -> int:
        """Last Unix second of the session, even if requests renew it."""
        return self.began + LONGEST_SECONDS


class Sessions:
    """Manager of login sessions, which begins, finds, renews and ends them.

    Args:
        secret: signs the cookies.
        clock: function that returns Unix time.
    """

    def __init__(self, secret: SigningSecret, clock: Callable[[], float] = time.time) -> None:
        self._cookie = SignedCookie(secret, LoginSession, purpose="web session", longest=_LONGEST_COOKIE)
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()

    def begin(self, name: str, fingerprint: str, groups: tuple[str, ...] = ()) -> LoginSession:
        """Return a new session with a new id, as protection from session fixation."""
        now = int(self._clock())
        return LoginSession(secrets.token_urlsafe(_ID_BYTES), name, fingerprint, now, now, groups)

    def fits(self, session: LoginSession) -> bool:
        """Return whether a session is short enough for a cookie."""
        return self._cookie.fits(session)

    def find(self, request: Request) -> LoginSession | None:
        """Return the session in a request's cookie; None if it is missing, forged, expired, or ended here.

        "Here" means in this process. `SignedOutSessions` knows sessions that ended in other processes.
        """
        session = self._cookie.read(request)
        if session is None or session.id in self._ended or session.is_over(self._clock()):
            return None
        return session

    def renew(self, session: LoginSession) -> LoginSession | None:
        """Return the session for a cookie written now; None if the cookie need not be renewed yet."""
        now = int(self._clock())
        is_old = now - session.seen > RENEW_SECONDS
        return msgspec.structs.replace(session, seen=now) if is_old else None

    def end(self, session: LoginSession) -> None:
        """End a session in this process; the caller also removes its cookie from the browser."""
        self._ended[session.id] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def write(self, request: Request, response: Response, session: LoginSession) -> None:
        """Set the session cookie in a response."""
        self._cookie.write(request, response, session)

    def take_away(self, request: Request, response: Response) -> None:
        """Remove the session cookie from the browser."""
        self._cookie.remove(request, response)
