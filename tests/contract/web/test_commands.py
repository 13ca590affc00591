"""The pages of commands: their list, their output, and what a role sees of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.web import Everyone
from tests.run_async import run_async
from tests.shop_service import SHOP_COMMANDS, announce_commands, make_command
from tests.visiting import ABROAD, heading_of, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = [
    pytest.mark.single_server("one database for all queues"),
    pytest.mark.usefixtures("redis_client"),
]


@run_async
async def test_the_page_lists_commands_with_their_ends(redis_url: str) -> None:
    """Running ones first; a filter finds types and states."""
    announce_commands(redis_url, SHOP_COMMANDS)
    async with visiting(redis_url) as visitor:
        page = await visitor.get("commands")
        assert "Commands" == heading_of(page)
        assert "2 commands running; 3 ended within 10 minutes, 2 of them failed" in page.text
        for text in ("export-november", "exit code 65", "signal SIGKILL", "536 MB", "batch-2"):
            assert text in page.text
        assert page.text.index("export-november") < page.text.index("dump-of-customers")
        found = (await visitor.get("commands?f=archived")).text
        assert ("dump-of-customers" in found, "export-november" in found) == (True, False)
        assert "No command matches" in (await visitor.get("commands?f=nothing")).text


@run_async
async def test_a_command_shows_its_output_as_it_comes(redis_url: str, redis_client: RedisClient) -> None:
    """And a running one can be killed, which cancels its task."""
    announce_commands(redis_url, SHOP_COMMANDS)
    kill = "queues/exports/tasks/export-november/cancel_task"
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("commands/run-of-exports")).text
        assert ("wrote part-082.csv" in page, "without a carrier" in page, kill in page) == (True,) * 3
        ended = (await visitor.get("commands/run-of-dumps")).text
        assert ("no such table" in ended, "cancel_task" in ended) == (True, False)
        assert 404 == (await visitor.get("commands/other")).status_code


@run_async
async def test_output_is_for_users_who_may_see_contents(redis_url: str) -> None:
    """And without secrets. Users of other queues do not find the command."""
    announce_commands(redis_url, [make_command("emails", out=b'{"token": "hush", "order": "4711"}')])

    async def other_team(_: object) -> User:
        return User.with_role("olaf", "admin", queues="other-*")

    async with visiting(redis_url) as visitor:
        page = (await visitor.get("commands/run-of-emails")).text
        assert ("4711" in page, "hush" in page) == (True, False)
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        page = (await visitor.get("commands/run-of-emails")).text
        assert ("exit code 0" in page, "4711" in page) == (True, False)
    async with visiting(redis_url, auth=other_team, client=ABROAD) as visitor:
        assert "No command has run" in (await visitor.get("commands")).text
        assert 404 == (await visitor.get("commands/run-of-emails")).status_code


@run_async
async def test_without_commands_the_page_says_what_they_are(redis_url: str) -> None:
    """With a type that could run one."""
    async with visiting(redis_url) as visitor:
        assert "argv" in (await visitor.get("commands")).text


@run_async
async def test_a_command_links_to_its_type_or_to_its_queue(redis_url: str, redis_client: RedisClient) -> None:
    """Its type may be configured no more, and its queue may be deleted."""
    announce_commands(redis_url, [make_command(name) for name in ("typed", "queued", "gone")])
    redis_client.sadd("asynq:queues", "queued")
    with Operator(redis_url, User.with_role("mira", "admin")) as operator:
        operator.set_type_configuration("typed", {"managed": "api"})
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("commands")).text
        for section, name in (("task-types", "typed"), ("queues", "queued")):
            assert f'href="./{section}/{name}"' in page
            assert f'href="../{section}/{name}"' in (await visitor.get(f"commands/run-of-{name}")).text
        for name in ("queued", "gone"):
            assert f"task-types/{name}" not in page
        assert 'queues/gone"' not in (await visitor.get("commands/run-of-gone")).text
