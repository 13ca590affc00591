"""Login sessions in a signed cookie; a session ends after 12 idle hours."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pyasynq.web.auth.secret import SigningSecret

IDLE_SECONDS: Final = 12 * 3_600
"""Seconds without a request after which a session ends."""
LONGEST_SECONDS: Final = 7 * 86_400
"""Longest life of a session, in seconds: a week."""
RENEW_SECONDS: Final = 600
"""Seconds since the last request after which the cookie is written again."""
_PURPOSE: Final = "web session"
_ID_BYTES: Final = 32
_MOST_ENDED: Final = 10_000
_LONGEST_COOKIE: Final = 3_500
"""Maximum number of characters of a cookie; browsers drop one of more than 4,096 with its attributes."""


@dataclass(frozen=True, slots=True)
class LoginSession:
    """Content of the session cookie. Each request looks the role up again, so a change holds at once."""

    id: str
    name: str
    fingerprint: str
    """Fingerprint of the password, or of the OpenID provider, at login; a change ends the session."""
    began: int
    seen: int
    """Unix time at which the cookie was last written."""
    groups: tuple[str, ...] = ()
    """Groups with a role, as received from the OpenID provider at login."""


class Sessions:
    """Begins, finds and ends sessions.

    Args:
        secret: signs the cookies.
        clock: Unix time.
    """

    def __init__(self, secret: SigningSecret, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()
        # The suffix keeps the cookies of two dashboards on one host apart.
        self._suffix = secret.sign("web cookie name", b"")[:6]

    def begin(self, name: str, fingerprint: str, groups: tuple[str, ...] = ()) -> LoginSession:
        """Return a new session with a new id, whatever the browser sent before."""
        now = int(self._clock())
        return LoginSession(secrets.token_urlsafe(_ID_BYTES), name, fingerprint, now, now, groups)

    def fits(self, session: LoginSession) -> bool:
        """Return whether a session is short enough for a cookie."""
        return len(self._text(session)) <= _LONGEST_COOKIE

    def find(self, request: Request) -> LoginSession | None:
        """Return the session in a request's cookie; None if it is forged, expired, or was ended."""
        text = request.cookies.get(self.cookie_name(request), "")
        session = self._parse(text) if 0 < len(text) <= _LONGEST_COOKIE else None
        if session is None or session.id in self._ended:
            return None
        now = self._clock()
        is_over = now - session.seen > IDLE_SECONDS or now - session.began > LONGEST_SECONDS
        return None if is_over else session

    def renew(self, session: LoginSession) -> LoginSession | None:
        """Return the session with the present time, or None if its cookie is recent enough."""
        now = int(self._clock())
        return replace(session, seen=now) if now - session.seen > RENEW_SECONDS else None

    def end(self, session: LoginSession) -> None:
        """End a session in this process; the caller also removes its cookie from the browser."""
        self._ended[session.id] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def write(self, request: Request, response: Response, session: LoginSession) -> None:
        """Set the session cookie in a response."""
        response.set_cookie(
            self.cookie_name(request),
            self._text(session),
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def take_away(self, request: Request, response: Response) -> None:
        """Delete the session cookie of the browser."""
        response.delete_cookie(
            self.cookie_name(request),
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def cookie_name(self, request: Request) -> str:
        """Return the cookie's name; `__Host-` binds it to this host, which browsers allow with HTTPS only."""
        name = f"pyasynq-{self._suffix}"
        return f"__Host-{name}" if request.url.scheme == "https" else name

    def _text(self, session: LoginSession) -> str:
        fields = [session.id, session.name, session.fingerprint, session.began, session.seen, session.groups]
        body = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
        return f"{body}.{self._secret.sign(_PURPOSE, body.encode())}"

    def _parse(self, text: str) -> LoginSession | None:
        body, _, signature = text.partition(".")
        if not self._secret.verify(_PURPOSE, body.encode("utf-8", "replace"), signature):
            return None
        try:
            fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            return None
        session = LoginSession(*fields)
        return replace(session, groups=tuple(session.groups))
