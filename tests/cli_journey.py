"""Record how an operator finds what fails and acts on it, in five commands, for docs/cli.md.

    python -m tests.cli_journey [--check]

The commands run in a real terminal on a server of their own, and the answers are typed. With --check nothing
is written, and exit code 1 says that the commands answer differently by now.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final

import redis

from pyasynq.embedded import EmbeddedServer
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.recorded_page import write_or_check
from tests.terminal import Terminal

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "cli" / "journey.md"
HEAD: Final = """\
# What fails, since when, and why

After reading this page you can find failed tasks by their errors, run exactly those again,
and take back a deletion. The commands were recorded from a terminal by `python -m tests.cli_journey`.

"""
_COLUMNS: Final = 100
_HOUR: Final = 3_600
_IDS: Final = ("7d1e5a4c-4b0e-4f0a-9d9e-{number:012}".format, "c0ffee00-4b0e-4f0a-9d9e-{number:012}".format)


def fill(url: str) -> None:
    """Put tasks into the archive: 40 of a provider that was away, and two without an address."""
    client = redis.Redis.from_url(url)
    now = int(time.time())
    mail = Tasks(client, "mail")
    for number in range(40):
        failed = now - 3 * _HOUR + number * 60 - 1_800
        mail.put(
            TaskState.ARCHIVED,
            _IDS[0](number=number),
            score=failed,
            type="email:deliver",
            payload=b'{"user_id": %d, "template": "welcome"}' % (4_000 + number),
            error_msg=f"connection to 10.0.0.{number % 7}:465 refused",
            last_failed_at=failed,
            retried=25,
            retry=25,
        )
    for number in range(2):
        failed = now - 26 * _HOUR
        mail.put(
            TaskState.ARCHIVED,
            _IDS[1](number=number),
            score=failed,
            type="email:deliver",
            payload=b'{"user_id": %d}' % (17 + number),
            error_msg=f"user {17 + number} has no address",
            last_failed_at=failed,
            retried=0,
            retry=25,
        )


def record(url: str) -> str:
    """Return the page."""
    parts = [HEAD]
    found = run(url, "errors")
    refused, address = (
        next(line.split()[0] for line in found.splitlines() if text in line)
        for text in ("refused", "address")
    )
    steps = (
        ("What fails, since when? `SIG` stands for errors that are alike.", found),
        (
            "Why? The newest of them, with everything that is known.",
            run(url, "task", "inspect", _IDS[0](number=39)),
        ),
        (
            "The provider is back: run exactly those again.",
            run(
                url,
                "task",
                "run",
                "--where",
                f"error:sig:{refused}",
                "--reason",
                "provider is back",
                typed=["y"],
            ),
        ),
        (
            "The others cannot succeed: delete them.",
            run(url, "task", "rm", "--where", f"error:sig:{address}", typed=["y", "no address, no mail"]),
        ),
        ("They could, after all: put them back.", run(url, "undo", typed=["y"])),
    )
    parts += [f"{text}\n\n```console\n{shown}```\n\n" for text, shown in steps]
    return "".join(parts).rstrip() + "\n"


def run(url: str, *arguments: str, typed: list[str] | None = None) -> str:
    """Return a command and what the terminal shows, with the answers that are typed."""
    quoted = [f"'{one}'" if re.search(r"[\s]", one) else one for one in arguments]
    own = {"PYASYNQ_REDIS_URL": url, "TZ": "UTC", "NO_COLOR": "1"}
    with Terminal(*arguments, columns=_COLUMNS, env=own) as terminal:
        for answer in typed or ():
            terminal.wait_for("[y/N]" if answer == "y" else "Why?")
            terminal.type(f"{answer}\r")
        if terminal.finish():
            raise AssertionError(terminal.text)
        return f"$ pyasynq {' '.join(quoted)}\n{replace_what_differs(terminal.text)}"


def replace_what_differs(text: str) -> str:
    """Return the text with the same address, user, id of an operation and times in each recording."""
    text = re.sub(r"/\S+\.sock", "redis.example:6379", text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "5f1d2c3b4a596877", text)
    text = re.sub(r"\S+@\S+ deleted", "ana@laptop deleted", text)
    text = re.sub(r"(of queue mail) (just now|[\d.]+ m?s ago)", r"\1 just now", text)
    text = re.sub(r"2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "2026-11-25 14:05:00 UTC", text)
    return re.sub(r"for (1 day|23 h[\d min]*)$", "for 1 day", text, flags=re.MULTILINE)


def make_page() -> str:
    """Return the page, recorded on a server of its own."""
    with EmbeddedServer() as server:
        fill(server.url)
        return record(server.url)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, "tests.cli_journey", make_page))
