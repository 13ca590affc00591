"""Acts on all tasks that match, from the dashboard: preview, confirmation, progress, undo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.operations import Act, Operator, Targets, User
from pyasynq.task import TaskState
from pyasynq.web import Everyone
from pyasynq.web.pages.operations import act_title
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import ABROAD, heading_of, send_form, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

QUERY = "queue:emails state:archived"


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """Some failed tasks, and one that waits."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", "b", "c", error_msg="boom", last_failed_at=1, type="email.shipped")
    made.pending("p")
    return made


@run_async
async def test_a_preview_says_what_would_be_done(redis_url: str, tasks: Tasks) -> None:
    """By queue, type and state, with samples, and what is left as it is. Nothing changes."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("bulk", params={"act": "run", "q": "queue:emails"})
        assert "Run 3 tasks?" == heading_of(page)
        for part in ("email.shipped", "Archived", "3 samples", "Left as they are: 1 pending.", "boom"):
            assert part in page.text
    assert ["a", "b", "c"] == sorted(tasks.ids("archived"))


@run_async
async def test_all_that_match_are_run(redis_url: str, tasks: Tasks) -> None:
    """The answer leads back to the list, with the result and a way to the operation."""
    async with visiting(redis_url) as visitor:
        fields = {"act": "run", "q": QUERY, "back": "/tasks?q=boom"}
        answer = await send_form(visitor, "bulk", fields, page="settings")
        assert (303, "./tasks?q=boom") == (answer.status_code, answer.headers["location"])
        page = await visitor.get("tasks?q=boom")
        assert "3 tasks were put back into the queue." in page.text
        assert "3 tasks were put back" not in (await visitor.get("tasks?q=boom")).text
        operation = await visitor.get(re.findall(r'href="./(operations/[0-9a-f]+)"', page.text)[0])
        assert "Run 3 tasks of emails" == heading_of(operation)
        assert "3 of 3 done" in operation.text
        assert QUERY in operation.text
    assert ["a", "b", "c", "p"] == sorted(tasks.ids("pending"))


@run_async
async def test_a_deletion_needs_a_reason_and_can_be_undone(redis_url: str, tasks: Tasks) -> None:
    """Without a reason the question comes again and says so; what was typed is kept."""
    async with visiting(redis_url) as visitor:
        fields = {"act": "delete", "q": QUERY, "rate": "500"}
        again = await send_form(visitor, "bulk", fields, page="settings")
        assert (400, "Delete 3 tasks?") == (again.status_code, heading_of(again))
        assert "say why" in again.text
        assert 'value="500"' in again.text
        assert ["a", "b", "c"] == sorted(tasks.ids("archived"))
        await send_form(visitor, "bulk", {**fields, "reason": "they are old"}, page="settings")
        assert [] == tasks.ids("archived")
        page = await visitor.get("operations")
        [operation] = set(re.findall(r'href="./(operations/[0-9a-f]+)"', page.text))
        assert "<dd>they are old</dd>" in (await visitor.get(operation)).text
        await send_form(visitor, f"{operation}/undo", {}, page=operation)
        page = await visitor.get("operations")
        assert "Put back 3 tasks" in page.text
        assert "3 tasks are back." in page.text
    assert ["a", "b", "c"] == sorted(tasks.ids("archived"))


@run_async
async def test_in_production_the_number_has_to_be_typed(redis_url: str, tasks: Tasks) -> None:
    """Another number starts nothing."""
    async with visiting(redis_url, environment=("production", "red")) as visitor:
        page = await visitor.get("bulk", params={"act": "archive", "q": "queue:emails"})
        assert "Type 1 to confirm" in page.text
        fields = {"act": "archive", "q": "queue:emails"}
        for number, status, waiting in (("2", 400, ["p"]), ("1", 303, [])):
            answer = await send_form(visitor, "bulk", {**fields, "confirm": number}, page="settings")
            assert (status, waiting) == (answer.status_code, tasks.ids("pending"))


@run_async
async def test_a_preview_that_is_not_exact_asks_for_the_number_of_all(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a wrong number names the right one, and the form never asks for the lower bound."""
    monkeypatch.setattr("pyasynq.operations.operator.operations._PREVIEW_POSITIONS", 1)
    async with visiting(redis_url, environment=("production", "red")) as visitor:
        page = await visitor.get("bulk", params={"act": "delete", "q": "queue:emails"})
        assert heading_of(page).startswith("Delete at least")
        assert "Type the number of tasks to confirm" in page.text
        fields = {"act": "delete", "q": "queue:emails", "reason": "test"}
        refused = await send_form(visitor, "bulk", {**fields, "confirm": "1"}, page="settings")
        assert (400, True) == (refused.status_code, "the number of tasks, 4" in refused.text)
        taken = await send_form(visitor, "bulk", {**fields, "confirm": "4"}, page="settings")
        assert 303 == taken.status_code
    assert [] == [*tasks.ids("archived"), *tasks.ids("pending")]


