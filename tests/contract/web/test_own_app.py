"""The dashboard of an application: its task types, its secrets and its own presentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pyasynq import App, Secret
from pyasynq._broker.task_types import publish_types
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import InvalidOptionError
from pyasynq.operations import User
from pyasynq.task_types import TaskTypeInfo
from pyasynq.web import dashboard
from tests.factories import Tasks
from tests.run_async import run_async
from tests.visiting import visiting

if TYPE_CHECKING:
    from starlette.requests import Request

    from tests.invariants import RedisClient

PACKED: Final = b"\x00\x01label 17"


def own_app(url: str) -> App:
    """Return an application with one task; no worker of it has run."""
    app = App(url)

    @app.task("label.print", queue="labels")
    async def print_label(order: int, recipient: Secret[str]) -> None:
        """Print the label of an order."""

    return app


def publish_older_type(url: str) -> None:
    """Publish the type as a worker of an older release describes it."""
    driver = BlockingDriver(parse_redis_url(url))
    schema = {"type": "object", "properties": {"number": {"type": "string"}}}
    driver.run(publish_types([TaskTypeInfo("label.print", "labels", schema, summary="An old one.")]))
    driver.close()


@pytest.mark.parametrize("is_published", [False, True])
@run_async
async def test_the_form_has_the_fields_of_the_application(redis_url: str, *, is_published: bool) -> None:
    """They win over those of an older worker, and need no worker at all."""
    if is_published:
        publish_older_type(redis_url)
    async with visiting(redis_url, app=own_app(redis_url)) as visitor:
        form = (await visitor.get("enqueue?type=label.print")).text
        types = (await visitor.get("api/v1/types")).json()["items"]

    assert 'name="p:order"' in form
    assert 'name="p:number"' not in form
    assert 'name="queue" value="labels"' in form
    assert "Print the label of an order." in form
    assert [("label.print", is_published)] == [(one["type"], one["seen"] is not None) for one in types]


@run_async
async def test_secrets_of_the_application_are_redacted_before_a_worker_has_published_them(
    redis_url: str, redis_client: RedisClient
) -> None:
    """By their declaration, since the name itself does not tell."""
    Tasks(redis_client, "labels").pending("one", type="label.print", payload=b'{"recipient":"hunter2"}')
    async with visiting(redis_url, app=own_app(redis_url)) as visitor:
        page = (await visitor.get("queues/labels/tasks/one")).text
        answer = (await visitor.get("api/v1/queues/labels/tasks/one")).text
    async with visiting(redis_url) as visitor:
        assert "hunter2" in (await visitor.get("queues/labels/tasks/one")).text

    assert "hunter2" not in page + answer
    assert "recipient" in page


@run_async
async def test_a_format_of_ones_own_is_shown_as_the_application_says(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Other data are shown as always, and what the function returns is text, never HTML."""
    labels = Tasks(redis_client, "labels")
    labels.pending("packed", type="label.print", payload=PACKED)
    labels.pending("plain", type="label.print", payload=b'{"order":17}')

    def show(task_type: str, data: bytes) -> str | None:
        return f"<b>{task_type}: label {data[8:].decode()}" if data.startswith(b"\x00\x01") else None

    async with visiting(redis_url, show=show) as visitor:
        packed = (await visitor.get("queues/labels/tasks/packed")).text
        plain = (await visitor.get("queues/labels/tasks/plain")).text

    assert "&lt;b&gt;label.print: label 17" in packed
    assert "order" in plain


@run_async
async def test_types_of_the_application_are_hidden_with_their_queues(redis_url: str) -> None:
    """As published ones are."""

    async def who(_: Request) -> User:
        return User.with_role("ada", "operator", queues="mail")

    async with visiting(redis_url, app=own_app(redis_url), auth=who) as visitor:
        assert [] == (await visitor.get("api/v1/types")).json()["items"]
        assert "label.print" not in (await visitor.get("types")).text


@pytest.mark.parametrize(("option", "value"), [("app", "shop:app"), ("show", "shop:show")])
def test_a_wrong_argument_names_the_option(redis_url: str, option: str, value: str) -> None:
    """A reference is for the command line; a program has the object."""
    with pytest.raises(InvalidOptionError, match=option):
        dashboard(redis_url, **{option: value})  # type: ignore[arg-type]
