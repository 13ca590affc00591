"""Detectors of backlogs: no server, long waits, many tasks, overdue tasks, stuck groups."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.operations.finding import AttentionFinding, FindingAction

from .common import build_capacity_action, build_worker_action, query_of, to_moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.operations.snapshot import QueueSnapshot, Snapshot
    from pyasynq.operations.thresholds import Thresholds

_SHORTEST_RATE = 120.0
_FAR_ABOVE = 4


def find_unserved_queues(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find queues with pending tasks that no server takes from."""
    del earlier
    served = snapshot.count_servers()
    for one in snapshot.queues.values():
        info, waited = one.info, one.info.latency.total_seconds()
        if one.queue in served or info.paused or not info.pending or waited < thresholds.unserved_after:
            continue
        yield AttentionFinding(
            "no_consumers",
            one.queue,
            5,
            f"No server takes tasks from {visible(one.queue)}, and {counted(info.pending, 'task')} "
            f"{'is' if info.pending == 1 else 'are'} pending, the next one for {duration(waited)}.",
            build_worker_action(one.queue),
            query_of(one.queue, "state:pending"),
            info.timestamp - info.latency,
        )


def get_wait_objective(one: QueueSnapshot, thresholds: Thresholds) -> float:
    """Return the wait objective of a queue: maximum seconds for which its next task may be pending."""
    own = one.vitals.wait_objective if one.vitals else None
    return thresholds.wait_objective if own is None else own


def find_late_queues(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find served queues whose next task has been pending for longer than the queue's objective."""
    del earlier
    served = snapshot.count_servers()
    for one in snapshot.queues.values():
        info, waited = one.info, one.info.latency.total_seconds()
        objective = get_wait_objective(one, thresholds)
        if one.queue not in served or info.paused or waited <= objective:
            continue
        yield AttentionFinding(
            "pending_age",
            one.queue,
            4 if waited > _FAR_ABOVE * objective else 3,
            f"The next task of {visible(one.queue)} has been pending for {duration(waited)}; "
            f"the objective is {duration(objective)}, and {counted(info.pending, 'task')} "
            f"{'is' if info.pending == 1 else 'are'} pending.",
            build_capacity_action(one),
            query_of(one.queue, "state:pending"),
            info.timestamp - info.latency,
        )


def find_backlogs(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find served queues whose pending tasks take too long at the rate of the last ten minutes."""
    del earlier
    served = snapshot.count_servers()
    for one in snapshot.queues.values():
        total, pending = one.total, one.info.pending
        if one.queue not in served or one.info.paused or pending < thresholds.backlog_least:
            continue
        if total.seconds < _SHORTEST_RATE or not total.recent.ended:
            continue
        rate = total.recent.ended / total.seconds
        seconds = pending / rate
        if seconds < thresholds.drain_after:
            continue
        yield AttentionFinding(
            "depth_anomaly",
            one.queue,
            3,
            f"{counted(pending, 'task')} of {visible(one.queue)} are pending, which take "
            f"{duration(seconds)} at the present rate of {_rate_text(rate)}.",
            build_capacity_action(one),
            query_of(one.queue, "state:pending"),
        )


def _rate_text(rate: float) -> str:
    if rate >= 1:
        return f"{rate:,.1f} tasks a second"
    return f"{rate * 60:,.1f} tasks a minute"


def find_past_due(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find overdue scheduled and retry tasks: they are due, and no server has moved them to pending."""
    del earlier, thresholds
    for one in snapshot.queues.values():
        vitals = one.vitals
        if vitals is None or not vitals.late_scheduled + vitals.late_retry:
            continue
        late = vitals.late_scheduled + vitals.late_retry
        first = min(due for due in (vitals.first_scheduled, vitals.first_retry) if due is not None)
        overdue = snapshot.at.timestamp() - first
        yield AttentionFinding(
            "past_due",
            one.queue,
            4,
            f"{counted(late, 'task')} of {visible(one.queue)} {'is' if late == 1 else 'are'} past "
            f"{'its' if late == 1 else 'their'} time, by up to {duration(overdue)}, and no server moves "
            f"{'it' if late == 1 else 'them'} to pending.",
            build_worker_action(one.queue),
            query_of(one.queue, "state:scheduled,retry", "due:past"),
            to_moment(first),
        )


def find_stalled_groups(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find groups that have had no new task for long, and that no server aggregates."""
    del earlier, thresholds
    for one in snapshot.queues.values():
        vitals = one.vitals
        if vitals is None or not vitals.late_groups:
            continue
        groups, tasks = vitals.late_groups, vitals.grouped
        found = counted(groups, "group")
        if vitals.seen_groups < one.info.groups:
            found = f"At least {found}"
        yield AttentionFinding(
            "group_stall",
            one.queue,
            3,
            f"{found} of {visible(one.queue)} with {counted(tasks, 'task')} "
            f"{'is' if groups == 1 else 'are'} not aggregated, although no task has joined for 15 min.",
            FindingAction(
                "Start a worker with an aggregator for the groups",
                command=f"pyasynq worker MODULE:APP --queues {shlex.quote(one.queue)}",
            ),
            query_of(one.queue, "state:aggregating"),
        )
