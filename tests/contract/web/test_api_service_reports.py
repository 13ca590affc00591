"""The task service in `/api/v1`: requests to hosts, commands and doors; how a command is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.web import Everyone
from tests.contract.web.test_api import check_problem, check_record
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop_service import (
    SHOP_COMMANDS,
    announce_commands,
    announce_deliveries,
    announce_doors,
    announce_failed_delivery,
    make_command,
)
from tests.visiting import ABROAD, visiting

if TYPE_CHECKING:
    from starlette.requests import Request

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

API = "api/v1"


async def other_team(_: Request) -> User:
    """Let everyone in as an administrator of other queues."""
    return User.with_role("olaf", "admin", queues="other-*")


@run_async
async def test_deliveries_tell_counts_durations_and_throttling(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The requests of all instances together, by host and type; one alone has its last failed request."""
    announce_deliveries(redis_url)
    async with visiting(redis_url) as visitor:
        items = (await visitor.get(f"{API}/deliveries")).json()["items"]
        for item in items:
            check_record("Delivery", item)
        told = {one["type"]: (one["host"], one["state"], one["requests"], one["good"]) for one in items}
        assert {
            "invoices": ("billing.example", "called", 2_877, 2_820),
            "payments": ("billing.example", "called", 402, 402),
            "notices": ("notices.example:8443", "throttled", 298, 210),
            "images": ("legacy.example", "failing", 1, 0),
        } == told
        by_type = {one["type"]: one for one in items}
        assert {"2xx": 2_820, "4xx": 11, "5xx": 42, "none": 4} == by_type["invoices"]["statuses"]
        assert by_type["notices"]["throttled_since"] < by_type["notices"]["throttled_until"]
        assert [True, False] == [bool(by_type[name]["gone"]) for name in ("images", "invoices")]
        assert 0 < by_type["invoices"]["p50"] < by_type["invoices"]["p99"]

        one = (await visitor.get(f"{API}/deliveries/{by_type['invoices']['id']}")).json()
        check_record("DeliveryDetails", one)
        assert ("invoice-20261123-4711", 2, 500) == tuple(
            one["failed"][name] for name in ("task", "attempt", "status")
        )
        assert {"name": "Authorization", "value": "[redacted]"} in one["failed"]["headers"]
        unfailed = (await visitor.get(f"{API}/deliveries/{by_type['payments']['id']}")).json()
        assert unfailed["failed"] is None
        check_problem(await visitor.get(f"{API}/deliveries/other"), 404, "report_not_found")


@run_async
async def test_contents_and_queues_of_others_are_not_told(redis_url: str, redis_client: RedisClient) -> None:
    """A viewer gets the status without bodies and headers; secrets are hidden from all."""
    announce_failed_delivery(redis_url, "a.example", "emails", b'{"error": "deadlock", "token": "hush"}')
    announce_commands(redis_url, [make_command("emails", out=b'{"token": "hush", "order": "4711"}')])
    async with visiting(redis_url) as visitor:
        [delivery] = (await visitor.get(f"{API}/deliveries")).json()["items"]
        seen = (await visitor.get(f"{API}/deliveries/{delivery['id']}")).text
        assert (True, False) == ("deadlock" in seen, "hush" in seen)
        seen = (await visitor.get(f"{API}/commands/run-of-emails")).text
        assert (True, False) == ("4711" in seen, "hush" in seen)
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        failed = (await visitor.get(f"{API}/deliveries/{delivery['id']}")).json()["failed"]
        assert (500, []) == (failed["status"], failed["headers"])
        assert "[withheld: 38 bytes]" == failed["answer"]
        out = (await visitor.get(f"{API}/commands/run-of-emails")).json()["out"]
        assert "[withheld: 34 bytes]" == out
    async with visiting(redis_url, auth=other_team, client=ABROAD) as visitor:
        for name in ("deliveries", "commands"):
            assert [] == (await visitor.get(f"{API}/{name}")).json()["items"]
        check_problem(await visitor.get(f"{API}/commands/run-of-emails"), 404, "report_not_found")


@run_async
async def test_commands_are_listed_without_their_output(redis_url: str, redis_client: RedisClient) -> None:
    """Running ones first; one alone has the end of both streams."""
    announce_commands(redis_url, SHOP_COMMANDS)
    async with visiting(redis_url) as visitor:
        items = (await visitor.get(f"{API}/commands")).json()["items"]
        for item in items:
            check_record("Command", item)
        assert ["running", "running"] == [one["state"] for one in items[:2]]
        assert all("out" not in one for one in items)
        one = (await visitor.get(f"{API}/commands/run-of-exports")).json()
        check_record("CommandDetails", one)
        assert one["out"].endswith("wrote part-082.csv, 10,000 orders\n")
        assert (1_428, 41, 1_469) == (one["out_bytes"], one["err_bytes"], one["output"])
        assert (None, None, "") == (one["cpu"], one["ended"], one["end"])
        ended = (await visitor.get(f"{API}/commands/run-of-dumps")).json()
        assert ("archived", "exit code 65", 1.41, 2.0) == (
            ended["state"],
            ended["end"],
            ended["cpu"],
            ended["ran"],
        )


@run_async
async def test_a_running_command_is_killed_by_cancelling_its_task(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The outcome is noted with the task. One that has ended is not killed, as its task may run again."""
    Tasks(redis_client, "exports").active("export-november", token="run", lease=4_000_000_000)
    announce_commands(redis_url, SHOP_COMMANDS)
    async with visiting(redis_url) as visitor:
        kill = f"{API}/commands/run-of-exports:kill"
        headers = {"sec-fetch-site": "same-origin"}
        dry = await visitor.request("POST", f"{kill}?dry_run=true", json={}, headers=headers)
        assert (200, "cancel_task") == (dry.status_code, dry.json()["verb"])
        body = {"outcome": "archive", "reason": "it hangs"}
        answer = await visitor.request("POST", kill, json=body, headers=headers)
        check_record("Cancellation", answer.json())
        assert (202, "exports", "export-november", "active") == (
            answer.status_code,
            *(answer.json()[name] for name in ("queue", "id", "state")),
        )
        for query in ("", "?dry_run=true"):
            ended = f"{API}/commands/run-of-dumps:kill{query}"
            refused = await visitor.request("POST", ended, json={}, headers=headers)
            assert "archived" == check_problem(refused, 409, "command_state")["state"]
    with Operator(redis_url, User.with_role("mira", "admin")) as admin:
        [entry] = [one for one in admin.audit().entries if one.verb == "cancel_task"]
    assert ("exports", "it hangs") == (entry.queues[0], entry.reason)


@run_async
async def test_doors_are_listed_with_the_functions_that_the_user_sees(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A door itself belongs to no queue."""
    announce_doors(redis_url)
    async with visiting(redis_url) as visitor:
        items = (await visitor.get(f"{API}/doors")).json()["items"]
        for item in items:
            check_record("Door", item)
        assert [("10.4.0.17:4730", "open", 12, 3, 7), ("10.4.0.18:4730", "closed", 0, 0, 0)] == [
            tuple(one[name] for name in ("address", "state", "workers", "clients", "jobs")) for one in items
        ]
        assert {"emails": 12, "shipping-labels": 8} == items[0]["functions"]

    async def team(_: Request) -> User:
        return User.with_role("olaf", "viewer", queues="emails")

    async with visiting(redis_url, auth=team, client=ABROAD) as visitor:
        items = (await visitor.get(f"{API}/doors")).json()["items"]
        assert [{"emails": 12}, {}] == [one["functions"] for one in items]
