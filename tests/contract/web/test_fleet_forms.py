"""Forms of servers and schedules, and forms that edit one task."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pytest

from pyasynq._wire.keys import server_request_key
from pyasynq._wire.messages import decode_task_message
from pyasynq.operations.redaction import MASK
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop import announce_schedules, announce_servers, announce_types
from tests.visiting import heading_of, hidden_value, send_form, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")
_ENTRY = "schedules/entry-cart.remind"


@run_async
async def test_a_server_is_quieted_and_stopped_after_a_question(
    redis_url: str, redis_client: RedisClient
) -> None:
    """One in Go reads no requests, and the page says so."""
    announce_servers(redis_url)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("servers/server-1")).text
        assert "servers/server-1/quiet_server" in page
        question = await visitor.get("servers/server-1/stop_server")
        assert "Stop worker-1:3900?" == heading_of(question)
        for path, said in (
            ("servers/server-1/stop_server", "The server was asked."),
            ("servers/server-4/quiet_server", "It is a server in Go"),
        ):
            answer = await send_form(visitor, path, {"reason": "test"})
            assert 303 == answer.status_code
            assert said in (await visitor.get(path.rpartition("/")[0])).text
        assert 404 == (await visitor.get("servers/none/stop_server")).status_code
        assert 400 == (await visitor.get("servers/server-1/dance")).status_code
        assert "stop server" in (await visitor.get("audit")).text


@run_async
async def test_all_servers_of_a_version_are_stopped_after_a_question(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Their number has to be typed; others are asked for nothing."""
    announce_servers(redis_url)
    path, versions = "server-versions/stop_servers", "version=2026.11.2&engine_version=0.1.0"
    async with visiting(redis_url) as visitor:
        every = html.unescape((await visitor.get("servers")).text)
        assert f"servers?{versions}" in every
        assert "Stop all…" not in every
        page = html.unescape((await visitor.get(f"servers?{versions}")).text)
        assert f"{path}?{versions}" in page
        assert ("worker-2:3901" in page, "worker-3:3902" in page) == (True, False)
        question = await visitor.get(f"{path}?{versions}")
        assert "Stop 2 servers of version 2026.11.2 on pyasynq 0.1.0?" == heading_of(question)
        for confirm, status in (("1", 400), ("all", 400), ("2", 303)):
            assert [] == redis_client.keys("asynq:x:ask:*")
            fields = {
                "version": "2026.11.2",
                "engine_version": "0.1.0",
                "confirm": confirm,
                "reason": "leaks",
            }
            answer = await send_form(visitor, path, fields, page=f"{path}?{versions}")
            assert status == answer.status_code
        asked = [server_request_key(f"server-{number}").encode() for number in (1, 2)]
        assert asked == sorted(redis_client.keys("asynq:x:ask:*"))
        assert "2 servers were asked." in (await visitor.get("servers")).text
        assert "leaks" in (await visitor.get("audit")).text
        assert 404 == (await visitor.get(f"{path}?version=2025.1")).status_code
        assert 400 == (await visitor.get(path)).status_code


@run_async
async def test_a_schedule_is_paused_resumed_and_run(redis_url: str, redis_client: RedisClient) -> None:
    """The page of what was enqueued follows a run."""
    announce_schedules(redis_client)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get(_ENTRY)).text
        assert "Run now…" in page
        await send_form(visitor, f"{_ENTRY}/pause_schedule", {})
        assert 'class="note' in (await visitor.get(_ENTRY)).text
        await send_form(visitor, f"{_ENTRY}/resume_schedule", {}, page=f"{_ENTRY}/run_schedule")
        answer = await send_form(visitor, f"{_ENTRY}/run_schedule", {"reason": "test"})
        assert 303 == answer.status_code
        task_page = answer.headers["location"].removeprefix("../../")
        assert "The task was enqueued." in (await visitor.get(task_page)).text
        question = await visitor.get(f"{_ENTRY}/run_schedule")
        key = {"request_key": hidden_value(question.text, "request_key")}
        sent = [await send_form(visitor, f"{_ENTRY}/run_schedule", key) for _ in range(2)]
        assert sent[0].headers["location"] == sent[1].headers["location"] != answer.headers["location"]
        assert 404 == (await visitor.get("schedules/none/run_schedule")).status_code


@run_async
async def test_a_task_is_rescheduled(redis_url: str, redis_client: RedisClient) -> None:
    """A time that is none stays in the form, with its error."""
    tasks = Tasks(redis_client, "emails")
    tasks.put(TaskState.SCHEDULED, "s", score=4_000_000_000)
    path = "queues/emails/tasks/s/reschedule_task"
    async with visiting(redis_url) as visitor:
        assert "reschedule_task" in (await visitor.get("queues/emails/tasks/s")).text
        wrong = await send_form(visitor, path, {"value": "tomorrow", "reason": "a & b"})
        assert (400, True) == (wrong.status_code, 'value="tomorrow"' in wrong.text)
        assert 'value="a &amp; b"' in wrong.text
        right = await send_form(visitor, path, {"value": "2100-01-01T00:00:00"})
        assert 303 == right.status_code
    assert {"s": 4_102_444_800} == tasks.scores("scheduled")


@run_async
async def test_a_payload_is_edited(redis_url: str, redis_client: RedisClient) -> None:
    """It has to fit the schema of its type; the mask of a secret is not written."""
    announce_types(redis_url)
    tasks = Tasks(redis_client, "shipping-labels")
    old = b'{"order_id": 1, "recipient": "Ada", "items": []}'
    tasks.put(TaskState.RETRY, "r", type="label.print", payload=old, error_msg="x", last_failed_at=1)
    path = "queues/shipping-labels/tasks/r/edit_payload"
    async with visiting(redis_url) as visitor:
        assert old.decode() in html.unescape((await visitor.get(path)).text)
        for typed, said in (
            ('{"order_id": 1,', "is not JSON"),
            ('{"order_id": "x", "recipient": "Ada", "items": []}', "order_id must be a whole number"),
            (f'{{"order_id": 1, "recipient": "{MASK}", "items": []}}', f"contains {MASK}"),
        ):
            answer = await send_form(visitor, path, {"value": typed})
            text = html.unescape(answer.text)
            assert (400, True, True) == (answer.status_code, said in text, typed in text)
        assert old == decode_task_message(tasks.fields("r")["msg"]).payload
        typed = '{"order_id": 2, "recipient": "Ada", "items": []}'
        assert 303 == (await send_form(visitor, path, {"value": typed})).status_code
    assert typed.encode() == decode_task_message(tasks.fields("r")["msg"]).payload


@run_async
async def test_a_payload_that_is_not_text_cannot_be_edited(redis_url: str, redis_client: RedisClient) -> None:
    """The page of the task does not offer it."""
    tasks = Tasks(redis_client, "emails")
    tasks.put(TaskState.ARCHIVED, "b", payload=b"\xff\x00", error_msg="x", last_failed_at=1)
    async with visiting(redis_url) as visitor:
        assert "edit_payload" not in (await visitor.get("queues/emails/tasks/b")).text
        assert 400 == (await visitor.get("queues/emails/tasks/b/edit_payload")).status_code
