"""Attention findings: problems for an operator, each with a sentence, a query and one action. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyasynq._error_signature import signature_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyasynq._broker.operating.snoozes import FindingSnooze


@dataclass(frozen=True, slots=True)
class FindingAction:
    """The one action that resolves a finding."""

    label: str
    """Imperative for a button or a list, such as `Resume the queue`."""
    verb: str = ""
    """Method of `Operator` that performs the action; empty for a manual action, such as to start a worker."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the method, by name."""
    command: str = ""
    """Command line that performs the action."""


@dataclass(frozen=True, slots=True)
class AttentionFinding:
    """A condition that needs the attention of an operator."""

    detector: str
    """Name of the detector, such as `no_consumers`."""
    queue: str
    """The queue that the finding concerns; empty for findings about servers and Redis."""
    severity: int
    """Severity from 1 (can wait) to 5 (tasks are being lost, or nothing runs)."""
    sentence: str
    """Description of the condition in one sentence, with counts and durations.

    Control characters in foreign text are escaped.
    """
    action: FindingAction
    query: str = ""
    """Query that finds the tasks; empty if no tasks are concerned."""
    since: datetime | None = None
    """Time at which the condition began; None if unknown."""
    subject: str = ""
    """Task type, server or replica of the finding; empty if a detector has one finding for a queue."""
    queues: tuple[str, ...] = ()
    """Queues of the server, if the finding concerns a server."""
    snooze: FindingSnooze | None = None
    """Snooze of the finding; None if it is not snoozed."""

    @property
    def id(self) -> str:
        """Id of the finding, which a snooze refers to; it consists of detector, queue and subject."""
        return finding_id(self.detector, self.queue, self.subject)

    @property
    def short_id(self) -> str:
        """Eight hexadecimal digits that name the finding on a command line."""
        return signature_id(self.id)


@dataclass(frozen=True, slots=True)
class Attention:
    """Snapshot of the findings about queues, servers and Redis at one time: active and snoozed findings."""

    at: datetime
    """Time at which the snapshot was read."""
    findings: tuple[AttentionFinding, ...]
    """Findings that are not snoozed, the most severe first."""
    snoozed: tuple[AttentionFinding, ...] = ()
    """Snoozed findings, the most severe first."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Reasons why queues could not be read, by queue."""
    wait_objectives: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which the next task of a queue may be pending, by queue."""

    def without(self, detector: str) -> Attention:
        """Return a copy without the findings of a detector."""
        return replace(
            self,
            findings=tuple(one for one in self.findings if one.detector != detector),
            snoozed=tuple(one for one in self.snoozed if one.detector != detector),
        )


def finding_id(detector: str, queue: str, subject: str = "") -> str:
    """Return the id of a finding, as JSON, because names may contain any separator."""
    return json.dumps((detector, queue, subject), ensure_ascii=False, separators=(",", ":"))
