"""An online shop on a bad morning: queues, tasks, servers and schedules for the tests of the dashboard."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyasynq._broker.servers import write_server_state
from pyasynq._broker.task_events import encode_event
from pyasynq._broker.task_types import publish_types
from pyasynq._clock import Instant
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.engine_text import encode_engine
from pyasynq._wire.history import encode_attempt
from pyasynq._wire.keys import ALL_QUEUES, SCHEDULERS_KEY, queue_keys, scheduler_key
from pyasynq._wire.messages import SchedulerEntry, ServerInfo, WorkerInfo
from pyasynq.task import TaskState
from pyasynq.task_types import TaskTypeInfo
from tests.factories import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.invariants import RedisClient

QUEUES = {
    "shipping-labels": (9_204, 40, 12, 3_918, 1_120, 0),
    "payments": (1_377, 24, 8, 420, 61, 340),
    "emails": (1_204, 12, 96, 18, 9, 1_890),
    "images": (122, 0, 0, 2, 0, 0),
    "exports": (312, 0, 4, 0, 0, 18),
    "search-index": (860, 31, 0, 12, 3, 0),
    "inventory-sync": (0, 3, 40, 0, 0, 210),
    "newsletter": (0, 0, 5_000, 0, 0, 0),
    "webhooks/outgoing:v2": (4, 1, 0, 7, 2, 0),
    "billing_reconciliation_with_a_name_that_is_longer_than_any_column_should_have_to_bear": (
        0,
        0,
        0,
        0,
        1,
        0,
    ),
}
"""Counts of pending, active, scheduled, retry, archived and completed tasks; divided by `scale`."""

TYPES = {
    "shipping-labels": (
        "label.print",
        "return.label",
        "label.cancel",
        "pickup.schedule_with_carrier_and_notify_customer",
    ),
    "payments": ("payment.capture", "payment.refund"),
    "emails": ("email.order_confirmation", "email.shipped"),
    "images": ("image.resize",),
    "exports": ("report.export",),
    "search-index": ("product.index", "catalog.rebuild"),
    "inventory-sync": ("feed.export",),
    "newsletter": ("newsletter.send",),
    "webhooks/outgoing:v2": ("webhook.deliver",),
}
ERRORS = {
    "shipping-labels": (
        "UpstreamError: 504 from parcel API: upstream request timeout",
        "UpstreamError: 504 from parcel API: upstream request timeout",
        "UpstreamError: 504 from parcel API: upstream request timeout",
        "UpstreamError: 404 from parcel API: no such label NP-55102-A",
        "TimeoutError: attempt ran longer than 30 s",
    ),
    "payments": ("CardDeclined: insufficient_funds", "UpstreamError: 503 from card processor: circuit open"),
}
_TRACE = """Traceback (most recent call last):
  File "shop/labels.py", line 88, in print_label
    label = await carrier.create(order, format=format)
  File "shop/carriers/north_post.py", line 41, in create
    reply = await self.http.post("/v2/labels", json=body, timeout=30)
