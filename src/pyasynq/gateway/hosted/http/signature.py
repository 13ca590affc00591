"""Signatures of requests by Standard Webhooks 1.0.0: HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = "whsec_"
_SHORTEST: Final = 24
_LONGEST: Final = 64
"""Minimum and maximum bytes of a secret, as Standard Webhooks defines them."""
_ID_CHARACTERS: Final = 26


def message_id(queue: str, task_id: str) -> str:
    """Return the id of a task's requests: equal for all attempts, and without a dot, as the standard says."""
    data = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (name.encode("utf-8", "surrogateescape") for name in (queue, task_id))
    )
    return base64.b32encode(hashlib.sha256(data).digest()).decode().lower()[:_ID_CHARACTERS]


def read_signing_secret(place: str, text: str) -> bytes:
    """Decode a signing secret: `whsec_` followed by Base64.

    Raises:
        ConfigurationError: the text has another form; the error names the place, never the secret.
    """
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{place}: the secret must be whsec_ and Base64") from None
    if not _SHORTEST <= len(secret) <= _LONGEST:
        raise ConfigurationError(f"{place}: the secret must have {_SHORTEST} to {_LONGEST} bytes")
    return secret


def signature_headers(secrets: Sequence[bytes], name: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message, with a signature for each secret.

    Args:
        secrets: signing secrets; each adds a signature, so that secrets can be rotated.
        name: id of the message.
        at: Unix seconds of this attempt.
        body: body of the request.
    """
    headers = {"webhook-id": name, "webhook-timestamp": str(at)}
    if secrets:
        signed = f"{name}.{at}.".encode() + body
        digests = (hmac.digest(secret, signed, "sha256") for secret in secrets)
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(one).decode()}" for one in digests)
    return headers
