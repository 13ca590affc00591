"""The examples in docs/results.md run against a worker of their own app, and print what they promise."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq._broker.task_events import KINDS, decode_event
from pyasynq.config import ServerConfig
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest

    from tests.invariants import RedisClient

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text("utf-8")
DECLARATION, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@run_async
async def test_the_examples_run(
    redis_url: str, redis_client: RedisClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after another, as they stand on the page."""
    names: dict[str, Any] = {"asyncio": asyncio, "__name__": "reports"}
    exec(DECLARATION.replace("redis://localhost:6379/0", redis_url), names)
    app = names["app"]
    server = app.server(ServerConfig(publish_events=True, shutdown_timeout=5))
    await server.start(app)
    try:
        for example in EXAMPLES:
            code = compile(
                example.replace("redis://localhost:6379/0", redis_url),
                "results.md",
                "exec",
                flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            )
            running = eval(code, names)
            if inspect.isawaitable(running):
                await running
    finally:
        await app.close()
        await server.shutdown()
    printed = capsys.readouterr().out.splitlines()
    assert ["12 pages", "{'pages': 12, 'year': 2026}", """b'{"pages":12,"year":2026}'"""] == printed[:3]
    assert "2 reports" == printed[3]
    assert re.fullmatch(r"archived because of ValueError: no such user \[.*\]", printed[4])
    assert ["succeeded report:make"] * 3 == [line.rpartition(" ")[0] for line in printed[5:8]]
    assert "archived email:deliver" == printed[8].rpartition(" ")[0]


def test_the_page_lists_every_kind_and_shows_an_event_that_can_be_read() -> None:
    """No kind is forgotten, and none is there in vain."""
    table = PAGE.partition("| `kind` | When |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(KINDS) == sorted(kind for row in rows for kind in re.findall(r"`(\w+)`", row))
    [example] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    event = decode_event("default", "1-1", json.dumps(json.loads(example)).encode())
    assert event is not None
    assert ("retried", 0.01, "email:deliver") == (event.kind, event.seconds, event.type)


def test_no_example_is_forgotten() -> None:
    """A page without code would pass."""
    assert 5 == len(EXAMPLES)
