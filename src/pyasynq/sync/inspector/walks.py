# Generated from src/pyasynq/inspector/walks.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods that iterate over many tasks with a stable cursor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq._broker import inspecting
from pyasynq._broker.queue_registry import queue_names
from pyasynq._checks import check_name

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyasynq._broker.inspecting.collection_sizes import CountedPlace
    from pyasynq._broker.inspecting.walks import Starts
    from pyasynq.info import CollectionCount, ScanFilter, TaskPage
    from pyasynq.task import TaskInfo, TaskState

_START_SECONDS: Final = 1.0
"""Seconds for which start times of active tasks are cached; servers write them every five seconds."""
_PLANS_AT_ONCE: Final = 1_000


class WalkInspector(InspectorBase):
    """Iterates over tasks by cursor, and looks tasks up by id."""

    def walk_tasks(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        cursor: str = "",
        page_size: int = 30,
        scan: int = 1_000,
        scan_filter: ScanFilter | None = None,
    ) -> TaskPage:
        """Return a page of the tasks of one state, the newest first (cursor pagination).

        Pass the `cursor` of a page to get the next one, until it is empty. A task that is in the list all the
        time is found once, whatever comes and goes meanwhile. Pending tasks come in the reverse of the order
        in which they will be taken, active tasks by their start, all other tasks by descending score.

        Args:
            queue: the queue's name.
            state: the tasks' state.
            group: group of aggregating tasks; empty walks through all groups, one after another.
            cursor: cursor of the previous page; empty for the first one.
            page_size: how many tasks to return, 1,000 at most.
            scan: how many positions to look at; a page may have fewer tasks, or none, and a cursor.
            scan_filter: conditions by which Redis skips tasks; None skips none. Only sorted sets have scores.

        Raises:
            InvalidOptionError: also for a cursor that a walk of this list did not return.
        """
        walks = inspecting.walks
        conditions = walks.NO_FILTER if scan_filter is None else scan_filter
        walk = walks.Walk(queue, state, group, cursor, page_size, scan, conditions)
        starts = self._read_starts() if walk.checked_state() == "active" else None
        plan = walks.walk_tasks(walk, now=self._now(), pace=self._pace, starts=starts)
        return self._run_in_steps(plan)

    def _read_starts(self) -> Starts:
        """Return the start times of active tasks, by queue and id; they are cached for a second."""
        # Not the clock of the inspector: a test may have frozen it.
        now = time.monotonic()
        read_at, starts = self._starts
        if now - read_at >= _START_SECONDS:
            starts = self._run(inspecting.walks.read_starts())
            self._starts = now, starts
        return starts

    def find_tasks(
        self,
        task_ids: Iterable[str],
        queues: Collection[str] | None = None,
    ) -> list[TaskInfo]:
        """Look up tasks by their ids, in these queues or in all, with one call for each queue.

        Tasks that cannot be decoded are left out.
        """
        found = queues if queues is not None else self._run(queue_names())
        ids = list(dict.fromkeys(task_ids))
        for task_id in ids:
            check_name("task_id", task_id)
        plans = [inspecting.tasks.find_tasks(queue, ids, now=self._now()) for queue in found] if ids else []
        return [task for tasks in self._run_in_parts(plans, _PLANS_AT_ONCE) for task in tasks]

    def count_collections(
        self, collections: Sequence[tuple[str, TaskState, str, ScanFilter]]
    ) -> list[CollectionCount]:
        """Count the tasks of collections: queue, state, group and filter of each.

        A queue that does not exist has no tasks. Without a group, all groups of a queue are counted together,
        whatever the scores; of more than 5,000 groups the number is an estimate.
        """
        now = self._now()
        place = inspecting.collection_sizes.CountedPlace
        by_queue: dict[str, dict[int, CountedPlace]] = {}
        for at, (queue, state, group, scan_filter) in enumerate(collections):
            by_queue.setdefault(queue, {})[at] = place(state, group, scan_filter)
        count = inspecting.collection_sizes.count_collections
        plans = [count(queue, list(places.values()), now=now) for queue, places in by_queue.items()]
        counts = self._run_in_parts(plans)
        found = {
            at: one
            for places, of_queue in zip(by_queue.values(), counts, strict=True)
            for at, one in zip(places, of_queue, strict=True)
        }
        return [found[at] for at in range(len(collections))]
