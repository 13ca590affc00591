"""Attention in the dashboard: findings, their one action, and snoozes with a reason."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from pyasynq._wire.keys import AUDIT_KEY, SNOOZED_KEY
from pyasynq.task import TaskState
from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import links_of, send_form, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

PAUSED = '["paused_long","images",""]'
"""Id of the finding that a paused queue with tasks is."""


@pytest.fixture
def images(redis_client: RedisClient) -> Tasks:
    """A queue with a task that waits, paused long ago."""
    made = Tasks(redis_client, "images")
    made.pending("p")
    redis_client.set(made.keys.paused, "1")
    return made


@run_async
async def test_a_quiet_redis_needs_no_attention(redis_url: str, redis_client: RedisClient) -> None:
    """One quiet line says so, and the title has no count."""
    Tasks(redis_client, "emails").put(TaskState.ARCHIVED, "a", error_msg="boom", last_failed_at=1)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("")).text
        assert "Nothing needs attention." in page
        assert "<title>Overview" in page


@run_async
async def test_a_finding_has_a_sentence_its_tasks_and_one_action(redis_url: str, images: Tasks) -> None:
    """The queue's name in the sentence leads to the queue."""
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("")).text
        text = re.sub(r"<[^>]+>", "", page)
        assert "Warning: images has been paused for " in text
        assert "and 1 task is pending." in text
        assert "tasks?q=queue%3Aimages+state%3Apending" in "".join(links_of(page))
        assert "./queues/images" in links_of(page)
        assert 'formaction="./attention/act">Resume' in page
        assert "<title>(1) Overview" in page


@run_async
async def test_the_action_of_a_finding_is_done_by_its_button(redis_url: str, images: Tasks) -> None:
    """It leads back to the page of the button; the finding is resolved, and the audit has the change."""
    async with visiting(redis_url) as visitor:
        fields = {"finding": PAUSED, "back": "/"}
        answer = await send_form(visitor, "attention/act", fields, page="")
        assert (303, "../") == (answer.status_code, answer.headers["location"])
        assert "The queue is running again." in (await visitor.get("")).text
    assert 0 == images.client.exists(images.keys.paused)
    assert b"resume_queue" in b"".join(
        b"".join(entry[1].values()) for entry in images.client.xrange(AUDIT_KEY)
    )


@run_async
async def test_a_finding_is_snoozed_with_a_reason(redis_url: str, images: Tasks) -> None:
    """It leaves the list for all users; the snooze says who, until when and why, and can be ended."""
    async with visiting(redis_url) as visitor:
        question = await visitor.get(f"attention/snooze?finding={quote(PAUSED)}&back=/")
        assert "Snooze this finding?" in question.text
        fields = {"finding": PAUSED, "back": "/", "seconds": "86400", "reason": "CDN purge"}
        await send_form(visitor, "attention/snooze", fields, page="")
        page = (await visitor.get("")).text
        assert "Nothing needs attention." in page
        assert "1 snoozed" in page
        snoozed = (await visitor.get("attention")).text
        assert re.search(r"Snoozed by local until .+: CDN purge", snoozed)
        await send_form(visitor, "attention/unsnooze", {"finding": PAUSED}, page="attention")
        assert "Nothing is snoozed." in (await visitor.get("attention")).text
    assert 0 == images.client.exists(SNOOZED_KEY)


@run_async
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seconds": "86400", "reason": " "}, "Reason"),
        ({"seconds": "99999999", "reason": "x"}, "Seconds"),
        ({"finding": '["paused_long","emails",""]', "seconds": "3600", "reason": "x"}, "Finding"),
    ],
)
async def test_a_wrong_snooze_is_refused(
    redis_url: str, images: Tasks, fields: dict[str, str], said: str
) -> None:
    """The page names the field, and nothing is snoozed."""
    async with visiting(redis_url) as visitor:
        answer = await send_form(visitor, "attention/snooze", {"finding": PAUSED, **fields}, page="")
        assert 400 == answer.status_code
        assert f"{said} " in answer.text
    assert 0 == images.client.exists(SNOOZED_KEY)


@run_async
async def test_a_viewer_sees_findings_without_buttons(redis_url: str, images: Tasks) -> None:
    """A button that would be refused is not there."""
    async with visiting(redis_url, auth=Everyone("viewer")) as visitor:
        page = (await visitor.get("")).text
        assert "has been paused for" in page
        assert "Resume" not in page
        assert "Snooze" not in page


@run_async
async def test_a_hostile_name_stays_text(redis_url: str, redis_client: RedisClient) -> None:
    """In the sentence, the link, the button's value and the live rows."""
    name = '<b>"x&y'
    tasks = Tasks(redis_client, name)
    tasks.pending("p")
    redis_client.set(tasks.keys.paused, "1")
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("")).text
        assert '<b>"' not in page
        assert "<b>&#34;" not in page
        key = json.dumps(["paused_long", name, ""], separators=(",", ":"))
        await send_form(visitor, "attention/act", {"finding": key, "back": "/"}, page="")
    assert 0 == redis_client.exists(tasks.keys.paused)


@run_async
async def test_findings_are_rows_of_live_updates(redis_url: str, images: Tasks) -> None:
    """A row is shared by all viewers, so it carries no token of a form."""
    async with visiting(redis_url) as visitor:
        events = (await visitor.get("live.json?page=/")).json()["events"]
        [rows] = [one["data"] for one in events if one["data"].get("table") == "findings"]
        assert [PAUSED] == rows["order"]
        assert "csrf" not in rows["put"][PAUSED]
