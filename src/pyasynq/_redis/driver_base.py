"""What the asyncio driver and the blocking one have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import map_of, slot_of
from pyasynq._redis.endpoint import Location
from pyasynq._redis.session import DriverState, log_warning
from pyasynq.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._clock import Clock
    from pyasynq._redis.plan import Place
    from pyasynq._redis.url import RedisTarget
    from pyasynq.events import ServerWarning


class DriverBase:
    """What the asyncio driver and the blocking one have in common; their arguments, above all."""

    def __init__(
        self,
        target: RedisTarget,
        *,
        client_name: str = "pyasynq",
        timeout: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        on_warning: Callable[[ServerWarning], object] = log_warning,
    ) -> None:
        self.target = target
        self._location = Location(target)
        self._state = DriverState(target.address, client_name, timeout, clock, on_warning)
        self._closed = False

    @property
    def timeout(self) -> float:
        """Seconds that one round may take."""
        return self._state.timeout

    @property
    def places(self) -> list[Place]:
        """A place on each server that has keys: all primaries of a cluster, as far as a call has met them."""
        return [*map_of(self.target).slots_of_primaries()] if self.target.is_cluster else [None]

    @property
    def clock(self) -> Clock:
        """What tells the present."""
        return self._state.clock

    @property
    def map_version(self) -> tuple[int, int]:
        """Changes when other nodes may serve a slot; always the same on a single server."""
        if not self.target.is_cluster:
            return 0, 0
        nodes = map_of(self.target)
        return nodes.generation, nodes.redirections

    def node_of(self, key: str) -> str:
        """Return the address of the node that serves a key; empty for a single server, or if not known."""
        if not self.target.is_cluster:
            return ""
        node = map_of(self.target).owner(slot_of(key))
        return "" if node is None else format_address(node)

    @property
    def last_disconnect(self) -> float | None:
        """When a connection broke under a call, on the clock's monotonic scale; None for never."""
        return self._state.last_disconnect

    def last_disconnect_of(self, node: str) -> float | None:
        """Return the same for one node of a cluster, by its address; for all servers if that is empty."""
        return self._state.disconnects.get(node) if node else self._state.last_disconnect

    def warn_once(self, warning: ServerWarning) -> None:
        """Report something about the server, unless a warning of this code has been given before."""
        self._state.warn_once(warning.code, warning.message)

    def check_open(self) -> None:
        """Raise `ClientClosedError` after `close`."""
        if self._closed:
            raise ClientClosedError(f"the connection to Redis at {self._state.address} has been closed")
