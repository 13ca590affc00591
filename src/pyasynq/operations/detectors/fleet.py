"""Detectors of the fleet: pauses, lost servers, blocked event loops, ignored limits, and lost schedulers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pyasynq._human_text import counted, duration, some
from pyasynq._visible_text import visible
from pyasynq.operations.finding import AttentionFinding, FindingAction

from .common import build_worker_action, query_of, to_moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.operations.snapshot import Snapshot
    from pyasynq.operations.thresholds import Thresholds

_NAMES = 3


def find_long_pauses(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find paused queues with pending tasks, if the pause has lasted long and has no end time."""
    del earlier
    for one in snapshot.queues.values():
        info, since = one.info, one.vitals.paused_since if one.vitals else None
        if not info.paused or info.paused_until or since is None or not info.pending:
            continue
        seconds = snapshot.at.timestamp() - since
        if seconds < thresholds.paused_after:
            continue
        yield AttentionFinding(
            "paused_long",
            one.queue,
            2,
            f"{visible(one.queue)} has been paused for {duration(seconds)}, "
            f"and {counted(info.pending, 'task')} {'is' if info.pending == 1 else 'are'} pending.",
            FindingAction(
                "Resume the queue",
                "resume_queue",
                {"queue": one.queue},
                f"pyasynq queue unpause {shlex.quote(one.queue)}",
            ),
            query_of(one.queue, "state:pending"),
            to_moment(since),
        )


def find_dropped_servers(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find queues that have lost a large share of their servers within the last ten minutes."""
    if earlier is None:
        return
    now = snapshot.count_servers()
    for queue, before in sorted(earlier.count_servers().items()):
        left = now.get(queue, 0)
        if queue not in snapshot.queues or left >= before or left > thresholds.dropped_share * before:
            continue
        seconds = (snapshot.at - earlier.at).total_seconds()
        yield AttentionFinding(
            "consumers_dropped",
            queue,
            4 if left else 5,
            f"{left:,} of {counted(before, 'server')} that took tasks from {visible(queue)} "
            f"{duration(seconds)} ago {'is' if left == 1 else 'are'} left.",
            build_worker_action(queue),
            since=earlier.at,
        )


def find_blocked_loops(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find servers whose event loop is blocked, so that none of their coroutines runs."""
    del earlier
    for server in snapshot.servers:
        blocked = server.loop_blocked.total_seconds() if server.loop_blocked else 0.0
        if blocked < thresholds.blocked_after:
            continue
        yield AttentionFinding(
            "loop_blocked",
            "",
            4,
            f"The event loop of the server at {visible(server.host)}:{server.pid} has been blocked "
            f"for {duration(blocked)}; its log shows the stack.",
            FindingAction(
                "Stop the server; its service manager starts it again",
                "stop_server",
                {"server_id": server.id},
                f"pyasynq server stop {shlex.quote(server.id)}",
            ),
            since=snapshot.at - server.loop_blocked if server.loop_blocked else None,
            subject=server.id,
            queues=tuple(server.queues),
        )


def find_ignored_limits(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find servers in Go that take tasks from queues with limits, which Asynq ignores."""
    del earlier, thresholds
    limited = {one.queue for one in snapshot.queues.values() if one.info.limits}
    limited |= {queue for server in snapshot.servers for queue, limits in server.limits.items() if limits}
    for queue in sorted(limited):
        foreign = [server for server in snapshot.servers if not server.engine and queue in server.queues]
        if not foreign:
            continue
        names = some((f"{server.host}:{server.pid}" for server in foreign), _NAMES)
        yield AttentionFinding(
            "limits_ignored",
            queue,
            4,
            f"{counted(len(foreign), 'server')} in Go ({names}) {'takes' if len(foreign) == 1 else 'take'} "
            f"tasks from {visible(queue)} and {'ignores' if len(foreign) == 1 else 'ignore'} its limits.",
            FindingAction("Stop serving the queue in Go"),
            query_of(queue, "state:active"),
        )


def find_gone_schedulers(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find schedules with a recent last tick that no scheduler runs any more."""
    del earlier
    if snapshot.entries:
        return
    now = snapshot.at.timestamp()
    for one in snapshot.queues.values():
        ticks = [tick for tick in one.last_ticks.values() if now - thresholds.ticks_within <= tick <= now]
        if not ticks:
            continue
        yield AttentionFinding(
            "scheduler_gone",
            one.queue,
            4,
            f"No scheduler runs; {counted(len(ticks), 'schedule')} of {visible(one.queue)} last fired "
            f"{duration(now - max(ticks))} ago.",
            FindingAction("Start a scheduler", command="pyasynq scheduler MODULE:APP"),
            since=to_moment(max(ticks)),
        )
