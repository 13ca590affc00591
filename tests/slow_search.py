"""The command line; its searches find SLOW_SEARCH_FINDS tasks, then go on until SLOW_SEARCH_UNTIL exists."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq.cli import main, search
from pyasynq.operations.selection import Facets, Selection
from pyasynq.task import TaskInfo, TaskState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LOOK_SECONDS = 0.01


def archived(task_id: str) -> TaskInfo:
    """Return an archived task."""
    zero = timedelta(0)
    return TaskInfo(task_id, "mail", "send", b"", TaskState.ARCHIVED, 25, 25, None, None, None, zero)


async def search_slowly(*_: object, **_options: object) -> AsyncIterator[Selection]:
    """Yield some tasks, then nothing new twice, then wait for the file, and yield one task more."""
    count = int(os.environ["SLOW_SEARCH_FINDS"])
    has_ended = Path(os.environ["SLOW_SEARCH_UNTIL"]).exists
    tasks = tuple(archived(f"task-{number}") for number in range(count))
    none = Facets({}, {}, {})
    yield Selection(tasks, "CURSOR", count, 1_000, 9_000, none, is_last=False)
    while not has_ended():
        await asyncio.sleep(_LOOK_SECONDS)
        yield Selection((), "CURSOR", count, 2_000, 9_000, none, is_last=False)
    yield Selection((archived("last-task"),), "", count + 1, 9_000, 9_000, none, is_last=True)


if __name__ == "__main__":
    search._search = search_slowly
    main()
