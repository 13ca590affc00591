"""Hostile texts in every field that others write: no script of theirs runs, and no policy is broken."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import pytest

from pyasynq._wire.keys import SCHEDULERS_KEY, scheduler_key
from pyasynq._wire.messages import SchedulerEntry
from pyasynq.embedded import EmbeddedServer
from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.task import TaskState
from pyasynq.web import dashboard
from pyasynq.web.locations import from_segment, to_segment
from tests.browser.conftest import Site, connect, serve, window
from tests.browser.test_every_page import WATCH_POLICY
from tests.factories import Tasks
from tests.shop_service import announce_commands, announce_doors, announce_hostile_deliveries, make_command
from tests.visiting import links_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from playwright.sync_api import Browser

    from pyasynq.operations import HostedCommand

CORPUS: Final = (
    "<script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 1'>",
    '"><svg onload=window.owned=1>',
    "' autofocus onfocus='window.owned = 1",
    "javascript:window.owned=1",
    "</title></textarea></style><script>window.owned=1</script>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "<a href='javascript:window.owned=1'>click</a>",
)
_SEED = os.environ.get("PYASYNQ_TEST_SEED", "")
DRAWN = [int(_SEED) % len(CORPUS)] if _SEED else range(len(CORPUS))
"""Numbers of the texts whose own pages are visited: all, or one if a seed draws it, as in CI."""


@pytest.fixture(scope="module")
def hostile_site() -> Iterator[Site]:
    """A dashboard on a Redis whose texts are all hostile, with the same texts in the audit and in marks."""
    with EmbeddedServer() as server:
        client = connect(server.url)
        for number, text in enumerate(CORPUS):
            _put(Tasks(client, f"q{number}-{text}"), text)
        entry = SchedulerEntry(
            id=CORPUS[0],
            spec=CORPUS[1],
            task_type=CORPUS[2],
            task_payload=CORPUS[3].encode(),
            enqueue_options=(f'Queue("{CORPUS[5]}")',),
            next_enqueue_time=datetime.now(UTC),
            prev_enqueue_time=None,
        )
        client.zadd(SCHEDULERS_KEY, {scheduler_key("scheduler"): int(time.time()) + 86_400})
        client.rpush(scheduler_key("scheduler"), entry.encode())
        with Operator(server.url, User.with_role(CORPUS[0], "admin")) as operator:
            operator.pause_queue(f"q1-{CORPUS[1]}", reason=CORPUS[1])
            operator.add_mark(CORPUS[2])
        announce_hostile_deliveries(server.url, CORPUS)
        announce_doors(server.url, CORPUS)
        announce_commands(server.url, [_make_hostile_command(number) for number in range(len(CORPUS))])
        with serve(dashboard(server.url, title=CORPUS[0], environment=CORPUS[4])) as address:
            yield Site(server.url, address)


def _make_hostile_command(number: int) -> HostedCommand:
    text = CORPUS[number]
    return make_command(
        f"q{number}-{text}",
        id=text,
        task_id=text,
        program=text,
        host=text,
        end=text,
        reason=text,
        out=text.encode(),
        err=text.encode(),
    )


def _put(tasks: Tasks, text: str) -> None:
    payload = json.dumps({text: [text, {"deep": text}]}).encode()
    fields = {"type": text, "error_msg": text, "payload": payload, "headers": {"x": text}}
    tasks.put(TaskState.ARCHIVED, f"a-{text}", extra={"x:trace": text}, last_failed_at=1, **fields)  # type: ignore[arg-type] # as the message takes them
    tasks.put(TaskState.COMPLETED, f"c-{text}", extra={"result": text.encode()}, type=text)
    tasks.put(TaskState.AGGREGATING, f"g-{text}", group=text, type=text)


def test_no_page_runs_what_a_text_says(browser: Browser, hostile_site: Site) -> None:
    """All kinds of pages are crawled from the overview; the policy reports nothing on any of them."""
    begin = [hostile_site.address]
    kinds = set(
        map(_kind, _crawl(browser, hostile_site, begin, begin, lambda parts: (len(parts), *parts[::2])))
    )
    assert {"queues", "tasks", "schedules", "audit", "errors", "types"} <= kinds


@pytest.mark.parametrize("number", DRAWN)
def test_no_page_about_a_text_runs_it(browser: Browser, hostile_site: Site, number: int) -> None:
    """The pages of the queue, its tasks, the type and the command that are named so; one for each verb."""
    text = CORPUS[number]
    names = {"queues": f"q{number}-{text}", "types": text, "commands": text}
    begin = [f"{hostile_site.address}{section}/{to_segment(name)}" for section, name in names.items()]
    visited = list(_crawl(browser, hostile_site, begin, begin, lambda parts: parts[-1]))
    tasks = {one.partition("/tasks/")[2].partition("/")[0] for one in visited if "/tasks/" in one}
    assert {f"a-{text}", f"c-{text}", f"g-{text}"} <= set(map(from_segment, tasks))


def _crawl(
    browser: Browser,
    site: Site,
    begin: list[str],
    within: list[str],
    kind_of: Callable[[list[str]], Hashable],
) -> Iterator[str]:
    """Visit pages and those that they link to; each is checked and yielded.

    Args:
        browser: the browser.
        site: the dashboard.
        begin: addresses of the first pages.
        within: beginnings of the addresses to visit.
        kind_of: returns of the parts of a path what it has in common with others; one of each is visited.
    """
    todo = list(begin)
    seen: set[Hashable] = set()
    with window(browser, site) as context:
        page = context.new_page()
        page.add_init_script(WATCH_POLICY)
        while todo:
            address = todo.pop()
            page.goto(address)
            assert page.evaluate("window.owned") is None, address
            assert [] == page.evaluate("window.__csp"), address
            assert 1 == page.locator("h1").count(), address
            yield address
            for link in links_of(page.content()):
                whole = urljoin(address, link)
                if not whole.startswith(tuple(within)) or not _is_page(whole):
                    continue
                path, _, query = whole.removeprefix(site.address).partition("?")
                # Tabs and states of a queue are pages of their own; other values make no other page.
                fields = sorted(
                    part if part.startswith(("tab=", "state=")) else part.partition("=")[0]
                    for part in query.split("&")
                )
                kind = (kind_of(path.split("/")), *fields)
                if kind not in seen:
                    seen.add(kind)
                    todo.append(whole)


def _kind(address: str) -> str:
    return address.partition("://")[2].partition("/")[2].partition("?")[0].partition("/")[0]


def _is_page(address: str) -> bool:
    """Return whether an address is of a page, and of none that only a form leads to."""
    path, _, query = address.partition("://")[2].partition("/")[2].partition("?")
    is_form = path.endswith(("act", "bulk", "examine", "logout", "resume", "limits")) and not query
    return not path.startswith("static/") and "/data/" not in path and not is_form
