"""Commands in a real terminal: widths, colors, hostile texts, closed pipes, and a Redis that goes away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyasynq.embedded import EmbeddedServer
from pyasynq.sync import Client
from pyasynq.task import Task, TaskState
from tests.factories import Tasks
from tests.foreign_texts import HOSTILE_TEXTS
from tests.shop import fill_shop
from tests.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.invariants import RedisClient

ID = "7d1e5a4c-4b0e-4f0a-9d9e-1a2b3c4d5e6"
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_STYLES = re.compile(rb"\x1b\[[0-9;]*[mK]")
"""Colors, weights, and the clearing of the status line: the only sequences that a command may write."""


def on_screen(*arguments: str, columns: int = 80, env: dict[str, str | None] | None = None) -> Terminal:
    """Run a command to its end in a terminal."""
    with Terminal(*arguments, columns=columns, lines=500, env=env) as terminal:
        terminal.finish()
    return terminal


def fill(redis_client: RedisClient) -> None:
    """Put tasks into two queues, with long names and errors."""
    mail, reports = Tasks(redis_client, "mail"), Tasks(redis_client, "monthly-reports-of-all-departments")
    mail.put(
        TaskState.ARCHIVED,
        ID + "1",
        type="email:deliver-with-attachments",
        error_msg="the provider answered 503 Service Unavailable after 30 s",
        payload=b'{"user_id": 42, "template": "welcome", "language": "en"}',
    )
    reports.put(TaskState.ARCHIVED, ID + "2", type="report", error_msg="timeout")
    mail.pending(ID + "3")


@pytest.mark.long
@pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.long)])
def test_a_table_fits_the_terminal_and_ids_are_whole(
    redis_url: str, redis_client: RedisClient, columns: int
) -> None:
    """Long texts are cut with an ellipsis, so that each row is one line."""
    fill(redis_client)
    for command in (
        ("stats",),
        ("task", "ls", "-q", "mail", "-s", "archived"),
        ("search", "state:archived"),
        ("errors",),
    ):
        terminal = on_screen(*command, "--redis", redis_url, columns=columns)
        rows = [line for line in terminal.raw.decode().split("\r\n") if "7d1e5a4c" in line or "503" in line]
        assert all(len(_STYLES.sub(b"", row.encode()).decode()) <= columns for row in rows), rows
        if command[0] in {"task", "search"}:
            assert ID + "1 " in terminal.text


def test_the_picture_of_queues_at_80_columns(redis_url: str, redis_client: RedisClient) -> None:
    """Names are to the left, numbers to the right, and the limit is where a queue is shown."""
    Tasks(redis_client, "mail").put(TaskState.SCHEDULED, *(str(number) for number in range(1_200)))
    Tasks(redis_client, "monthly-reports-of-all-departments").put(TaskState.ARCHIVED, ID)
    shown = on_screen("queue", "ls", "--redis", redis_url).text
    assert (
        "QUEUE          STATE    PENDING  OLDEST  ACTIVE  LIMIT  SCHED  RETRY  ARCH  DONE\n"
        "mail           running        0       -       0      -  1,200      0     0     0\n"
        "monthly-repo…  running        0       -       0      -      0      0     1     0\n"
    ) == shown


def test_the_picture_of_limits_at_80_columns(redis_url: str, redis_client: RedisClient) -> None:
    """One long name of a queue does not break the lines of the others."""
    name = "a-queue-whose-name-is-longer-than-a-whole-line-of-a-terminal-has-cells-" + "x" * 20
    for queue in (name, "mail"):
        Tasks(redis_client, queue).pending("a")
    shown = on_screen("limits", "--redis", redis_url).text
    assert (
        "QUEUE                            AT ONCE  ACTIVE  RATE  ORDERED  SERVERS ASK FOR\n"
        "a-queue-whose-name-is-longer-t…        -       0  -     no       -\n"
        "mail                                   -       0  -     no       -\n"
    ) == shown


def test_the_picture_of_servers_has_process_ids_as_kill_takes_them(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Process ids have no thousands separators, unlike counts."""
    fill_shop(redis_client, redis_url, scale=10_000)
    rows = on_screen("server", "ls", "--redis", redis_url, columns=200).text.splitlines()
    assert ["worker-1", "3900", "active"] == rows[2].split()[:3]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("env", "has_color"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["colors", "NO_COLOR", "dumb"],
)
def test_colors_follow_the_terminal(
    redis_url: str, redis_client: RedisClient, env: dict[str, str | None], *, has_color: bool
) -> None:
    """Archived tasks are red where there may be colors."""
    fill(redis_client)
    own: dict[str, str | None] = {"NO_COLOR": None, "CLICOLOR_FORCE": None, **env}
    terminal = on_screen("queue", "ls", "--redis", redis_url, env=own)
    assert has_color == bool(_STYLES.search(terminal.raw))


