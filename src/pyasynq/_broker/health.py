"""The health of the connection to Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._redis.plan import CommandCall, Replay

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan


def check_health() -> Plan[None]:
    """Send PING: Redis answers, and accepts our login."""
    yield CommandCall(("PING",), None, Replay.SAFE)
