"""What the workers of `tests.chaos.kill` run: short tasks, half of them coroutines, half in threads."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

from pyasynq import App, context

if TYPE_CHECKING:
    from pathlib import Path

QUEUE: Final = "chaos"
JOURNAL_VARIABLE: Final = "CHAOS_JOURNAL"
RETENTION_SECONDS: Final = 3600
# A kill is no fault of the tasks that it meets, so meeting three must not archive one.
CRASH_LIMIT: Final = 1_000

app = App()


def _note() -> None:
    """Write down that this task's handler has come to its end; small appends of processes do not mix."""
    journal = os.open(os.environ[JOURNAL_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, f"{context().task_id}\n".encode())
    finally:
        os.close(journal)


def read_journal(path: Path) -> list[str]:
    """Return the id of each run of a handler that came to its end."""
    return path.read_text().splitlines()


@app.task("chaos:coroutine", queue=QUEUE, retention=RETENTION_SECONDS, max_retry=0, crash_limit=CRASH_LIMIT)
async def work_in_loop(milliseconds: int) -> None:
    """Wait as for a slow service."""
    await asyncio.sleep(milliseconds / 1000)
    _note()


@app.task("chaos:thread", queue=QUEUE, retention=RETENTION_SECONDS, max_retry=0, crash_limit=CRASH_LIMIT)
def work_in_thread(milliseconds: int) -> None:
    """Wait as for a slow service, without asyncio."""
    time.sleep(milliseconds / 1000)
    _note()
