"""docs/operations.md and docs/permissions.md: their tables are those of the code, and their programs run."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq.operations.operation import PERMISSION_OF_ACT, STATES_OF_ACT, Act
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.run_async import run_async
from tools.generate_permissions_page import page_with_tables

if TYPE_CHECKING:
    import pytest

    from tests.invariants import RedisClient

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text("utf-8")
PERMISSIONS = (DOCS / "permissions.md").read_text("utf-8")


def program_of(page: str, redis_url: str) -> str:
    """Return all programs of a page as the body of one function, in their order."""
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    body = "\n".join(programs).replace("redis://localhost:6379/0", redis_url)
    return f"async def main():\n{textwrap.indent(body, '    ')}"


@run_async
async def test_the_programs_about_operations_run(
    redis_url: str,
    redis_client: RedisClient,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after another, as they stand on the page; what they print is what they did."""
    monkeypatch.chdir(tmp_path)
    mails, reports, invoices, news = (
        Tasks(redis_client, queue) for queue in ("mails", "reports", "invoices", "newsletter")
    )
    mails.put(TaskState.ARCHIVED, "m1", "m2", type="email:welcome", error_msg="timeout")
    mails.put(TaskState.ARCHIVED, "m3", type="email:welcome", error_msg="refused")
    reports.put(TaskState.ARCHIVED, "r1", "r2", "r3")
    invoices.pending("i1", "i2")
    news.put(TaskState.ARCHIVED, "n1")
    scope: dict[str, Any] = {}
    body = program_of(PAGE, redis_url) + "\n    await operator.close()\n"
    exec(body, scope)
    await scope["main"]()
    assert [
        "2 tasks, exact: True",
        "2 of email:welcome in mails are archived",
        "done: 2 done, 0 left out",
        "3 reports are due within 30 minutes",
        "can be put back: 1",
        "back: 1",
        "2 tasks are in invoices-slow",
        "0 enqueued, 1 there already",
        "0 enqueued, 1 there already",
        ": old campaign (done)",
        "failed mails: state:archived type:email:*",
    ] == [re.sub(r"^\S+@\S+ start_operation", "", line) for line in capsys.readouterr().out.splitlines()]
    assert (["m1", "m2"], ["n1"]) == (sorted(mails.ids("pending")), news.ids("archived"))
    exported = [json.loads(line)["id"] for line in (tmp_path / "invoices.jsonl").read_text().splitlines()]
    assert ["i1", "i2"] == sorted(exported)


@run_async
async def test_the_program_about_permissions_runs(
    redis_url: str, redis_client: RedisClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator sees the queues that match."""
    for queue in ("team-a", "mail", "payments"):
        Tasks(redis_client, queue).pending("p")
    scope: dict[str, Any] = {}
    exec(program_of(PERMISSIONS, redis_url), scope)
    await scope["main"]()
    assert "['mail', 'team-a']\n" == capsys.readouterr().out


def test_the_tables_of_permissions_are_those_of_the_code() -> None:
    """`make sync` writes them."""
    assert PERMISSIONS == page_with_tables(PERMISSIONS)


def test_the_table_of_acts_names_each_act_with_its_permission() -> None:
    """Undo is started in a way of its own."""
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \| `([\w.]+)`.* \|$", PAGE, re.MULTILINE)
    assert [(act.value, PERMISSION_OF_ACT[act].value) for act in Act if act is not Act.UNDO] == [
        (act, permission) for act, _, permission in rows
    ]
    for act, states, _ in rows:
        named = {state for state in TaskState if state.value in states.partition(";")[0]}
        assert "all" in states or named == STATES_OF_ACT[Act(act)], act
