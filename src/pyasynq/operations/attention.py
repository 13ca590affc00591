"""Attention: runs the detectors on a snapshot, and separates snoozed findings. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError

from .detectors import DETECTORS
from .detectors.backlog import get_wait_objective
from .finding import Attention, AttentionFinding
from .thresholds import DEFAULT_THRESHOLDS, Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._broker.operating.snoozes import FindingSnooze

    from .snapshot import Snapshot

MAX_FINDINGS: Final = 1_000
"""Maximum number of findings; if there are more, the least severe findings are left out."""


def find_attention(
    snapshot: Snapshot,
    earlier: Snapshot | None = None,
    snoozes: Iterable[FindingSnooze] = (),
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Attention:
    """Return the findings that need attention, the most severe first.

    Args:
        snapshot: the newest snapshot.
        earlier: a snapshot from up to ten minutes before; if it is None, lost servers are not noticed.
        snoozes: snoozes that have not ended.
        thresholds: thresholds of the detectors.
    """
    known = {snooze.finding: snooze for snooze in snoozes}
    found: list[AttentionFinding] = []
    for one in sorted(DETECTORS.values(), key=lambda one: -one.most_severe):
        # With very many queues, findings that would be left out take a third of the time.
        if len(found) >= MAX_FINDINGS and _count_above(found, one.most_severe) >= MAX_FINDINGS:
            break
        found.extend(one.detect(snapshot, earlier, thresholds))
    found.sort(key=lambda finding: (-finding.severity, finding.detector, finding.queue, finding.subject))
    shown = found[:MAX_FINDINGS]
    if known:
        shown = [replace(finding, snooze=known.get(finding.id)) for finding in shown]
    return Attention(
        snapshot.at,
        tuple(finding for finding in shown if finding.snooze is None),
        tuple(finding for finding in shown if finding.snooze is not None),
        snapshot.unreadable,
        {one.queue: get_wait_objective(one, thresholds) for one in snapshot.queues.values()},
    )


def _count_above(findings: Iterable[AttentionFinding], severity: int) -> int:
    """Return the number of findings that are more severe than `severity`."""
    return sum(finding.severity > severity for finding in findings)


def check_detector(name: str) -> str:
    """Return the name of a detector. Raises `InvalidOptionError` for any other text."""
    if name not in DETECTORS:
        raise InvalidOptionError("detector", name, f"must be one of {', '.join(DETECTORS)}")
    return name
