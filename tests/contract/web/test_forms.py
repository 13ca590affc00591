"""What the forms of the dashboard change, for whom, and what they say afterwards."""

from __future__ import annotations

import base64
import html
import re
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.keys import REFUSED_KEY
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import TaskState
from pyasynq.web import Everyone
from pyasynq.web.auth.secret import SigningSecret
from tests.factories import Tasks
from tests.run_async import run_async
from tests.snapshots import snapshot
from tests.visiting import ABROAD, heading_of, hidden_value, links_of, send_form, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """Some failed tasks, and some that wait."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", "b", "c", error_msg="boom", last_failed_at=1)
    made.pending("p")
    return made


@run_async
async def test_a_task_is_run_from_its_page(redis_url: str, tasks: Tasks) -> None:
    """The way back is the task's page, which says what was done, once."""
    async with visiting(redis_url) as visitor:
        answer = await send_form(visitor, "queues/emails/tasks/a/run_task", {})
        assert (303, "../../../../queues/emails/tasks/a") == (answer.status_code, answer.headers["location"])
        page = await visitor.get("queues/emails/tasks/a")
        assert "The task was put back into the queue." in page.text
        assert "The task was put back" not in (await visitor.get("queues/emails/tasks/a")).text
    assert ["a", "p"] == sorted(tasks.ids("pending"))


@run_async
async def test_only_a_notice_of_this_dashboard_is_shown(redis_url: str, tasks: Tasks) -> None:
    """Any other cookie of that name is ignored: a forged one, and that of a release with other fields."""
    secret = "a secret of these tests"
    other = base64.urlsafe_b64encode(b'["good", 3, "", "", false, "more"]').decode().rstrip("=")
    signed = f"{other}.{SigningSecret(secret).sign('web notice', other.encode())}"
    async with visiting(redis_url, secret=secret) as visitor:
        answer = await send_form(visitor, "queues/emails/tasks/a/run_task", {})
        [cookie] = answer.headers.get_list("set-cookie")
        assert cookie.endswith("; HttpOnly; Max-Age=60; Path=/; SameSite=lax")
        [(name, value)] = visitor.cookies.items()
        for wrong in (signed, value[:-1], value.partition(".")[0], "x.y", "."):
            visitor.cookies.clear()
            visitor.cookies.set(name, wrong)
            page = await visitor.get("queues/emails/tasks/a")
            assert (200, False) == (page.status_code, "The task was put back" in page.text)


@run_async
async def test_selected_tasks_are_run_together(redis_url: str, tasks: Tasks) -> None:
    """One that is gone meanwhile is told, and stops no other."""
    async with visiting(redis_url) as visitor:
        fields = {"verb": "run_task", "id": ["emails/a", "emails/gone", "emails/b"], "back": "/queues/emails"}
        answer = await send_form(visitor, "act", fields, page="queues/emails?state=archived")
        assert 303 == answer.status_code
        assert (
            "2 tasks were put back into the queue. 1 task was left"
            in (await visitor.get("queues/emails")).text
        )
    assert ["a", "b", "p"] == sorted(tasks.ids("pending"))


