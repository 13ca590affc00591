"""The demo's application, as the worker processes import it: one task, which reads one source file."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyasynq import App
from pyasynq.cli.demo.analysis import SourceFacts, analyze_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq import Task

QUEUE: Final = "sources"
_MAX_RETRY: Final = 3
RETRY_DELAY_SECONDS: Final = 3.0
RETENTION_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class MeasuredFile:
    """A task's result, which Redis keeps as JSON."""

    worker_pid: int
    facts: SourceFacts


@asynccontextmanager
async def end_with_the_demo(app: App) -> AsyncIterator[None]:  # noqa: ARG001 - a lifespan takes its app
    """Stop this worker when the demo that started it has ended, for any reason.

    Our standard input is a pipe from the demo, which never writes: end of file means that the demo has ended.
    """
    threading.Thread(target=_stop_at_end_of_input, name="demo-watch", daemon=True).start()
    yield


def _stop_at_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def retry_soon(retried: int, error: BaseException, task: Task) -> float:  # noqa: ARG001 - as RetryDelay has it
    """Return a short retry delay in seconds, so that the viewer of the demo sees the retries."""
    return RETRY_DELAY_SECONDS


app = App(lifespan=end_with_the_demo)


@app.task(
    "source:measure",
    queue=QUEUE,
    max_retry=_MAX_RETRY,
    retention=RETENTION_SECONDS,
    timeout=60,
    retry_delay=retry_soon,
)
def measure(path: str) -> MeasuredFile:
    """Tokenize one source file and return its figures, with the process that did it."""
    return MeasuredFile(os.getpid(), analyze_file(Path(path)))
