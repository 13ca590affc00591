"""Signed cookies: their names, attributes, signatures (HMAC-SHA256) and content (JSON)."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pyasynq.web.auth.secret import SigningSecret


class CookieContent(msgspec.Struct, frozen=True, array_like=True):
    """Content of a signed cookie with its expiry, encoded as a JSON array of the fields in their order."""

    @property
    def expires_at(self) -> int:
        """Last Unix second at which the content is valid."""
        raise NotImplementedError

    def is_over(self, now: float) -> bool:
        """Return whether the content has expired; a browser may keep the cookie for longer."""
        return now > self.expires_at


_ContentT = TypeVar("_ContentT", bound=msgspec.Struct)


class SignedCookie(Generic[_ContentT]):
    """Signed cookie of the browser, whose user can read the content, but not change it.

    Args:
        secret: signs the content.
        content: type of the content.
        purpose: what the cookie is for; a cookie that is signed for another purpose is refused.
        suffix: end of the cookie's name; each cookie of a dashboard has another suffix.
        longest: maximum number of characters; browsers drop a cookie of more than 4,096 with its attributes.
        max_age: seconds for which the browser keeps the cookie; None means until the browser is closed.
    """

    def __init__(
        self,
        secret: SigningSecret,
        content: type[_ContentT],
        *,
        purpose: str,
        longest: int,
        suffix: str = "",
        max_age: int | None = None,
    ) -> None:
        self._secret = secret
        self._content = content
        self._purpose = purpose
        self._longest = longest
        self._max_age = max_age
        # Characters derived from the secret keep the cookies of two dashboards on one host apart.
        self._name = f"pyasynq-{secret.sign('web cookie name', b'')[:6]}{suffix}"

    def fits(self, content: _ContentT) -> bool:
        """Return whether a content is short enough for a cookie."""
        return len(self._encode(content)) <= self._longest

    def read(self, request: Request) -> _ContentT | None:
        """Return the content of a request's cookie, even if expired; None if missing or not signed by us."""
        text = request.cookies.get(self._get_name(request), "")
        return self._decode(text) if 0 < len(text) <= self._longest else None

    def write(self, request: Request, response: Response, content: _ContentT) -> None:
        """Set the cookie in a response; it replaces an earlier one."""
        response.set_cookie(
            self._get_name(request),
            self._encode(content),
            max_age=self._max_age,
            path="/",
            secure=_is_secure(request),
            httponly=True,
            samesite="lax",
        )

    def remove(self, request: Request, response: Response) -> None:
        """Remove the cookie from the browser."""
        response.delete_cookie(
            self._get_name(request), path="/", secure=_is_secure(request), httponly=True, samesite="lax"
        )

    def _get_name(self, request: Request) -> str:
        """Return the cookie's name. `__Host-` binds it to this host, which browsers allow with HTTPS only."""
        return f"__Host-{self._name}" if _is_secure(request) else self._name

    def _encode(self, content: _ContentT) -> str:
        # The standard library's JSON also takes the lone surrogates of an address that is not UTF-8.
        data = json.dumps(msgspec.to_builtins(content))
        body = base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")
        return f"{body}.{self._secret.sign(self._purpose, body.encode())}"

    def _decode(self, text: str) -> _ContentT | None:
        body, _, signature = text.partition(".")
        if not self._secret.verify(self._purpose, body.encode("utf-8", "replace"), signature):
            return None
        try:
            fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            return msgspec.convert(fields, self._content)
        except (ValueError, binascii.Error, msgspec.ValidationError):
            return None


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"