@run_async
async def test_a_selection_names_its_tasks_whatever_their_ids_are(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A slash and a line break part neither queue and id, nor two ids: others would be archived."""
    own, other = Tasks(redis_client, "q"), Tasks(redis_client, "q/a")
    own.put(TaskState.SCHEDULED, "a/b", "n\nq/a/b", "n\r\nq/a/b", "~2F", ".")
    other.put(TaskState.SCHEDULED, "b")
    async with visiting(redis_url) as visitor:
        page = await visitor.get("queues/q?state=scheduled")
        keys = [html.unescape(key) for key in re.findall(r'name="id" value="([^"]*)"', page.text)]
        assert 5 == len(keys)
        fields = {"verb": "archive_task", "id": keys, "back": "/queues/q"}
        await send_form(visitor, "act", fields, page="queues/q?state=scheduled")
        assert "5 tasks were archived." in (await visitor.get("queues/q")).text
    assert (5, 0) == (len(own.ids("archived")), len(own.ids("scheduled")))
    assert ["b"] == other.ids("scheduled")


@run_async
async def test_a_cancel_of_a_task_that_does_not_run_is_told(redis_url: str, tasks: Tasks) -> None:
    """It may have ended while the form was open."""
    async with visiting(redis_url) as visitor:
        answer = await send_form(visitor, "queues/emails/tasks/a/cancel_task", {"outcome": "delete"})
        assert 409 == answer.status_code
        assert "it is archived, and does not run" in html.unescape(answer.text)
        fields = {"verb": "cancel_task", "id": "emails/a", "back": "/queues/emails"}
        await send_form(visitor, "act", fields, page="queues/emails?state=archived")
        assert "0 tasks were asked to stop. 1 task was left" in (await visitor.get("queues/emails")).text


@run_async
@pytest.mark.parametrize("seconds", ["15m", "-5", "1e3", "abc", "99999999999", "0", "\u0663"])
async def test_a_pause_of_a_wrong_length_is_refused(redis_url: str, tasks: Tasks, seconds: str) -> None:
    """A pause without end would be a surprise."""
    async with visiting(redis_url) as visitor:
        answer = await send_form(visitor, "queues/emails/pause", {"seconds": seconds})
        assert 400 == answer.status_code
        assert "A field of the form has a wrong value" == heading_of(answer)
    assert not tasks.client.exists("asynq:{emails}:paused")


@run_async
async def test_no_field_of_a_form_skips_the_question_before_a_deletion(redis_url: str, tasks: Tasks) -> None:
    """In production the question asks for the number of tasks."""
    async with visiting(redis_url, environment="production") as visitor:
        fields = {"verb": "delete_task", "sure": "yes", "id": "emails/a", "back": "/queues"}
        answer = await send_form(visitor, "act", fields, page="queues/emails?state=archived")
        assert "Delete 1 task?" == heading_of(answer)
    assert "a" in tasks.ids("archived")


@run_async
async def test_selected_tasks_are_deleted_after_a_question(redis_url: str, tasks: Tasks) -> None:
    """The first form only asks, and the second deletes. One button undoes it."""
    async with visiting(redis_url) as visitor:
        fields = {
            "verb": "delete_task",
            "id": ["emails/a", "emails/b"],
            "back": "/queues/emails?state=archived",
        }
        question = await send_form(visitor, "act", fields, page="queues/emails?state=archived")
        assert "Delete 2 tasks?" == heading_of(question)
        assert ["a", "b", "c"] == sorted(tasks.ids("archived"))
        sure = {"act": "delete", "id": fields["id"], "back": fields["back"], "reason": "test"}
        answer = await send_form(visitor, "bulk", sure, page="queues/emails?state=archived")
        assert "./queues/emails?state=archived" == answer.headers["location"]
        assert ["c"] == tasks.ids("archived")
        page = await visitor.get("queues/emails?state=archived")
        assert "2 tasks were deleted." in page.text
        [undo] = [link for link in links_of(page.text) if link.endswith("/undo")]
        await send_form(visitor, undo.removeprefix("../"), {}, page="settings")
    assert ["a", "b", "c"] == sorted(tasks.ids("archived"))


@run_async
async def test_a_queue_is_paused_and_resumed(redis_url: str, tasks: Tasks) -> None:
    """For a time, or until it is resumed; the page says which."""
    async with visiting(redis_url) as visitor:
        await send_form(visitor, "queues/emails/pause", {"seconds": "900", "reason": "test"})
        page = await visitor.get("queues/emails")
        assert "emails is paused." in page.text
        assert "Paused to " in page.text
        await send_form(visitor, "queues/emails/resume", {}, page="queues/emails")
        assert "emails is running again." in (await visitor.get("queues/emails")).text
    assert 0 == tasks.client.exists(tasks.keys.paused)


@run_async
async def test_a_queue_is_deleted_only_by_its_name(redis_url: str, tasks: Tasks) -> None:
    """Any other text deletes nothing."""
    async with visiting(redis_url) as visitor:
        wrong = await send_form(visitor, "queues/emails/delete", {"confirm": "email"})
        assert 400 == wrong.status_code
        assert ["a", "b", "c"] == sorted(tasks.ids("archived"))
        assert 303 == (await send_form(visitor, "queues/emails/delete", {"confirm": "emails"})).status_code
    assert [] == tasks.client.keys("asynq:{emails}:*")


@run_async
async def test_what_was_changed_and_refused_is_in_the_audit(redis_url: str, tasks: Tasks) -> None:
    """With who, from where, and the reason that the form took."""
    async with visiting(redis_url) as visitor:
        await send_form(visitor, "queues/emails/pause", {"seconds": "900", "reason": "provider down"})
        page = (await visitor.get("audit")).text
        for part in ("pause queue", "emails", "local", "provider down", "Done"):
            assert part in page
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        await send_form(visitor, "queues/emails/resume", {}, page="settings")
        assert 403 == (await visitor.get("audit")).status_code
    async with visiting(redis_url) as visitor:
        assert "resume queue" in (await visitor.get("audit?show=refused")).text


@run_async
async def test_limits_are_stored_and_shown(redis_url: str, tasks: Tasks) -> None:
    """After a preview. An empty field removes a limit; nonsense is refused with its name."""
    async with visiting(redis_url) as visitor:
        path, page = "queues/emails/limits", "queues/emails?tab=limits"
        typed = {"max_run": "3", "rate": "", "period": "1.0", "burst": "1"}
        preview = await send_form(visitor, path, typed, page=page)
        assert (200, True) == (preview.status_code, "would wait for a place" in preview.text)
        assert {} == tasks.client.hgetall("asynq:{emails}:x:limits")
        await send_form(visitor, path, _hidden_fields(preview.text), page=page)
        assert "Stored for emails" in (await visitor.get(page)).text
        assert b"3" == tasks.client.hget("asynq:{emails}:x:limits", "concurrency")
        wrong = await send_form(visitor, path, {"max_run": "many"}, page=page)
        assert (400, True) == (wrong.status_code, "must be a number" in wrong.text)


@pytest.mark.parametrize(
    "before",
    [
        "{",
        "7",
        '"text"',
        "{}",
        '{"max_run": 3}',
        "[]",
        "[1]",
        "[1, 2, 3, 4, true, 6]",
        '["x", null, 1.0, 1, null]',
        "[true, null, 1.0, 1, null]",
        "[1.5, null, 1.0, 1, null]",
        "[null, [], 1.0, 1, null]",
        "[null, null, null, 1, null]",
        "[null, null, {}, 1, null]",
        "[null, null, 1.0, 1.5, null]",
        "[null, null, 1.0, 1, 0]",
        "[null, NaN, 1.0, 1, null]",
        "[null, 1e999, 1.0, 1, null]",
        "[null, null, 1.0, " + "9" * 400 + ", null]",
        "[" * 100_000,
    ],
)
def test_limits_over_a_preview_that_was_never_shown_are_refused(
    redis_url: str, tasks: Tasks, before: str
) -> None:
    """A hidden field may hold anything: it is told in a sentence, and nothing is stored."""

    @run_async
    async def send() -> None:
        async with visiting(redis_url) as visitor:
            fields = {"max_run": "3", "sure": "yes", "before": before}
            answer = await send_form(visitor, "queues/emails/limits", fields, page="queues/emails?tab=limits")
            assert 400 == answer.status_code
            assert "is not what the preview has shown; begin again" in answer.text
        assert {} == tasks.client.hgetall("asynq:{emails}:x:limits")

    send()


@run_async
async def test_limits_that_changed_since_the_preview_are_previewed_again(
    redis_url: str, tasks: Tasks
) -> None:
    """A change by someone else is not overwritten unseen; the new preview stores."""
    path, page, limits = "queues/emails/limits", "queues/emails?tab=limits", "asynq:{emails}:x:limits"
    async with visiting(redis_url) as visitor:
        preview = await send_form(visitor, path, {"max_run": "3"}, page=page)
        tasks.client.hset(limits, "concurrency", 8)
        late = await send_form(visitor, path, _hidden_fields(preview.text), page=page)
        assert (409, True) == (late.status_code, "Someone else has changed the limits" in late.text)
        assert b"8" == tasks.client.hget(limits, "concurrency")
        stored = await send_form(visitor, path, _hidden_fields(late.text), page=page)
        assert (303, b"3") == (stored.status_code, tasks.client.hget(limits, "concurrency"))
        wrong = await send_form(visitor, path, {"sure": "yes", "before": "[[]"}, page=page)
        assert (400, True) == (wrong.status_code, "begin again" in wrong.text)


def _hidden_fields(text: str) -> dict[str, str]:
    """Return the hidden fields of a question, without its token."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in found if name != "csrf"}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("queues/emails/pause", {}),
        ("queues/emails/resume", {}),
        ("queues/emails/limits", {"max_run": "1"}),
        ("queues/emails/limits", {"max_run": "1", "sure": "yes"}),
        ("queues/emails/delete", {"confirm": "emails"}),
        ("queues/emails/tasks/a/run_task", {}),
        ("queues/emails/tasks/a/delete_task", {}),
        ("queues/emails/tasks/p/archive_task", {}),
        ("act", {"verb": "delete_task", "sure": "yes", "id": "emails/a", "back": "/queues"}),
    ],
)
@pytest.mark.parametrize(
    "options", [{"auth": Everyone("viewer")}, {"auth": Everyone("admin"), "read_only": True}]
)
def test_a_viewer_and_a_read_only_dashboard_change_nothing(
    redis_url: str, tasks: Tasks, path: str, fields: dict[str, str], options: dict[str, Any]
) -> None:
    """Whatever form is sent, with a token that is right; the page says what is missing."""
    before = _state_of(tasks)

    @run_async
    async def try_it() -> None:
        async with visiting(redis_url, client=ABROAD, **options) as visitor:
            answer = await send_form(visitor, path, fields, page="settings")
            assert (403, "You may not do this") == (answer.status_code, heading_of(answer))

    try_it()
    assert before == _state_of(tasks)


