"""docs/doctor.md lists every finding, and its example runs."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.doctor._findings import DESCRIPTIONS
from tests.contract.damages import DAMAGES
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.invariants import RedisClient

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")


def test_the_table_lists_every_finding() -> None:
    """The page describes each finding in the same words as the doctor."""
    rows = re.findall(r"^\| `(\w+)` \| (error|warning|notice) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (kind.value, severity.value, explanation, repair or "nothing")
        for kind, (severity, explanation, repair) in DESCRIPTIONS.items()
    ]


@pytest.mark.usefixtures("no_slow_scripts")
@run_async
async def test_the_example_repairs_what_it_finds(
    redis_client: RedisClient, redis_url: str, tasks: Tasks, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example on the page also prints the findings that are bad."""
    tasks.pending("a")
    redis_client.rpush(tasks.keys.pending, "ghost")
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {"url": redis_url}
    body = textwrap.indent(example.replace("Doctor(url)", "Doctor(url, pause=0)"), "    ")
    exec(f"async def main():\n{body}", scope)
    await scope["main"]()
    assert "default ghost ('ghost',)\n" == capsys.readouterr().out
    assert ["a"] == tasks.ids("pending")


def test_the_table_of_invariants_names_every_kind_that_concerns_tasks_and_real_damages() -> None:
    """Some kinds are not invariants: servers of a queue, records of servers, and Redis itself."""
    table = PAGE[PAGE.index("| Invariant | Finding |") : PAGE.index("## Why it is safe")]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][1:]
    named: set[str] = set()
    for _, kinds, _, makers in rows:
        found = set(re.findall(r"`(\w+)`", kinds))
        made = {DAMAGES[name].kind for name in re.findall(r"`(\w+)`", makers)}
        assert made <= found, makers
        named |= found
    others = {
        *("endless_record", "removed_queue", "unserved_queue", "limits_ignored", "dead_server"),
        *(
            "unserved_type",
            "old_history",
            "eviction",
            "clock_skew",
            "slow_script",
            "future_tick",
            "wrong_type",
        ),
    }
    assert {kind.value for kind in DESCRIPTIONS} - others == named