"""
_STATES = (
    TaskState.PENDING,
    TaskState.ACTIVE,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)


def fill_shop(client: RedisClient, url: str, *, scale: int = 40, seed: int = 7) -> None:
    """Fill an empty Redis; `scale` divides the numbers of tasks."""
    dice = random.Random(seed)
    now = datetime.now(UTC)
    running: list[WorkerInfo] = []
    for queue, counts in QUEUES.items():
        client.sadd(ALL_QUEUES, queue)
        for state, count in zip(_STATES, counts, strict=True):
            for number in range(-(-count // scale)):
                _put(client, dice, now, queue, state, number, running)
        _count(client, dice, now, queue, counts)
    mailing = Tasks(client, "emails")
    for number in range(30):
        group = f"digest-{number % 3}"
        task_id = _id(dice)
        mailing.put(
            TaskState.AGGREGATING,
            task_id,
            group=group,
            score=int(now.timestamp()) - number,
            type="email.digest",
        )
    client.set(queue_keys("images").paused, str(int(now.timestamp()) - 7_440))
    publish_shop_events(client, dice, now)
    announce_servers(url, running)
    announce_schedules(client)
    announce_types(url)


def publish_shop_events(client: RedisClient, dice: random.Random, now: datetime) -> None:
    """Let two of the servers publish some events of three queues, the newest ones seconds ago."""
    for queue in ("shipping-labels", "payments", "emails"):
        key = queue_keys(queue).events
        for number in range(40):
            at = now - timedelta(seconds=(40 - number) * 3 + dice.random())
            error = dice.choice(ERRORS.get(queue, ("",)))
            kind = dice.choice(("enqueued", "started", "retried" if error else "succeeded", "succeeded"))
            facts: dict[str, Any] = {"task_id": _id(dice), "type": dice.choice(TYPES[queue])}
            if kind == "started":
                facts["waited"] = dice.randrange(1, 900)
            if kind in {"retried", "succeeded"}:
                facts["seconds"] = round(30 * dice.random(), 3)
            if kind != "enqueued":
                facts["server"] = f"server-{dice.randrange(1, 3)}"
            if kind == "retried":
                facts |= {"error": error, "retried": dice.randrange(3), "max_retry": 25}
            data = encode_event(kind, queue, Instant.from_datetime(at), **facts)
            client.xadd(key, {"event": data}, id=f"{int(at.timestamp() * 1_000)}-{number}")
        client.expire(key, 86_400)


def _put(
    client: RedisClient,
    dice: random.Random,
    now: datetime,
    queue: str,
    state: TaskState,
    number: int,
    running: list[WorkerInfo],
) -> None:
    tasks, seconds = Tasks(client, queue), int(now.timestamp())
    kind = dice.choice(TYPES.get(queue, ("task",)))
    task_id = _id(dice)
    fields: dict[str, Any] = {"type": kind, "payload": _payload(dice, queue, number), "timeout": 30}
    extra: dict[str, Any] = {}
    score = seconds - number * 7 - dice.randrange(7)
    if state in {TaskState.RETRY, TaskState.ARCHIVED}:
        error = dice.choice(ERRORS.get(queue, ("ValueError: no such product SKU-4711",)))
        retried = dice.randrange(1, 20) if state is TaskState.RETRY else 25
        fields |= {
            "error_msg": error,
            "retried": retried,
            "last_failed_at": score if state is TaskState.ARCHIVED else seconds - dice.randrange(600),
        }
        extra = {"x:trace": _TRACE, "x:attempts": _attempts(dice, error, fields["last_failed_at"])}
        if state is TaskState.RETRY:
            score = seconds + dice.randrange(5, 900)
    if state is TaskState.SCHEDULED:
        score = seconds + 60 * (number + 1)
    if state is TaskState.COMPLETED:
        fields |= {"completed_at": score, "retention": 86_400}
        extra = {"result": json.dumps({"ok": True, "id": number}).encode()}
        score += 86_400
    if state is TaskState.PENDING:
        waited = 11_400 if queue == "exports" else 840 if queue == "shipping-labels" else 30
        extra = {"pending_since": str((seconds - max(waited - number, 1)) * 10**9)}
        tasks.put(state, task_id, **fields)
        client.hset(tasks.keys.task(task_id), mapping=extra)
        return
    if state is TaskState.ACTIVE:
        tasks.active(task_id, token=f"server-{number % 3 + 1}/{number}", lease=seconds + 30, **fields)
        began = now - timedelta(seconds=dice.randrange(1, 28))
        running.append(
            WorkerInfo(
                host=f"worker-{number % 3 + 1}",
                pid=3_900 + number % 3,
                server_id=f"server-{number % 3 + 1}",
                task_id=task_id,
                task_type=kind,
                task_payload=fields["payload"],
                queue=queue,
                start_time=began,
                deadline=began + timedelta(seconds=30),
            )
        )
        return
    tasks.put(state, task_id, score=score, extra=extra, **fields)


def _attempts(dice: random.Random, error: str, ended: int) -> str:
    lines = []
    for back in range(6):
        end = ended - back * 350
        outcome = "crashed" if back == 5 else "archived" if back == 0 else "retried"
        lines.append(
            encode_attempt(
                outcome,
                "" if outcome == "crashed" else error,
                server=f"server-{dice.randrange(1, 4)}",
                started_at=end - 30 * dice.random(),
                ended_at=end,
            ).decode()
        )
    return f"[{','.join(lines)}]"


def _payload(dice: random.Random, queue: str, number: int) -> bytes:
    if number == 13:
        return b"\x0a\x0c\x00north-post\xff\x08\x01"
    order = 918_273 - number * 7
    value = {
        "order_id": order,
        "carrier": dice.choice(("north-post", "south-express")),
        "format": "zpl",
        "weight_g": dice.randrange(50, 9_000),
        "to": {"name": "Ida Brandt", "zip": "20359", "country": "DE"},
        "api_key": "k-27182818",
    }
    if queue == "emails":
        value = {"to": "ida@example.org", "template": "order", "order_id": order}
    return json.dumps(value, separators=(",", ":")).encode()


def _id(dice: random.Random) -> str:
    text = f"{dice.getrandbits(128):032x}"
    return "-".join((text[:8], text[8:12], "4" + text[13:16], "a" + text[17:20], text[20:]))


def _count(
    client: RedisClient, dice: random.Random, now: datetime, queue: str, counts: tuple[int, ...]
) -> None:
    keys = queue_keys(queue)
    base = sum(counts) * 9 + 20
    for back in range(60):
        day = (now - timedelta(days=back)).date()
        done = int(base * (0.7 + 0.5 * dice.random()) * (0.6 if day.weekday() >= 5 else 1))
        fail = 0.62 if queue == "shipping-labels" and back == 0 else 0.02
        client.set(keys.processed_on(day), done, ex=90 * 86_400)
        client.set(keys.failed_on(day), int(done * fail), ex=90 * 86_400)
    client.set(keys.processed, base * 60)
    client.set(keys.failed, base)


def announce_servers(url: str, running: Sequence[WorkerInfo] = ()) -> None:
    """Let four servers run these tasks; the last one is Asynq's."""
    now = datetime.now(UTC)
    driver = BlockingDriver(parse_redis_url(url))
    served = [queue for queue in QUEUES if queue != "exports"]
    for number in range(1, 5):
        own = [one for one in running if one.server_id == f"server-{number}"]
        is_go = number == 4
        versions = {"version": f"2026.11.{1 if number == 3 else 2}", "engine_version": "0.1.0"}
        info = ServerInfo(
            host="go-a" if is_go else f"worker-{number}",
            pid=7 if is_go else 3_899 + number,
            server_id=f"server-{number}",
            concurrency=40,
            queues={name: 3 if name == "payments" else 1 for name in served},
            strict_priority=False,
            status="stopped" if number == 3 else "active",
            start_time=now - timedelta(minutes=22 * number),
            active_worker_count=len(own),
            engine="" if is_go else encode_engine("pyasynq", {}, texts=versions),
        )
        driver.run(write_server_state(info, own, ttl=86_400))
    driver.close()


