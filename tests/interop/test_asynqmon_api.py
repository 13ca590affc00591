"""The dashboard's API of asynqmon answers as asynqmon does: every route, on equal databases."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from pyasynq.web import Everyone, dashboard
from pyasynq.web.asynqmon.routes import ROUTES
from tests.interop.asynqmon_program import Asynqmon
from tests.interop.database import Database
from tests.interop.filled import STATES, STEPS, TASKS
from tests.interop.go_side import GoSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.database import Entry

_MOMENT = re.compile(r'"(timestamp|start_time|deadline)":"[^"]*"')
_CHANGING = re.compile(r'"(latency_msec|memory_usage_bytes|ttl_seconds)":-?\d+')
_LATENCY = re.compile(r'"(display_latency)":"[^"]*"')
_OUR_FIELDS = (b"pending_since", b"x:trace")
"""Fields of a task that ours keeps current where Asynq does not."""
_OWN_ORDER = ("queues", "groups")
"""Lists that Redis returns in the order of a set."""

QUEUE = "queues/default"
GROUP = f"{QUEUE}/groups/grüppe"
READS = (
    "queues",
    "queue_stats",
    "queues/default",
    "queues/größe",
    "queues/none",
    *(f"{QUEUE}/{state}_tasks" for state in STATES if state != "aggregating"),
    *(f"{QUEUE}/{state}_tasks?size=1&page=2" for state in STATES if state != "aggregating"),
    f"{QUEUE}/pending_tasks?size=0",
    f"{QUEUE}/pending_tasks?size=-3&page=x",
    f"{QUEUE}/pending_tasks?size=two&page=-1",
    f"{QUEUE}/pending_tasks?page=99",
    "queues/none/pending_tasks",
    "queues/none/active_tasks",
    f"{QUEUE}/groups",
    "queues/none/groups",
    f"{GROUP}/aggregating_tasks",
    f"{QUEUE}/groups/none/aggregating_tasks",
    "queues/none/groups/none/aggregating_tasks",
    *(f"queues/{queue}/tasks/{task_id}" for queue, task_id in TASKS),
    f"{QUEUE}/tasks/none",
    "queues/none/tasks/none",
    "servers",
    "scheduler_entries",
    "scheduler_entries/none/enqueue_events",
    "metrics?duration=x",
    "metrics?endtime=1.5",
)


def _ids(*ids: str) -> bytes:
    return json.dumps({"task_ids": ids}).encode()


def _has_route(method: str, end: str) -> bool:
    shape = end.replace("groups/none", "groups/{group}").replace("/none", "/{task}")
    return any((method, f"/queues/{{queue}}/{shape}") == (route.method, route.path) for route in ROUTES)


CHANGES: tuple[tuple[str, str, bytes | None], ...] = (
    ("POST", f"{QUEUE}:pause", None),
    ("POST", f"{QUEUE}:pause", None),
    ("POST", f"{QUEUE}:resume", None),
    ("POST", f"{QUEUE}:resume", None),
    ("DELETE", "queues/none", None),
    ("DELETE", "queues/default", None),
    ("POST", f"{QUEUE}/scheduled_tasks/later:run", None),
    ("POST", f"{QUEUE}/scheduled_tasks/later:run", None),
    ("POST", f"{QUEUE}/scheduled_tasks/none:run", None),
    ("POST", "queues/none/scheduled_tasks/none:run", None),
    ("POST", f"{QUEUE}/retry_tasks/running:run", None),
    ("POST", f"{QUEUE}/retry_tasks/failed:archive", None),
    ("POST", f"{QUEUE}/retry_tasks/failed:archive", None),
    ("POST", f"{QUEUE}/retry_tasks/running:archive", None),
    ("POST", f"{QUEUE}/retry_tasks/none:archive", None),
    ("POST", "queues/none/retry_tasks/none:archive", None),
    ("DELETE", f"{QUEUE}/completed_tasks/answered", None),
    ("DELETE", f"{QUEUE}/completed_tasks/answered", None),
    ("DELETE", f"{QUEUE}/pending_tasks/running", None),
    ("DELETE", "queues/none/pending_tasks/none", None),
    ("POST", f"{QUEUE}/archived_tasks:batch_run", _ids("given-up", "none", "given-up", "running")),
    ("POST", f"{QUEUE}/pending_tasks:batch_archive", _ids("first", "none", "first")),
    ("POST", f"{QUEUE}/pending_tasks:batch_delete", _ids("binary", "none", "binary")),
    ("POST", "queues/none/pending_tasks:batch_delete", _ids("a")),
    ("POST", f"{QUEUE}/pending_tasks:batch_delete", b'{"task_ids": null}'),
    ("POST", f"{QUEUE}/pending_tasks:batch_delete", b"{}"),
    ("POST", f"{QUEUE}/pending_tasks:batch_delete", b'{"ids": ["bare"]}'),
    ("POST", f"{QUEUE}/pending_tasks:batch_delete", b""),
    ("POST", f"{QUEUE}/pending_tasks:batch_delete", _ids("x" * 1_000_000)),
    ("POST", f"{GROUP}/aggregating_tasks/one:run", None),
    ("POST", f"{GROUP}/aggregating_tasks:batch_archive", _ids("two", "three")),
    ("DELETE", f"{GROUP}/aggregating_tasks:delete_all", None),
    ("POST", f"{QUEUE}/groups/other/aggregating_tasks:run_all", None),
    ("POST", f"{QUEUE}/groups/none/aggregating_tasks:archive_all", None),
    ("POST", "queues/none/groups/none/aggregating_tasks:archive_all", None),
    ("DELETE", "queues/none/groups/none/aggregating_tasks:delete_all", None),
    ("POST", f"{QUEUE}/scheduled_tasks:archive_all", None),
    ("POST", f"{QUEUE}/archived_tasks:run_all", None),
    ("POST", f"{QUEUE}/retry_tasks:run_all", None),
    ("POST", f"{QUEUE}/pending_tasks:archive_all", None),
    ("DELETE", f"{QUEUE}/archived_tasks:delete_all", None),
    *(("POST", f"queues/none/{state}_tasks:run_all", None) for state in ("scheduled", "retry", "archived")),
    *(
        ("POST", f"queues/none/{state}_tasks:archive_all", None)
        for state in ("pending", "scheduled", "retry")
    ),
    *(
        ("DELETE", f"queues/none/{state}_tasks:delete_all", None)
        for state in ("pending", "scheduled", "retry", "archived", "completed")
    ),
    *(
        (method, f"queues/none/{state}_tasks{act}", body)
        for state in ("pending", "scheduled", "retry", "archived", "completed", "groups/none/aggregating")
        for method, act, body in (
            ("DELETE", "/none", None),
            ("POST", "/none:run", None),
            ("POST", "/none:archive", None),
            ("DELETE", ":delete_all", None),
            ("POST", ":batch_run", _ids("none")),
            ("POST", ":batch_archive", _ids("none")),
            ("POST", ":batch_delete", _ids("none")),
        )
        if _has_route(method, f"{state}_tasks{act}")
    ),
    ("POST", "queues", None),
    ("DELETE", f"{QUEUE}/pending_tasks", None),
    ("PUT", f"{QUEUE}/tasks/first", None),
    ("DELETE", "queues/größe/pending_tasks/held-up", None),
    ("POST", "queues/größe:resume", None),
    ("DELETE", "queues/größe", None),
)

CANCELS: tuple[tuple[str, str, bytes | None], ...] = (
    ("POST", f"{QUEUE}/active_tasks/running:cancel", None),
    ("POST", f"{QUEUE}/active_tasks/none:cancel", None),
    ("POST", "queues/none/active_tasks/none:cancel", None),
    ("POST", f"{QUEUE}/active_tasks:cancel_all", None),
    ("POST", "queues/none/active_tasks:cancel_all", None),
    ("POST", f"{QUEUE}/active_tasks:batch_cancel", _ids("running", "none")),
)


class OurApi:
    """The dashboard on one database, asked as asynqmon is."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._site = dashboard(url, auth=Everyone("admin"))
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self._site), base_url="http://localhost/api/"
        )

    def ask_raw(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Make a request; return status and text of the answer."""
        place, _, query = path.partition("?")
        address = quote(place, safe="/:") + (f"?{query}" if query else "")
        reply = self._runner.run(self._client.request(method, address, content=body))
        return reply.status_code, reply.text

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._client.aclose())
        self._runner.run(self._site.aclose())
        self._runner.close()


@pytest.fixture
def twins(peer_program: Path, asynqmon: Path, redis_url: str) -> Iterator[tuple[Twin, Twin]]:
    """Asynqmon and the dashboard, on databases that hold the same tasks; Asynq filled them."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(Database(redis_url, number))) for number in (0, 1))
        side = stack.enter_context(closing(GoSide(peer_program, first.url)))
        for step in STEPS:
            assert not side.do(step).refusal
        first.client.zadd("asynq:{default}:lease", {"orphan": int(time.time()) - 5}, xx=True)
        second.copy_from(first)
        theirs = stack.enter_context(Asynqmon(asynqmon, first.url))
        ours = stack.enter_context(closing(OurApi(second.url)))
        yield Twin(first, theirs.ask_raw), Twin(second, ours.ask_raw)


class Twin:
    """One of the two, with its database."""

    def __init__(self, database: Database, ask: Callable[..., tuple[int, str]]) -> None:
        self.database = database
        self.ask = ask


def test_every_view_answers_as_asynqmon(twins: tuple[Twin, Twin]) -> None:
    """The same bytes, except moments and estimates, and the order of sets."""
    differing = {}
    for path in READS:
        theirs, ours = (_comparable(twin.ask("GET", path)) for twin in twins)
        if theirs != ours:
            differing[path] = (theirs, ours)
    assert not differing, "\n".join(
        f"{path}\n  {theirs}\n  {ours}" for path, (theirs, ours) in differing.items()
    )


def test_every_change_answers_and_does_the_same_as_asynqmon(twins: tuple[Twin, Twin]) -> None:
    """Status and text are equal after each request, and so are the two databases."""
    for request in CHANGES:
        theirs, ours = (_comparable(twin.ask(*request)) for twin in twins)
        assert theirs == ours, request[:2]
        theirs_kept, ours_kept = (_kept(twin.database.read()) for twin in twins)
        assert theirs_kept == ours_kept, request[:2]


def test_every_cancellation_answers_as_asynqmon(twins: tuple[Twin, Twin]) -> None:
    """The databases are not compared: only one of them has a worker, which obeys."""
    differing = {}
    for request in CANCELS:
        theirs, ours = (twin.ask(*request) for twin in twins)
        if theirs != ours:
            differing[request] = (theirs, ours)
    assert not differing


def test_every_route_is_asked() -> None:
    """A route without a request here is compared with nothing."""
    asked = [("GET", path.partition("?")[0]) for path in READS] + [
        (method, path) for method, path, _ in (*CHANGES, *CANCELS)
    ]
    asked += [("GET", "redis_info"), ("GET", "metrics")]
    patterns = {
        route: re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path[1:]))) for route in ROUTES
    }
    missing = [
        f"{route.method} {route.path}"
        for route, pattern in patterns.items()
        if not any(method == route.method and pattern.fullmatch(path) for method, path in asked)
    ]
    assert not missing


