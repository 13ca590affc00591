"""Lease tokens of any content, and any alteration of their bytes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyasynq.gateway.leases import InvalidTokenError, Keyring, LeaseToken

KEYRING = Keyring([b"k" * 32, b"l" * 32])
names = st.binary(max_size=40).map(lambda data: data.decode("utf-8", "surrogateescape"))
tokens = st.builds(LeaseToken, names, names, names, st.text(st.characters(codec="utf-8"), max_size=20))


def encode(data: bytes) -> str:
    """Return bytes as the text of a token."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    """Return the bytes of the text of a token."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@given(tokens)
def test_what_is_sealed_is_opened(token: LeaseToken) -> None:
    """Whatever names Redis holds."""
    assert token == KEYRING.open(KEYRING.seal(token), token.key_id)


@given(tokens, st.data())
def test_any_altered_byte_is_refused(token: LeaseToken, data: st.DataObject) -> None:
    """Wherever it is, and however many are cut off or added."""
    content = decode(KEYRING.seal(token))
    at = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(at, min(len(content), at + 3)))
    altered = content[:at] + data.draw(st.binary(max_size=4)) + content[end:]
    assume(altered != content)
    with pytest.raises(InvalidTokenError):
        KEYRING.open(encode(altered), token.key_id)


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(encode), st.integers(), st.none()))
def test_nothing_from_outside_raises_another_error(text: object) -> None:
    """Neither text nor bytes in the right encoding."""
    with pytest.raises(InvalidTokenError):
        KEYRING.open(text, "key")
