"""Notices at the top of a page (flash messages), and the cookie that carries one to the next page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pyasynq.web.auth.signed_cookie import SignedCookie

if TYPE_CHECKING:
    from pyasynq.web.auth.secret import SigningSecret

_NOTICE_SECONDS: Final = 60
_LONGEST_NOTICE: Final = 3_500
"""Maximum number of characters of the cookie of a notice."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A sentence at the top of a page, with at most one action. A signed cookie carries it to the page."""

    tone: str
    text: str
    href: str = ""
    """Address of the action; the action's form has no further field."""
    action: str = ""
    is_form: bool = False

    @property
    def symbol(self) -> str:
        """Name of the symbol that belongs to the color tone."""
        return {"good": "completed", "bad": "danger", "warn": "warning"}.get(self.tone, "info")


def make_notice_cookie(secret: SigningSecret) -> SignedCookie[Notice]:
    """Return the cookie that carries a notice to the next page (flash message)."""
    return SignedCookie(
        secret,
        Notice,
        purpose="web notice",
        longest=_LONGEST_NOTICE,
        suffix="-note",
        max_age=_NOTICE_SECONDS,
    )