def _comparable(answer: tuple[int, str]) -> tuple[int, str]:
    status, text = answer
    for pattern in (_MOMENT, _CHANGING, _LATENCY):
        text = pattern.sub(r'"\1":0', text)
    if text.startswith("{"):
        value = json.loads(text)
        for name in _OWN_ORDER:
            if isinstance(value.get(name), list):
                value[name].sort(key=lambda one: one.get("queue") or one.get("group"))
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + text[len(text.rstrip("\n")) :]
    return status, text


def _kept(entries: dict[str, Entry]) -> dict[str, Any]:
    """Return what a database holds of tasks and queues; of times only that there are some."""
    kept: dict[str, Any] = {}
    for key, entry in entries.items():
        if key.startswith("asynq:{") and "}:x:" not in key and not key.startswith("asynq:x:"):
            value = sorted(entry.value) if entry.kind in {"zset", "hash", "set"} else entry.value
            if entry.kind == "hash":
                value = [name for name in value if name not in _OUR_FIELDS] + [entry.value.get(b"state")]
            kept[key] = value if ":paused" not in key else True
    return kept


def test_redis_is_described_in_the_same_shape(twins: tuple[Twin, Twin]) -> None:
    """The values change from one moment to the next; the names and types do not."""
    theirs, ours = (json.loads(twin.ask("GET", "redis_info")[1]) for twin in twins)
    assert list(theirs) == list(ours)
    assert set(theirs["info"]) - {"db1"} == set(ours["info"]) - {"db1"}
    for name in ("cluster", "raw_cluster_nodes", "queue_locations"):
        assert theirs[name] == ours[name], name
    assert theirs["raw_info"].splitlines()[0] == ours["raw_info"].splitlines()[0]
