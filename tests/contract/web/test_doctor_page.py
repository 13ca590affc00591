"""The doctor's page: an examination, its findings, and their repair after a question."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import ABROAD, heading_of, send_form, visiting

if TYPE_CHECKING:
    import httpx

    from tests.invariants import RedisClient

pytestmark = [
    pytest.mark.single_server("one database for all queues"),
    pytest.mark.usefixtures("no_slow_scripts"),
]


async def examined(visitor: httpx.AsyncClient) -> httpx.Response:
    """Return the doctor's page once no examination runs."""
    while True:
        page = await visitor.get("doctor")
        if "looking through all keys" not in page.text:
            return page
        await asyncio.sleep(0.1)


@run_async
async def test_a_healthy_redis_has_no_findings(redis_url: str, redis_client: RedisClient) -> None:
    """The page says when nothing was examined yet, and then that there is no damage."""
    Tasks(redis_client, "emails").pending("p")
    async with visiting(redis_url) as visitor:
        assert "Not examined yet" in (await visitor.get("doctor")).text
        await send_form(visitor, "doctor/examine", {}, page="doctor")
        page = await examined(visitor)
        assert "unserved queue" in page.text or "No damage" in page.text


@run_async
async def test_damage_is_shown_and_repaired_after_a_question(
    redis_url: str, redis_client: RedisClient
) -> None:
    """An id without a task: the finding explains it, the question says what is done, and then it is gone."""
    tasks = Tasks(redis_client, "emails")
    tasks.pending("p")
    redis_client.lpush(tasks.keys.pending, "ghost-1")
    async with visiting(redis_url) as visitor:
        await send_form(visitor, "doctor/examine", {}, page="doctor")
        page = await examined(visitor)
        assert "ghost-1" in page.text
        [link] = re.findall(r'href="\./(doctor/repair\?kind=ghost[^"]*)"', page.text)
        question = await visitor.get(link.replace("&amp;", "&"))
        assert "Repair ghost?" == heading_of(question)
        assert ["ghost-1", "p"] == sorted(tasks.ids("pending"))
        fields = {"kind": "ghost", "queue": "emails"}
        answer = await send_form(visitor, "doctor/repair", fields, page="doctor")
        assert 303 == answer.status_code
        page = await examined(visitor)
        assert "ghost-1" not in page.text
    assert ["p"] == tasks.ids("pending")


@run_async
async def test_an_operator_sees_findings_and_no_repair(redis_url: str, redis_client: RedisClient) -> None:
    """Repairs are for administrators."""
    tasks = Tasks(redis_client, "emails")
    redis_client.sadd("asynq:queues", "emails")
    redis_client.lpush(tasks.keys.pending, "ghost-1")
    async with visiting(redis_url, auth=Everyone("operator"), client=ABROAD) as visitor:
        await send_form(visitor, "doctor/examine", {}, page="doctor")
        page = await examined(visitor)
        assert "ghost-1" in page.text
        assert "doctor/repair" not in page.text
    redis_client.delete(tasks.keys.pending)
