"""The form that enqueues a task: fields of its type, options, errors at their fields, copies."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import pytest

from pyasynq._broker.task_types import publish_types
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.messages import decode_task_message
from pyasynq.operations.redaction import MASK
from pyasynq.task import TaskState
from pyasynq.task_types import TaskTypeInfo
from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import ABROAD, heading_of, hidden_value, send_form, visiting

if TYPE_CHECKING:
    from pyasynq._wire.asynq_pb2 import TaskMessage
    from tests.invariants import RedisClient

_SCHEMA: Final = {
    "type": "object",
    "properties": {"order": {"type": "integer"}, "label": {"type": "string"}},
    "required": ["order"],
    "additionalProperties": False,
}
_TYPED: Final = {
    "step": "enqueue",
    "type": "label.print",
    "shown": "label.print",
    "mode": "fields",
    "queue": "labels",
    "p:order": "17",
    "p:label": "x<y",
}


@pytest.fixture(autouse=True)
def _published(redis_url: str, redis_client: RedisClient) -> None:
    """A type with a schema, as a worker publishes it."""
    driver = BlockingDriver(parse_redis_url(redis_url))
    info = TaskTypeInfo(
        "label.print", "labels", _SCHEMA, {"max_retry": 7, "retention": 60.0}, summary="Print a label."
    )
    driver.run(publish_types([info]))
    driver.close()


def _stored(client: RedisClient, task_id: str) -> TaskMessage:
    """Return the message of a task."""
    return decode_task_message(Tasks(client, "labels").fields(task_id)["msg"])


@run_async
async def test_a_typed_task_is_enqueued_and_its_page_follows(
    redis_url: str, redis_client: RedisClient
) -> None:
    """With the types of the schema; declared options hold unless the form has others."""
    async with visiting(redis_url) as visitor:
        shown = (await visitor.get("enqueue?type=label.print")).text
        assert 'name="p:order"' in shown
        assert 'name="queue" value="labels"' in shown
        assert "Print a label." in shown
        fields = {**_TYPED, "retention": "2h", "task_id": "mine", "process_in": "1h", "reason": "test"}
        answer = await send_form(visitor, "enqueue", fields)
        assert (303, "./queues/labels/tasks/mine") == (answer.status_code, answer.headers["location"])
        page = await visitor.get("queues/labels/tasks/mine")
        assert "The task was enqueued." in page.text
        assert "enqueue" in (await visitor.get("audit")).text
    stored = _stored(redis_client, "mine")
    assert {"order": 17, "label": "x<y"} == json.loads(stored.payload)
    assert (7, 7_200) == (stored.retry, stored.retention)
    assert ["mine"] == Tasks(redis_client, "labels").ids("scheduled")


@pytest.mark.parametrize(
    ("wrong", "status", "place"),
    [
        ({"p:order": "many"}, 400, "f0"),
        ({"p:order": ""}, 400, "f0"),
        ({"timeout": "soon"}, 400, "o-timeout"),
        ({"unique": "0.5"}, 400, "o-unique"),
        ({"headers": "[]"}, 400, "o-headers"),
        ({"type": "", "shown": ""}, 400, "et"),
        ({"mode": "json", "payload": '{"order":'}, 400, "ep"),
        ({"mode": "json", "payload": '{"order": "x"}'}, 400, "ep"),
        ({"p:label": f"a{MASK}"}, 400, "f1"),
        ({"task_id": "there"}, 409, "o-task_id"),
    ],
)
@pytest.mark.single_server("one database for all queues")
def test_an_error_is_at_its_field_and_nothing_typed_is_lost(
    redis_url: str, redis_client: RedisClient, wrong: dict[str, str], status: int, place: str
) -> None:
    """Nothing is enqueued either."""
    labels = Tasks(redis_client, "labels")
    labels.pending("there")
    typed = {**_TYPED, "max_retry": "3", "reason": "why & how", **wrong}

    @run_async
    async def try_it() -> None:
        async with visiting(redis_url) as visitor:
            answer = await send_form(visitor, "enqueue", typed)
        assert (status, "Enqueue a task") == (answer.status_code, heading_of(answer))
        assert f'<a href="#{place}">' in answer.text
        assert re.search(rf'id="{place}"[^>]*aria-invalid="true"', answer.text)
        text = html.unescape(answer.text)
        for name, value in typed.items():
            if name not in {"step", "shown", "mode"}:
                assert (
                    f'name="{name}" value="{value}"' in text
                    or f">\n{value}</textarea>" in text
                    or (name in text and not value)
                    or f'name="{name}" type="text" value="{value}"' in text
                ), name

    try_it()
    assert ["there"] == labels.ids("pending")


@run_async
async def test_fields_become_json_and_fields_again(redis_url: str) -> None:
    """The fields of one type wait hidden while another is shown."""
    async with visiting(redis_url) as visitor:
        as_json = await send_form(visitor, "enqueue", {**_TYPED, "step": "json"})
        assert '"order": 17' in html.unescape(as_json.text)
        fields = {**_TYPED, "mode": "json", "payload": '{"order": 4}', "step": "fields"}
        again = await send_form(visitor, "enqueue", fields)
        assert 'name="p:order" value="4"' in again.text
        other = await send_form(visitor, "enqueue", {**_TYPED, "type": "other", "step": "show"})
        assert 'type="hidden" name="p:order" value="17"' in other.text
        first = await send_form(visitor, "enqueue", {**_TYPED, "shown": "", "mode": "json", "payload": ""})
        assert "These are the fields of the type." in first.text


@run_async
async def test_a_type_without_a_schema_takes_json_or_text(redis_url: str, redis_client: RedisClient) -> None:
    """Text is sent as it is."""
    common = {"step": "enqueue", "type": "old", "shown": "old", "queue": "labels"}
    async with visiting(redis_url) as visitor:
        for task_id, mode, payload in (("j", "json", "[1, 2]"), ("t", "text", "a\r\nb"), ("e", "json", "")):
            fields = {**common, "mode": mode, "payload": payload, "task_id": task_id}
            assert 303 == (await send_form(visitor, "enqueue", fields)).status_code
    assert [b"[1, 2]", b"a\nb", b""] == [_stored(redis_client, one).payload for one in "jte"]


@run_async
async def test_a_task_is_cloned_and_edited(redis_url: str, redis_client: RedisClient) -> None:
    """The form has its payload in fields, and its options."""
    labels = Tasks(redis_client, "labels")
    labels.put(
        TaskState.ARCHIVED,
        "a",
        type="label.print",
        payload=b'{"order":5}',
        retry=9,
        error_msg="x",
        last_failed_at=1,
    )
    async with visiting(redis_url) as visitor:
        assert "enqueue?queue=labels&amp;task=a" in (await visitor.get("queues/labels/tasks/a")).text
        form = (await visitor.get("enqueue?queue=labels&task=a")).text
        assert 'name="p:order" value="5"' in form
        assert 'name="max_retry" type="text" value="9"' in form


@run_async
async def test_a_task_is_enqueued_again(redis_url: str, redis_client: RedisClient) -> None:
    """After a question; the page of the copy follows."""
    labels = Tasks(redis_client, "labels")
    labels.put(
        TaskState.ARCHIVED, "a", type="label.print", payload=b"\x00\xff", error_msg="x", last_failed_at=1
    )
    async with visiting(redis_url) as visitor:
        answer = await send_form(visitor, "queues/labels/tasks/a/enqueue_copy", {})
        assert 303 == answer.status_code
        [copy] = labels.ids("pending")
        assert answer.headers["location"].endswith(f"/queues/labels/tasks/{copy}")
    assert b"\x00\xff" == _stored(redis_client, copy).payload


@run_async
async def test_a_payload_that_is_withheld_is_not_in_the_form(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Binary data neither; the form says so."""
    Tasks(redis_client, "labels").pending("b", payload=b"\x00\xff")
    async with visiting(redis_url) as visitor:
        assert "The payload is not text" in (await visitor.get("enqueue?queue=labels&task=b")).text


