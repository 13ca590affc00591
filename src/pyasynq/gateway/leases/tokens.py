"""Lease tokens: the receipt of an attempt, signed and bound to the API key that leased it."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pyasynq.errors import ConfigurationError, PyasynqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.web.auth.secret import SigningSecret

_PURPOSE: Final = "lease token"
_VERSION: Final = b"\x01"
_MAC_BYTES: Final = 16
"""Length of the truncated HMAC-SHA256 in bytes; 128 bits cannot be guessed."""
_LENGTH_BYTES: Final = 4
_SHORTEST_KEY: Final = 16
_LONGEST: Final = 1_000_000
"""Maximum number of characters of a text that is decoded; a longer one cannot be a lease token."""


class InvalidTokenError(PyasynqError):
    """Error: the text is not a lease token of this service, or was issued to another API key."""

    def __init__(self) -> None:
        super().__init__("not a lease token of this key")


class LeaseToken(NamedTuple):
    """Content of a lease token.

    Attributes:
        queue: queue of the task.
        task_id: the task's id.
        receipt: receipt of the attempt, as for `Consumer.find`.
        key_id: id of the API key that leased it.
        worker: id of the worker that leased it, for reports.
    """

    queue: str
    task_id: str
    receipt: str
    key_id: str
    worker: str = ""


class Keyring:
    """Signs and opens tokens. The first key signs, all of them verify, so that keys can be rotated.

    Args:
        keys: secret keys of at least 16 bytes each. All instances of the service need the same keys.

    Raises:
        ConfigurationError: for no key, or one that is too short.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < _SHORTEST_KEY for key in keys):
            raise ConfigurationError(f"lease tokens need keys of at least {_SHORTEST_KEY} bytes")
        self._keys = tuple(keys)

    @classmethod
    def derive(cls, secret: SigningSecret) -> Self:
        """Return the keyring of a service's signing secret, which may have several values for rotation."""
        return cls(secret.derive_all(_PURPOSE))

    def seal(self, token: LeaseToken) -> str:
        """Encode and sign a lease token, as text that is safe in URLs and JSON."""
        content = _VERSION + b"".join(map(_pack, token))
        return _encode(content + _sign(self._keys[0], content))

    def open(self, text: object, key_id: str) -> LeaseToken:
        """Verify and decode a lease token that was issued to this API key.

        Raises:
            InvalidTokenError: for any other text.
        """
        data = _decode(text)
        content, signature = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        is_ours = False
        for key in self._keys:
            is_ours |= hmac.compare_digest(_sign(key, content), signature)
        if not is_ours or not content.startswith(_VERSION):
            raise InvalidTokenError
        token = LeaseToken(*_unpack(content[len(_VERSION) :]))
        owner, asker = (one.encode("utf-8", "surrogatepass") for one in (token.key_id, key_id))
        if not hmac.compare_digest(owner, asker):
            raise InvalidTokenError
        return token


def _sign(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")[:_MAC_BYTES]


def _pack(text: str) -> bytes:
    # Names in Redis may be bytes that are not UTF-8.
    data = text.encode("utf-8", "surrogateescape")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _unpack(data: bytes) -> list[str]:
    """Decode the fields of a lease token whose signature is valid."""
    texts, at = [], 0
    while at < len(data):
        begin = at + _LENGTH_BYTES
        at = begin + int.from_bytes(data[at:begin], "big")
        texts.append(data[begin:at].decode("utf-8", "surrogateescape"))
    return texts


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: object) -> bytes:
    if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii():
        raise InvalidTokenError
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidTokenError from None
    # Base64 has several texts for the same bytes; only the text that was issued is accepted.
    if _encode(data) != text:
        raise InvalidTokenError
    return data
