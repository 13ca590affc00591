"""Plans of the inspector: reading and changing queues, tasks, servers and schedulers.

A module is imported when it is first used as an attribute of this package (lazy import): a command needs
only a few of them.
"""

from typing import TYPE_CHECKING

from pyasynq import _lazy_exports

if TYPE_CHECKING:
    from . import (
        actions,
        attempt_counts,
        bulk,
        by_ids,
        cluster,
        collection_sizes,
        group_counts,
        marks,
        pending_places,
        recent_events,
        redis_report,
        removal,
        reports,
        schedulers,
        search,
        servers,
        tasks,
        updates,
        vitals,
        walks,
    )

__all__ = [
    "actions",
    "attempt_counts",
    "bulk",
    "by_ids",
    "cluster",
    "collection_sizes",
    "group_counts",
    "marks",
    "pending_places",
    "recent_events",
    "redis_report",
    "removal",
    "reports",
    "schedulers",
    "search",
    "servers",
    "tasks",
    "updates",
    "vitals",
    "walks",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_exports.attach(__name__, dict.fromkeys(__all__, ""))