@run_async
async def test_an_operation_whose_process_died_goes_on(redis_url: str, tasks: Tasks) -> None:
    """Its page says that it was interrupted, and one button lets it go on in this process."""
    async with Operator(redis_url, User.with_role("mira", "admin")) as operator:
        info = await operator.start_operation("run", Targets(query=QUERY))
    async with visiting(redis_url) as visitor:
        page = await visitor.get(f"operations/{info.operation}")
        assert "Interrupted" in page.text
        assert "Go on with it" in page.text
        await send_form(visitor, f"operations/{info.operation}/continue", {}, page="settings")
        assert "3 of 3 done" in (await visitor.get(f"operations/{info.operation}")).text
    assert ["a", "b", "c", "p"] == sorted(tasks.ids("pending"))


@run_async
async def test_nothing_is_offered_to_a_viewer(redis_url: str, tasks: Tasks) -> None:
    """Neither the form for all that match nor the orders of an operation."""
    async with Operator(redis_url, User.with_role("mira", "admin")) as operator:
        info = await operator.start_operation("run", Targets(query=QUERY))
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        for path in ("tasks?q=queue:emails", "queues/emails?state=archived", f"operations/{info.operation}"):
            page = await visitor.get(path)
            assert 200 == page.status_code
            assert "Preview" not in page.text
            assert 'method="post"' not in page.text
    assert 3 == len(tasks.ids("archived"))


@run_async
async def test_all_that_match_are_moved_to_a_queue(redis_url: str, tasks: Tasks) -> None:
    """The queue is asked for before the preview; the operation's pages name the act."""
    other = Tasks(tasks.client, "slow")
    async with visiting(redis_url) as visitor:
        asked = await visitor.get("bulk", params={"act": "move", "q": QUERY, "back": "/queues"})
        assert "Move to another queue?" == heading_of(asked)
        assert '<option value="emails">' in asked.text
        preview = await visitor.get("bulk", params={"act": "move", "q": QUERY, "queue": "slow"})
        assert ("Move 3 tasks?", True) == (heading_of(preview), "To the queue" in preview.text)
        fields = {"act": "move", "q": QUERY, "queue": "slow", "reason": "the provider is slow"}
        assert 303 == (await send_form(visitor, "bulk", fields, page="settings")).status_code
        assert "Move 3 tasks of emails" in (await visitor.get("operations")).text
    assert ["a", "b", "c"] == sorted(other.ids("archived"))
    assert [] == tasks.ids("archived")


