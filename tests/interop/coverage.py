"""What the drawn sequences have reached."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.interop.places import ROWS, rows_of

if TYPE_CHECKING:
    from tests.interop.places import Place, Task
    from tests.interop.steps import Step

LEAST_OF_AN_OPERATION = 50
LEAST_OF_A_ROW = 20

OPERATIONS = [
    "enqueue",
    "take",
    "finish",
    "stop",
    "cancel",
    "wait",
    "forward",
    "recover",
    "delete_expired",
    "aggregate",
    "run_task",
    "archive_task",
    "delete_task",
    "update_payload",
    "task_info",
    "list_tasks",
    "run_all",
    "archive_all",
    "delete_all",
    "pause_queue",
    "unpause_queue",
    "remove_queue",
    "new_client",
    "queue_info",
    "history",
    "groups",
    "queues",
]


class Coverage:
    """Counts sequences, operations, and transitions of tasks."""

    def __init__(self) -> None:
        self.sequences = 0
        self.operations: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()

    def step(self, step: Step, before: dict[Task, Place], after: dict[Task, Place]) -> None:
        """Count a step and what it moved."""
        self.operations[step.operation] += 1
        self.rows.update(rows_of(step, before, after))

    def report(self) -> str:
        """Return all counts, a line each."""
        lines = [f"{self.sequences} sequences, {self.operations.total()} steps"]
        lines += [f"  {self.operations[name]:6} {name}" for name in OPERATIONS]
        lines += [f"  {self.rows[row.name]:6} {row.name}" for row in ROWS]
        return "\n".join(lines)

    def shortfalls(self) -> list[str]:
        """Return what was reached too seldom."""
        few = [name for name in OPERATIONS if self.operations[name] < LEAST_OF_AN_OPERATION]
        return few + [row.name for row in ROWS if self.rows[row.name] < LEAST_OF_A_ROW]
