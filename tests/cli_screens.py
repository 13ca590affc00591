"""Record what the commands that look show in a terminal of 80 columns, for docs/cli/screens.md.

    python -m tests.cli_screens [--check]

The commands run in a real terminal on a server of their own. With --check nothing is written, and exit code 1
says that the commands answer differently by now.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from pyasynq._broker.servers import write_server_state
from pyasynq._broker.task_types import publish_types
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import SCHEDULERS_KEY, queue_keys, scheduler_history_key, scheduler_key
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry, ServerInfo, WorkerInfo
from pyasynq.embedded import EmbeddedServer
from pyasynq.operations import (
    CommandReport,
    DeliveryReport,
    HostedCommand,
    Operator,
    ServiceDoor,
    User,
    report_commands,
    report_deliveries,
    report_doors,
)
from pyasynq.task import TaskState
from pyasynq.task_types import TaskTypeInfo
from tests.factories import Tasks
from tests.recorded_page import write_or_check
from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.invariants import RedisClient

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "cli" / "screens.md"
HEAD: Final = """\
# Output of the commands

After reading this page you know what each command that looks at queues prints in a terminal of 80 columns.
A wider terminal shows more; `-o wide` shows all columns, and `-o json` all fields.
The commands were recorded by `python -m tests.cli_screens`.
"""
_COLUMNS: Final = 80
_USER: Final = "ana"
_MINUTE: Final = 60
_HOUR: Final = 3_600
_AGE: Final = 3 * _HOUR + 30 * _MINUTE
_ENTRY: Final = "0d2c7f0e-9f4e-4a8e-8a35-5b1d1f6b7c11"
_CHANGES: Final[tuple[tuple[str, ...], ...]] = (
    ("limits", "mail", "--max-run", "10", "--rate", "50/s", "--reason", "provider's limit"),
    ("queue", "pause", "reports", "--reason", "database is moved"),
    ("task", "run", "7d1e5a4c-4b0e-4f0a-9d9e-000000000301", "--reason", "provider is back"),
    ("view", "save", "stuck mail", "queue:mail retried:>2"),
)
"""What users did before."""
_COMMANDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("All queues at a glance.", ("stats",)),
    ("The same as a table alone.", ("queue", "ls")),
    ("One queue.", ("queue", "inspect", "mail")),
    ("Limits across all workers.", ("limits",)),
    ("Tasks of one state.", ("task", "ls", "-q", "mail", "-s", "pending")),
    ("Tasks that will be retried, with their last errors.", ("task", "ls", "-q", "mail", "-s", "retry")),
    ("Tasks of all queues that match a query.", ("search", "type:email:* error:refused")),
    ("What fails, grouped by error.", ("errors",)),
    ("What needs somebody now.", ("attention",)),
    ("The servers that run tasks.", ("server", "ls")),
    ("The hosts that the task service calls.", ("delivery", "ls")),
    ("The commands that it runs.", ("command", "ls")),
    ("Its doors for other protocols.", ("door", "ls")),
    ("Schedules.", ("cron", "ls")),
    ("What a schedule has enqueued.", ("cron", "history", _ENTRY)),
    ("Groups that wait to be aggregated.", ("group", "ls", "-q", "mail")),
    ("The task types that workers run.", ("types",)),
    ("Saved queries.", ("view", "ls")),
    ("Deployments and other times of note.", ("mark", "--list")),
    ("The changes that users made.", ("audit",)),
)


def make_id(number: int) -> str:
    """Return the id of a task."""
    return f"7d1e5a4c-4b0e-4f0a-9d9e-{number:012}"


def fill(client: RedisClient, url: str) -> None:
    """Put tasks of every state, servers and schedules into an empty Redis.

    Ages are in hours and a half, so that their texts do not change while commands run.
    """
    now = int(time.time())
    _fill_queues(client, now)
    _fill_failures(client, now)
    _announce(client, url, datetime.fromtimestamp(now, UTC))


def _fill_queues(client: RedisClient, now: int) -> None:
    mail, images, reports = (Tasks(client, name) for name in ("mail", "images", "reports"))
    pending: tuple[tuple[Tasks, int, int], ...] = ((mail, 100, 4), (images, 130, 3), (reports, 140, 2))
    for tasks, first, count in pending:
        ids = [make_id(first + number) for number in range(count)]
        tasks.pending(*ids, type=f"{tasks.keys.queue}:make", payload=b'{"order_id": 918273}')
        for number, task_id in enumerate(ids):
            since = now - _AGE + number
            client.hset(tasks.keys.task(task_id), "pending_since", since * 10**9)
    images.active(make_id(200), token="server-1/1", lease=now + _HOUR, type="image:resize")
    due = now + _AGE
    mail.put(TaskState.SCHEDULED, *(make_id(210 + number) for number in range(3)), score=due)
    for number in range(5):
        mail.put(
            TaskState.AGGREGATING,
            make_id(220 + number),
            group="digest:eu" if number else "digest:us",
            score=now,
        )
    done, kept = now - _AGE, 86_400
    images.put(TaskState.COMPLETED, make_id(230), score=done + kept, completed_at=done, retention=kept)
    days = [datetime.now(UTC).date() + timedelta(days=number) for number in (0, 1)]
    for tasks, processed, failed in ((mail, 12_480, 312), (images, 940, 0), (reports, 24, 3)):
        # Both days, so that midnight changes nothing.
        for day in days:
            client.set(tasks.keys.processed_on(day), processed)
            client.set(tasks.keys.failed_on(day), failed)


def _fill_failures(client: RedisClient, now: int) -> None:
    mail, reports = Tasks(client, "mail"), Tasks(client, "reports")
    for number in range(4):
        failed = now - _AGE - number
        mail.put(
            TaskState.RETRY if number else TaskState.ARCHIVED,
            make_id(300 + number),
            score=now + _AGE + number * _HOUR if number else failed,
            type="email:deliver",
            payload=b'{"user_id": %d, "template": "welcome"}' % (4_000 + number),
            error_msg=f"connection to smtp-{number}.example:465 refused",
            last_failed_at=failed,
            retried=number + 1,
            retry=25 if number else 1,
        )
    for number in range(2):
        failed = now - 36 * _HOUR - number
        reports.put(
            TaskState.ARCHIVED,
            make_id(310 + number),
            score=failed,
            type="report:monthly",
            error_msg="KeyError: 'currency'",
            last_failed_at=failed,
            retried=25,
            retry=25,
        )


def _announce(client: RedisClient, url: str, now: datetime) -> None:
    running = WorkerInfo(
        host="worker-1",
        pid=3_900,
        server_id="server-1",
        task_id=make_id(200),
        task_type="image:resize",
        task_payload=b"{}",
        queue="images",
        start_time=now - timedelta(seconds=30),
        deadline=now + timedelta(hours=1),
    )
    driver = BlockingDriver(parse_redis_url(url))
    for number, host, pid in ((1, "worker-1", 3_900), (2, "go-a", 7)):
        info = ServerInfo(
            host=host,
            pid=pid,
            server_id=f"server-{number}",
            concurrency=20,
            queues={"mail": 3, "images": 2, "reports": 1},
            strict_priority=False,
            status="active",
            start_time=now - timedelta(seconds=_AGE),
            active_worker_count=2 - number,
            engine="" if pid == 7 else "pyasynq",
        )
        driver.run(write_server_state(info, [running] if number == 1 else [], ttl=86_400))
    types = (
        TaskTypeInfo("email:deliver", queue="mail", summary="Send one mail to one user."),
        TaskTypeInfo("image:resize", queue="images", summary="Make an image smaller."),
    )
    driver.run(publish_types(types))
    driver.close()
    entry = SchedulerEntry(
        id=_ENTRY,
        spec="0 */6 * * *",
        task_type="report:monthly",
        task_payload=b"{}",
        enqueue_options=('Queue("reports")', "MaxRetry(3)"),
        next_enqueue_time=now + timedelta(hours=6) - timedelta(seconds=_AGE),
        prev_enqueue_time=now - timedelta(seconds=_AGE),
    )
    client.zadd(SCHEDULERS_KEY, {scheduler_key("scheduler-1"): int(now.timestamp()) + 86_400})
    client.rpush(scheduler_key("scheduler-1"), entry.encode())
    for number in range(2):
        at = now - timedelta(hours=6 * number, seconds=_AGE)
        event = SchedulerEnqueueEvent(task_id=make_id(140 + number), enqueue_time=at)
        client.zadd(scheduler_history_key(_ENTRY), {event.encode(): int(at.timestamp())})


async def _report_service(url: str, now: int) -> None:
    """Let an instance of the task service report requests, commands and a door."""
    began = datetime.fromtimestamp(now - _AGE, UTC)
    invoices, notices = (
        DeliveryReport("billing.example", "invoices"),
        DeliveryReport("notices.example", "mail"),
    )
    for report, status, count in ((invoices, 200, 930), (invoices, 503, 12), (notices, 429, 40)):
        for number in range(count):
            report.note(status, 0.01 + number % 100 / 250, now)
        report.seen = now - _AGE
    notices.throttled_since, notices.throttled_until = now - _AGE, now + _AGE
    commands = [
        HostedCommand(
            f"5f0c92d1e7a4b38{number}",
            "exports",
            task,
            attempt=1,
            program="/opt/shop/export",
            host="batch-2",
            state=state,
            started=began,
            ended=began + timedelta(seconds=95) if end else None,
            end=end,
            cpu=41.5 if end else None,
            memory=48_000_000 if end else None,
        )
        for number, (task, state, end) in enumerate(
            (
                ("export-november", "running", ""),
                ("export-october", "archived", "exit code 65"),
                ("export-september", "done", "exit code 0"),
            )
        )
    ]
    door = ServiceDoor(
        "door-1",
        "gearman",
        "10.4.0.17:4730",
        "service-1",
        "open",
        began,
        workers=12,
        clients=3,
        running=7,
        functions={"images": 8, "mail": 12},
    )
    async with Operator(url, User.local()) as operator:
        await report_deliveries(operator, "instance-1", [invoices, notices])
        places = [CommandReport(place, one) for place, one in enumerate(commands)]
        await report_commands(operator, "instance-1", places)
        await report_doors(operator, "instance-1", [door])


def record(url: str) -> str:
    """Return the page."""
    client = redis.Redis.from_url(url)
    fill(client, url)
    for command in _CHANGES:
        run(url, *command)
    at = (datetime.now(UTC) - timedelta(hours=2, minutes=30)).isoformat()
    run(url, "mark", "deploy abc123", "--at", at)
    since = (int(time.time()) - 2 * _HOUR) * 10**9
    client.hset(queue_keys("mail").task(make_id(301)), "pending_since", since)
    parts = [HEAD]
    for text, command in _COMMANDS:
        if command[0] in {"delivery", "command", "door"}:
            # A report that is not repeated for a while is of a lost instance.
            asyncio.run(_report_service(url, int(time.time())))
        shown = run(url, *command)
        parts.append(f"\n{text}\n\n```console\n{shown}```\n")
    return "".join(parts)


def run(url: str, *arguments: str) -> str:
    """Return a command and what the terminal shows."""
    quoted = [f"'{one}'" if re.search(r"[\s>*]", one) else one for one in arguments]
    own = {"PYASYNQ_REDIS_URL": url, "TZ": "UTC", "NO_COLOR": "1", "LOGNAME": _USER}
    # Rows that are printed while a search still looks have other widths.
    module = "tests.patient_search"
    with Terminal(*arguments, columns=_COLUMNS, lines=200, env=own, module=module) as terminal:
        code = terminal.finish()
        # `attention` ends with 1 when something needs attention.
        if code not in {0, int(arguments[0] == "attention")}:
            raise AssertionError(terminal.text)
        return f"$ pyasynq {' '.join(quoted)}\n{replace_what_differs(terminal.text)}"


def replace_what_differs(text: str) -> str:
    """Return the text with the same address, user, ids and facts of the server in each recording."""
    text = re.sub(
        r"/\S+\.sock: .*(\n +.*)*", "redis.example:6379: Valkey 9.1, up 12 days, 2.1M of memory", text
    )
    text = re.sub(r"Memory( +)\S.*", r"Memory\1about 9.1 kB", text)
    text = re.sub(r"\b3 h 3\d min( \d+ s)?", "3 h 30 min", text)
    # Views and task types have their times at the end of the line.
    text = re.sub(r"(?m)\b(now|[\d.]+ m?s ago|[12] min ago)$", "3 h ago", text)
    if f"{_USER}@" in text:
        text = re.sub(r"(?m)^(now|[\d.]+ m?s ago|[12] min ago)", "3 h ago", text)
        text = re.sub(r"(?m)^[0-9a-f]{12}\b", "2bb529e0b7cb", text)
        text = align(re.sub(rf"\b{_USER}@\S+", f"{_USER}@laptop", text))
    return text


def align(table: str) -> str:
    """Return a table of words with the widths that its texts need."""
    rows = [re.split(r" {2,}", line) for line in table.splitlines()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "".join(f"{line}\n" for line in lines)


def make_page() -> str:
    """Return the page, recorded on a server of its own."""
    with EmbeddedServer() as server:
        return record(server.url)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, "tests.cli_screens", make_page))
