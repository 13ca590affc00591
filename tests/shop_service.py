"""The task service of the shop: configured types, and keys of programs, for the tests of the dashboard."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._wire.keys import queue_keys
from pyasynq.operations import (
    HIDDEN_VALUE,
    CommandReport,
    DeliveryReport,
    FailedExchange,
    HeldTask,
    HostedCommand,
    LeaseWorkerReport,
    Operator,
    ServiceDoor,
    User,
    make_worker_id,
    report_commands,
    report_deliveries,
    report_doors,
    report_lease_workers,
)
from pyasynq.operations import sync as blocking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.invariants import RedisClient

_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "order_id": {"type": "integer", "minimum": 1},
        "carrier": {"enum": ["north-post", "south-express"]},
        "weight_g": {"type": "integer", "maximum": 31_500},
    },
    "required": ["order_id", "carrier"],
    "additionalProperties": False,
}
TYPES: Final[dict[str, dict[str, Any]]] = {
    "shipping-labels": {
        "max_run": 40,
        "rate": "50/s+10",
        "timeout": 600.0,
        "max_retry": 5,
        "retry": [5.0, 60.0, 600.0],
        "retention": 86_400.0,
        "schema": _SCHEMA,
        "managed": "api",
    },
    "payments": {"ordered": True, "timeout": 30.0, "managed": "api"},
    "exports": {"max_run": 2, "timeout": 7_200.0, "managed": "api"},
    "emails": {"rate": "100/m", "managed": "file"},
    "images": {"max_run": 8, "managed": "file"},
    "invoices": {
        "kind": "http",
        "url": "https://billing.example/invoices/{order_id}",
        "method": "PUT",
        "timeout": 30.0,
        "managed": "file",
    },
    "notices": {"kind": "http", "url": "https://notices.example:8443/v2", "managed": "file"},
    "billing_reconciliation_with_a_name_that_is_longer_than_any_column_should_have_to_bear": {
        "managed": "file"
    },
}
"""Fields of the configuration of each type. No server takes tasks of `exports`."""


def configure_service(url: str) -> None:
    """Store the configurations, as the service and an administrator do."""
    with blocking.Operator(url, User.with_role("mira", "admin")) as admin:
        for name, content in TYPES.items():
            admin.set_type_configuration(
                name, {"name": name, "kind": "worker", **content}, reason="the service's file"
            )
        admin.make_api_key(
            "billing", ["tasks:write", "tasks:read"], ["payments", "billing*"], expires_in=5 * 86_400
        )
        admin.make_api_key("label printer of the packing station", ["work"], ["shipping-labels"])
        shop = admin.make_api_key(
            "shop", ["tasks:write", "types:write"], expires_in=90 * 86_400, rate="50/s+10"
        )
        admin.rotate_api_key(shop.key.id)
        admin.make_api_key("trial", ["tasks:read"], ["emails"], expires_in=0.001)
        changed = {"name": "exports", "kind": "worker", **TYPES["exports"], "max_run": 3}
        admin.set_type_configuration("exports", changed, reason="the month ends")


def announce_lease_workers(url: str, *, held: str = "") -> None:
    """Let an instance of the service report workers: one that may hold a task, one that waits, one away."""
    # Playwright runs an event loop in the thread of its tests.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(_report_workers(url, held))).result()


def announce_deliveries(url: str) -> None:
    """Let two instances of the service report requests: to a host that is well, and to one that throttles."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(_report_deliveries(url))).result()


def announce_failed_delivery(url: str, host: str, queue: str, body: bytes = b"") -> None:
    """Let an instance report one request, whose attempt failed."""

    async def report() -> None:
        one = _called(host, queue, {500: 1})
        one.failed = FailedExchange(
            queue,
            "a",
            1,
            datetime.now(UTC),
            0.1,
            "POST",
            f"https://{host}/",
            (("X-Team", "maps"), ("Authorization", "hush")),
            500,
            "the host answered 500",
            (("X-Api-Key", "hush"),),
            body,
        )
        async with Operator(url, User.with_role("mira", "admin")) as operator:
            await report_deliveries(operator, "instance-1", [one])

    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(report())).result()


