"""What the parts of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq._engine.settle.tally import Tally

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


@dataclass(frozen=True, slots=True)
class Parts:
    """Settings, clocks, and the structures that more than one service works on."""

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
    tally: Tally = field(default_factory=Tally)

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that this server serves now; queues are added and removed while it runs."""
        return self.board.names

    def crash_limit(self, task_type: str) -> int:
        """Return at how many crashes a task of this type is archived."""
        route = self.router.route(task_type)
        return self.config.crash_limit if route is None or route.crash_limit is None else route.crash_limit
