"""Warnings about Redis."""

from __future__ import annotations

from typing import NamedTuple


class RedisWarning(NamedTuple):
    """A problem of Redis or this host that endangers tasks: eviction, clock skew, a refused command."""

    code: str
    message: str
