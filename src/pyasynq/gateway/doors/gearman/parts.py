"""Objects that all connections of the Gearman server (door) share."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .connected_workers import ConnectedWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.gateway.counted_client import CountedClient
    from pyasynq.gateway.leases.acts import DelayOfFailure
    from pyasynq.gateway.leases.served_queues import ServedQueues
    from pyasynq.gateway.waits import Waits
    from pyasynq.operations import Operator

    from .session import GearmanSession


@dataclass(frozen=True, slots=True)
class DoorParts:
    """Objects that all connections of one Gearman server share.

    Attributes:
        client: enqueues jobs and waits for their ends.
        operator: reads and changes tasks and limits.
        served: queues that the server's consumer serves.
        waits: waits of sleeping workers for a job; they end when the instance shuts down.
        list_types: returns the configuration of each type, by name.
        retry_delay: returns the seconds until a failed task is retried; None is the back-off of Asynq.
        max_packet: largest arguments of a packet, in bytes.
        sessions: open connections.
        workers: workers connected to this instance, and workers that other instances report.
    """

    client: CountedClient
    operator: Operator
    served: ServedQueues
    waits: Waits
    list_types: Callable[[], Mapping[str, TaskConfiguration]]
    retry_delay: DelayOfFailure
    max_packet: int
    sessions: set[GearmanSession] = field(default_factory=set)
    workers: ConnectedWorkers = field(init=False)

    def __post_init__(self) -> None:
        """Make the table of connected workers."""
        workers = ConnectedWorkers(secrets.token_hex(8), self.sessions, self.operator)
        object.__setattr__(self, "workers", workers)

    def find_function(self, name: bytes) -> TaskConfiguration | None:
        """Return the task type of a Gearman function; None unless remote workers run it (kind `worker`)."""
        found = self.list_types().get(name.decode("utf-8", "surrogateescape"))
        return found if found is not None and found.kind == "worker" else None

    def list_functions(self) -> list[str]:
        """Return the names of the types of the kind `worker`, which remote workers run, sorted."""
        return sorted(name for name, one in self.list_types().items() if one.kind == "worker")

    def list_queues(self) -> Collection[str]:
        """Return the names of all task types, which are also the names of their queues."""
        return self.list_types().keys()

    async def count_workers(self) -> Counter[str]:
        """Count the workers of each function, at all instances."""
        counts = Counter(name for session in self.sessions for name in session.worker.functions)
        for other in await self.workers.read_others():
            counts.update(dict.fromkeys(other.functions, other.connections))
        return counts
