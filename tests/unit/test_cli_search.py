"""Output of a search while it goes on, and when it is interrupted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq.cli import search
from pyasynq.cli.operator_command import Session
from pyasynq.cli.output.printer import Printer
from pyasynq.cli.search import show_search
from pyasynq.operations.selection import Facets, Selection
from pyasynq.task import TaskInfo, TaskState
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def archived(task_id: str) -> TaskInfo:
    """Return an archived task."""
    zero = timedelta(0)
    return TaskInfo(task_id, "mail", "send", b"", TaskState.ARCHIVED, 25, 25, None, None, None, zero)


class Search:
    """An operator whose search goes on when the test says so."""

    def __init__(self, *found: int) -> None:
        self.go_on = asyncio.Event()
        self._found = found

    async def search(self, _query: str, **_options: object) -> AsyncIterator[Selection]:
        """Yield one selection for each number of tasks, then wait, then yield the last one."""
        matches = 0
        for count in self._found:
            tasks = tuple(archived(f"task-{matches + at}") for at in range(count))
            matches += count
            yield Selection(tasks, "CURSOR", matches, 1_000, 9_000, Facets({}, {}, {}), is_last=False)
        await self.go_on.wait()
        yield Selection((), "", matches, 9_000, 9_000, Facets({}, {}, {}), is_last=True)


def begin_search(operator: Search, output: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    """Start a search that prints what it has at its first chance."""
    monkeypatch.setattr(search, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(search, "_LEAST_SECONDS", 0.0)
    session = Session(cast("Any", operator), cast("Any", None), Printer(output))
    return asyncio.ensure_future(show_search(session, "error:x", "", 50))


async def read_until(capsys: pytest.CaptureFixture[str], text: str) -> tuple[str, str]:
    """Return what was printed to stdout and stderr, when it contains a text."""
    out = err = ""
    while text not in out + err:
        await asyncio.sleep(0)
        more = capsys.readouterr()
        out, err = out + more.out, err + more.err
    return out, err


@pytest.mark.parametrize("output", ["table", "jsonl", "name"])
@run_async
async def test_found_tasks_are_printed_while_the_search_goes_on(
    output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest, and the extent of the search, come at the end."""
    operator = Search(1)
    running = begin_search(operator, output, monkeypatch)
    await read_until(capsys, "task-0")
    assert not running.done()
    operator.go_on.set()
    await running
    assert ("", "1 match in all 9,000 looked at.\n") == capsys.readouterr()


@run_async
async def test_a_search_that_has_found_nothing_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data is only on stdout, so a pipe gets nothing of it."""
    operator = Search()
    running = begin_search(operator, "table", monkeypatch)
    assert "" == (await read_until(capsys, "still searching"))[0]
    operator.go_on.set()
    await running
    assert ("", "No tasks.\n0 matches in all 9,000 looked at.\n") == capsys.readouterr()


@pytest.mark.parametrize(("output", "has_rows"), [("table", True), ("csv", True), ("json", False)])
@run_async
async def test_an_interrupted_search_prints_what_it_has_and_how_to_go_on(
    output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, has_rows: bool
) -> None:
    """JSON is not printed, because a part would be taken for all."""
    running = begin_search(Search(1), output, monkeypatch)
    for _ in range(9):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    out, err = capsys.readouterr()
    assert has_rows == ("task-0" in out)
    assert "1 match in 1,000 of 9,000 looked at." in err
    assert "Go on with  --all, or  --cursor CURSOR\n" in err
