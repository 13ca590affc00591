"""Settings of a worker, for Redis and for HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of a worker. Durations are in seconds. The server or the HTTP worker checks them.

    Attributes:
        concurrency: number of tasks that run at once in this process, of all types together.
        shutdown_timeout: time that running tasks have after `close`.
        overdue_limit: seconds after its deadline at which an attempt that cannot be stopped ends the worker.
        publish_events: whether events of the tasks are published.
        team: name of the team that runs the worker.
        version: version of the application.
    """

    concurrency: int = 100
    shutdown_timeout: float = 8.0
    overdue_limit: float = 600.0
    publish_events: bool = False
    team: str = ""
    version: str = ""
