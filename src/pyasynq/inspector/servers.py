"""The inspector's methods about servers and schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.inspecting import cluster, schedulers
from pyasynq._broker.inspecting.servers import describe_servers

from ._base import InspectorBase

if TYPE_CHECKING:
    from pyasynq.info import ClusterNode, SchedulerEntryInfo, SchedulerEvent, ServerInfo


class ServerInspector(InspectorBase):
    """Looks at what runs."""

    async def servers(self, queue: str | None = None) -> list[ServerInfo]:
        """Return the live servers, or those that serve a queue, with what each ran at its last heartbeat."""
        return await self._run(describe_servers(queue, now=self._clock.redis_now()))

    async def scheduler_entries(self) -> list[SchedulerEntryInfo]:
        """Return the periodic tasks of all running schedulers, each one's in the order of registration."""
        return await self._run(schedulers.scheduler_entries(self._clock.redis_now()))

    async def scheduler_events(
        self,
        entry_id: str,
        page: int = 1,
        page_size: int = 30,
    ) -> list[SchedulerEvent]:
        """Return a page of what a scheduler entry enqueued, newest first; nothing for an unknown one."""
        return await self._run(schedulers.scheduler_events(entry_id, page=page, page_size=page_size))

    async def redis_info(self) -> dict[str, str]:
        """Return what Redis tells of itself: the fields of INFO; of a cluster, those of CLUSTER INFO."""
        return await self._run(cluster.redis_info(of_cluster=self._driver.target.is_cluster))

    async def cluster_keyslot(self, queue: str) -> int:
        """Return the slot of Redis Cluster that all keys of a queue are in; it need not exist.

        Raises:
            RedisReplyError: when Redis is no cluster.
        """
        return await self._run(cluster.cluster_keyslot(queue))

    async def cluster_nodes(self, queue: str) -> list[ClusterNode]:
        """Return the nodes of the cluster that have a queue's slot: its primary, then the replicas.

        Raises:
            RedisReplyError: when no node has it, or Redis is no cluster.
        """
        return await self._run(cluster.cluster_nodes(queue))