def make_command(queue: str, **fields: Any) -> HostedCommand:
    """Return a command that ended two seconds after its start, a while ago, unless fields say otherwise."""
    now = datetime.now(UTC)
    given: dict[str, Any] = {
        "id": f"run-of-{queue}",
        "queue": queue,
        "task_id": "a",
        "attempt": 1,
        "program": "/opt/shop/run",
        "host": "batch-2",
        "state": "done",
        "started": now - timedelta(seconds=62),
        "ended": now - timedelta(seconds=60),
        "end": "exit code 0",
        "cpu": 1.41,
        "memory": 48_000_000,
    }
    return HostedCommand(**{**given, **fields})


_RUNS: Final[dict[str, Any]] = {
    "state": "running",
    "ended": None,
    "end": "",
    "cpu": None,
    "memory": None,
}
SHOP_COMMANDS: Final = (
    make_command(
        "exports",
        task_id="export-november",
        program="/opt/shop/export",
        out=b"".join(b"wrote part-%03d.csv, 10,000 orders\n" % number for number in range(41, 83)),
        out_bytes=1_428,
        err=b"part-017.csv: 3 orders without a carrier\n",
        err_bytes=41,
        **_RUNS,
    ),
    make_command("images", task_id="thumbnails-88213", **_RUNS),
    make_command(
        "dumps",
        task_id="dump-of-customers",
        attempt=2,
        state="archived",
        end="exit code 65",
        reason="exit code 65: customers.yml: line 14: no such table",
        err=b"reading customers.yml\ncustomers.yml: line 14: no such table\n",
        err_bytes=60,
    ),
    make_command(
        "images",
        id="run-2",
        task_id="thumbnails-88211",
        state="retried",
        end="signal SIGKILL",
        reason="killed at its memory limit of 512 MB",
        memory=536_000_000,
    ),
    make_command("images", id="run-3", task_id="thumbnails-88210", out=b"14 images\n", out_bytes=10),
)
"""Commands of the shop: two that run, one that was archived, one that is retried, and one that is done."""


def announce_commands(url: str, commands: Sequence[HostedCommand]) -> None:
    """Let an instance of the service report commands."""

    async def report() -> None:
        reports = [CommandReport(place, one) for place, one in enumerate(commands)]
        async with Operator(url, User.with_role("mira", "admin")) as operator:
            await report_commands(operator, "instance-1", reports)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(report())).result()


def announce_doors(url: str, texts: Sequence[str] = ()) -> None:
    """Let two instances of the service report a door for Gearman, one of them closed; or doors of texts."""
    now = datetime.now(UTC)
    doors = [
        ServiceDoor(f"door-{number}", text, text, text, "open", now, 1, 1, 1, {text: 1})
        for number, text in enumerate(texts)
    ] or [
        ServiceDoor(
            "door-1",
            "gearman",
            "10.4.0.17:4730",
            "service-1",
            "open",
            now - timedelta(hours=5),
            workers=12,
            clients=3,
            running=7,
            functions={"shipping-labels": 8, "emails": 12},
        ),
        ServiceDoor("door-2", "gearman", "10.4.0.18:4730", "service-2", "closed", now - timedelta(hours=5)),
    ]

    async def report() -> None:
        async with Operator(url, User.with_role("mira", "admin")) as operator:
            for door in doors:
                await report_doors(operator, door.id, [door])

    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(report())).result()


def announce_hostile_deliveries(url: str, texts: Sequence[str]) -> None:
    """Let an instance report requests whose every text is one of these."""

    async def report() -> None:
        reports = [_called(text, f"q{number}-{text}", {500: 1}) for number, text in enumerate(texts)]
        for one, text in zip(reports, texts, strict=True):
            one.failed = FailedExchange(
                one.queue,
                text,
                1,
                datetime.now(UTC),
                0.1,
                text,
                text,
                ((text, text),),
                500,
                text,
                ((text, text),),
                text.encode(),
            )
        async with Operator(url, User.with_role("mira", "admin")) as operator:
            await report_deliveries(operator, "instance-1", reports)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(report())).result()


