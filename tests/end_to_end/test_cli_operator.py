"""The commands of operators against a real Redis."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from pyasynq._broker.servers import write_server_state
from pyasynq._broker.task_types import publish_types
from pyasynq._face_records.fleet import SERVERS
from pyasynq._face_records.queues import LISTED_QUEUES
from pyasynq._face_records.tasks import TASKS
from pyasynq._redis.connection_async import AsyncConnection
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.engine_text import encode_engine
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq._wire.messages import ServerInfo
from pyasynq.limits import UNLIMITED, QueueLimits
from pyasynq.sync import Client, Inspector
from pyasynq.task import TaskState
from pyasynq.task_types import TaskTypeInfo
from tests.cli_runner import Cli
from tests.factories import Tasks
from tests.ports import free_port
from tests.shop import fill_shop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.invariants import RedisClient

HOSTILE = "\x1b]0;title\x07\u202email"


@pytest.fixture
def cli(redis_url: str) -> Cli:
    """The command line on the server of this test."""
    return Cli(redis_url)


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """A client that enqueues."""
    with Client(redis_url) as client:
        yield client


@pytest.fixture
def inspector(redis_url: str) -> Iterator[Inspector]:
    """An inspector that looks behind the command line."""
    with Inspector(redis_url) as inspector:
        yield inspector


@contextlib.contextmanager
def counted_exchanges() -> Iterator[list[int]]:
    """Collect the number of commands of each exchange with Redis."""
    exchanges: list[int] = []
    exchange = AsyncConnection.exchange

    async def count(self: AsyncConnection, commands: Iterable[Any], seconds: float) -> Any:
        sent = list(commands)
        exchanges.append(len(sent))
        return await exchange(self, sent, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncConnection, "exchange", count)
        yield exchanges


def test_queues_are_listed_with_their_counts(cli: Cli, client: Client) -> None:
    """The list comes as JSON that fits its schema, as CSV, and as names."""
    client.enqueue("mail", queue="mail")
    client.enqueue("mail", queue="mail", process_in=60)
    client.enqueue("report", queue="reports")

    listed = cli.json("queue", "ls")

    jsonschema.validate(listed, LISTED_QUEUES.schema())
    assert [("mail", 1, 1), ("reports", 1, 0)] == [
        (one["queue"], one["pending"], one["scheduled"]) for one in listed
    ]
    rows = list(csv.DictReader(io.StringIO(cli.run("queue", "ls", "-o", "csv").stdout)))
    assert ["mail", "reports"] == [row["queue"] for row in rows]
    assert "mail\nreports\n" == cli.run("queue", "ls", "-o", "name").stdout
    assert "reports\n" == cli.run("queue", "ls", "rep", "-o", "name").stdout


def test_a_queue_is_paused_for_a_time_and_resumed(cli: Cli, client: Client, inspector: Inspector) -> None:
    """Messages about actions go to stderr: stdout is for data."""
    client.enqueue("mail", queue="mail")

    paused = cli.run("queue", "pause", "mail", "--for", "15m", "--reason", "provider is down")

    assert (0, "", "Paused queue mail for 15 min.\n") == (paused.exit_code, paused.stdout, paused.stderr)
    info = inspector.queue_info("mail")
    assert info.paused
    assert info.paused_until is not None
    assert 0 == cli.run("queue", "resume", "mail").exit_code
    assert not inspector.queue_info("mail").paused


def test_a_pause_of_an_unknown_queue_warns_of_its_name(cli: Cli, client: Client) -> None:
    """A queue may be paused before its first task, but its name may also be misspelt."""
    client.enqueue("t", queue="sms")
    announce_twin(cli.url, "server-1", "bulk")

    misspelt = cli.run("queue", "pause", "smss")
    for_a_time = cli.run("queue", "pause", "smsss", "--for", "15m")
    known = [cli.run("queue", "pause", name) for name in ("sms", "bulk")]

    assert 0 == misspelt.exit_code
    warning = "Warning: queue 'smss' does not exist yet, and stays paused until  pyasynq queue resume smss"
    assert f"Paused queue smss.\n{warning}; did you mean 'sms'?\n" == misspelt.stderr
    assert "Warning: queue 'smsss' does not exist yet; did you mean 'sms'?\n" in for_a_time.stderr
    assert ["Paused queue sms.\n", "Paused queue bulk.\n"] == [one.stderr for one in known]


@pytest.fixture
def published(redis_url: str) -> None:
    """Types that workers publish: two of an app and the pattern of a mux."""
    types = [
        TaskTypeInfo("reminder:send", queue="sms"),
        TaskTypeInfo("report"),
        TaskTypeInfo("image:", queue="images", is_prefix=True),
    ]
    driver = BlockingDriver(parse_redis_url(redis_url))
    driver.run(publish_types(types))
    driver.close()


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("arguments", "queue", "told"),
    [
        (["reminder:send"], "sms", "To queue sms, as workers say.\n"),
        (["reminder:send", "-q", "bulk"], "bulk", ""),
        (["report"], "default", ""),
        (["image:resize"], "images", "To queue images, as workers say.\n"),
        (
            ["reminder:sned"],
            "default",
            "Warning: no worker says that it handles 'reminder:sned'; did you mean 'reminder:send'?\n",
        ),
        (["unlike", "-q", "bulk"], "bulk", "Warning: no worker says that it handles 'unlike'\n"),
    ],
)
def test_a_task_goes_to_the_queue_that_workers_publish(
    cli: Cli, inspector: Inspector, arguments: list[str], queue: str, told: str
) -> None:
    """A type that none of them publishes is enqueued too, with a warning."""
    result = cli.run("enqueue", *arguments, "--id", "one")

    assert (0, f"Enqueued task one to queue {queue}.\n", told) == (
        result.exit_code,
        result.stdout,
        result.stderr,
    )
    assert arguments[0] == inspector.task_info(queue, "one").type


def test_without_published_types_no_task_is_doubted(cli: Cli) -> None:
    """Workers in Go publish none."""
    assert "" == cli.run("enqueue", "reminder:sned").stderr


@pytest.mark.parametrize("command", [("run",), ("inspect",), ("delete", "--reason", "typo", "--yes")])
def test_an_id_that_no_queue_has_is_not_found_in_any_queue(
    cli: Cli, client: Client, command: tuple[str, ...]
) -> None:
    """With `-q` the error names the queue."""
    client.enqueue("t", queue="sms")

    result = cli.run("task", *command, "nope")
    in_queue = cli.run("task", *command, "nope", "-q", "sms")

    assert (1, "Error: cannot find task with id=nope in any queue\n") == (result.exit_code, result.stderr)
    assert "Error: cannot find task with id=nope in queue 'sms'\n" == in_queue.stderr


def test_a_part_that_fails_is_told_and_gives_its_own_exit_code(cli: Cli, client: Client) -> None:
    """The others are done; if all fail the code is 1."""
    client.enqueue("mail", queue="mail")
    cli.run("queue", "pause", "mail")
    partly = cli.run("queue", "resume", "mail", "nix")
    assert (6, True) == (partly.exit_code, "queue 'nix' is not paused" in partly.stderr)
    assert 1 == cli.run("queue", "resume", "mail", "nix").exit_code


def test_errors_for_people_come_in_time_and_tell_what_was_left_out(
    cli: Cli, client: Client, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues with the most failed tasks come first; programs, and who asks for more, get all."""
    monkeypatch.setattr("pyasynq.cli.look._SECONDS", 0.0)
    monkeypatch.setattr("pyasynq.cli.look._QUEUES_AT_ONCE", 1)
    for queue in ("few", "many", "many"):
        inspector.archive_task(queue, client.enqueue("mail", queue=queue).id)
    left_out = "Only 1 of 2 queues, those with the most such tasks, were looked at; --scan 5000 looks at all."

    assert left_out in cli.run("errors").stderr
    for arguments in (("-o", "json"), ("--scan", "10"), ("-q", "few", "-q", "many")):
        assert "looked at" not in cli.run("errors", *arguments).stderr


