"""The examples in docs/inspector.md run, and print what they promise."""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq.config import ServerConfig
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.fix_engine import Gate, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest

    from tests.fix_replica import Replicated
    from tests.invariants import RedisClient

PAGE = Path(__file__).parents[2] / "docs" / "inspector.md"
FIRST, *EXAMPLES, REPLICA = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
PROGRAM = """
from datetime import UTC, datetime, timedelta
from pyasynq import Inspector

async def main():
{body}
"""


@run_async
async def test_the_examples_run(
    redis_url: str, redis_client: RedisClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after another, as they stand on the page."""
    emails = Tasks(redis_client, "emails")
    emails.put(TaskState.SCHEDULED, "welcome-1", "welcome-2", "welcome-3", "welcome-4")
    emails.put(TaskState.RETRY, "welcome-5", "welcome-6")
    emails.put(TaskState.ARCHIVED, "old", error_msg="timeout after 30 s")
    gate = Gate()
    async with serving(redis_url, gate, ServerConfig(queues={"reports": 1})) as running:
        await running.client.enqueue("report", task_id="report-7", queue="reports")
        await gate.begun.wait()
        for example in (FIRST, *EXAMPLES):
            await run(example, redis_url)
    printed = capsys.readouterr().out
    for expected in (
        "emails: 0 pending, 1 archived, latency 0:00:00",
        "old timeout after 30 s",
        "     1 x timeout after <n> s  {'email:deliver': 1}",
        "ended archived",
        "2 of 2",
        "requested",
        "welcome-9: there is no such task",
    ):
        assert expected in printed.splitlines()
    assert {b"reports"} == redis_client.smembers("asynq:queues")


@run_async
async def test_the_example_about_replicas_runs(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs a server of its own."""
    replicated.add_replica()
    await run(REPLICA, replicated.replica_url())
    assert datetime.fromisoformat(capsys.readouterr().out.strip()) <= datetime.now(UTC)


async def run(example: str, url: str) -> None:
    """Run an example; all but the first use its inspector."""
    example = example.replace("redis://localhost:6379/0", url)
    if "Inspector(" not in example:
        example = f'async with Inspector("{url}") as inspector:\n' + textwrap.indent(example, "    ")
    names: dict[str, object] = {}
    exec(PROGRAM.format(body=textwrap.indent(example, "    ")), names)
    await names["main"]()  # type: ignore[operator]


def test_no_example_is_forgotten() -> None:
    """A page without code would pass."""
    assert 11 == len(EXAMPLES)
