"""Authentication and authorization of programs at the task service."""

from __future__ import annotations

from .authentication import KeyAuthentication, LoopbackAuthentication, ServiceKey
from .key_rates import admit_request, get_rate_fields, sending_rate_fields

__all__ = [
    "KeyAuthentication",
    "LoopbackAuthentication",
    "ServiceKey",
    "admit_request",
    "get_rate_fields",
    "sending_rate_fields",
]
