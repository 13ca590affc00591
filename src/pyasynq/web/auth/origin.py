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
    """Return whether the request may come from our own page: its headers say so, or say nothing.

    A request without `Sec-Fetch-Site` and `Origin` comes from an old browser or a program; only the CSRF
    token in the form decides.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


def names_origin(request: Request) -> bool:
    """Return whether the request has a header that names its origin, which all current browsers send."""
    return any(name in request.headers for name in ("sec-fetch-site", "origin"))


def form_token(secret: SigningSecret, key: str) -> str:
    """Return a CSRF token for one session. It differs at each call, as protection from the BREACH attack."""
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    return f"{nonce}.{secret.sign(_PURPOSE, _encode_signed_text(nonce, key))}"


def is_form_token(secret: SigningSecret, key: str, token: str) -> bool:
    """Return whether a CSRF token was made for this session."""
    nonce, _, signature = token.partition(".")
    return secret.verify(_PURPOSE, _encode_signed_text(nonce, key), signature)


def _encode_signed_text(nonce: str, key: str) -> bytes:
    return f"{nonce}.{key}".encode("utf-8", "surrogatepass")
