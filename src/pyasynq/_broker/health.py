"""Is Redis there, and does it take us?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._redis.plan import CommandCall, Replay

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan


def ping() -> Plan[None]:
    """Ask for a sign of life."""
    yield CommandCall(("PING",), None, Replay.SAFE)
