"""Ended sessions of dashboards, which every process with the same Redis refuses."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from pyasynq._broker.operating import signed_out as plans

if TYPE_CHECKING:
    from pyasynq.operations.operator import Operator

_DIGITS: Final = 32
"""Number of hexadecimal digits of a digest: 128 bits."""


async def record_sign_out(operator: Operator, session_id: str, until: int) -> None:
    """Record that a session has ended. Redis keeps only a digest of its id, which does not allow a sign-in.

    This is not a verb of an operator: signing out needs no permission, and works even if changes are refused.

    Args:
        operator: operator with which the dashboard reaches Redis.
        session_id: unique id of the session.
        until: Unix second at which its cookie expires. The record expires at that time, and at the latest
            after a week.

    Raises:
        RedisError: Redis cannot be reached, or refuses.
    """
    inspector = operator._inspector  # noqa: SLF001 - of this package
    await inspector.run(plans.add_signed_out(_digest(session_id), until=until, now=inspector.now()))


async def is_signed_out(operator: Operator, session_id: str) -> bool:
    """Return whether a session has ended. It takes one command (ZSCORE), and is not a verb of an operator.

    Args:
        operator: operator with which the dashboard reaches Redis.
        session_id: id of the session.

    Raises:
        RedisError: Redis cannot be reached, or refuses.
    """
    inspector = operator._inspector  # noqa: SLF001 - of this package
    return await inspector.run(plans.has_signed_out(_digest(session_id)))


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()[:_DIGITS]
