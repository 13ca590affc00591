"""Rendering of the demo's state as text: one line for a pipe, several lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.cli.demo.text import WIDTH, shorten
from pyasynq.cli.output.progress import bar, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.cli.demo.progress import DemoState, LeaseView, WorkerView

_FULL_LEASE_SECONDS: Final = 30
_SHOWN_LEASES: Final = 8


def plain_line(snapshot: DemoState) -> str:
    """Format the demo's state as one line of at most 80 columns."""
    queue = snapshot.queue
    line = (
        f"{snapshot.elapsed:5.1f} s {percent(snapshot.share):>5}  done {queue.completed:,}  "
        f"pending {queue.pending:,}  active {queue.active}  retry {queue.retry}"
    )
    if snapshot.leases:
        longest = max(lease.seconds_left for lease in snapshot.leases)
        left = f"{longest:.0f} s left" if longest > 0 else "over"
        return f"{line}  leases {len(snapshot.leases)}, {left}"[:WIDTH]
    return f"{line}  {snapshot.rate:,.0f} tasks/s"[:WIDTH]


def picture(snapshot: DemoState) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) pairs of the live view; kinds: progress, states, worker, dead, lease."""
    queue = snapshot.queue
    done = f"{snapshot.finished:,} of {snapshot.total:,}"
    figures = f"{percent(snapshot.share):>4}  {done}  {snapshot.rate:,.0f} tasks/s"
    yield "progress", f"{bar(snapshot.share, WIDTH - len(figures) - 3)} {figures}"
    yield (
        "states",
        (
            f"pending {queue.pending:,}  active {queue.active}  retry {queue.retry}  "
            f"completed {queue.completed:,}  archived {queue.archived}"
        ),
    )
    # The killed worker last, because its leases follow.
    for worker in sorted(snapshot.workers, key=lambda worker: worker.killed_for is not None):
        yield ("worker" if worker.killed_for is None else "dead"), worker_line(worker)
    for lease in snapshot.leases[:_SHOWN_LEASES]:
        yield "lease", lease_line(lease)
    if len(snapshot.leases) > _SHOWN_LEASES:
        yield "lease", f"  and {len(snapshot.leases) - _SHOWN_LEASES} more"


def worker_line(worker: WorkerView) -> str:
    """Format a worker process as one line of the live view."""
    held = f"{worker.running} task" + ("" if worker.running == 1 else "s")
    if worker.killed_for is None:
        return f"{worker.name}  pid {worker.pid}  running {held}"
    if worker.running:
        return f"{worker.name}  pid {worker.pid}  killed {worker.killed_for:.0f} s ago, {held} in its name:"
    return f"{worker.name}  pid {worker.pid}  killed {worker.killed_for:.0f} s ago, its tasks are recovered"


def lease_line(lease: LeaseView) -> str:
    """Format a lease that is no longer renewed as one line of the live view."""
    left = f"{lease.seconds_left:3.0f} s left" if lease.seconds_left > 0 else "over, to be recovered"
    return f"  {shorten(lease.name, 36):<36}  {bar(lease.seconds_left / _FULL_LEASE_SECONDS, 15)}  {left}"