@pytest.mark.parametrize("arguments", [("errors",), ("errors", "-o", "json"), ("errors", "-s", "retry")])
def test_errors_of_many_queues_take_no_more_exchanges_than_those_of_a_few(
    cli: Cli, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """Queues are counted and read in shared pipelines: an exchange takes as long as the way to Redis."""
    monkeypatch.setattr("pyasynq.cli.look._SECONDS", 60.0)
    numbers = []
    for count in (3, 60):
        for number in range(count):
            tasks = Tasks(redis_client, f"queue-{number}")
            redis_client.sadd(ALL_QUEUES, tasks.keys.queue)
            for state in (TaskState.ARCHIVED, TaskState.RETRY):
                tasks.put(state, f"{number}-{state}", error_msg="timeout")
        cli.run(*arguments)  # loads the scripts
        with counted_exchanges() as exchanges:
            result = cli.run(*arguments)
        assert f"{count} queues" in result.stdout or count == len(json.loads(result.stdout))
        numbers.append(len(exchanges))
    few, many = numbers
    assert few == many


def test_tasks_are_listed_by_a_query_within_a_queue_and_a_state(cli: Cli, redis_client: RedisClient) -> None:
    """Without a query both have to be named."""
    for queue, task_id, error in (("mail", "a", "timeout"), ("mail", "b", "refused"), ("x", "c", "timeout")):
        Tasks(redis_client, queue).put(TaskState.ARCHIVED, task_id, error_msg=error)
    listed = {
        arguments: set(cli.run("task", "ls", *arguments, "-o", "name").stdout.split())
        for arguments in (
            ("--where", "error:timeout"),
            ("--where", "error:timeout", "-q", "mail"),
            ("--where", "error:timeout OR error:refused", "-q", "mail", "-s", "archived"),
            ("--where", "error:timeout", "-s", "retry"),
        )
    }
    assert [{"a", "c"}, {"a"}, {"a", "b"}, set()] == list(listed.values())
    for wrong in (("-q", "mail"), ("-s", "retry"), ("--where", "x", "--page", "2")):
        assert 2 == cli.run("task", "ls", *wrong).exit_code


def test_an_error_in_several_queues_is_one_row_for_people_and_one_a_queue_for_programs(
    cli: Cli, redis_client: RedisClient
) -> None:
    """With a thousand queues, a person could not see the errors for the rows."""
    for queue, error in (("few", "timeout"), ("many", "timeout"), ("many", "refused")):
        Tasks(redis_client, queue).put(TaskState.ARCHIVED, f"{queue}-{error}", error_msg=error)
    rows = cli.run("errors").stdout.splitlines()[1:]
    assert [True, False] == ["2 queues" in row for row in rows]
    assert [True, False] == ["timeout" in row for row in rows]
    found = cli.json("errors")
    assert [("few", "timeout"), ("many", "refused"), ("many", "timeout")] == sorted(
        (one["queue"], one["signature"]) for one in found
    )


def test_the_numbers_above_the_queues_are_theirs(cli: Cli, client: Client, redis_client: RedisClient) -> None:
    """All queues are read once, not once for the sums and again for the table."""
    client.enqueue("mail", queue="mail")
    cli.run("stats")  # loads the scripts
    redis_client.config_resetstat()

    shown = cli.run("stats").stdout

    assert "1 pending" in shown
    assert 1 == redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]


