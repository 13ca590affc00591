"""The pages that browser tests and screenshots go through."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = {
    "overview": "",
    "attention": "attention",
    "queues": "queues",
    "queue": "queues/shipping-labels?state=archived",
    "queue-active": "queues/shipping-labels?state=active",
    "queue-types": "queues/shipping-labels?tab=types",
    "queue-errors": "queues/shipping-labels?tab=errors",
    "queue-groups": "queues/emails?tab=groups",
    "queue-limits": "queues/emails?tab=limits",
    "queue-history": "queues/shipping-labels?tab=history",
    "queue-consumers": "queues/emails?tab=consumers",
    "queue-empty": "queues/newsletter?state=pending",
    "task": "",
    "task-delete": "",
    "task-edit": "",
    "search": "tasks?q=state:retry,archived error:504",
    "search-none": "tasks?q=error:teapot state:archived",
    "search-wrong": "tasks?q=enqueued:<1h",
    "views": "views",
    "view-new": "views/new?q=state:archived",
    "errors": "errors",
    "types": "types",
    "type": "types/label.print",
    "task-types": "task-types",
    "task-type": "task-types/shipping-labels",
    "task-type-unserved": "task-types/exports",
    "task-type-of-file": "task-types/emails",
    "task-type-edit": "task-types/shipping-labels/edit",
    "task-type-new": "new-task-type",
    "task-type-delete": "task-types/payments/delete",
    "deliveries": "deliveries",
    "deliveries-host": "deliveries/billing.example",
    "deliveries-none": "deliveries?f=nothing",
    "commands": "commands",
    "command": "commands/run-of-dumps",
    "command-running": "commands/run-of-exports",
    "doors": "doors",
    "workers": "workers",
    "workers-none": "workers?f=nothing",
    "keys": "keys",
    "key-new": "keys/new",
    "key-rotate": "",
    "key-delete": "",
    "servers": "servers",
    "server": "servers/server-1",
    "schedules": "schedules",
    "schedule": "schedules/entry-cart.remind",
    "events": "events",
    "events-none": "events?type=nothing",
    "operations": "operations",
    "operation": "",
    "bulk": "bulk?act=delete&q=queue:shipping-labels state:archived",
    "bulk-move": "bulk?act=move&q=queue:shipping-labels state:archived",
    "doctor": "doctor",
    "doctor-repair": "",
    "audit": "audit",
    "redis": "redis",
    "settings": "settings",
    "help": "help",
    "enqueue": "enqueue?type=label.print",
    "enqueue-json": "enqueue",
    "enqueue-request": "enqueue?type=invoices&queue=invoices",
    "pause": "queues/emails/pause",
    "delete-queue": "queues/emails/delete",
    "stop-server": "servers/server-1/stop_server",
    "stop-version": "server-versions/stop_servers?version=2026.11.2&engine_version=0.1.0",
    "run-schedule": "schedules/entry-cart.remind/run_schedule",
    "snooze": 'attention/snooze?finding=["no_consumers","exports",""]',
    "act": 'attention/act?finding=["paused_long","images",""]',
    "not-found": "queues/shiping-labels",
}
"""Addresses of the pages by name; empty for a page whose address has an id of the shop, see `LINKS`."""
LINKS: Final = {
    "task": ("queue", "tbody tr:nth-child(4) th a", "/queues/{queue}/tasks/{task}"),
    "task-delete": ("task", 'a[href$="/delete_task"]', "/queues/{queue}/tasks/{task}/{verb}"),
    "task-edit": ("task", 'a[href$="/edit_payload"]', "/queues/{queue}/tasks/{task}/{verb}"),
    "operation": ("operations", "tbody tr th a", "/operations/{operation}"),
    "key-rotate": ("keys", 'a[href$="/rotate"]', "/keys/{key}/{verb}"),
    "key-delete": ("keys", 'a[href$="/delete"]', "/keys/{key}/{verb}"),
    "doctor-repair": ("doctor", 'a[href*="/repair?"]', "/doctor/repair"),
}
"""The page with a link to a page without an address in `PAGES`, the link's selector, and its route."""
WIDTHS: Final = (320, 768, 1440)
THEMES: Final = ("light", "dark")


def chosen(variable: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values that an environment variable names, with commas; all of them if it is not set.

    CI draws one of each. Raises `ValueError` for a value that there is not.
    """
    named = tuple(filter(None, os.environ.get(variable, "").split(",")))
    if unknown := [one for one in named if one not in values]:
        raise ValueError(f"{variable} has {unknown[0]}; there is: {', '.join(values)}")
    return named or values


def go(page: Page, name: str) -> None:
    """Go to a page by its name."""
    if name in LINKS:
        before, link, _ = LINKS[name]
        go(page, before)
        if before == "doctor" and not page.locator(link).count():
            page.get_by_role("button", name="Examine now").click()
            # Without scripts, the page shows what was found when it is loaded again.
            wait_until(lambda: page.reload() and page.locator(link).count() > 0)
        page.goto(str(page.locator(link).first.evaluate("link => link.href")))
    else:
        page.goto(PAGES[name])
    page.wait_for_load_state("load")