def announce_types(url: str) -> None:
    """Publish what workers say of their types, as they do when they start."""
    schema = {
        "type": "object",
        "properties": {
            "order_id": {"type": "integer", "minimum": 1},
            "recipient": {"type": "string", "description": "Name on the parcel"},
            "format": {"enum": ["A6", "A5", "thermal"], "default": "A6"},
            "express": {"type": "boolean", "default": False},
            "insured_value": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "items": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["order_id", "recipient", "items"],
        "additionalProperties": False,
    }
    label = TaskTypeInfo(
        "label.print",
        "shipping-labels",
        schema,
        {"max_retry": 5, "timeout": 30.0},
        summary="Print a label and send it to the packing station.",
    )
    driver = BlockingDriver(parse_redis_url(url))
    driver.run(publish_types([label]))
    driver.close()


def announce_schedules(client: RedisClient) -> None:
    """Let a scheduler with a few entries run."""
    now = datetime.now(UTC)
    entries = [
        ("*/5 * * * *", "inventory.pull", "inventory-sync", 140),
        ("0 6 * * 1-5", "report.daily", "exports", 61_000),
        ("@every 30s", "cart.remind", "emails", 12),
        ("0 3 1 * *", "invoice.close_month", "payments", 500_000),
    ]
    client.zadd(SCHEDULERS_KEY, {scheduler_key("scheduler-1"): int(now.timestamp()) + 86_400})
    for spec, kind, queue, seconds in entries:
        entry = SchedulerEntry(
            id=f"entry-{kind}",
            spec=spec,
            task_type=kind,
            task_payload=b'{"full":true}',
            enqueue_options=(f'Queue("{queue}")', "MaxRetry(3)"),
            next_enqueue_time=now + timedelta(seconds=seconds),
            prev_enqueue_time=now - timedelta(seconds=160),
        )
        client.rpush(scheduler_key("scheduler-1"), entry.encode())
