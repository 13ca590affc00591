"""The whole dashboard under a Redis user that only reads: each page is shown, each form says why not."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq._wire.keys import queue_keys
from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.web import CredentialsFile, actions
from tests.contract.test_rights import as_user
from tests.contract.web.test_pages import PAGES
from tests.people_file import PASSWORD, write_people
from tests.run_async import run_async
from tests.shop import fill_shop
from tests.shop_service import (
    SHOP_COMMANDS,
    announce_commands,
    announce_deliveries,
    announce_doors,
    announce_lease_workers,
    configure_service,
    first_active,
)
from tests.shop_statistics import fill_statistics, start_operations
from tests.visiting import ABROAD, form_token, heading_of, send_form, visiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("a user of a cluster needs further rights")
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')
_RIGHT: Final = re.compile(r"has no permissions to run the '[a-z]+' command|can't run this command")
"""How Redis names a missing right; Redis 6 does not name the command of a script."""
_QUEUE: Final = "shipping-labels"
_UNSERVED: Final = '["no_consumers","exports",""]'
_PAUSED: Final = '["paused_long","images",""]'
_VERSION: Final = "version=2026.11.2&engine_version=0.1.0"
_ENTRY: Final = "schedules/entry-cart.remind"
_TASK: Final = {
    "step": "enqueue",
    "type": "maps",
    "shown": "maps",
    "mode": "json",
    "queue": "maps",
    "payload": "{}",
}
_PAYLOAD: Final = '{"order_id": 1, "recipient": "Ada", "items": []}'


class Shop:
    """A shop's Redis, with the URL of a user that only reads, and ids of what is in it."""

    def __init__(self, client: RedisClient, url: str, reader: str) -> None:
        self.client = client
        self.url = url
        self.reader = reader
        keys = queue_keys(_QUEUE)
        self.task = client.zrange(keys.archived, 0, 0)[0].decode()
        self.waiting = client.zrange(keys.retry, 0, 0)[0].decode()
        self.active = first_active(client, _QUEUE)
        with Operator(url, User.with_role("mira", "admin")) as admin:
            self.operation = next(one.operation for one in admin.operations() if not one.has_ended)
            admin.snooze_finding("paused_long", "images", duration=3_600, reason="test")
            self.view = admin.share_view("Failed", "search", "state:archived").view
            self.key = next(one for one in admin.api_keys() if one.name == "shop")

    def read_all(self) -> dict[bytes, Any]:
        """Return all that is stored, by key. A dump would also differ by the order in a hash table."""
        readers: dict[bytes, Callable[[bytes], Any]] = {
            b"string": self.client.get,
            b"list": lambda key: self.client.lrange(key, 0, -1),
            b"set": self.client.smembers,
            b"zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
            b"hash": self.client.hgetall,
            b"stream": self.client.xrange,
        }
        return {key: readers[self.client.type(key)](key) for key in self.client.scan_iter()}


@pytest.fixture
def shop(redis_url: str, redis_client: RedisClient, damage_allowed: None) -> Iterator[Shop]:
    """A shop with a task service."""
    fill_shop(redis_client, redis_url, scale=200)
    start_operations(redis_url)
    configure_service(redis_url)
    announce_commands(redis_url, SHOP_COMMANDS)
    announce_deliveries(redis_url)
    announce_doors(redis_url)
    announce_lease_workers(redis_url, held=first_active(redis_client, _QUEUE))
    yield Shop(redis_client, redis_url, as_user(redis_client, redis_url, "dashboard"))
    redis_client.acl_deluser("dashboard")


