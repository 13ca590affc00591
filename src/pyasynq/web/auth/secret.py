"""The secret of a dashboard, and the keys that are derived from it, one for each purpose."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from pyasynq.errors import ConfigurationError

SECRET_VARIABLE: Final = "PYASYNQ_SECRET"  # noqa: S105 - the name of the variable
_FILE_PREFIX: Final = "file:"
_SHORTEST: Final = 16
_GENERATED_BYTES: Final = 32


class SigningSecret:
    """Secrets that sign data and derive keys: the first one signs, all of them verify (key rotation).

    Args:
        text: one secret, or several separated by commas; `file:/path` reads them from a file. None takes
            `PYASYNQ_SECRET` from the environment. If that is not set, the secret is random, and is lost when
            the process ends.

    Raises:
        ConfigurationError: for a secret of fewer than 16 characters, or an unreadable file.
    """

    def __init__(self, text: str | None = None) -> None:
        given = read_secret(text, SECRET_VARIABLE)
        parts = [part.strip() for part in given.split(",") if part.strip()]
        if any(len(part) < _SHORTEST for part in parts):
            raise ConfigurationError(f"a secret needs at least {_SHORTEST} characters")
        self.is_generated = not parts
        """Whether the secret is random, and is lost when the process ends."""
        self._keys = [part.encode() for part in parts] or [secrets.token_bytes(_GENERATED_BYTES)]

    def derive(self, purpose: str) -> bytes:
        """Return the key for a purpose (HKDF of one block, RFC 5869)."""
        return _derive(self._keys[0], purpose)

    def derive_all(self, purpose: str) -> tuple[bytes, ...]:
        """Return the keys for a purpose: the first signs, all of them verify."""
        return tuple(_derive(key, purpose) for key in self._keys)

    def sign(self, purpose: str, data: bytes) -> str:
        """Return the signature of data as text for cookies and forms."""
        return _text(hmac.digest(self.derive(purpose), data, "sha256"))

    def verify(self, purpose: str, data: bytes, signature: str) -> bool:
        """Return whether one of the secrets made the signature; the comparison takes constant time."""
        found = False
        for key in self._keys:
            expected = _text(hmac.digest(_derive(key, purpose), data, "sha256"))
            found |= hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
        return found


def read_secret(text: str | None, variable: str) -> str:
    """Return a secret: `text`, or the value of an environment variable if `text` is None.

    A secret of the form `file:/path` is read from that file.

    Raises:
        ConfigurationError: for an unreadable file.
    """
    given = text if text is not None else os.environ.get(variable, "")
    return _read_file(given.removeprefix(_FILE_PREFIX)) if given.startswith(_FILE_PREFIX) else given


def _derive(key: bytes, purpose: str) -> bytes:
    extracted = hmac.digest(b"pyasynq", key, hashlib.sha256)
    return hmac.digest(extracted, purpose.encode() + b"\x01", hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the secret's file cannot be read: {error}") from error
