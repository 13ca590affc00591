"""docs/query.md: its table is that of the code, its queries can be read, and its program runs."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import QueryError
from pyasynq.operations.query import FIELDS, parse_query
from pyasynq.task import TaskState
from tests.run_async import run_async
from tools.generate_query_page import page_with_table

if TYPE_CHECKING:
    from tests.factories import Tasks

PAGE = (Path(__file__).parents[2] / "docs" / "query.md").read_text("utf-8")
SHOWN = re.findall(r"`(-?[a-z_.]+:[^`…]+|timeout|\(a OR b\) c|type:image [^`]+)`", PAGE.replace("\\|", "|"))


def test_the_table_has_the_fields_of_the_code() -> None:
    """`make sync` writes it."""
    assert PAGE == page_with_table(PAGE)


@pytest.mark.parametrize("field", FIELDS)
def test_the_example_of_a_field_uses_it(field: str) -> None:
    """The example is a valid query that names its field and no other."""
    assert {field} == parse_query(FIELDS[field].example).fields


@pytest.mark.parametrize("query", sorted({one for one in SHOWN if not one.endswith((":", "sig:"))}))
def test_the_queries_on_the_page_can_be_read(query: str) -> None:
    """Each query on the page is valid exactly as it is printed."""
    parse_query(query)


def test_the_refusal_on_the_page_is_that_of_the_code() -> None:
    """The printed error marks the same place in the query."""
    query, mark = re.findall(r"```\n(state:pending .*)\n(.*)\n```", PAGE)[0]
    with pytest.raises(QueryError) as error:
        parse_query(query)
    assert mark == " " * error.value.position + "^ " + error.value.sentence


@run_async
async def test_the_program_on_the_page_runs(
    redis_url: str, tasks: Tasks, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the explanation, the tasks, and how far it came."""
    tasks.put(TaskState.ARCHIVED, "a", error_msg="timeout")
    tasks.put(TaskState.ARCHIVED, "b", error_msg="refused")
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    program = program.replace("redis://localhost:6379/0", redis_url)
    scope: dict[str, Any] = {}
    exec(f"async def main():\n{textwrap.indent(program, '    ')}", scope)
    await scope["main"]()
    explained, *printed = capsys.readouterr().out.splitlines()
    assert explained.startswith("Looks at 2 tasks in 1 collection")
    assert ["default a timeout", "1 match in all 2 looked at"] == printed
