"""What the workers of `tests.chaos.kill` run: short tasks, half of them coroutines, half in threads."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq import App, context

if TYPE_CHECKING:
    from pathlib import Path

QUEUE: Final = "chaos"
JOURNAL_VARIABLE: Final = "CHAOS_JOURNAL"
RETENTION_SECONDS: Final = 3600
# A kill is no fault of the tasks that it meets, so meeting three must not archive one.
CRASH_LIMIT: Final = 1_000

app = App()


def _note(what: str) -> None:
    """Write down that this task has begun or ended; small appends of processes do not mix."""
    journal = os.open(os.environ[JOURNAL_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, f"{what} {context().task_id}\n".encode())
    finally:
        os.close(journal)


class Journal(NamedTuple):
    """How often the handler of each task has begun, and how often it has come to its end."""

    begun: Counter[str]
    ended: Counter[str]


def read_journal(path: Path) -> Journal:
    """Return what the handlers have written down."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return Journal(
        *(Counter(task_id for what, task_id in lines if what == name) for name in ("begin", "end"))
    )


@app.task("chaos:coroutine", queue=QUEUE, retention=RETENTION_SECONDS, max_retry=0, crash_limit=CRASH_LIMIT)
async def work_in_loop(milliseconds: int) -> None:
    """Wait as for a slow service."""
    _note("begin")
    await asyncio.sleep(milliseconds / 1000)
    _note("end")


@app.task("chaos:thread", queue=QUEUE, retention=RETENTION_SECONDS, max_retry=0, crash_limit=CRASH_LIMIT)
def work_in_thread(milliseconds: int) -> None:
    """Wait as for a slow service, without asyncio."""
    _note("begin")
    time.sleep(milliseconds / 1000)
    _note("end")
