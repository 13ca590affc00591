"""The Gearman server: existing Gearman clients and workers only change host and port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible
from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import ConfigurationError
from pyasynq.gateway.leases.served_queues import ServedQueues
from pyasynq.gateway.waits import Waits

from .door_table import DoorTable
from .parts import DoorParts
from .session import GearmanSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq.gateway.configurations import GearmanSettings, TaskConfiguration
    from pyasynq.gateway.counted_client import CountedClient
    from pyasynq.gateway.leases.acts import DelayOfFailure
    from pyasynq.operations import Operator

    from .connected_workers import ConnectedWorkers

_log = logging.getLogger("pyasynq.gateway")

_MOST_JOBS: Final = 10_000
_REST_SECONDS: Final = 0.05


class GearmanDoor:
    """Gearman server of one instance, a protocol gateway (door). Belongs to one event loop.

    The protocol has no passwords, so the server listens on loopback, or admits only the listed networks.

    Args:
        settings: where it listens, and which networks it admits.
        redis: where Redis is, as for `Consumer`.
        client: enqueues jobs and waits for their ends; not closed here.
        operator: reads and changes tasks and limits; not closed here.
        list_types: returns the configuration of each type, by name.
        retry_delay: returns the seconds until a failed task is retried; None is the back-off of Asynq.
        shares_port: whether other processes listen on the same port (`SO_REUSEPORT`).
        max_packet: largest arguments of a packet, in bytes.
    """

    def __init__(
        self,
        settings: GearmanSettings,
        redis: Any,
        *,
        client: CountedClient,
        operator: Operator,
        list_types: Callable[[], Mapping[str, TaskConfiguration]],
        retry_delay: DelayOfFailure,
        shares_port: bool = False,
        max_packet: int = 1_000_000,
    ) -> None:
        self._settings = settings
        self._shares_port = shares_port
        self._parts = DoorParts(
            client=client,
            operator=operator,
            served=ServedQueues(redis, ConsumerConfig(concurrency=_MOST_JOBS), is_held=self._holds),
            waits=Waits(),
            list_types=list_types,
            retry_delay=retry_delay,
            max_packet=max_packet,
        )
        self.table = DoorTable(self._parts.sessions)
        """Source of the reports about this server, for the dashboard."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def port(self) -> int:
        """The port that the server listens on; 0 before the start."""
        return self._server.sockets[0].getsockname()[1] if self._server is not None else 0

    @property
    def running(self) -> int:
        """Number of jobs that workers of this instance run."""
        return sum(session.worker.running for session in self._parts.sessions)

    @property
    def workers(self) -> ConnectedWorkers:
        """Workers connected to this instance; their reports are for other instances."""
        return self._parts.workers

    async def start(self) -> None:
        """Open the port and accept connections.

        Raises:
            ConfigurationError: the address is in use, or not of this machine.
        """
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, reuse_port=self._shares_port or None
            )
        except OSError as error:
            raise ConfigurationError(
                f"doors.gearman.listen: {host}:{port} cannot be opened: {visible(error.strerror or error)}"
            ) from None
        self.table.note_opened(f"{host}:{self.port}")
        _log.info("Gearman clients and workers are served at %s:%d", host, self.port)

    def stop(self) -> None:
        """Accept no more connections, and assign no more jobs: the first step of a shutdown."""
        self._parts.waits.end()
        if self._server is not None:
            self._server.close()
            self.table.note_closed()

    async def close(self, timeout: float) -> None:
        """Call `stop`, wait for running jobs, requeue the unfinished ones, and close the connections.

        Args:
            timeout: seconds to wait for running jobs.
        """
        self.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.running:  # noqa: ASYNC110 - jobs end in many places
                    await asyncio.sleep(_REST_SECONDS)
        for session in tuple(self._parts.sessions):
            await session.worker.release()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._parts.served.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = GearmanSession(self._parts, reader, writer)
        if not self._admits(session.address):
            _log.warning("a Gearman connection from %s was refused", visible(session.address))
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - the stream server makes one
        self._tasks.add(task)
        self._parts.sessions.add(session)
        try:
            await session.run()
        except asyncio.CancelledError:
            pass  # the instance closes
        except Exception:  # noqa: BLE001 - one connection must not end the others
            _log.exception("a Gearman connection failed")
        finally:
            self._parts.sessions.discard(session)
            self._tasks.discard(task)

    def _holds(self, queue: str) -> bool:
        """Return whether a connected worker runs a job of a queue, which must then stay served."""
        return any(one.queue == queue for session in self._parts.sessions for one in session.worker.attempts)

    def _admits(self, text: str) -> bool:
        if not self._settings.networks:
            return True
        try:
            address = ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._settings.networks)
