"""Input for matching a query besides the task: the present time, and records of running tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq._clock import Instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyasynq.info import ServerInfo


@dataclass(frozen=True, slots=True)
class RunningFacts:
    """A running task, as the record of its server describes it."""

    started: Instant | None
    deadline: Instant | None
    server_id: str


@dataclass(frozen=True, slots=True)
class MatchFacts:
    """The present time, from which ages are measured, and the records of running tasks."""

    now: Instant
    running: Mapping[tuple[str, str], RunningFacts] = field(default_factory=dict)
    """Records of running tasks by queue and task id."""


def match_facts(now: Instant, servers: Iterable[ServerInfo] = ()) -> MatchFacts:
    """Collect facts about running tasks from the records of live servers."""
    return MatchFacts(
        now,
        {
            (worker.queue, worker.task_id): RunningFacts(
                None if worker.started is None else Instant.from_datetime(worker.started),
                None if worker.deadline is None else Instant.from_datetime(worker.deadline),
                server.id,
            )
            for server in servers
            for worker in server.active_workers
        },
    )
