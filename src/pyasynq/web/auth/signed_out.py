"""Check of sessions against the ended sessions in Redis; a session found valid is cached for 5 s."""

from __future__ import annotations

import logging
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Final

from pyasynq.errors import RedisPermissionError, RedisReplyError
from pyasynq.operations import is_signed_out, record_sign_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.operations import Operator
    from pyasynq.web.auth.sessions import LoginSession

_log = logging.getLogger("pyasynq.web")

VERDICT_SECONDS: Final = 5.0
"""Seconds until a valid session is checked again; an ended session may still work for this time."""
_MOST_VERDICTS: Final = 10_000


class SignedOutSessions:
    """Ended sessions in one Redis.

    Args:
        operator: function that returns the operator of the running event loop.
    """

    def __init__(self, operator: Callable[[], Operator]) -> None:
        self._operator = operator
        self._verdicts: OrderedDict[str, float] = OrderedDict()
        """Monotonic time until which each session counts as valid; the oldest entry first."""
        self._is_warned = False

    async def has(self, session: LoginSession) -> bool:
        """Return whether a session was ended in any process; asks Redis at most every 5 s.

        If the ACL of Redis refuses the read, or the key is damaged, the session counts as valid: otherwise no
        user could sign in to examine the damage. This process still refuses sessions that it ended.

        Raises:
            RedisError: Redis cannot be reached, so it is unknown whether the session was ended.
        """
        if monotonic() < self._verdicts.get(session.id, 0.0):
            return False
        try:
            if await is_signed_out(self._operator(), session.id):
                return True
        except (RedisPermissionError, RedisReplyError) as error:
            if not self._is_warned:
                self._is_warned = True
                _log.warning("Redis does not tell whether sessions were ended in other processes: %s", error)
        self._verdicts.pop(session.id, None)
        self._verdicts[session.id] = monotonic() + VERDICT_SECONDS
        if len(self._verdicts) > _MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return False

    async def add(self, session: LoginSession) -> None:
        """Record in Redis that a session has ended.

        Raises:
            RedisError: Redis cannot be reached, or refuses.
        """
        await record_sign_out(self._operator(), session.id, session.longest_until)