def _pages(shop: Shop) -> list[str]:
    """Return the addresses of all pages, of questions before each kind of change, and of data."""
    task = f"queues/{_QUEUE}/tasks/{shop.task}"
    return [
        *PAGES,
        task,
        f"{task}/data/payload",
        f"operations/{shop.operation}",
        "doctor/repair?kind=ghost",
        "deliveries/billing.example",
        "commands/run-of-dumps",
        "queues/emails/tasks/none",
        f"{task}/run_task",
        f"{task}/edit_payload",
        "servers/server-1/stop_server",
        "server-versions/stop_servers?version=2026.11.2&engine_version=0.1.0",
        "schedules/entry-cart.remind/run_schedule",
        "task-types/payments/delete",
        f"keys/{shop.key.id}/rotate",
        f"attention/snooze?finding={_UNSERVED}",
        f"attention/act?finding={_UNSERVED}",
        "tasks?q=state:archived",
        f"bulk?act=delete&q=queue:{_QUEUE}",
        "complete.json?q=sta",
        "palette.json",
        "metrics",
        "live.json?page=/queues",
    ]


@run_async
async def test_a_redis_user_that_only_reads_sees_each_page(shop: Shop) -> None:
    """Each has the status and the heading that it has with all rights, and none of them writes."""
    fill_statistics(shop.url)
    stored = shop.read_all()
    seen = {}
    async with visiting(shop.url) as full, visiting(shop.reader) as reader:
        for path in _pages(shop):
            expected, found = await full.get(path), await reader.get(path)
            assert expected.status_code < 500, path
            seen[path] = (expected.status_code, _heading(expected)), (found.status_code, _heading(found))
    assert {} == {path: both for path, both in seen.items() if both[0] != both[1]}
    assert stored == shop.read_all()


def _heading(response: httpx.Response) -> str:
    """Return the heading of a page; empty for data."""
    return heading_of(response) if "text/html" in response.headers.get("content-type", "") else ""


def _forms(shop: Shop) -> dict[str, tuple[str, str, dict[str, str]]]:
    """Return a valid form for each route: its address, the page that holds it, and what a user fills in."""
    task, active = f"queues/{_QUEUE}/tasks/{shop.task}", f"queues/{_QUEUE}/tasks/{shop.active}"
    versions = "server-versions/quiet_servers"
    snooze = f"attention/snooze?finding={_UNSERVED}"
    return {
        "/queues/{queue}/pause": ("queues/emails/pause", "queues/emails/pause", {"seconds": "900"}),
        "/queues/{queue}/resume": ("queues/images/resume", "settings", {}),
        "/queues/{queue}/limits": ("queues/emails/limits", "settings", {"max_run": "3"}),
        "/queues/{queue}/delete": ("queues/exports/delete", "queues/exports/delete", {"confirm": "exports"}),
        **{
            verb: (f"{task}/{verb}", f"{task}/{verb}", {})
            for verb in ("run_task", "delete_task", "enqueue_copy")
        },
        "archive_task": (f"queues/{_QUEUE}/tasks/{shop.waiting}/archive_task", "settings", {}),
        "cancel_task": (f"{active}/cancel_task", f"{active}/cancel_task", {"outcome": "retry"}),
        "reschedule_task": (f"{task}/reschedule_task", "settings", {"value": "2100-01-01T00:00:00"}),
        "edit_payload": (f"{task}/edit_payload", f"{task}/edit_payload", {"value": _PAYLOAD}),
        "/servers/{server}/{verb}": (
            "servers/server-1/stop_server",
            "servers/server-1/stop_server",
            {},
        ),
        "/server-versions/{verb}": (versions, f"{versions}?{_VERSION}", {"confirm": "2"}),
        "/schedules/{entry}/{verb}": (f"{_ENTRY}/run_schedule", f"{_ENTRY}/run_schedule", {}),
        "pause_schedule": (f"{_ENTRY}/pause_schedule", f"{_ENTRY}/pause_schedule", {}),
        "/task-types/{type}/edit": (
            "task-types/payments/edit",
            "task-types/payments/edit",
            {"max_run": "3", "confirm": "payments"},
        ),
        "/task-types/{type}/delete": (
            "task-types/payments/delete",
            "task-types/payments/delete",
            {"confirm": "payments"},
        ),
        "/new-task-type": ("new-task-type", "new-task-type", {"name": "maps", "kind": "worker"}),
        "/keys/new": (
            "keys/new",
            "keys/new",
            {"name": "maps", "scope:work": "yes", "queues": "*", "end": ""},
        ),
        "/keys/{key}/{verb}": (
            f"keys/{shop.key.id}/rotate",
            f"keys/{shop.key.id}/rotate",
            {"overlap": "3600"},
        ),
        "delete_key": (
            f"keys/{shop.key.id}/delete",
            f"keys/{shop.key.id}/delete",
            {"confirm": shop.key.name},
        ),
        "/act": ("act", "settings", {"verb": "run_task", "id": f"{_QUEUE}/{shop.task}"}),
        "/attention/snooze": ("attention/snooze", snooze, {"seconds": "3600", "reason": "test"}),
        "/attention/unsnooze": ("attention/unsnooze", "settings", {"finding": _PAUSED}),
        "/attention/act": ("attention/act", "settings", {"finding": _PAUSED}),
        "/doctor/repair": ("doctor/repair", "settings", {"kind": "ghost", "queue": _QUEUE}),
        "/enqueue": ("enqueue", "settings", _TASK),
        "/bulk": ("bulk", "settings", {"act": "archive", "q": f"queue:{_QUEUE} state:retry"}),
        "/operations/{operation}/{order}": (f"operations/{shop.operation}/stop", "settings", {}),
        "/views": ("views", "settings", {"name": "Lost", "page": "search", "query": "state:archived"}),
        "/views/{view}/delete": (f"views/{shop.view}/delete", "settings", {}),
    }


