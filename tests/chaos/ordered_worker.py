"""What the workers of `tests.chaos.ordered` run: `python -m tests.chaos.ordered_worker SETTINGS`.

SETTINGS is JSON: the URL, the path of the journal, and fields of the engine's settings (`engine`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from typing import Any, Final, NamedTuple

from pyasynq import App, Queue, ServerConfig, context
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS

QUEUE: Final = "in-order"
# A kill is not a fault of the tasks that it meets.
CRASH_LIMIT: Final = 1_000

app = App()
settings: dict[str, Any] = {}


class Deed(NamedTuple):
    """A line of the journal."""

    what: str
    """`begin`, `fail` or `end`."""
    number: int
    """Numbers of the task, in the order in which they were enqueued."""
    pid: int


def note(what: str, number: int) -> None:
    """Write a line; small appends of processes do not mix."""
    journal = os.open(settings["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, f"{what} {number} {os.getpid()}\n".encode())
    finally:
        os.close(journal)


@app.task("in-order", queue=QUEUE, crash_limit=CRASH_LIMIT)
async def work(number: int, fails: bool, seconds: float) -> None:
    """Fail at the first try if it is told to; last for a while."""
    note("begin", number)
    await asyncio.sleep(seconds)
    if fails and context().retried == 0:
        note("fail", number)
        message = f"the first try of {number} fails"
        raise ValueError(message)
    note("end", number)


def main() -> int:
    """Run a worker until it is told to stop."""
    settings.update(json.loads(sys.argv[1]))
    app.url = settings["url"]
    config = ServerConfig(queues={QUEUE: Queue(ordered=True)}, retry_delay=lambda *_: 0)
    server = app.server(config)
    server._settings = dataclasses.replace(DEFAULT_ENGINE_SETTINGS, **settings["engine"])
    return server.run_forever(app)


if __name__ == "__main__":
    raise SystemExit(main())