def test_tasks_are_listed_inspected_and_run_by_their_ids(
    cli: Cli, client: Client, inspector: Inspector
) -> None:
    """The queue of an id need not be named."""
    client.enqueue("other", queue="other")
    info = client.enqueue("mail", b'{"to": 42}', queue="mail", process_in=60)

    listed = cli.json("task", "ls", "-q", "mail", "-s", "scheduled")

    jsonschema.validate(listed, TASKS.schema())
    assert [(info.id, {"to": 42})] == [(one["id"], one["payload"]) for one in listed]
    assert [info.id] == [one["id"] for one in cli.json("task", "inspect", info.id)]
    shown = cli.run("task", "inspect", info.id).stdout
    assert "scheduled, due in " in shown
    assert '{"to": 42}' in shown
    assert 0 == cli.run("task", "run", info.id).exit_code
    assert "pending" == inspector.task_info("mail", info.id).state


def test_deleting_asks_and_without_a_terminal_needs_yes(
    cli: Cli, client: Client, inspector: Inspector
) -> None:
    """A script must say that it is sure."""
    info = client.enqueue("mail", queue="mail")

    refused = cli.run("task", "rm", info.id)

    assert 4 == refused.exit_code
    assert "give --yes, since no terminal can be asked" in refused.stderr
    assert 1 == inspector.queue_info("mail").pending
    assert 0 == cli.run("task", "rm", info.id, "--yes").exit_code
    assert 0 == inspector.queue_info("mail").pending


