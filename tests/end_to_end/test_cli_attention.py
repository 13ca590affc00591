"""The commands `pyasynq attention`: findings with their cures, snoozes and objectives."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import jsonschema
import pytest

from pyasynq._error_signature import signature_id
from pyasynq._face_records.attention import FINDINGS
from pyasynq._wire.keys import queue_keys
from tests.cli_runner import Cli
from tests.factories import Tasks
from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.invariants import RedisClient

PAUSED = signature_id('["paused_long","mail",""]')
UNSERVED = signature_id('["no_consumers","default",""]')
"""Ids of the findings that `mail` is paused, and that no server takes tasks from `default`."""


@pytest.fixture
def cli(redis_url: str) -> Cli:
    """The command line on the server of this test."""
    return Cli(redis_url)


@pytest.fixture
def paused(redis_client: RedisClient, tasks: Tasks) -> None:
    """A queue `mail` that was paused two hours ago, and one that no server takes from."""
    now = int(time.time())
    mail = Tasks(redis_client, "mail")
    mail.pending("m")
    redis_client.set(queue_keys("mail").paused, str(now - 7_200))
    tasks.pending("a", "b")
    for name in "ab":
        redis_client.hset(tasks.keys.task(name), "pending_since", str((now - 600) * 10**9))


def test_nothing_to_look_at_is_exit_code_0(cli: Cli) -> None:
    """And says so on stderr, so that a script reads an empty list."""
    result = cli.run("attention")
    assert (0, "", "Nothing needs attention.\n") == (result.exit_code, result.stdout, result.stderr)
    assert [] == cli.json("attention", "list")


@pytest.mark.usefixtures("paused")
def test_findings_are_exit_code_1_in_each_format(cli: Cli) -> None:
    """The most severe first; --severity and --queue leave others out."""
    result = cli.run("attention", "-o", "name")
    assert (1, f"{UNSERVED}\n{PAUSED}\n") == (result.exit_code, result.stdout)
    assert (0, "") == (
        (mild := cli.run("attention", "-q", "mail", "--severity", "3")).exit_code,
        mild.stdout,
    )
    table = cli.run("attention", "-q", "mail", "-o", "wide").stdout
    assert "paused_long" in table
    assert "pyasynq queue unpause mail" in table
    assert table.startswith("FINDING ")


def test_of_many_findings_of_a_kind_people_see_some_and_programs_all(
    cli: Cli, redis_client: RedisClient
) -> None:
    """Without a worker each queue has one, and a list of a thousand hides the others."""
    waiting_since = str((int(time.time()) - 600) * 10**9)
    for number in range(12):
        tasks = Tasks(redis_client, f"queue-{number}")
        tasks.pending("a")
        redis_client.hset(tasks.keys.task("a"), "pending_since", waiting_since)
    shown = cli.run("attention")
    assert (1, 10) == (shown.exit_code, shown.stdout.count("5  no_consumers"))
    assert (
        "Only the first 10 of 12 no_consumers findings are shown; --all shows all of them.\n" == shown.stderr
    )
    whole = cli.run("attention", "list", "--all")
    assert (12, "") == (whole.stdout.count("5  no_consumers"), whole.stderr)
    assert 12 == cli.run("attention", "-o", "name").stdout.count("\n")


@pytest.mark.usefixtures("paused")
def test_a_snoozed_finding_is_silent_until_its_end(cli: Cli) -> None:
    """It is shown on request, with the reason, and who gave it."""
    snoozed = cli.run("attention", "snooze", PAUSED, "--for", "2h", "--reason", "migration \x1b[2J")
    assert (0, True) == (
        snoozed.exit_code,
        snoozed.stderr.startswith("Snoozed paused_long of mail for 2 h, until "),
    )
    assert 0 == cli.run("attention", "-q", "mail").exit_code
    shown = cli.run("attention", "-q", "mail", "--snoozed")
    assert (0, True) == (shown.exit_code, "migration ␛[2J" in shown.stdout)
    listed = cli.json("attention", "--queue", "mail", "--snoozed")
    jsonschema.validate(listed, FINDINGS.schema())
    assert [(PAUSED, "migration \x1b[2J")] == [(one["id"], one["snooze_reason"]) for one in listed]
    assert 0 == cli.run("attention", "unsnooze", PAUSED).exit_code
    again = cli.run("attention", "unsnooze", PAUSED)
    assert (1, True) == (again.exit_code, "paused_long of mail is not snoozed" in again.stderr)


@pytest.mark.usefixtures("paused")
def test_a_wrong_id_is_told_the_nearest_one(cli: Cli) -> None:
    """A snooze needs a reason and a time as well."""
    wrong = cli.run("attention", "snooze", PAUSED[:-1], "--for", "2h", "--reason", "r")
    assert (1, True) == (wrong.exit_code, f"did you mean '{PAUSED}'" in wrong.stderr)
    assert 2 == cli.run("attention", "snooze", PAUSED, "--for", "2h").exit_code
    assert 2 == cli.run("attention", "snooze", PAUSED, "--reason", "r").exit_code
    long = cli.run("attention", "snooze", PAUSED, "--for", "31d", "--reason", "r")
    assert (1, True) == (long.exit_code, "must be at most 30 days" in long.stderr)


@pytest.mark.usefixtures("paused")
def test_an_objective_is_set_and_removed(cli: Cli, redis_client: RedisClient, tasks: Tasks) -> None:
    """A duration sets the objective of a queue, and `none` removes it."""
    set_ = cli.run("attention", "wait-objective", "default", "30s", "--reason", "promised")
    assert (0, "The next task of queue default may be pending for 30 s.\n") == (set_.exit_code, set_.stderr)
    assert redis_client.exists(tasks.keys.objectives)
    removed = cli.run("attention", "wait-objective", "default", "none")
    assert (0, "Queue default has no objective of its own now.\n") == (removed.exit_code, removed.stderr)
    assert not redis_client.exists(tasks.keys.objectives)
    assert 2 == cli.run("attention", "wait-objective", "default", "soon").exit_code


@pytest.mark.usefixtures("paused")
def test_findings_in_a_terminal_have_commands_to_paste(redis_url: str) -> None:
    """Sentences are wrapped at words, and commands are whole."""
    with Terminal("attention", "--redis", redis_url, env={"PYASYNQ_REDIS_URL": None}) as terminal:
        assert 1 == terminal.finish()
    first, _, second = re.sub(r" \d+ s\b| 0 min\b", "", terminal.text).partition("\n\n")
    assert [
        f"5  no_consumers  {UNSERVED}  default, since 10 min ago",
        "   No server takes tasks from default, and 2 tasks are pending, the next one for",
        "   10 min.",
        "   Tasks: pyasynq search 'queue:default state:pending'",
        "   Start a worker that serves the queue:",
        "     pyasynq worker MODULE:APP --queues default",
    ] == first.splitlines()
    assert [
        f"2  paused_long  {PAUSED}  mail, since 2 h ago",
        "   mail has been paused for 2 h, and 1 task is pending.",
        "   Tasks: pyasynq search 'queue:mail state:pending'",
        "   Resume the queue:",
        "     pyasynq queue unpause mail",
    ] == second.splitlines()


@pytest.mark.usefixtures("paused")
def test_findings_are_watched_until_ctrl_c(cli: Cli, redis_url: str) -> None:
    """A terminal is redrawn."""
    with Terminal("attention", "--watch=0.2", "--redis", redis_url) as terminal:
        terminal.wait_for("paused_long")
        cli.run("queue", "resume", "mail")
        cli.run("attention", "snooze", UNSERVED, "--for", "1h", "--reason", "r")
        terminal.wait_for("Nothing needs attention.")
        terminal.type("\x03")
        assert 130 == terminal.finish()
