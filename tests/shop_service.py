"""The task service of the shop: configured types, and keys of programs, for the tests of the dashboard."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from pyasynq._wire.keys import queue_keys
from pyasynq.operations import (
    HeldTask,
    LeaseWorkerReport,
    Operator,
    User,
    make_worker_id,
    report_lease_workers,
)
from pyasynq.operations import sync as blocking

if TYPE_CHECKING:
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
    name: str, language: str, version: str, pid: int | None, seen: float, **fields: Any
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
    return report
