"""Confirming in Redis that a handler begins, for tasks that must not run again after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.leases import CONFIRMED_BEGIN, confirm_begin
from pyasynq._engine.handlers.routes import NoRoutes
from pyasynq.errors import LeaseExpiredError, RedisError
from pyasynq.events import LeaseLost

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt

_AT_ONCE = 1
"""Crash limits up to this one archive a task at its first crash."""


def token_ending(parts: Parts) -> str:
    """Return how the tokens of a server end: they say whether it confirms that handlers begin."""
    if isinstance(parts.router, NoRoutes):
        return ""  # a consumer hands tasks out, and does not see handlers begin
    limits = [parts.config.crash_limit, *(route.crash_limit for route in parts.router.routes())]
    return CONFIRMED_BEGIN if any(limit is not None and limit <= _AT_ONCE for limit in limits) else ""


async def may_begin(parts: Parts, attempt: Attempt) -> bool:
    """Return whether the handler may begin; otherwise the attempt's cause says why not.

    A task that is archived at its first crash begins only after Redis knows of it. So one that was only
    prefetched when its worker died is told from one that ran.
    """
    if parts.crash_limit(attempt.message.type) > _AT_ONCE:
        return True
    try:
        begun = await parts.driver.run(confirm_begin(attempt.queue, attempt.id, attempt.token))
    except RedisError:
        # It may have been noted all the same; the task goes back, and is not run by this attempt.
        begun = None
    if begun:
        return True
    attempt.lost = begun is False
    if attempt.cause is None:
        attempt.cause = LeaseExpiredError()
        parts.events.emit(LeaseLost(attempt.queue, attempt.id))
    return False