def test_ids_come_from_stdin(cli: Cli, client: Client, inspector: Inspector) -> None:
    """So that the names of one command are the subjects of another."""
    for _ in range(3):
        client.enqueue("mail", queue="mail")
    names = cli.run("task", "ls", "-q", "mail", "-s", "pending", "-o", "name").stdout

    result = cli.run("task", "archive", "-", typed=names)

    assert (0, 3) == (result.exit_code, inspector.queue_info("mail").archived)


def test_no_byte_of_a_task_reaches_the_terminal_unshown(cli: Cli, client: Client) -> None:
    """Escape sequences would rewrite it, and bidirectional controls reorder it."""
    client.enqueue(HOSTILE, HOSTILE.encode(), queue=HOSTILE, headers={HOSTILE: HOSTILE}, group=HOSTILE)
    client.enqueue(HOSTILE, HOSTILE.encode(), queue=HOSTILE, task_id=HOSTILE)
    for arguments in (
        ("stats",),
        ("queue", "ls"),
        ("queue", "inspect", HOSTILE),
        ("task", "ls", "-q", HOSTILE, "-s", "pending", "-o", "wide"),
        ("task", "inspect", HOSTILE),
        ("group", "ls", "-q", HOSTILE),
        ("task", "inspect", "nix" + HOSTILE),
    ):
        result = cli.run(*arguments)
        assert not set("\x1b\x07\u202e") & set(result.output), arguments


@pytest.mark.usefixtures("impatient")
def test_redis_that_is_away_is_one_sentence_and_exit_code_5() -> None:
    """With the address, for programs also as an object."""
    result = Cli(f"redis://127.0.0.1:{free_port()}").run("queue", "ls", "--json")
    assert 5 == result.exit_code
    assert "redis_unavailable" == json.loads(result.stderr)["error"]["code"]
    assert "" == result.stdout


def test_without_servers_the_list_is_empty(cli: Cli) -> None:
    """Programs get an empty list; people are told how to start a server."""
    jsonschema.validate(cli.json("server", "ls"), SERVERS.schema())
    assert "start one with" in cli.run("server", "ls").stderr


def test_stats_in_the_shape_of_asynq_have_its_names(cli: Cli, client: Client) -> None:
    """`--format asynq` serves scripts that read the fields of Asynq's command."""
    client.enqueue("mail", queue="mail")
    content = cli.json("stats", "--format", "asynq")
    assert {"aggregate", "queues", "redis"} == set(content)
    assert ("mail", 1, False) == tuple(content["queues"][0][name] for name in ("Queue", "Pending", "Paused"))


def test_a_server_is_named_by_host_and_process_or_by_its_id(cli: Cli, redis_client: RedisClient) -> None:
    """As a table shows it; a name that fits several servers is refused with their ids."""
    fill_shop(redis_client, cli.url, scale=10_000)
    announce_twin(cli.url)

    quieted = cli.run("server", "quiet", "go-a:7", "server-4")
    assert 2 == quieted.stderr.count("is one in Go")
    assert 0 == quieted.exit_code
    missing = cli.run("server", "stop", "worker-9:1")
    assert (1, True) == (missing.exit_code, "worker-9:1" in missing.stderr)
    twins = cli.run("server", "stop", "worker-1:3900")
    assert (1, True) == (twins.exit_code, "give an id: server-1 twin" in twins.stderr)


