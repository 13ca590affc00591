"""What the parts of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyasynq._broker.leases import CONFIRMED_BEGIN
from pyasynq._engine.handlers.routes import NoRoutes
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from pyasynq._background.redis_time import RedisTime
    from pyasynq._clock import Clock
    from pyasynq._engine.handlers.routes import Router
    from pyasynq._engine.lease.roster import Roster
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._engine.settle.settle_queue import SettleQueue
    from pyasynq._engine.take.queue_board import QueueBoard
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events

_FIRST_CRASH: Final = 1
"""Crash limits up to this one archive a task at its first crash."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Settings, clocks, and the structures that more than one service works on.

    Attributes:
        outcomes: number of attempts that ended in each way. Written and read by the event loop alone.
    """

    server_id: str
    config: ServerConfig
    settings: EngineSettings
    events: Events
    clock: Clock
    redis_time: RedisTime
    driver: AsyncDriver
    router: Router
    board: QueueBoard
    roster: Roster
    settles: SettleQueue
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that this server serves now; queues are added and removed while it runs."""
        return self.board.names

    def crash_limit(self, task_type: str) -> int:
        """Return at how many crashes a task of this type is archived."""
        route = self.router.route(task_type)
        return self.config.crash_limit if route is None or route.crash_limit is None else route.crash_limit

    def confirms_begin(self, task_type: str) -> bool:
        """Return whether a handler begins only after Redis knows of it: one crash archives its task.

        So a task that was only prefetched when its worker died is told from one that ran.
        """
        return self.crash_limit(task_type) <= _FIRST_CRASH


def token_ending(parts: Parts) -> str:
    """Return how the tokens of a server end: they say whether it confirms that handlers begin."""
    if isinstance(parts.router, NoRoutes):
        return ""  # a consumer hands tasks out, and does not see handlers begin
    limits = [parts.config.crash_limit, *(route.crash_limit for route in parts.router.routes())]
    return CONFIRMED_BEGIN if any(limit is not None and limit <= _FIRST_CRASH for limit in limits) else ""