@pytest.mark.parametrize(
    ("pager", "shown"),
    [("less", b"LESS=-R"), ("more", b"LESS=\r")],
    ids=["less", "more"],
)
def test_a_pager_gets_colors_if_it_passes_them_on(
    redis_url: str, redis_client: RedisClient, tmp_path: Path, pager: str, shown: bytes
) -> None:
    """`less` without -R would show each color as the text `ESC[31m`."""
    fill(redis_client)
    program = tmp_path / pager
    program.write_text('#!/bin/sh\necho "LESS=$LESS"\nexec cat\n', "utf-8")
    program.chmod(0o755)
    env: dict[str, str | None] = {
        "PAGER": pager,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "LESS": None,
        "NO_COLOR": None,
        "CLICOLOR_FORCE": None,
    }
    with Terminal("queue", "ls", "--redis", redis_url, lines=3, env=env) as terminal:
        assert 0 == terminal.finish()
    assert shown in terminal.raw
    assert (pager == "less") == (b"\x1b[31m" in terminal.raw)


@pytest.mark.long
def test_hostile_texts_do_nothing_to_the_terminal(redis_url: str, redis_client: RedisClient) -> None:
    """In queues, types, ids, payloads, headers and errors: no title, clipboard, cursor or hidden text."""
    for text in HOSTILE_TEXTS:
        tasks = Tasks(redis_client, text)
        tasks.put(
            TaskState.ARCHIVED, text, type=text, error_msg=text, payload=text.encode(), headers={text: text}
        )
    names = [text for text in HOSTILE_TEXTS if "\0" not in text]
    for command in (
        ("stats",),
        ("queue", "ls", "-o", "wide"),
        ("queue", "inspect", *names),
        ("task", "inspect", *names),
        ("task", "ls", "-q", names[0], "-s", "archived", "-o", "wide"),
        ("search", "state:archived", "-o", "wide"),
        ("search", "state:archived", "-o", "json"),
        ("errors",),
        ("task", "run", *names),
    ):
        terminal = on_screen(*command, "--redis", redis_url)
        rest = _STYLES.sub(b"", terminal.raw).decode()
        assert [] == _HIDDEN.findall(rest), command
        assert "" == terminal.screen.title
        assert "clear" in rest, command


def test_a_closed_pipe_ends_a_command_without_a_traceback(redis_url: str, redis_client: RedisClient) -> None:
    """`pyasynq task ls … | head -1` closes the pipe in this way."""
    Tasks(redis_client, "mail").pending(*(f"a{number:04}" for number in range(1_000)))
    command = f"{sys.executable} -m pyasynq.cli task ls -q mail -s pending --size 1000 -o jsonl | head -1"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYASYNQ_REDIS_URL": redis_url},
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert 1 == done.stdout.count("\n")


@pytest.mark.long
def test_redis_that_goes_away_in_an_operation_is_told_with_how_to_go_on() -> None:
    """Exit code 5."""
    with EmbeddedServer() as server:
        with Client(server.url) as client:
            client.enqueue_many([Task("t")] * 300, process_in=60)
        arguments = ("task", "run", "--where", "state:scheduled", "--yes", "--reason", "r", "--rate", "20")
        with Terminal(*arguments, "--redis", server.url) as terminal:
            terminal.wait_for("Running")
            server.stop()
            assert 5 == terminal.finish(), terminal.text
            assert "The operation is not finished. Go on with  pyasynq op resume" in terminal.text
            assert "cannot be reached" in terminal.text.replace("\n", "")