def test_all_servers_of_a_version_are_stopped(cli: Cli, redis_client: RedisClient) -> None:
    """The version is in the list as JSON; without --yes and a terminal nothing is asked."""
    fill_shop(redis_client, cli.url, scale=10_000)
    versions = {one["host"]: (one["version"], one["engine_version"]) for one in cli.json("server", "ls")}
    assert ("2026.11.2", "0.1.0") == versions["worker-1"]
    assert ("", "") == versions["go-a"]
    assert ["worker-3"] == [one["host"] for one in cli.json("server", "ls", "--version", "2026.11.1")]

    unasked = cli.run("server", "stop", "--version", "2026.11.1")
    assert (4, True) == (unasked.exit_code, "Stop 1 server of version 2026.11.1" in unasked.stderr)
    for wrong in (("server", "quiet"), ("server", "quiet", "a:1", "--version", "2026.11.1")):
        assert 2 == cli.run(*wrong).exit_code
    assert 1 == cli.run("server", "quiet", "--version", "2025.1", "--yes").exit_code
    assert [] == redis_client.keys("asynq:x:ask:*")


@pytest.mark.long
def test_servers_of_a_version_that_do_not_answer_are_told(cli: Cli, redis_client: RedisClient) -> None:
    """The command waits for two heartbeats."""
    fill_shop(redis_client, cli.url, scale=10_000)
    asked = cli.run("server", "quiet", "--version", "2026.11.1", "--yes", "--reason", "leaks")
    assert (0, "Server worker-3:3902 has not answered yet.\n") == (asked.exit_code, asked.stderr)
    assert [b"asynq:x:ask:server-3"] == redis_client.keys("asynq:x:ask:*")


def announce_twin(
    url: str, server_id: str = "twin", queue: str = "payments", limits: QueueLimits = UNLIMITED
) -> None:
    """Let another server run in the process of the first one."""
    info = ServerInfo(
        host="worker-1",
        pid=3_900,
        server_id=server_id,
        concurrency=1,
        queues={queue: 1},
        strict_priority=False,
        status="active",
        start_time=datetime.now(UTC),
        active_worker_count=0,
        engine=encode_engine("pyasynq", {queue: limits} if limits else {}),
    )
    driver = BlockingDriver(parse_redis_url(url))
    driver.run(write_server_state(info, [], ttl=60))
    driver.close()


def test_limits_that_servers_declare_are_shown_where_none_is_stored(
    cli: Cli, client: Client, inspector: Inspector
) -> None:
    """The limit of a queue is what holds: the stored one, or the largest that all of its servers declare."""
    for queue in ("declared", "partly", "stored"):
        client.enqueue("mail", queue=queue)
        announce_twin(cli.url, f"{queue}-1", queue, QueueLimits(max_run=3))
    announce_twin(cli.url, "declared-2", "declared", QueueLimits(max_run=2))
    announce_twin(cli.url, "partly-2", "partly")
    inspector.set_queue_limits("stored", max_run=5)
    expected = {"declared": 3, "partly": None, "stored": 5}
    for command in (("stats",), ("queue", "ls"), ("queue", "inspect", *expected), ("top",)):
        assert expected == {one["queue"]: one["limit"] for one in cli.json(*command)}, command
    described = cli.run("queue", "inspect", *expected).stdout
    limits = [line.split(maxsplit=1)[1] for line in described.splitlines() if line.startswith("Limits")]
    assert ["3 at once, by its servers", "none stored", "5 at once"] == limits


def test_limits_of_a_queue_that_does_not_exist_are_an_error(cli: Cli, client: Client) -> None:
    """A mistyped name is not shown as a queue without limits."""
    client.enqueue("mail", queue="mail")
    assert 0 == cli.run("limits", "mail").exit_code
    wrong = cli.run("limits", "mial")
    assert (1, True) == (wrong.exit_code, "'mial' does not exist" in wrong.stderr)


def test_a_mark_is_not_set_by_a_wish_to_list_the_marks(cli: Cli) -> None:
    """Other nouns are listed by `ls`."""
    refused = cli.run("mark", "ls")
    assert (2, True) == (refused.exit_code, "pyasynq mark --list" in refused.stderr)
    assert [] == cli.json("mark", "--list")
