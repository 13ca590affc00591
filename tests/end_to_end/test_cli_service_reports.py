"""The commands `pyasynq delivery`, `pyasynq command` and `pyasynq door`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import jsonschema
import pytest

from pyasynq._face_records.service_reports import (
    DELIVERIES,
    DELIVERY,
    DOORS,
    HOSTED_COMMAND,
    HOSTED_COMMANDS,
)
from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from tests.cli_runner import Cli
from tests.factories import Tasks
from tests.shop_service import (
    SHOP_COMMANDS,
    announce_commands,
    announce_deliveries,
    announce_doors,
    announce_failed_delivery,
    make_command,
)
from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@pytest.fixture
def cli(redis_url: str, redis_client: RedisClient) -> Cli:
    """The command line on the empty server of this test."""
    assert 0 == redis_client.dbsize()
    return Cli(redis_url)


def on_screen(*arguments: str) -> str:
    """Return what a terminal of 80 columns shows of a command."""
    with Terminal(*arguments, columns=80, lines=100, env={"NO_COLOR": "1"}) as terminal:
        assert 0 == terminal.finish()
    # A second may begin meanwhile.
    return re.sub(r"\b2\d s ago", "20 s ago", terminal.text)


def test_deliveries_fit_their_schema(cli: Cli, redis_url: str) -> None:
    """The list has no request; one alone has the newest whose attempt failed."""
    announce_deliveries(redis_url)
    listed = cli.json("delivery", "ls")
    jsonschema.validate(listed, DELIVERIES.schema())
    assert [
        ("billing.example", "invoices", "called", 2_877),
        ("billing.example", "payments", "called", 402),
        ("legacy.example", "images", "failing", 1),
        ("notices.example:8443", "notices", "throttled", 298),
    ] == [(one["host"], one["type"], one["state"], one["requests"]) for one in listed]
    shown = cli.json("delivery", "inspect", "billing.example", "notices", listed[2]["id"])
    jsonschema.validate(shown, DELIVERY.schema())
    assert {one["id"] for one in listed} == {one["id"] for one in shown}
    assert "invoice-20261123-4711" == shown[0]["failed"]["task"]


def test_a_failed_delivery_is_told_in_words(cli: Cli, redis_url: str) -> None:
    """The request and the answer line by line, with secrets hidden; a name that is unknown is an error."""
    announce_failed_delivery(redis_url, "a.example", "emails", b'{\n\t"error": "deadlock"\n}')
    shown = cli.run("delivery", "inspect", "a.example")
    assert 0 == shown.exit_code
    for lines in (
        "Requests  1 within the last hour: 1 5xx\n",
        "  Error    the host answered 500\n",
        "Request\n  POST https://a.example/\n  X-Team: maps\n",
        "Answer\n  500 Internal Server Error\n",
        '\n  {\n          "error": "deadlock"\n  }\n',
    ):
        assert lines in shown.stdout
    assert "hush" not in shown.stdout
    partly = cli.run("delivery", "inspect", "emails", "b.example")
    assert (6, True) == (
        partly.exit_code,
        "no instance of the task service reports delivery b.example" in partly.stderr,
    )
    assert 1 == cli.run("delivery", "inspect", "b.example").exit_code


def test_commands_fit_their_schema(cli: Cli, redis_url: str) -> None:
    """Running ones first; the end of both streams is shown of one alone."""
    announce_commands(redis_url, SHOP_COMMANDS)
    listed = cli.json("command", "ls")
    jsonschema.validate(listed, HOSTED_COMMANDS.schema())
    assert ["running", "running"] == [one["state"] for one in listed[:2]]
    shown = cli.json("command", "inspect", "run-of-dumps", "run-of-exports")
    jsonschema.validate(shown, HOSTED_COMMAND.schema())
    assert [60, 41] == [one["err_bytes"] for one in shown]
    words = cli.run("command", "inspect", "run-of-dumps").stdout
    assert "State    archived: exit code 65\n" in words
    assert "\nStandard error, the end of 60 bytes\n  reading customers.yml\n  customers.yml: " in words
    assert "Standard output" not in words
    partly = cli.run("command", "inspect", "run-of-dumps", "other")
    assert (6, True) == (partly.exit_code, "reports command other" in partly.stderr)


def test_a_running_command_is_killed(cli: Cli, redis_url: str, redis_client: RedisClient) -> None:
    """Its task is cancelled, as the audit tells. One that has ended is left alone: its task may run again."""
    Tasks(redis_client, "exports").active("export-november", token="run", lease=4_000_000_000)
    announce_commands(redis_url, SHOP_COMMANDS)
    told = cli.run(
        "command", "kill", "run-of-exports", "run-of-dumps", "--then", "archive", "--reason", "hangs"
    )
    assert (6, "") == (told.exit_code, told.stdout)
    assert "Command run-of-exports of task export-november in queue exports was told to end" in told.stderr
    assert "cannot kill command run-of-dumps: it does not run, it is archived" in told.stderr
    assert 1 == cli.run("command", "kill", "run-of-dumps").exit_code
    with Operator(redis_url, User.with_role("mira", "admin")) as admin:
        [entry] = admin.audit().entries
    assert ("cancel_task", ("exports",), "hangs") == (entry.verb, entry.queues, entry.reason)
    assert "archive" == entry.details["outcome"]


def test_doors_fit_their_schema(cli: Cli, redis_url: str) -> None:
    """One that was closed is told for ten minutes."""
    announce_doors(redis_url)
    listed = cli.json("door", "ls")
    jsonschema.validate(listed, DOORS.schema())
    assert [("10.4.0.17:4730", "open", 7), ("10.4.0.18:4730", "closed", 0)] == [
        (one["address"], one["state"], one["jobs"]) for one in listed
    ]
    assert {"emails": 12, "shipping-labels": 8} == listed[0]["functions"]


def test_without_a_task_service_the_lists_are_empty(cli: Cli) -> None:
    """Programs get an empty list, people a sentence."""
    for noun, sentence in (
        ("delivery", "has sent no requests"),
        ("command", "has run no commands"),
        ("door", "has opened a door"),
    ):
        assert [] == cli.json(noun, "ls")
        assert sentence in cli.run(noun, "ls").stderr


def test_the_pictures_at_80_columns(cli: Cli, redis_url: str) -> None:
    """Ids of commands are whole, so that they can be killed; long names are cut."""
    announce_deliveries(redis_url)
    now = datetime.now(UTC)
    announce_commands(
        redis_url,
        [
            make_command(
                "exports",
                id="5f0c92d1e7a4b386",
                task_id="export-of-november-and-december",
                state="retried",
                end="signal SIGKILL",
                started=now - timedelta(minutes=12),
                ended=now - timedelta(minutes=5),
            )
        ],
    )
    announce_doors(redis_url)
    assert (
        "HOST              TYPE      STATE      REQUESTS    2XX     P50     P99  SEEN\n"
        "billing.example   invoices  called        2,877  2,820   16 ms  512 ms  20 s ago\n"
        "billing.example   payments  called          402    402   16 ms  512 ms  20 s ago\n"
        "legacy.example    images    failing           1      0  4.0 ms  4.0 ms  20 s ago\n"
        "notices.example…  notices   throttled       298    210   16 ms  512 ms  20 s ago\n"
    ) == on_screen("delivery", "ls", "--redis", redis_url)
    assert (
        "ID                TYPE     TASK                   STATE    END               RAN\n"
        "5f0c92d1e7a4b386  exports  export-of-november-a…  retried  signal SIGKILL  7 min\n"
    ) == on_screen("command", "ls", "--redis", redis_url)
    assert (
        "ADDRESS         PROTOCOL  HOST       STATE   WORKERS  CLIENTS  JOBS  FUNCTIONS\n"
        "10.4.0.17:4730  gearman   service-1  open         12        3     7  emails=12,…\n"
        "10.4.0.18:4730  gearman   service-2  closed        0        0     0  -\n"
    ) == on_screen("door", "ls", "--redis", redis_url)