@run_async
async def test_options_of_all_that_match_are_edited(redis_url: str, tasks: Tasks) -> None:
    """A wrong value stays in the form, with its sentence."""
    async with visiting(redis_url) as visitor:
        asked = await visitor.get("bulk", params={"act": "edit", "q": QUERY})
        assert ("Edit options?", 200) == (heading_of(asked), asked.status_code)
        for name, text, said in (
            ("max_retry", "-1", "must be a whole number from 0 on"),
            ("timeout", "soon", "must be"),
        ):
            wrong = await visitor.get("bulk", params={"act": "edit", "q": QUERY, name: text})
            assert (400, True) == (wrong.status_code, said in wrong.text and f'value="{text}"' in wrong.text)
        preview = await visitor.get("bulk", params={"act": "edit", "q": QUERY, "timeout": "15m"})
        assert ("Edit 3 tasks?", True) == (heading_of(preview), "15m" in preview.text)
        fields = {"act": "edit", "q": QUERY, "timeout": "15m", "max_retry": "4"}
        assert 303 == (await send_form(visitor, "bulk", fields, page="settings")).status_code
    for task_id in ("a", "b", "c"):
        message = decode_task_message(tasks.fields(task_id)["msg"])
        assert (900, 4) == (message.timeout, message.retry)


@run_async
async def test_checked_tasks_are_moved_to_a_queue(redis_url: str, tasks: Tasks) -> None:
    """The queue is asked for, then the preview; the others stay where they are."""
    other = Tasks(tasks.client, "slow")
    async with visiting(redis_url) as visitor:
        page = await visitor.get("tasks", params={"q": QUERY})
        assert 'name="verb" value="move"' in page.text
        selected = {"verb": "move", "id": ["emails/a", "emails/c"], "back": "/queues"}
        asked = await send_form(visitor, "act", selected, page="settings")
        assert ("Move to another queue?", True) == (heading_of(asked), "2 selected tasks." in asked.text)
        preview = await send_form(visitor, "act", {**selected, "queue": "slow"}, page="settings")
        assert ("Move 2 tasks?", True) == (heading_of(preview), "To the queue" in preview.text)
        fields = {"act": "move", "id": ["emails/a", "emails/c"], "queue": "slow", "reason": "test"}
        assert 303 == (await send_form(visitor, "bulk", fields, page="settings")).status_code
    assert (["a", "c"], ["b"]) == (sorted(other.ids("archived")), tasks.ids("archived"))


@run_async
async def test_options_of_checked_tasks_are_edited(redis_url: str, tasks: Tasks) -> None:
    """A list offers it for states in which options can be edited; a wrong value stays in the form."""
    async with visiting(redis_url) as visitor:
        for state, is_offered in (("retry", True), ("pending", False), ("active", False)):
            if state == "retry":
                tasks.put(TaskState.RETRY, "r", type="email.shipped")
            page = await visitor.get(f"queues/emails?state={state}")
            assert is_offered == ('name="verb" value="edit"' in page.text)
        selected = {"verb": "edit", "id": ["emails/r"], "max_retry": "-1"}
        wrong = await send_form(visitor, "act", selected, page="settings")
        assert (400, True) == (wrong.status_code, 'value="-1"' in wrong.text and "emails/r" in wrong.text)
        preview = await send_form(visitor, "act", {**selected, "max_retry": "4"}, page="settings")
        assert "Edit 1 task?" == heading_of(preview)
        fields = {"act": "edit", "id": ["emails/r"], "max_retry": "4"}
        assert 303 == (await send_form(visitor, "bulk", fields, page="settings")).status_code
    assert 4 == decode_task_message(tasks.fields("r")["msg"]).retry


@run_async
async def test_a_viewer_is_not_asked_for_options(redis_url: str, tasks: Tasks) -> None:
    """The form is refused as the preview is."""
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        for act in ("move", "edit"):
            assert 403 == (await visitor.get("bulk", params={"act": act, "q": QUERY})).status_code
            selected = {"verb": act, "id": ["emails/a"]}
            assert 403 == (await send_form(visitor, "act", selected, page="settings")).status_code
        assert 'value="move"' not in (await visitor.get("queues/emails?state=archived")).text


@pytest.mark.parametrize("act", list(Act))
def test_every_act_has_a_title(act: Act) -> None:
    """Operations are started elsewhere too: their pages name what they do."""
    assert "3 tasks" in act_title(act, "3 tasks")