@run_async
async def test_a_viewer_gets_no_form(redis_url: str, redis_client: RedisClient) -> None:
    """A team may enqueue into its own queues alone, and keeps what it typed."""
    labels = Tasks(redis_client, "labels")
    options: dict[str, Any] = {"client": ABROAD}
    async with visiting(redis_url, auth=Everyone("viewer"), **options) as visitor:
        assert 403 == (await visitor.get("enqueue")).status_code
        assert 403 == (await send_form(visitor, "enqueue", _TYPED, page="settings")).status_code
    async with visiting(redis_url, auth=Everyone("admin", "team-*"), **options) as visitor:
        answer = await send_form(visitor, "enqueue", {**_TYPED, "shown": "", "type": "x", "mode": "text"})
        assert 404 == answer.status_code
        assert 'name="queue" value="labels"' in answer.text
    assert [] == labels.ids("pending")


@run_async
async def test_a_form_that_is_sent_twice_enqueues_one_task(redis_url: str, redis_client: RedisClient) -> None:
    """By a double click, or by a browser that sends it again after a lost answer."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("enqueue?type=label.print")
        fields = _TYPED | {"request_key": hidden_value(page.text, "request_key")}
        first = await send_form(visitor, "enqueue", fields)
        second = await send_form(visitor, "enqueue", fields)
        assert first.headers["location"] == second.headers["location"]
        shown = await visitor.get(urljoin("http://localhost/enqueue", second.headers["location"]))
        assert "The task had been enqueued before." in shown.text
        await visitor.delete(f"api/v1/queues/labels/tasks/{fields['request_key']}")
        await send_form(visitor, "enqueue", fields)
        assert [] == Tasks(redis_client, "labels").ids("pending")
        await send_form(visitor, "enqueue", _TYPED | {"request_key": "anything"})
    assert 1 == len(Tasks(redis_client, "labels").ids("pending"))


@run_async
async def test_a_form_for_a_copy_that_is_sent_twice_enqueues_one_copy(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The page that asks chooses the key; also when the copy is done by then."""
    made = Tasks(redis_client, "labels")
    made.put(TaskState.ARCHIVED, "a")
    async with visiting(redis_url) as visitor:
        question = await visitor.get("queues/labels/tasks/a/enqueue_copy")
        fields = {"request_key": hidden_value(question.text, "request_key")}
        first, second = [
            await send_form(visitor, "queues/labels/tasks/a/enqueue_copy", fields) for _ in range(2)
        ]
        assert first.headers["location"] == second.headers["location"]
        [copy] = made.ids("pending")
        await visitor.delete(f"api/v1/queues/labels/tasks/{copy}")
        third = await send_form(visitor, "queues/labels/tasks/a/enqueue_copy", fields)
        assert third.headers["location"].endswith("/queues/labels")
        assert "had been enqueued before, and is done" in (await visitor.get("queues/labels")).text
    assert [] == made.ids("pending")
