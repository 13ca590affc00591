"""Detectors of failures: orphans, poison tasks, retry storms, spikes of failures, and full archives."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.operations.finding import AttentionFinding, FindingAction
from pyasynq.operations.operation import Act, Targets

from .common import build_pause_action, build_worker_action, query_of, quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.operations.snapshot import Activity, QueueSnapshot, Snapshot
    from pyasynq.operations.thresholds import Thresholds

_LEAST_BEFORE = 50


def find_orphans(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find active tasks whose lease lapsed and that no server recovers."""
    del earlier, thresholds
    for one in snapshot.queues.values():
        lost = one.vitals.lapsed if one.vitals else 0
        if not lost:
            continue
        yield AttentionFinding(
            "orphans",
            one.queue,
            4,
            f"{counted(lost, 'active task')} of {visible(one.queue)} "
            f"{'has' if lost == 1 else 'have'} lost {'its' if lost == 1 else 'their'} worker, "
            f"and no server recovers {'it' if lost == 1 else 'them'}.",
            build_worker_action(one.queue),
            query_of(one.queue, "state:active", "orphaned"),
        )


def find_poison(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find tasks that were archived because their workers crashed, or let their leases lapse."""
    del earlier, thresholds
    for one in snapshot.queues.values():
        number, is_whole = one.poison
        if not number:
            continue
        found = counted(number, "task") if is_whole else f"At least {counted(number, 'task')}"
        query = query_of(one.queue, "state:archived", "poison")
        yield AttentionFinding(
            "poison",
            one.queue,
            3,
            f"{found} of {visible(one.queue)} {'was' if number == 1 else 'were'} archived because "
            f"{'its' if number == 1 else 'their'} workers crashed or gave no sign.",
            delete_by("Delete the poison tasks", query),
            query,
        )


def delete_by(label: str, query: str) -> FindingAction:
    """Return the action that deletes the tasks of a query; the operation can be undone for a day."""
    return FindingAction(
        label,
        "start_operation",
        {"act": Act.DELETE, "targets": Targets(query=query)},
        f"pyasynq task delete --where {shlex.quote(query)}",
    )


def find_retry_storms(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find queues in which more attempts are retried than succeed."""
    del earlier
    for one in snapshot.queues.values():
        if not is_storm(one, thresholds):
            continue
        recent = one.total.recent
        yield AttentionFinding(
            "retry_storm",
            one.queue,
            4,
            f"{counted(recent.retried, 'attempt')} of {visible(one.queue)} were retried in the last 10 min, "
            f"and {recent.succeeded:,} succeeded.",
            build_pause_action(one.queue),
            query_of(one.queue, "state:retry"),
        )


def is_storm(one: QueueSnapshot, thresholds: Thresholds) -> bool:
    """Return whether a queue has a retry storm; a paused queue never has one, since it makes no attempts."""
    recent = one.total.recent
    return (
        not one.info.paused and recent.retried >= thresholds.storm_least and recent.retried > recent.succeeded
    )


def find_failure_spikes(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find task types that fail far more often in the last ten minutes than in the 110 minutes before."""
    del earlier
    for one in snapshot.queues.values():
        if one.info.paused or is_storm(one, thresholds):
            continue
        for task_type, activity in one.activity.items():
            if not _is_spike(activity, thresholds):
                continue
            now, before = activity.recent.failure_ratio or 0.0, activity.before.failure_ratio or 0.0
            yield AttentionFinding(
                "fail_spike",
                one.queue,
                4,
                f"{now:.0%} of the attempts of {visible(task_type)} in {visible(one.queue)} failed in the "
                f"last 10 min ({activity.recent.failed:,}), and {before:.0%} in the 110 min before.",
                build_pause_action(one.queue),
                query_of(one.queue, "state:retry,archived", f"type:{quote_value(task_type)}", "failed:<10m"),
                subject=task_type,
            )


def _is_spike(activity: Activity, thresholds: Thresholds) -> bool:
    now, before = activity.recent.failure_ratio, activity.before.failure_ratio
    if now is None or before is None or activity.before.ended < _LEAST_BEFORE:
        return False
    return (
        activity.recent.failed >= thresholds.spike_least
        and now >= thresholds.spike_share
        and now >= thresholds.spike_factor * before
    )


def find_full_archives(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find nearly full archives, which will soon delete their oldest tasks."""
    del earlier
    most = thresholds.archive_size
    for one in snapshot.queues.values():
        archived = one.info.archived
        if archived < thresholds.archive_share * most:
            continue
        query = query_of(one.queue, "state:archived")
        yield AttentionFinding(
            "archive_full",
            one.queue,
            2,
            f"The archive of {visible(one.queue)} has {counted(archived, 'task')}; "
            f"above {most:,} the oldest ones are deleted.",
            delete_by("Delete archived tasks", query),
            query,
        )
