"""Every route of `/api/v1` with every role: what is answered, and that a refused call changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq._wire.keys import AUDIT_KEY, REFUSED_KEY
from pyasynq.operations import VERBS, Targets, User, make_delivery_id
from pyasynq.operations.sync import Operator
from pyasynq.task import TaskState
from pyasynq.web.api.table import API_ROUTES
from tests.contract.web.test_permissions import ROLES, role_of
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop import announce_schedules, announce_servers
from tests.shop_service import announce_commands, announce_doors, announce_failed_delivery, make_command
from tests.snapshots import snapshot
from tests.visiting import ABROAD, visiting

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


@dataclass(frozen=True)
class Row:
    """An example of a route, and the status for each role, in the order of `ROLES`."""

    statuses: str
    body: dict[str, Any] | None = None
    query: str = ""


_SEEN: Final = "401 200 200 200 200"
_QUEUE: Final = "401 200 200 200 404"
_CHANGE: Final = "401 403 200 200 404"
_MADE: Final = "401 403 201 201 404"
_TAKEN: Final = "401 403 202 202 404"
_CONFLICT: Final = "401 403 409 409 404"
_NOT_VIEWERS: Final = "401 403 200 200 200"
_SOME: Final = {"ids": ["a"]}

ROWS: Final[dict[str, Row]] = {
    "GET /me": Row(_SEEN),
    "GET /queues": Row(_SEEN),
    "GET /queues/{queue}": Row(_QUEUE),
    "DELETE /queues/{queue}": Row("401 403 403 200 404", query="force=true"),
    "POST /queues/{queue}:pause": Row(_CHANGE, {"duration": 60}),
    "POST /queues/{queue}:resume": Row(_CONFLICT),
    "GET /queues/{queue}/limits": Row(_QUEUE),
    "PATCH /queues/{queue}/limits": Row(_CHANGE, {"max_run": 3}),
    "PUT /queues/{queue}/wait-objective": Row(_CHANGE, {"seconds": 30}),
    "GET /queues/{queue}/history": Row(_QUEUE),
    "GET /queues/{queue}/groups": Row(_QUEUE),
    "GET /queues/{queue}/errors": Row(_QUEUE),
    "GET /queues/{queue}/types": Row(_QUEUE),
    "GET /queues/{queue}/tasks": Row(_QUEUE, query="state=archived"),
    "POST /queues/{queue}/tasks": Row(_MADE, {"type": "x"}),
    "GET /queues/{queue}/tasks/{task}": Row(_QUEUE),
    "DELETE /queues/{queue}/tasks/{task}": Row("401 403 204 204 404"),
    "POST /queues/{queue}/tasks/{task}:run": Row(_CHANGE),
    "POST /queues/{queue}/tasks/{task}:archive": Row(_CONFLICT),
    "POST /queues/{queue}/tasks/{task}:cancel": Row(_TAKEN),
    "POST /queues/{queue}/tasks/{task}:reschedule": Row(_CHANGE, {"process_at": "2050-01-01T00:00:00Z"}),
    "POST /queues/{queue}/tasks/{task}:copy": Row(_MADE),
    "PUT /queues/{queue}/tasks/{task}/payload": Row(_CHANGE, {"payload": {"new": 1}}),
    "POST /queues/{queue}/tasks:run": Row(_CHANGE, _SOME),
    "POST /queues/{queue}/tasks:archive": Row(_CHANGE, _SOME),
    "POST /queues/{queue}/tasks:delete": Row(_CHANGE, _SOME),
    "POST /queues/{queue}/tasks:cancel": Row(_CHANGE, _SOME),
    "GET /tasks": Row(_SEEN, query="q=state:archived"),
    "GET /search/explain": Row(_SEEN, query="q=state:archived"),
    "GET /search/complete": Row(_SEEN, query="q=sta"),
    "GET /operations": Row(_SEEN),
    "POST /operations": Row(_TAKEN, {"act": "delete", "ids": {"emails": ["a"]}, "reason": "x"}),
    "GET /operations/{operation}": Row(_QUEUE),
    "POST /operations/{operation}:pause": Row(_CHANGE),
    "POST /operations/{operation}:resume": Row(_TAKEN),
    "POST /operations/{operation}:stop": Row(_CHANGE),
    "POST /operations/{operation}:undo": Row(_CONFLICT),
    "POST /operations/{operation}:run": Row(_TAKEN),
    "GET /audit": Row(_NOT_VIEWERS),
    "GET /audit/refusals": Row(_NOT_VIEWERS),
    "GET /servers": Row(_SEEN),
    "GET /servers/{server}": Row(_QUEUE),
    "POST /servers/{server}:quiet": Row(_TAKEN),
    "POST /servers/{server}:stop": Row(_TAKEN),
    "POST /servers:quiet": Row(_TAKEN, {"version": "2026.11.2"}),
    "POST /servers:stop": Row(_TAKEN, {"engine_version": "0.1.0", "confirm": 3}),
    "GET /schedules": Row(_SEEN),
    "GET /schedules/{schedule}": Row(_QUEUE),
    "GET /schedules/{schedule}/events": Row(_QUEUE),
    "POST /schedules/{schedule}:pause": Row(_CHANGE),
    "POST /schedules/{schedule}:resume": Row(_CHANGE),
    "POST /schedules/{schedule}:run": Row(_MADE),
    "GET /types": Row(_SEEN),
    "GET /events": Row(_QUEUE, query="queue=emails&seconds=1"),
    "GET /redis": Row("401 403 403 200 403"),
    "GET /deliveries": Row(_SEEN),
    "GET /deliveries/{delivery}": Row(_QUEUE),
    "GET /commands": Row(_SEEN),
    "GET /commands/{command}": Row(_QUEUE),
    "POST /commands/{command}:kill": Row(_TAKEN, {"outcome": "archive", "reason": "it hangs"}),
    "GET /doors": Row(_SEEN),
    "GET /attention": Row(_SEEN),
    "POST /attention:snooze": Row(
        "401 403 204 204 404",
        {"detector": "paused_long", "queue": "emails", "duration": 60, "reason": "x"},
    ),
    "POST /attention:unsnooze": Row("401 403 404 404 404", {"detector": "paused_long", "queue": "emails"}),
    "GET /doctor": Row(_QUEUE, query="queue=emails"),
    "POST /doctor:repair": Row("401 403 403 200 404", {"queues": ["emails"]}),
    "GET /stats/latency": Row(_SEEN),
    "GET /stats/series": Row(_SEEN),
    "GET /scale": Row(_QUEUE, query="queue=emails&due_within=60"),
    "GET /marks": Row(_SEEN),
    "POST /marks": Row("401 403 201 201 201", {"text": "deploy"}),
    "DELETE /marks/{mark}": Row("401 403 404 404 404"),
    "GET /views": Row(_SEEN),
    "POST /views": Row("401 201 201 201 201", {"name": "x", "query": "state:archived"}),
    "DELETE /views/{view}": Row("401 404 404 404 404"),
}
"""The row of each route, by method and path. A new route needs one."""

NAMES: Final = {
    "queue": "emails",
    "task": "a",
    "server": "server-1",
    "schedule": "entry-cart.remind",
    "mark": "0-0",
    "view": "0123",
    "delivery": make_delivery_id("a.example", "emails"),
    "command": "run-of-emails",
}


def test_every_route_has_a_row() -> None:
    """The table of permissions and the routes of the API match each other."""
    assert [f"{route.method} {route.path}" for route in API_ROUTES] == list(ROWS)


def test_every_route_names_its_verb() -> None:
    """Its permission is checked by the operator; only the user's own description needs none."""
    assert {"/me"} == {route.path for route in API_ROUTES if not route.verb}
    assert all(VERBS[route.verb].changes == route.changes for route in API_ROUTES if route.verb)


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", ROWS)
def test_a_route_answers_each_role_as_its_row_says(
    redis_url: str, redis_client: RedisClient, name: str
) -> None:
    """A refused call changes nothing in Redis but what is written down of it; nor does a GET or a dry run."""
    row, (method, path) = ROWS[name], name.split(" ")
    statuses = dict(zip(ROLES, map(int, row.statuses.split()), strict=True))
    is_change = method != "GET"

    @run_async
    async def ask() -> None:
        names = {**NAMES, "operation": _fill(redis_client, redis_url)}
        address = f"api/v1{path.format(**names)}?{row.query}"
        async with visiting(redis_url, client=ABROAD, auth=role_of) as visitor:
            for role, expected in statuses.items():
                before = _state_of(redis_client)
                headers = {"x-role": role, "sec-fetch-site": "same-origin"}
                if is_change:
                    dry = await visitor.request(
                        method, f"{address}&dry_run=true", json=row.body, headers=headers
                    )
                    assert _foreseen(expected, dry.json()) == dry.status_code, (
                        f"a dry run of {name} for {role}"
                    )
                    assert before == _state_of(redis_client), (
                        f"a dry run of {name} by {role} has changed something"
                    )
                answer = await visitor.request(method, address, json=row.body, headers=headers)
                assert expected == answer.status_code, f"{name} for {role}: {answer.text}"
                is_refused = answer.status_code >= 400
                if is_refused:
                    assert "application/problem+json" == answer.headers["content-type"]
                changed = _state_of(redis_client) != before
                assert not changed or (is_change and not is_refused), (
                    f"{name} by {role} has changed something"
                )
                if changed:
                    redis_client.flushall()
                    assert names["operation"]
                    address = address.replace(names["operation"], new := _fill(redis_client, redis_url))
                    names["operation"] = new

    ask()


def _foreseen(status: int, content: dict[str, Any]) -> int:
    """Return the status of the dry run of a call; what the change alone finds out is not foreseen."""
    if status in {404, 409} and content.get("dry_run"):
        return 200
    return status if status >= 400 else 200


def _fill(client: RedisClient, url: str) -> str:
    """Put in tasks, servers, schedules, reports of the service, and an operation, whose id is returned."""
    tasks = Tasks(client, "emails")
    tasks.put(TaskState.ARCHIVED, "a", "b", error_msg="boom", last_failed_at=1, payload=b"{}")
    tasks.put(TaskState.SCHEDULED, "s")
    announce_servers(url)
    announce_schedules(client)
    announce_failed_delivery(url, "a.example", "emails")
    announce_commands(url, [make_command("emails", state="running", ended=None)])
    announce_doors(url)
    with Operator(url, User.with_role("mira", "admin")) as operator:
        return operator.start_operation("archive", Targets({"emails": ["s"]})).operation


def _state_of(client: RedisClient) -> dict[str, Any]:
    # That someone was refused, or tried in vain, is meant to be written.
    return {key: value for key, value in snapshot(client).items() if key not in {AUDIT_KEY, REFUSED_KEY}}