async def _press(visitor: httpx.AsyncClient, path: str, page: str, fields: dict[str, str]) -> httpx.Response:
    """Send a form with what is hidden in it; if a preview follows, also the form of the preview."""
    shown = await visitor.get(page)
    for _ in range(2):
        hidden = {name: html.unescape(value) for name, value in _HIDDEN.findall(shown.text)}
        data = {"csrf": form_token(shown.text), **hidden, "reason": "test", **fields}
        shown = await visitor.post(path, data=data, headers={"sec-fetch-site": "same-origin"})
        if 'name="sure"' not in shown.text:
            break
    return shown


@run_async
async def test_each_form_says_that_the_redis_user_may_not_write(shop: Shop) -> None:
    """In a sentence that names the missing right. Nothing is changed."""
    stored, forms = shop.read_all(), _forms(shop)
    assert set(actions.FORMS) <= {*forms, "/queues/{queue}/tasks/{task}/{verb}"}, "a form without a sample"
    wrong = {}
    async with visiting(shop.reader) as reader:
        for name, (path, page, fields) in forms.items():
            answer = await _press(reader, path, page, fields)
            if answer.status_code != 503 or not _RIGHT.search(html.unescape(answer.text)):
                wrong[name] = answer.status_code, _heading(answer), answer.headers.get("location")
        await send_form(reader, "doctor/examine", {}, page="doctor")
        assert _RIGHT.search(html.unescape((await reader.get("doctor")).text))
        answer = await send_form(reader, "settings", {"theme": "dark"})
        assert 303 == answer.status_code, "the choice is in a cookie"
    assert {} == wrong
    assert stored == shop.read_all()


@run_async
async def test_refusals_under_a_reader_are_in_the_log(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The audit cannot be written, and a wrong password or a foreign form is still refused as such."""
    auth = CredentialsFile(write_people(tmp_path))
    async with visiting(shop.reader, auth=auth, client=ABROAD) as reader:
        assert 401 == (await send_form(reader, "login", {"name": "mira", "password": "guess"})).status_code
        assert 303 == (await send_form(reader, "login", {"name": "mira", "password": PASSWORD})).status_code
        assert 403 == (await reader.post("queues/emails/pause", data={"csrf": "x.y"})).status_code
        # An operator may not delete a queue.
        fields = {"confirm": "exports"}
        answer = await send_form(reader, "queues/exports/delete", fields, page="settings")
        assert (403, "You may not do this") == (answer.status_code, heading_of(answer))
    said = [record.getMessage() for record in caplog.records if record.name == "pyasynq.audit"]
    for part in ("The name or the password was wrong", "POST /queues/emails/pause", "delete_queue"):
        assert any(part in one for one in said), part
