"""The search page: what it sends when, how it goes on, and what it says about a query that is wrong."""

from __future__ import annotations

import asyncio
import html
import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest
from click.testing import CliRunner

from pyasynq.cli import main
from pyasynq.task import TaskState
from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import ABROAD, links_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """Failed tasks of two queues, and others."""
    made = Tasks(redis_client, "emails")
    for number in range(120):
        made.put(TaskState.ARCHIVED, f"t{number:03}", score=1_700_000_000 + number, error_msg="504 from API")
    made.put(TaskState.ARCHIVED, "other", error_msg="boom")
    Tasks(redis_client, "mail/2").put(TaskState.RETRY, "r", error_msg="504 from API")
    return made


def rows_of(text: str) -> list[str]:
    """Return the keys of the rows of a page."""
    return [html.unescape(key) for key in re.findall(r'data-row="([^"]*)"', text)]


@run_async
async def test_matches_are_found_newest_first_and_page_by_page(redis_url: str, tasks: Tasks) -> None:
    """Every task is found once; the page says how many it has looked at."""
    async with visiting(redis_url) as visitor:
        address, found = "tasks?q=state:archived error:504", []
        while address:
            page = await visitor.get(address)
            assert 200 == page.status_code
            found += rows_of(page.text)
            following = [link for link in links_of(page.text) if "after=" in link]
            address = (
                urljoin("http://localhost/tasks", following[-1])
                if following and len(rows_of(page.text))
                else ""
            )
        assert [f"emails/t{number:03}" for number in reversed(range(120))] == found
        assert "of 121" in page.text or "121 looked at" in page.text


def test_a_search_is_copied_as_a_program(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It finds the same tasks, whatever quotes the query has."""
    monkeypatch.setenv("PYASYNQ_REDIS_URL", redis_url)
    programs = []

    @run_async
    async def copy() -> None:
        async with visiting(redis_url) as visitor:
            page = await visitor.get("tasks", params={"q": """error:"boom" -type:"it's" """})
            programs.extend(re.findall(r'aria-label="Python program">(.*?)</pre>', page.text, re.DOTALL))

    copy()
    [program] = programs
    exec(html.unescape(program), {})
    assert "emails other\n" == capsys.readouterr().out


@run_async
async def test_the_facets_narrow_the_search(redis_url: str, tasks: Tasks) -> None:
    """States, queues and types of what was found, each a link with one clause more."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("tasks?q=error:504")
        narrower = [
            link for link in links_of(page.text) if "mail" in link and "queue" in link and "tasks?q" in link
        ]
        [link] = {link for link in narrower if link.endswith("queue%3A%22mail%2F2%22")}
        assert ["mail~2F2/r"] == rows_of((await visitor.get(urljoin("http://localhost/tasks", link))).text)


@run_async
async def test_a_task_id_leads_to_the_task(redis_url: str, tasks: Tasks) -> None:
    """The search opens the task directly and walks through no list."""
    async with visiting(redis_url) as visitor:
        assert ["emails/t007"] == rows_of((await visitor.get("tasks?q=id:t007")).text)


@run_async
async def test_a_wrong_query_shows_where_and_the_nearest_right_one(redis_url: str, tasks: Tasks) -> None:
    """Status 400, the part marked, and a link."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("tasks?q=stat:archived")
        assert 400 == page.status_code
        assert "<mark>stat" in page.text
        assert "Do you mean" in page.text


@run_async
async def test_no_match_says_what_was_looked_at(redis_url: str, tasks: Tasks) -> None:
    """The page offers the query without its last clause."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("tasks?q=state:archived error:teapot")
        assert "No task matches" in page.text
        assert "Search without error:teapot" in page.text


@run_async
async def test_a_query_is_completed_and_explained(redis_url: str, tasks: Tasks) -> None:
    """The answer is JSON, with the place where the completion is inserted."""
    async with visiting(redis_url) as visitor:
        answer = (await visitor.get("complete.json?q=sta&caret=3")).json()
        assert "state:" in [offer["insert"] for offer in answer["offers"]]
        assert "explain" in answer
        commands = (await visitor.get("palette.json?q=mail")).json()["commands"]
        assert ["queues/mail~2F2", "queues/emails"] == [one["href"] for one in commands]


@run_async
async def test_a_user_who_may_not_see_payloads_cannot_search_in_them(redis_url: str, tasks: Tasks) -> None:
    """A search would tell what the page withholds."""
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        assert 400 == (await visitor.get("tasks?q=payload:x")).status_code
        assert [] == rows_of((await visitor.get("tasks?q=504")).text)


@pytest.mark.parametrize(
    "query",
    ["state:archived", "-state:pending", 'error:"it\'s full"', "id:a,b state:archived", "payload.n:1"],
)
def test_the_copied_command_runs_and_finds_the_same(
    redis_url: str, redis_client: RedisClient, query: str
) -> None:
    """In a shell, with quotes and with a query that begins with a dash."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", payload=b'{"n": 1}', error_msg="it's full")
    made.pending("p")

    async def copy() -> str:
        async with visiting(redis_url) as visitor:
            page = await visitor.get("tasks", params={"q": query})
            found = re.search(r">(pyasynq [^<]*)</pre>", page.text)
            assert found
            return html.unescape(found[1])

    program, *arguments = shlex.split(asyncio.run(copy()))
    assert "pyasynq" == program
    environment = {"PYASYNQ_REDIS_URL": redis_url}
    result = CliRunner().invoke(main, [arguments[0], "-o", "name", *arguments[1:]], env=environment)
    assert (0, "a\n") == (result.exit_code, result.stdout), result.output
