"""Every address of the router with every role: what is answered, and that a refused call changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest
from starlette.routing import Route

from pyasynq._wire.keys import AUDIT_KEY, REFUSED_KEY
from pyasynq.operations import Targets, User
from pyasynq.operations.sync import Operator
from pyasynq.task import TaskState
from pyasynq.web import dashboard
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop import announce_schedules, announce_servers
from tests.shop_service import announce_commands, announce_failed_delivery, make_command
from tests.snapshots import snapshot
from tests.visiting import ABROAD, form_token, visiting

if TYPE_CHECKING:
    import httpx
    from starlette.requests import Request

    from pyasynq.web import Dashboard
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

ROLES: Final = ("anonymous", "viewer", "operator", "admin", "other team")
_REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 500})


@dataclass(frozen=True)
class Row:
    """One address: an example of it, and the status for each role, in the order of `ROLES`."""

    path: str
    statuses: str
    fields: dict[str, Any] = field(default_factory=dict)


_PAGE: Final = "401 200 200 200 200"
_QUEUE: Final = "401 200 200 200 404"
_FORM: Final = "401 403 303 303 404"
_ADMIN_FORM: Final = "401 403 403 303 404"
_FINDING: Final = '["paused_long","images",""]'
_ASKED: Final = "401 403 200 200 400"
_CURE: Final = "401 403 303 303 400"
_OPEN: Final = "404 404 404 404 404"

ROWS: Final[dict[str, Row]] = {
    "GET /": Row("", _PAGE),
    "GET /attention": Row("attention", _PAGE),
    "GET /attention/snooze": Row(f"attention/snooze?finding={quote(_FINDING)}", _ASKED),
    "GET /attention/act": Row(f"attention/act?finding={quote(_FINDING)}", _ASKED),
    "POST /attention/snooze": Row(
        "attention/snooze", _CURE, {"finding": _FINDING, "seconds": "3600", "reason": "x"}
    ),
    "POST /attention/unsnooze": Row("attention/unsnooze", _CURE, {"finding": _FINDING}),
    "POST /attention/act": Row("attention/act", _CURE, {"finding": _FINDING}),
    "GET /metrics": Row("metrics", "401 403 403 200 403"),
    "GET /queues": Row("queues", _PAGE),
    "GET /queues/{queue}": Row("queues/emails", _QUEUE),
    "GET /queues/{queue}/tasks/{task}": Row("queues/emails/tasks/a", _QUEUE),
    "GET /task-types": Row("task-types", _PAGE),
    "GET /task-types/{type}": Row("task-types/emails", _QUEUE),
    "GET /task-types/{type}/edit": Row("task-types/emails/edit", "401 403 403 200 404"),
    "POST /task-types/{type}/edit": Row(
        "task-types/emails/edit", _ADMIN_FORM, {"version": "{version}", "max_run": "3", "sure": "yes"}
    ),
    "GET /task-types/{type}/delete": Row("task-types/emails/delete", "401 403 403 200 404"),
    "POST /task-types/{type}/delete": Row(
        "task-types/emails/delete", _ADMIN_FORM, {"version": "{version}", "confirm": "emails"}
    ),
    "GET /new-task-type": Row("new-task-type", "401 403 403 200 200"),
    "POST /new-task-type": Row(
        "new-task-type", "401 403 403 303 403", {"version": "0", "name": "resize", "sure": "yes"}
    ),
    "GET /deliveries": Row("deliveries", _PAGE),
    "GET /deliveries/{host}": Row("deliveries/a.example", _QUEUE),
    "GET /commands": Row("commands", _PAGE),
    "GET /commands/{command}": Row("commands/run-of-emails", _QUEUE),
    "GET /doors": Row("doors", _PAGE),
    "GET /workers": Row("workers", _PAGE),
    "GET /keys": Row("keys", "401 403 403 200 403"),
    "GET /keys/new": Row("keys/new", "401 403 403 200 403"),
    "POST /keys/new": Row(
        "keys/new",
        "401 403 403 200 403",
        {"name": "x", "scope:work": "yes", "queues": "*", "end": "", "opened": "99999999999"},
    ),
    "GET /keys/{key}/{verb}": Row("keys/0123/delete", "401 403 403 404 403"),
    "POST /keys/{key}/{verb}": Row("keys/0123/delete", "401 403 403 404 403", {"confirm": "x"}),
    "GET /servers": Row("servers", _PAGE),
    "GET /servers/{server}": Row("servers/server-1", _QUEUE),
    "GET /schedules": Row("schedules", _PAGE),
    "GET /schedules/{entry}": Row("schedules/entry-cart.remind", _QUEUE),
    "GET /events": Row("events", _PAGE),
    "GET /operations": Row("operations", _PAGE),
    "GET /operations/{operation}": Row("operations/{operation}", _QUEUE),
    "GET /bulk": Row("bulk?act=delete&q=queue:emails", "401 403 200 200 200"),
    "GET /doctor": Row("doctor", _PAGE),
    "GET /doctor/repair": Row("doctor/repair?kind=orphan&queue=emails", "401 400 400 400 400"),
    "GET /audit": Row("audit", "401 403 200 200 200"),
    "GET /enqueue": Row("enqueue?queue=emails&type=x", "401 403 200 200 200"),
    "POST /enqueue": Row(
        "enqueue", _FORM, {"step": "enqueue", "queue": "emails", "type": "x", "shown": "x", "payload": "{}"}
    ),
    "GET /errors": Row("errors", _PAGE),
    "GET /types": Row("types", _PAGE),
    "GET /types/{type}": Row("types/email.shipped", _PAGE),
    "GET /views": Row("views", _PAGE),
    "GET /views/new": Row("views/new?q=state:archived&queue=emails", _QUEUE),
    "POST /views": Row(
        "views", "401 303 303 303 303", {"name": "x", "page": "search", "query": "state:archived"}
    ),
    "POST /views/{view}/delete": Row("views/0123/delete", "401 303 303 303 303"),
    "GET /redis": Row("redis", "401 403 403 200 403"),
    "GET /settings": Row("settings", _PAGE),
    "GET /help": Row("help", _PAGE),
    "GET /queues/{queue}/tasks/{task}/data/{part}": Row("queues/emails/tasks/a/data/payload", _QUEUE),
    "GET /tasks": Row("tasks?q=state:archived", _PAGE),
    "GET /complete.json": Row("complete.json?q=sta", _PAGE),
    "GET /palette.json": Row("palette.json?q=e", _PAGE),
    "GET /live": Row("live?page=/nowhere", "401 404 404 404 404"),
    "GET /live.json": Row("live.json?page=/queues/emails", _QUEUE),
    "GET /switch": Row("switch?to=x", "401 303 303 303 303"),
    "GET /queues/{queue}/pause": Row("queues/emails/pause", "401 403 200 200 404"),
    "GET /queues/{queue}/delete": Row("queues/emails/delete", "401 403 403 200 404"),
    "GET /queues/{queue}/tasks/{task}/{verb}": Row(
        "queues/emails/tasks/a/delete_task", "401 403 200 200 404"
    ),
    "GET /servers/{server}/{verb}": Row("servers/server-1/stop_server", "401 403 200 200 404"),
    "GET /server-versions/{verb}": Row(
        "server-versions/stop_servers?version=2026.11.2", "401 403 200 200 404"
    ),
    "POST /server-versions/{verb}": Row(
        "server-versions/quiet_servers", _FORM, {"version": "2026.11.2", "confirm": "2"}
    ),
    "POST /servers/{server}/{verb}": Row("servers/server-1/quiet_server", _FORM),
    "GET /schedules/{entry}/{verb}": Row("schedules/entry-cart.remind/run_schedule", "401 403 200 200 404"),
    "POST /schedules/{entry}/{verb}": Row("schedules/entry-cart.remind/run_schedule", _FORM),
    "POST /queues/{queue}/pause": Row("queues/emails/pause", _FORM, {"seconds": "60"}),
    "POST /queues/{queue}/resume": Row("queues/images/resume", _FORM),
    "POST /queues/{queue}/limits": Row("queues/emails/limits", _FORM, {"max_run": "3", "sure": "yes"}),
    "POST /queues/{queue}/delete": Row("queues/emails/delete", _ADMIN_FORM, {"confirm": "emails"}),
    "POST /queues/{queue}/tasks/{task}/{verb}": Row("queues/emails/tasks/a/run_task", _FORM),
    "POST /act": Row("act", _FORM, {"verb": "run_task", "id": "emails/a", "back": "/queues"}),
    "POST /doctor/examine": Row("doctor/examine", "401 303 303 303 303"),
    "POST /doctor/repair": Row("doctor/repair", _ADMIN_FORM, {"kind": "orphan", "queue": "emails"}),
    "POST /bulk": Row(
        "bulk", "401 403 303 303 400", {"act": "run", "q": "queue:emails state:archived", "reason": "x"}
    ),
    "POST /operations/{operation}/{order}": Row("operations/{operation}/pause", _FORM),
    # The APIs have tables of their own. Here one request of each method is answered, or refused.
    "GET /api/v1/{path:rest}": Row("api/v1/queues", _PAGE),
    "POST /api/v1/{path:rest}": Row("api/v1/queues/emails:pause", "401 403 200 200 404"),
    "DELETE /api/v1/{path:rest}": Row("api/v1/queues/emails/tasks/a", "401 403 204 204 404"),
    "PUT /api/v1/{path:rest}": Row("api/v1/queues", "401 405 405 405 405"),
    "PATCH /api/v1/{path:rest}": Row("api/v1/queues", "401 405 405 405 405"),
    "OPTIONS /api/v1/{path:rest}": Row("api/v1/queues", "401 405 405 405 405"),
    # The API of asynqmon has answers errors by 500.
    "GET /api/{path:rest}": Row("api/queues", _PAGE),
    "POST /api/{path:rest}": Row("api/queues/emails:pause", "401 403 204 204 500"),
    "DELETE /api/{path:rest}": Row("api/queues/emails/archived_tasks/a", "401 403 204 204 500"),
    "PUT /api/{path:rest}": Row("api/queues", "401 405 405 405 405"),
    "PATCH /api/{path:rest}": Row("api/queues", "401 405 405 405 405"),
    "OPTIONS /api/{path:rest}": Row("api/queues", "401 405 405 405 405"),
    # Signing in is for dashboards that have a way to; settings are kept in the browser.
    "GET /login": Row("login", _OPEN),
    "GET /login/oidc": Row("login/oidc", _OPEN),
    "GET /login/oidc/callback": Row("login/oidc/callback?code=x&state=y", _OPEN),
    "POST /login": Row("login", "403 404 404 404 404", {"name": "x", "password": "y"}),
    "POST /logout": Row("logout", "401 303 303 303 303"),
    "POST /settings": Row("settings", "401 303 303 303 303", {"theme": "dark"}),
    "GET /{path:path}": Row("no/such/page", "401 404 404 404 404"),
    "GET /static/{version}/{name}": Row("static/0/main.js", "200 200 200 200 200"),
}
"""The row of each route, by method and path. A new route needs one."""


async def role_of(request: Request) -> User | None:
    """Return the user whom a header names, as the function of a host application does."""
    role = request.headers.get("x-role", "anonymous")
    if role == "anonymous":
        return None
    if role == "other team":
        return User.with_role("olaf", "admin", queues="other-*")
    return User.with_role("mira", role)


def routes_of(site: Dashboard) -> set[str]:
    """Return method and path of each route of the router itself."""
    found = set()
    for route in site.routes:
        assert isinstance(route, Route)
        found |= {f"{method} {route.path}" for method in (route.methods or ()) if method != "HEAD"}
    return found


def test_every_route_has_a_row(redis_url: str) -> None:
    """And each row has its route: a page or a form that is added says who may use it."""
    assert routes_of(dashboard(redis_url)) == set(ROWS)


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", ROWS)
def test_a_route_answers_each_role_as_its_row_says(
    redis_url: str, redis_client: RedisClient, name: str
) -> None:
    """A refused call changes nothing in Redis except what is written down of it; a GET changes nothing."""
    row, method = ROWS[name], name.partition(" ")[0]
    statuses = dict(zip(ROLES, map(int, row.statuses.split()), strict=True))

    @run_async
    async def ask() -> None:
        for role, expected in statuses.items():
            redis_client.flushall()
            operation, version = _fill(redis_client, redis_url)
            path = row.path.replace("{operation}", operation)
            fields = {key: value.replace("{version}", version) for key, value in row.fields.items()}
            before = _state_of(redis_client)
            async with visiting(redis_url, client=ABROAD, auth=role_of) as visitor:
                visitor.headers["x-role"] = role
                assert expected == await answer(visitor, replace(row, path=path, fields=fields), method), (
                    f"{name} for {role}"
                )
            changed = _state_of(redis_client) != before
            may_change = method in {"POST", "DELETE"} and expected not in _REFUSALS
            assert not changed or may_change, f"{name} by {role} has changed something"

    ask()


@run_async
async def test_a_download_of_a_viewer_holds_no_payload(redis_url: str, redis_client: RedisClient) -> None:
    """It has the words that the page has in its place."""
    Tasks(redis_client, "emails").pending("p", payload=b"the secret plan")
    async with visiting(redis_url, client=ABROAD, auth=role_of) as visitor:
        for role, is_shown in (("viewer", False), ("operator", True)):
            answered = await visitor.get("queues/emails/tasks/p/data/payload", headers={"x-role": role})
            assert is_shown == (b"the secret plan" in answered.content)


async def answer(visitor: httpx.AsyncClient, row: Row, method: str) -> int:
    """Return the status of the answer to a request; a form carries the token of the settings page."""
    if method == "GET":
        return (await visitor.get(row.path)).status_code
    if row.path.startswith("api/"):
        return (
            await visitor.request(method, row.path, headers={"sec-fetch-site": "same-origin"})
        ).status_code
    page = await visitor.get("settings")
    token = form_token(page.text) if page.status_code == 200 else "none"
    sent = await visitor.post(
        row.path, data={"csrf": token, **row.fields}, headers={"sec-fetch-site": "same-origin"}
    )
    return sent.status_code


def _fill(client: RedisClient, url: str) -> tuple[str, str]:
    """Put in tasks, servers, schedules, a configured type and an operation; return its id and the version."""
    tasks = Tasks(client, "emails")
    tasks.put(TaskState.ARCHIVED, "a", "b", error_msg="boom", last_failed_at=1, payload=b"{}")
    images = Tasks(client, "images")
    images.pending("p")
    client.set(images.keys.paused, "1")
    announce_servers(url)
    announce_schedules(client)
    announce_failed_delivery(url, "a.example", "emails")
    announce_commands(url, [make_command("emails")])
    with Operator(url, User.with_role("mira", "admin")) as operator:
        version = operator.set_type_configuration("emails", {"managed": "api"}).version
        return operator.start_operation("archive", Targets({"emails": ["b"]})).operation, str(version)


def _state_of(client: RedisClient) -> dict[str, Any]:
    # That someone was refused, or tried in vain, is meant to be written.
    return {key: value for key, value in snapshot(client).items() if key not in {AUDIT_KEY, REFUSED_KEY}}