def _state_of(tasks: Tasks) -> dict[str, Any]:
    """Return everything in the database but the record of what was refused."""
    return {key: value for key, value in snapshot(tasks.client).items() if key != REFUSED_KEY}


@run_async
async def test_a_viewer_sees_no_buttons(redis_url: str, tasks: Tasks) -> None:
    """And no payload either, which the role does not show."""
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        for path in ("queues/emails?state=archived", "queues/emails/tasks/a"):
            page = (await visitor.get(path)).text
            assert "Delete" not in page
            assert 'method="post"' not in page
            assert "boom" not in page or "withheld" in page


@run_async
async def test_a_team_sees_its_queues_alone(redis_url: str, tasks: Tasks) -> None:
    """In lists, counts, pages and updates; a queue of others does not exist."""
    Tasks(tasks.client, "team-mail").pending("x")
    async with visiting(redis_url, auth=Everyone("admin", "team-*"), client=ABROAD) as visitor:
        for path in ("", "queues", "servers", "live.json?page=/queues"):
            text = (await visitor.get(path)).text
            assert "emails" not in text
        assert "team-mail" in (await visitor.get("queues")).text
        assert 404 == (await visitor.get("queues/emails")).status_code
        assert 404 == (await visitor.get("queues/emails/tasks/a")).status_code


@run_async
async def test_an_edit_does_not_replace_a_payload_that_the_form_did_not_show(
    redis_url: str, tasks: Tasks
) -> None:
    """Two operators edit the same task: the second one is told, and may send the form again."""
    async with visiting(redis_url) as visitor:
        address = "queues/emails/tasks/a/edit_payload"
        seen = hidden_value((await visitor.get(address)).text, "seen")
        first = await send_form(visitor, address, {"value": '{"n": 1}', "seen": seen})
        assert 303 == first.status_code
        second = await send_form(visitor, address, {"value": '{"n": 2}', "seen": seen})
        assert 400 == second.status_code
        assert "The payload has changed since this form was opened." in second.text
        assert '{"n": 2}' in html.unescape(second.text), "what was typed is not lost"
        assert b'{"n": 1}' == decode_task_message(tasks.fields("a")["msg"]).payload
        again = {"value": '{"n": 2}', "seen": hidden_value(second.text, "seen")}
        assert 303 == (await send_form(visitor, address, again)).status_code
    assert b'{"n": 2}' == decode_task_message(tasks.fields("a")["msg"]).payload