async def _report_deliveries(url: str) -> None:
    now = time.time()
    invoices = _called("billing.example", "invoices", {200: 1_843, 404: 2, 422: 9, 500: 31, 0: 4})
    invoices.failed = FailedExchange(
        "invoices",
        "invoice-20261123-4711",
        attempt=2,
        at=datetime.fromtimestamp(now - 48, UTC),
        seconds=0.183,
        method="PUT",
        url="https://billing.example/invoices/{order_id}",
        headers=(
            ("Content-Type", "application/json"),
            ("Authorization", HIDDEN_VALUE),
            ("webhook-id", "msg_ortqx2mkfzr3jbvtn4w5lyzd6e"),
            ("webhook-signature", HIDDEN_VALUE),
            ("X-Pyasynq-Task-Id", "invoice-20261123-4711"),
            ("X-Pyasynq-Attempt", "2"),
        ),
        status=500,
        reason="the host answered 500 Internal Server Error",
        answer_headers=(("Content-Type", "application/json"), ("Set-Cookie", HIDDEN_VALUE)),
        answer_body=b'{\n  "error": "deadlock detected",\n  "order_id": 4711,\n  "retry": true\n}',
    )
    other = _called("billing.example", "invoices", {200: 977, 500: 11})
    shared = _called("billing.example", "payments", {200: 402})
    notices = _called("notices.example:8443", "notices", {200: 210, 429: 88})
    notices.throttled_since, notices.throttled_until = now - 95, now + 600
    gone = _called("legacy.example", "images", {410: 1})
    gone.gone_at = now - 240
    async with Operator(url, User.with_role("mira", "admin")) as operator:
        await report_deliveries(operator, "instance-1", [invoices, shared, notices, gone])
        await report_deliveries(operator, "instance-2", [other])


def _called(host: str, queue: str, statuses: dict[int, int]) -> DeliveryReport:
    """Return the report of requests whose durations go from a few milliseconds to half a second."""
    report = DeliveryReport(host, queue)
    now = time.time()
    for status, number in statuses.items():
        for one in range(number):
            report.note(status, 0.004 + 0.5 * (one / number) ** 6, now - 20)
    return report


def first_active(client: RedisClient, queue: str) -> str:
    """Return the id of a task of a queue that runs now."""
    return str(client.lindex(queue_keys(queue).active, 0), "utf-8")


async def _report_workers(url: str, held: str) -> None:
    now = time.time()
    tasks = [HeldTask("shipping-labels", held, int(now) + 60)] if held else []
    reports = [
        _report("packing station", "php 8.3", "2.4.0", 71, now - 2, tasks=tasks),
        _report("packing station", "php 8.3", "2.4.0", 72, now - 9, parked=2),
        _report("", "", "", None, now - 400),
    ]
    async with Operator(url, User.with_role("mira", "admin")) as operator:
        await report_lease_workers(operator, "instance-1", reports)


def _report(
    name: str,
    language: str,
    version: str,
    pid: int | None,
    seen: float,
    *,
    tasks: Iterable[HeldTask] = (),
    **fields: Any,
) -> LeaseWorkerReport:
    """Return the report of a worker on a machine of the warehouse."""
    report = LeaseWorkerReport(make_worker_id("f40012bb2b0d", name, pid, "warehouse-3"))
    report.name, report.language, report.version, report.pid = name, language, version, pid
    report.host, report.key_id, report.queues, report.seen = (
        "warehouse-3",
        "f40012bb2b0d",
        ("shipping-labels",),
        seen,
    )
    for field, value in fields.items():
        setattr(report, field, value)
    for task in tasks:
        report.hold(task)
    return report
