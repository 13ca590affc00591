# Generated from src/pyasynq/operations/operator/servers.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about servers, schedules, live events and Redis."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq import info
from pyasynq._broker import inspecting
from pyasynq._checks import parse_seconds
from pyasynq._clock import sleep_blocking
from pyasynq.errors import ServerNotFoundError
from pyasynq.operations.request_keys import check_key, options_of_key
from pyasynq.operations.server_choice import check_server_number
from pyasynq.task_types import prefer_types

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Iterator, Collection, Sequence

    from pyasynq.info import (
        EntryPauseResult,
        EntryRun,
        EventPage,
        QueueLocation,
        RedisReport,
        RedisTexts,
        ReplicaState,
        SchedulerEntryInfo,
        SchedulerEvent,
        ServerAction,
        ServerInfo,
        ServerRequestResult,
        TaskEvent,
    )
    from pyasynq.options import Duration
    from pyasynq.task_types import TaskTypeInfo


_LOOK_SECONDS: Final = 0.1


class ServerOperator(OperatorBase):
    """The operator's methods about servers, schedules and Redis."""

    def servers(self, *, running: bool = True, payloads: bool = True) -> list[ServerInfo]:
        """Return live servers of the queues that the user sees, with running tasks of these queues.

        `running=False` leaves out the running tasks. `payloads=False` leaves their payloads empty, which
        spares their redaction.
        """
        return self._inspector.servers(running=running, payloads=payloads)

    def quiet_server(
        self, server_id: str, *, wait: Duration = 0.0, reason: str = ""
    ) -> ServerRequestResult:
        """Ask a server to take no more tasks, as `Inspector.quiet_server`.

        The user needs the permission for all queues of the server.

        Raises:
            ServerNotFoundError: when no live server that the user sees has this id.
        """
        return self._inspector.quiet_server(server_id, wait=wait)

    def stop_server(
        self, server_id: str, *, wait: Duration = 0.0, reason: str = ""
    ) -> ServerRequestResult:
        """Ask a server to shut down with its whole worker, as `Inspector.stop_server`.

        The user needs the permission for all queues of the server.

        Raises:
            ServerNotFoundError: when no live server that the user sees has this id.
        """
        return self._inspector.stop_server(server_id, wait=wait)

    def quiet_servers(
        self,
        server_ids: Sequence[str] | None = None,
        *,
        version: str = "",
        engine_version: str = "",
        confirm: int | None = None,
        wait: Duration = 0.0,
        reason: str = "",
    ) -> list[ServerRequestResult]:
        """Ask several servers to take no more tasks; the arguments are those of `stop_servers`."""
        return self._ask_servers(server_ids or (), info.ServerAction.QUIET, confirm, wait)

    def stop_servers(
        self,
        server_ids: Sequence[str] | None = None,
        *,
        version: str = "",
        engine_version: str = "",
        confirm: int | None = None,
        wait: Duration = 0.0,
        reason: str = "",
    ) -> list[ServerRequestResult]:
        """Ask several servers to shut down with their workers: some by their ids, or all of a version.

        The user needs the permission for all queues of each server. A version leaves out servers without a
        queue that the user sees. A server that ends during the call is reported as ended.

        Args:
            server_ids: ids of servers; None for all of the version.
            version: version of the application, `ServerInfo.version`.
            engine_version: version of pyasynq, `ServerInfo.engine_version`.
            confirm: number of the servers, as the user typed it; needed for more than 10, and in production.
            wait: how long to wait until the servers have ended.
            reason: why, for the audit.

        Raises:
            InvalidOptionError: for neither ids nor a version, or another number than `confirm`.
            ServerNotFoundError: no live server that the user sees has one of the ids, or the version.
        """
        return self._ask_servers(server_ids or (), info.ServerAction.STOP, confirm, wait)

    def _ask_servers(
        self, server_ids: Sequence[str], action: ServerAction, confirm: int | None, wait: Duration
    ) -> list[ServerRequestResult]:
        check_server_number(len(server_ids), self._environment, confirm)
        until = time.monotonic() + parse_seconds("wait", wait)
        now = self._inspector.redis_now()
        servers = inspecting.servers
        plans = [servers.request_of_server(one, action, now=now) for one in server_ids]
        answers = self._inspector.run_batch(plans)
        results = {}
        for server_id, answer in zip(server_ids, answers, strict=True):
            if isinstance(answer, ServerNotFoundError):
                results[server_id] = info.ServerRequestResult(server_id, action, info.RequestStatus.ENDED)
            elif isinstance(answer, Exception):
                raise answer
            else:
                results[server_id] = answer
        while time.monotonic() < until:
            asked = [one for one in results.values() if servers.is_request_open(one)]
            if not asked:
                break
            sleep_blocking(_LOOK_SECONDS)
            now = self._inspector.redis_now()
            plans = [servers.refresh_request(one, now=now) for one in asked]
            for one in self._inspector.run_batch(plans):
                if isinstance(one, Exception):
                    raise one
                results[one.server_id] = one
        return list(results.values())

    def task_types(self) -> list[TaskTypeInfo]:
        """Return the application's task types, and what workers have described within 30 days.

        Types of queues that the user does not see are left out.
        """
        return prefer_types(self._types, self._inspector.task_types())

    def schedules(self) -> list[SchedulerEntryInfo]:
        """Return the entries (periodic tasks) of all running schedulers whose queues the user sees."""
        return self._inspector.scheduler_entries()

    def schedule_events(
        self,
        entry_id: str,
        page: int = 1,
        page_size: int = 30,
    ) -> list[SchedulerEvent]:
        """Return one page of a schedule's enqueue history, newest first."""
        return self._inspector.scheduler_events(entry_id, page, page_size)

    def pause_schedule(self, entry_id: str, *, reason: str = "") -> EntryPauseResult:
        """Pause a schedule until it is resumed, as `Inspector.pause_entry`.

        Schedulers in Go ignore pauses; the result says so.

        Raises:
            ScheduleNotFoundError: when no running scheduler has it.
        """
        return self._inspector.pause_entry(entry_id)

    def resume_schedule(self, entry_id: str, *, reason: str = "") -> EntryPauseResult:
        """Resume a schedule from its next tick on; harmless if it is not paused.

        Raises:
            ScheduleNotFoundError: when no running scheduler has it.
        """
        return self._inspector.unpause_entry(entry_id)

    def run_schedule(self, entry_id: str, *, key: str = "", reason: str = "") -> EntryRun:
        """Enqueue the task of a schedule now, as `Inspector.run_entry`; the times of its ticks do not change.

        Args:
            entry_id: id of the schedule.
            key: name of this request (idempotency key). If the user has run the schedule with it within a
                day, that task is returned, and nothing is enqueued.
            reason: why, for the audit.

        Raises:
            InvalidOptionError: the key was used for something else.
            ScheduleNotFoundError: when no running scheduler has it.
            DuplicateTaskError: when another task holds the lock of its task.
        """
        options = options_of_key(key, self.user.name, entry_id.encode(), {}) if key else {}
        run = self._inspector.run_entry(entry_id, **options)
        check_key(key, options.get("headers", {}), run.task)
        return run

    def replicas(self) -> list[ReplicaState]:
        """Return the replicas that the operator reads from; empty if it reads from primaries only."""
        return self._inspector.replicas()

    def redis_report(self) -> RedisReport:
        """Return a report on each Redis server, and the missing rights that would show more."""
        return self._inspector.redis_report()

    def redis_info(self) -> dict[str, str]:
        """Return the fields of Redis' INFO; for a cluster, the fields of CLUSTER INFO."""
        return self._inspector.redis_info()

    def redis_texts(self) -> RedisTexts:
        """Return the unparsed replies of Redis to commands about itself, such as INFO."""
        return self._inspector.redis_texts()

    def queue_locations(self, queues: Sequence[str] | None = None) -> list[QueueLocation]:
        """Return slot and nodes of each queue that the user sees; empty without a cluster."""
        names = self._inspector.queues() if queues is None else queues
        return self._inspector.queue_locations(names)

    def recent_events(
        self,
        queues: Sequence[str] | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        cursor: str = "",
        limit: int = 100,
    ) -> EventPage:
        """Return the newest kept events of tasks, newest first, as `Inspector.recent_events`."""
        if queues is not None and not queues:
            return info.EventPage((), "", 0)  # the user sees none of them, and no argument would mean all
        return self._inspector.recent_events(
            *queues or (), kinds=kinds, types=types, cursor=cursor, limit=limit
        )

    def follow(
        self,
        queues: Sequence[str] | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        seconds: Duration | None = None,
    ) -> Iterator[TaskEvent]:
        """Yield events of tasks as they are published, as `Inspector.follow`."""
        if queues is not None and not queues:
            return  # the user sees none of them, and no argument would mean all
        for event in self._inspector.follow(*queues or (), kinds=kinds, types=types, seconds=seconds):
            yield event
