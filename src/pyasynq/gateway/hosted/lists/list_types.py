"""All task types of the kind `list` in one instance of the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from pyasynq.consumer import ConsumerConfig
from pyasynq.gateway.leases.served_queues import ServedQueues

from .list_bridge import ListBridge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.gateway.leases.acts import DelayOfFailure
    from pyasynq.gateway.leases.tokens import Keyring
    from pyasynq.operations import Operator

_log = logging.getLogger("pyasynq.gateway")

_REST_SECONDS: Final = 1.0
_MOST_ATTEMPTS: Final = 10_000


class ListTypes:
    """Runs a `ListBridge` for each type of the kind `list`, and polls for changes. Belongs to one event loop.

    The queue of a type without workers is not served, so that it is shown as waiting without a worker.

    Args:
        redis: where Redis is, as for `Consumer`.
        operator: reads and writes the lists in Redis.
        list_types: returns the configuration of each type, by name.
        keyring: signs lease tokens; the same in all instances.
        retry_delay: returns the seconds until a failed task is retried; None is the back-off of Asynq.
        rest: seconds between two checks of the types.
    """

    def __init__(
        self,
        redis: Any,
        operator: Operator,
        list_types: Callable[[], Mapping[str, TaskConfiguration]],
        keyring: Keyring,
        *,
        retry_delay: DelayOfFailure,
        rest: float = _REST_SECONDS,
    ) -> None:
        config = ConsumerConfig(concurrency=_MOST_ATTEMPTS)
        self._served = ServedQueues(redis, config, is_held=self._has_leases)
        self._operator = operator
        self._list_types = list_types
        self._keyring = keyring
        self._retry_delay = retry_delay
        self._rest = rest
        self._bridges: dict[str, ListBridge] = {}
        self._following: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def listening(self) -> dict[str, int]:
        """Number of living workers of each type, by its name."""
        return {name: bridge.listening for name, bridge in self._bridges.items()}

    def start(self) -> None:
        """Begin to poll the types for changes, and to run their bridges. Idempotent."""
        if self._following is None and not self._is_stopped:
            self._following = asyncio.create_task(self._follow(), name="pyasynq list types")

    def stop(self) -> None:
        """Move no more tasks to the lists: the first step of a shutdown."""
        self._is_stopped = True
        if self._following is not None:
            self._following.cancel()
        for bridge in self._bridges.values():
            bridge.stop()

    async def close(self) -> None:
        """Call `stop`, and close the connections. Entries stay in the lists, for other instances."""
        self.stop()
        if self._following is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        await asyncio.gather(*(bridge.close() for bridge in self._bridges.values()))
        await self._served.close()

    def _has_leases(self, name: str) -> bool:
        bridge = self._bridges.get(name)
        return bridge is not None and bridge.has_leases

    async def _follow(self) -> None:
        while True:
            try:
                await self._run_types()
            except Exception:  # noqa: BLE001 - without looks the instance would run what is stale
                _log.exception("types of the kind list were not looked at; retrying every second")
            await asyncio.sleep(self._rest)

    async def _run_types(self) -> None:
        """Start bridges of new types, and close the bridges of deleted types."""
        types = {name: one for name, one in self._list_types().items() if one.kind == "list"}
        for name, one in types.items():
            bridge = self._bridges.get(name)
            if bridge is None:
                bridge = ListBridge(name, self._operator, self._served, self._keyring, self._retry_delay)
                self._bridges[name] = bridge
            bridge.set_shards(one.shards)
            bridge.start()
        for name in self._bridges.keys() - types.keys():
            await self._bridges.pop(name).close()
