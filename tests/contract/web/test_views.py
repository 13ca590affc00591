"""Saved views: searches and states of queues under names, in the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.operations import User
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import links_of, send_form, visiting

if TYPE_CHECKING:
    from starlette.requests import Request

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

QUERY = "state:archived type:email.*"


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """A failed task."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", error_msg="boom", last_failed_at=1, type="email.welcome")
    return made


async def person(request: Request) -> User | None:
    """Return the user whom a header names, with the role in it."""
    name, role = request.headers["x-person"].split()
    return User.with_role(name, role)


@run_async
async def test_a_search_is_saved_and_opened_again(redis_url: str, tasks: Tasks) -> None:
    """The link is the address of the search itself."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("tasks", params={"q": QUERY})
        [new] = [link for link in links_of(page.text) if "views/new" in link]
        assert "Save this view?" in (await visitor.get(new.removeprefix("./"))).text
        fields = {"name": "Failed mails", "page": "search", "query": QUERY, "back": "/tasks?q=state:archived"}
        answer = await send_form(visitor, "views", fields, page="settings")
        assert (303, "./tasks?q=state:archived") == (answer.status_code, answer.headers["location"])
        shown = (await visitor.get("tasks")).text
        assert "Failed mails" in shown
        [link] = [one for one in links_of(shown) if "email" in one]
        assert 'value="state:archived type:email.*"' in (await visitor.get(link.removeprefix("./"))).text


@run_async
async def test_a_state_of_a_queue_is_saved(redis_url: str, tasks: Tasks) -> None:
    """Its link leads to the queue, and is on the page of the queue alone."""
    async with visiting(redis_url) as visitor:
        fields = {"name": "Lost", "page": "queue", "queue": "emails", "query": "queue:emails state:archived"}
        await send_form(visitor, "views", fields, page="settings")
        shown = (await visitor.get("queues/emails?state=pending")).text
        assert ">Lost</a>" in shown
        assert "../queues/emails?state=archived" in links_of(shown)
        assert ">Lost</a>" not in (await visitor.get("tasks")).text


@run_async
async def test_others_see_a_view_once_it_is_shared(redis_url: str, tasks: Tasks) -> None:
    """Also those with the same permissions, whose answers of Redis are shared."""
    async with visiting(redis_url, auth=person) as visitor:
        for share, is_seen in (("", False), ("yes", True)):
            visitor.headers["x-person"] = "mira operator"
            fields = {"name": "Failed mails", "page": "search", "query": QUERY, "share": share}
            await send_form(visitor, "views", fields, page="settings")
            visitor.cookies.clear()  # the notice names the view
            visitor.headers["x-person"] = f"jonas{share} operator"
            assert is_seen == ("Failed mails" in (await visitor.get("tasks")).text)
            assert is_seen == ("Failed mails" in (await visitor.get("views")).text)


@run_async
async def test_a_view_is_deleted_by_its_owner_or_an_admin(redis_url: str, tasks: Tasks) -> None:
    """Another person has no button for it, and is refused without one."""
    async with visiting(redis_url, auth=person) as visitor:
        visitor.headers["x-person"] = "mira operator"
        fields = {"name": "Failed mails", "page": "search", "query": QUERY, "share": "yes"}
        await send_form(visitor, "views", fields, page="settings")
        [address] = [one for one in links_of((await visitor.get("views")).text) if one.endswith("/delete")]
        address = address.removeprefix("./")
        visitor.headers["x-person"] = "jonas operator"
        assert not [one for one in links_of((await visitor.get("views")).text) if one.endswith("/delete")]
        assert 403 == (await send_form(visitor, address, {}, page="settings")).status_code
        visitor.headers["x-person"] = "ada admin"
        assert 303 == (await send_form(visitor, address, {}, page="views")).status_code
        assert "No saved views" in (await visitor.get("views")).text


@run_async
async def test_a_view_that_cannot_be_is_refused(redis_url: str, tasks: Tasks) -> None:
    """Without a name, with a query that cannot be read, or of a queue that there is not for the user."""
    async with visiting(redis_url) as visitor:
        for fields in (
            {"name": " ", "page": "search", "query": QUERY},
            {"name": "x", "page": "search", "query": "state:("},
            {"name": "x", "page": "nowhere", "query": QUERY},
            {"name": "x", "page": "queue", "query": QUERY},
        ):
            answer = await send_form(visitor, "views", fields, page="settings")
            assert 400 == answer.status_code, fields
        assert "No saved views" in (await visitor.get("views")).text
