"""The examples in docs/limits.md run, and do what the page says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyasynq
from pyasynq import App, Inspector, SemaphoreFullError, Task
from pyasynq._wire.keys import queue_keys
from pyasynq.events import Outcome
from tests.cluster_client import client_of
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")
CONFIG, END_OF_ORDER, CHANGES, SHOWN, SEMAPHORE, NO_FAILURE = re.findall(
    r"```python\n(.*?)```", PAGE, re.DOTALL
)


async def run(example: str, **names: Any) -> dict[str, Any]:
    """Run an example in which these names mean something; return what it defines."""
    body = textwrap.indent(f"{example}\nreturn locals()", "    ")
    scope = {name: getattr(pyasynq, name) for name in pyasynq.__all__} | {"asyncio": asyncio} | names
    exec(f"async def main():\n{body}", scope)
    defined: dict[str, Any] = await scope["main"]()
    return defined


@run_async
async def test_limits_are_set_and_shown(redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration, the override, and what inspectors show of both."""
    config = (await run(CONFIG))["config"]
    assert {"default": 1, "deliver": 3, "mail": 1, "export": 1, "ledger": 1} == config.priorities
    async with serving(redis_url, do_nothing, config) as running, Inspector(redis_url) as inspector:
        await running.next_round("heartbeater")
        await running.client.enqueue("t", queue="mail", task_id="a")
        await running.finished("a")
        await running.settled()
        one, two, three = CHANGES.splitlines()
        await run(f"{one}\n{two}", inspector=inspector)
        await run(SHOWN, inspector=inspector)
        await run(three, inspector=inspector)
        await run(SHOWN, inspector=inspector)
    server = f"{running.server.id} asks for: rate 50/1s, burst 10"
    stored = ["stored: max_run 2, rate 10/1s, burst 1", "stored: nothing"]
    assert [stored[0], server, stored[1], server] == capsys.readouterr().out.splitlines()


@run_async
async def test_the_semaphore_lets_its_limit_in_and_refuses_the_others(redis_url: str) -> None:
    """A task that is refused spends no retry, as the page promises."""
    config = (await run(NO_FAILURE))["config"]
    assert callable(config.retry_delay)
    assert 5.0 == config.retry_delay(0, SemaphoreFullError("renderer", 4), Task("render"))
    app = App(redis_url)
    source = SEMAPHORE.replace("redis://localhost:6379/0", redis_url)
    defined = await run(source, app=app)
    semaphore = defined["semaphore"]
    queues = app.default_queues()
    async with serving(redis_url, app, replace(config, queues=queues)) as running:
        for page in range(8):
            await running.client.enqueue(defined["render"].task(page), task_id=str(page))
        events = [await running.finished(str(page)) for page in range(8)]
        await running.settled()
    await semaphore.close()
    outcomes = {event.outcome for event in events}
    assert Outcome.SUCCEEDED in outcomes
    assert outcomes <= {Outcome.SUCCEEDED, Outcome.RETRIED}
    assert {0} == {event.retried for event in events}


@run_async
async def test_an_order_is_ended(redis_url: str) -> None:
    """The inspector's word wins over that of a server, until it is taken back."""
    ledger = queue_keys("ledger").limits
    ended, taken_back = END_OF_ORDER.splitlines()
    with client_of(redis_url) as client:
        async with (
            Inspector(redis_url) as inspector,
            serving(redis_url, do_nothing, (await run(CONFIG))["config"]) as running,
        ):
            await running.client.enqueue("t", queue="ledger", task_id="a")
            await running.finished("a")
            await running.settled()
            assert b"1" == client.hget(ledger, "ordered")
            await run(ended, inspector=inspector)
            await running.client.enqueue("t", queue="ledger", task_id="b")
            await running.finished("b")
            await running.settled()
            assert b"0" == client.hget(ledger, "ordered")
            await run(taken_back, inspector=inspector)
            for task_id in "cd":
                await running.client.enqueue("t", queue="ledger", task_id=task_id)
                await running.finished(task_id)
            await running.settled()
            assert b"1" == client.hget(ledger, "ordered")
