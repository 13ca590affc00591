# Generated from src/pyasynq/inspector/servers.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about servers and schedulers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq import info
from pyasynq._broker import inspecting
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.task_types import read_types
from pyasynq._checks import parse_seconds
from pyasynq._clock import sleep_blocking

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from pyasynq.info import (
        ClusterNode,
        EntryPauseResult,
        EntryRun,
        QueueLocation,
        RedisReport,
        RedisTexts,
        SchedulerEntryInfo,
        SchedulerEvent,
        ServerAction,
        ServerInfo,
        ServerRequestResult,
    )
    from pyasynq.options import Duration, EnqueueOptions
    from pyasynq.task_types import TaskTypeInfo

_LOOK_SECONDS: Final = 0.1


class ServerInspector(InspectorBase):
    """Describes servers and schedulers, and sends requests to them."""

    def servers(
        self, queue: str | None = None, *, running: bool = True, payloads: bool = True
    ) -> list[ServerInfo]:
        """Return the live servers, or those that serve a queue, with what each ran at its last heartbeat.

        `running=False` leaves out the running tasks (`active_workers`), which are most of what is read.
        `payloads=False` leaves their payloads empty.
        """
        now = self._clock.redis_now()
        plans = self._run(
            inspecting.servers.find_servers(now, payloads=payloads)
            if running
            else inspecting.vitals.find_server_records(now)
        )
        return inspecting.servers.sort_servers(self._run_in_parts(plans), queue)

    def quiet_server(self, server_id: str, *, wait: Duration = 0.0) -> ServerRequestResult:
        """Ask a server to take no more tasks; running tasks continue.

        The server reads the request with its next heartbeat, within 5 seconds; the request holds for 60
        seconds. In a worker of several processes, each process is a server, and the request concerns this one
        only. A process that replaces it takes tasks again. A server in Go reads no requests, and a consumer
        acknowledges them without obeying; the result says so.

        Args:
            server_id: `ServerInfo.id`.
            wait: how long to wait for the acknowledgement, looking ten times a second; cancelling the wait
                does not take the request back.

        Raises:
            ServerNotFoundError: when no live server has this id.
        """
        self._require_primary()
        return self._ask(server_id, info.ServerAction.QUIET, wait)

    def stop_server(self, server_id: str, *, wait: Duration = 0.0) -> ServerRequestResult:
        """Ask a server to shut down as it does on SIGTERM, with the whole worker that it belongs to.

        All processes of a worker end. A process manager such as systemd then starts the worker again. A
        server that was started inside another program closes, and the program goes on. Otherwise it works
        like `quiet_server`.

        Args:
            server_id: `ServerInfo.id`.
            wait: how long to wait for the server's end.

        Raises:
            ServerNotFoundError: when no live server has this id.
        """
        self._require_primary()
        return self._ask(server_id, info.ServerAction.STOP, wait)

    def _ask(self, server_id: str, action: ServerAction, wait: Duration) -> ServerRequestResult:
        # Not the clock of the inspector: a test may have frozen it.
        until = time.monotonic() + parse_seconds("wait", wait)
        now = self._clock.redis_now()
        result = self._run(inspecting.servers.request_of_server(server_id, action, now=now))
        while inspecting.servers.is_request_open(result) and time.monotonic() < until:
            sleep_blocking(_LOOK_SECONDS)
            result = self._run(inspecting.servers.refresh_request(result, now=self._clock.redis_now()))
        return result

    def task_types(self) -> list[TaskTypeInfo]:
        """Return the task types that workers have described within 30 days, by name.

        Workers publish them at their start; types that only workers in Go handle are not among them.
        """
        return self._run(read_types(self._now()))

    def scheduler_entries(self) -> list[SchedulerEntryInfo]:
        """Return the periodic tasks of all running schedulers, by scheduler in order of registration."""
        plans = self._run(inspecting.schedulers.find_schedulers(self._clock.redis_now()))
        schedulers = inspecting.schedulers
        entries = schedulers.describe_entries(self._run_in_parts(plans))
        return schedulers.sort_entries(entries, self._run_in_parts(schedulers.plan_pauses(entries)))

    def pause_entry(self, entry_id: str) -> EntryPauseResult:
        """Pause an entry of a scheduler: it enqueues nothing until `unpause_entry`.

        Its ticks count as fired meanwhile, in every scheduler that has the entry, and are not caught up
        later. A second pause changes nothing. Schedulers in Go ignore pauses; the result says so.

        Raises:
            ScheduleNotFoundError: when no running scheduler has the entry.
        """
        self._require_primary()
        plan = inspecting.schedulers.pause_entry(entry_id, pauses=True, now=self._clock.redis_now())
        return self._run(plan)

    def unpause_entry(self, entry_id: str) -> EntryPauseResult:
        """Resume a paused scheduler entry from its next tick on; harmless if it is not paused.

        Raises:
            ScheduleNotFoundError: when no running scheduler has the entry.
        """
        self._require_primary()
        plan = inspecting.schedulers.pause_entry(entry_id, pauses=False, now=self._clock.redis_now())
        return self._run(plan)

    def run_entry(self, entry_id: str, **options: Unpack[EnqueueOptions]) -> EntryRun:
        """Enqueue the task of an entry now, also while it is paused; its ticks stay as they are.

        The task has the options in the entry's record. Options that Asynq's record cannot express, such as
        `unique_key` and `on_duplicate`, are not among them.

        Args:
            entry_id: id of the entry.
            **options: options that the record leaves open, such as `task_id` with `once_for`; headers are
                added to those of the record.

        Raises:
            InvalidOptionError: for an invalid option.
            ScheduleNotFoundError: when no running scheduler has the entry.
            DuplicateTaskError: when another task holds the lock of the entry's task.
            TaskIDConflictError: when the entry names a task id that exists.
        """
        self._require_primary()
        now, redis_now = self._now(), self._clock.redis_now()
        plan = inspecting.schedulers.run_entry(entry_id, options, now=now, redis_now=redis_now)
        return self._run(plan)

    def scheduler_events(
        self,
        entry_id: str,
        page: int = 1,
        page_size: int = 30,
    ) -> list[SchedulerEvent]:
        """Return one page of an entry's enqueue history, newest first; empty for an unknown entry."""
        plan = inspecting.schedulers.scheduler_events(entry_id, page=page, page_size=page_size)
        return self._run(plan)

    def redis_info(self) -> dict[str, str]:
        """Return the fields of Redis' INFO, or for a cluster, the fields of CLUSTER INFO."""
        return self._run(inspecting.cluster.redis_info(of_cluster=self._driver.target.is_cluster))

    def redis_texts(self) -> RedisTexts:
        """Return the raw replies of Redis about itself, such as INFO."""
        return self._run(inspecting.cluster.redis_texts(of_cluster=self._driver.target.is_cluster))

    def queue_locations(self, queues: Sequence[str]) -> list[QueueLocation]:
        """Return cluster slot and nodes of queues, which need not exist; empty without a cluster."""
        if not self._driver.target.is_cluster:
            return []
        return self._run(inspecting.cluster.queue_locations(queues))

    def redis_report(self) -> RedisReport:
        """Return a report on each Redis server: INFO, connections by name, slow scripts.

        `missing_rights` names the rights that the user lacks; the rest of the report is there.
        """
        self._run(queue_names())  # the nodes of a cluster are known after the first call
        places = self._driver.places
        describe_node, now = inspecting.redis_report.describe_node, self._now()
        plans = [describe_node(place, self._driver.name_place(place), now=now) for place in places]
        found = self._run_in_parts(plans)
        rights = dict.fromkeys(right for _, missing in found for right in missing)
        return info.RedisReport(tuple(node for node, _ in found), tuple(rights))

    def cluster_keyslot(self, queue: str) -> int:
        """Return the slot of Redis Cluster that all keys of a queue are in; it need not exist.

        Raises:
            RedisReplyError: when Redis is not a cluster.
        """
        return self._run(inspecting.cluster.cluster_keyslot(queue))

    def cluster_nodes(self, queue: str) -> list[ClusterNode]:
        """Return the nodes of the cluster that have a queue's slot: its primary, then the replicas.

        Raises:
            RedisReplyError: when no node has it, or Redis is not a cluster.
        """
        return self._run(inspecting.cluster.cluster_nodes(queue))
