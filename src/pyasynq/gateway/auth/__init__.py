"""Authentication of programs at the task service: who sends a request, and what it may do."""

from __future__ import annotations

from .authentication import KeyAuthentication, LoopbackAuthentication, ServiceKey

__all__ = ["KeyAuthentication", "LoopbackAuthentication", "ServiceKey"]
