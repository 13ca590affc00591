"""Protection against requests that another site makes in a viewer's name (CSRF)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.requests import Request

    from pyasynq.web.auth.secret import SigningSecret

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
FORM_FIELD: Final = "csrf"
_PURPOSE: Final = "web form"
_NONCE_BYTES: Final = 9


def is_same_origin(request: Request) -> bool:
    """Return whether our own page may have made the request: the browser says so, or says nothing.

    A request without `Sec-Fetch-Site` and `Origin` comes from an old browser or a program; only the token in
    the form decides.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


def names_origin(request: Request) -> bool:
    """Return whether the request says which site made it, as every browser does; programs send a token."""
    return any(name in request.headers for name in ("sec-fetch-site", "origin"))


def form_token(secret: SigningSecret, key: str) -> str:
    """Return a CSRF token for one session, different at each call as protection from the BREACH attack."""
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    return f"{nonce}.{secret.sign(_PURPOSE, _encode_signed_text(nonce, key))}"


def is_form_token(secret: SigningSecret, key: str, token: str) -> bool:
    """Return whether a form carries a token of this session."""
    nonce, _, signature = token.partition(".")
    return secret.verify(_PURPOSE, _encode_signed_text(nonce, key), signature)


def _encode_signed_text(nonce: str, key: str) -> bytes:
    return f"{nonce}.{key}".encode("utf-8", "surrogatepass")
