"""Leased attempts in the form of the answer to a lease request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from pyasynq.gateway.leases.bodies import LeasedTask
from pyasynq.gateway.leases.tokens import LeaseToken
from pyasynq.web.api.nesting import is_deeper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.leases.tokens import Keyring

_DEEPEST: Final = 64
"""Maximum nesting of a payload that is sent as JSON, because the limits of workers' parsers differ."""


class HasPayload(Protocol):
    """Protocol of a task that is sent to a worker: its three payload fields."""

    payload: msgspec.Raw | msgspec.UnsetType
    payload_text: str | msgspec.UnsetType
    payload_base64: bytes | msgspec.UnsetType


def split_by_size(attempts: Sequence[Attempt], max_bytes: int) -> int:
    """Return how many of the attempts, from the first, fit into this many bytes of payload; at least one."""
    total = 0
    for at, attempt in enumerate(attempts):
        total += len(attempt.task.payload or b"")
        if total > max_bytes and at:
            return at
    return len(attempts)


def describe_attempt(attempt: Attempt, keyring: Keyring, key_id: str, worker: str = "") -> LeasedTask:
    """Return the description of an attempt, with a lease token for the key that leased it."""
    task = attempt.task
    leased = LeasedTask(
        token=seal_attempt(attempt, keyring, key_id, worker),
        id=clean_name(attempt.id),
        type=clean_name(task.type),
        queue=clean_name(attempt.queue),
        headers={clean_name(name): clean_name(value) for name, value in task.headers.items()},
        attempt=attempt.retried + 1,
        max_retry=attempt.max_retry,
        crashes=attempt.crashes,
        deadline=attempt.deadline,
        lease_until=attempt.lease_expires_at,
    )
    set_payload(leased, task.payload or b"")
    return leased


def seal_attempt(attempt: Attempt, keyring: Keyring, key_id: str, worker: str = "") -> str:
    """Return a signed lease token for an attempt and its current receipt."""
    return keyring.seal(LeaseToken(attempt.queue, attempt.id, attempt.receipt, key_id, worker))


def set_payload(leased: HasPayload, payload: bytes) -> None:
    """Set the payload as JSON if possible, otherwise as text, otherwise as Base64."""
    if not payload:
        return
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        leased.payload_base64 = payload
        return
    try:
        if is_deeper(payload, _DEEPEST):
            leased.payload_text = text
        else:
            leased.payload = msgspec.json.decode(payload, type=msgspec.Raw)
    except msgspec.DecodeError:
        leased.payload_text = text


def clean_name(name: str) -> str:
    """Return a name as valid UTF-8; names in Redis may contain other bytes."""
    return name.encode("utf-8", "backslashreplace").decode()
