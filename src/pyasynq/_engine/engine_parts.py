"""Parts shared by the services of one server."""

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
    from pyasynq._engine.tally import Tally
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events

_FIRST_CRASH: Final = 1
"""Largest crash limit that archives a task at its first crash."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Settings, clocks, and the structures that more than one service works on.

    Attributes:
        outcomes: number of ended attempts by outcome. Written and read by the event loop alone.
        tally: counts attempts by queue and type; None if nothing wants these counts.
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
    tally: Tally | None = None
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that this server serves now; queues are added and removed while it runs."""
        return self.board.names

    def crash_limit(self, task_type: str) -> int:
        """Return the number of crashes at which a task of this type is archived as poison."""
        route = self.router.route(task_type)
        own = None if route is None else route.rules.crash_limit
        return self.config.crash_limit if own is None else own

    def confirms_begin(self, task_type: str) -> bool:
        """Return whether Redis must record the start of a handler first, because one crash archives its task.

        If the worker dies, the record shows whether the task ran, or was only prefetched.
        """
        return self.crash_limit(task_type) <= _FIRST_CRASH


def token_ending(parts: Parts) -> str:
    """Return the suffix of a server's tokens, which says whether it records each start of a handler."""
    if isinstance(parts.router, NoRoutes):
        return ""  # a consumer hands tasks out, and does not see handlers start
    limits = [parts.config.crash_limit, *(route.rules.crash_limit for route in parts.router.routes())]
    return CONFIRMED_BEGIN if any(limit is not None and limit <= _FIRST_CRASH for limit in limits) else ""
