"""The examples in docs/consumer.md run, one after another, as they stand on the page."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq.errors import AttemptSettledError, LeaseExpiredError, TaskCanceledError, TaskTimeoutError
from pyasynq.events import QueueChanged
from pyasynq.limits import Queue
from tests.factories import Tasks
from tests.fix_consumer import consuming
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq import Task
    from tests.invariants import RedisClient

PAGE = Path(__file__).parents[2] / "docs" / "consumer.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
ERRORS = {
    kind.__name__: kind
    for kind in (AttemptSettledError, LeaseExpiredError, TaskCanceledError, TaskTimeoutError)
}
PROGRAM = """
import asyncio

async def main():
{body}
    return locals()
"""


async def write_report(task: Task) -> str:
    """Be one of the page's two pieces of work."""
    return f"report of {len(task.payload or b'')} bytes"


def resize(payload: bytes) -> bytes:
    """Be the other one, which blocks."""
    if payload == b"broken":
        raise OSError("cannot be read")
    return payload[:1]


async def run(example: str, **names: Any) -> dict[str, Any]:
    """Run an example; return what it has made."""
    exec(PROGRAM.format(body=textwrap.indent(example, "    ")), names)
    made: dict[str, Any] = await names["main"]()
    return made


@run_async
async def test_the_examples_run(redis_url: str, redis_client: RedisClient, tasks: Tasks) -> None:
    """A loop, blocking work, a cancellation, a lease, and its receipt."""
    loop, blocking, queues, cancelled, leasing, finding, crashing, again = EXAMPLES
    reports = Tasks(redis_client, "reports")
    reports.pending("r", retention=60)
    await run(loop.replace("redis://localhost:6379/0", redis_url), write_report=write_report)
    assert b"report of 2 bytes" == reports.fields("r")["result"]
    async with consuming(redis_url) as c:
        tasks.pending("good", retention=60)
        tasks.pending("bad", payload=b"broken")
        await run(blocking, consumer=c.consumer, resize=resize)
        assert b"{" == tasks.fields("good")["result"]
        assert ["bad"] == tasks.ids("retry")
        tasks.pending("quick", retention=60)
        await run(cancelled, consumer=c.consumer, write_report=write_report)
        assert b"report of 2 bytes" == tasks.fields("quick")["result"]
        tasks.pending("slow", timeout=1, retry=0)
        await run(cancelled, consumer=c.consumer, write_report=stuck)
        assert ["slow"] == tasks.ids("archived")
        tasks.pending("far", retention=60)
        [shown] = (await run(leasing, consumer=c.consumer))["answer"]
        assert ("far", "email:deliver") == (shown["id"], shown["type"])
        made = await run(finding, consumer=c.consumer, task_id="far", receipt=shown["receipt"])
        assert made["new_receipt"] != shown["receipt"]
        assert b"result" == tasks.fields("far")["result"]
        made = await run(again, consumer=c.consumer, task_id="far", receipt=shown["receipt"], **ERRORS)
        assert 204 == made["answer"]
        tasks.pending("hard")
        [attempt] = await c.consumer.lease()
        await run(crashing, attempt=attempt)
        assert b"1" == tasks.fields("hard")["x:crashes"]
        await run(queues, consumer=c.consumer, Queue=Queue)
        await c.recorder.wait(QueueChanged, lambda event: event.change == "removed")
        changes = [(event.queue, event.change) for event in c.recorder.of(QueueChanged)]
        assert [("invoices", change) for change in ("added", "changed", "removed")] == changes[:3]


async def stuck(task: Task) -> str:
    """Work that does not end."""
    await asyncio.Event().wait()
    return str(task.type)
