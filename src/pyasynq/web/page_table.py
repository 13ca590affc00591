"""The pages of one Redis by path: pages with live updates, and all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq.web.pages.api_keys import api_keys_page, new_key_page
from pyasynq.web.pages.attention import attention_page
from pyasynq.web.pages.audit import audit_page
from pyasynq.web.pages.bulk import bulk_page
from pyasynq.web.pages.commands import command_page, commands_page
from pyasynq.web.pages.deliveries import deliveries_page, delivery_host_page
from pyasynq.web.pages.doctor import doctor_page, repair_question
from pyasynq.web.pages.enqueue import enqueue_page
from pyasynq.web.pages.errors import errors_page
from pyasynq.web.pages.events import events_page
from pyasynq.web.pages.help import help_page
from pyasynq.web.pages.lease_workers import lease_workers_page
from pyasynq.web.pages.operations import operation_page, operations_page
from pyasynq.web.pages.overview import overview_page
from pyasynq.web.pages.queue import queue_page
from pyasynq.web.pages.queues import queues_page
from pyasynq.web.pages.redis import redis_page
from pyasynq.web.pages.schedules import schedule_page, schedules_page
from pyasynq.web.pages.servers import server_page, servers_page
from pyasynq.web.pages.service_doors import service_doors_page
from pyasynq.web.pages.settings import settings_page
from pyasynq.web.pages.task import task_page
from pyasynq.web.pages.task_type import task_type_page
from pyasynq.web.pages.task_type_edit import edit_page, new_page
from pyasynq.web.pages.task_types import task_types_page
from pyasynq.web.pages.type import type_page
from pyasynq.web.pages.types import types_page
from pyasynq.web.pages.views import new_view_page, views_page

if TYPE_CHECKING:
    from pyasynq.web.page import PageFunction


class LivePage(NamedTuple):
    """Page whose cells and rows are updated live."""

    function: PageFunction
    interval: float = 2.0
    """Minimum pause between two renderings, in seconds; it grows if rendering the page takes long."""


LIVE_PAGES: Final[dict[str, LivePage]] = {
    "/": LivePage(overview_page),
    "/attention": LivePage(attention_page),
    "/queues": LivePage(queues_page),
    "/queues/{queue}": LivePage(queue_page),
    "/queues/{queue}/tasks/{task}": LivePage(task_page, interval=0.5),
    "/servers": LivePage(servers_page),
    "/servers/{server}": LivePage(server_page),
    "/schedules": LivePage(schedules_page),
    "/events": LivePage(events_page, interval=1.0),
    "/task-types": LivePage(task_types_page),
    "/task-types/{type}": LivePage(task_type_page),
    "/deliveries": LivePage(deliveries_page),
    "/deliveries/{host}": LivePage(delivery_host_page),
    "/commands": LivePage(commands_page),
    "/commands/{command}": LivePage(command_page),
    "/doors": LivePage(service_doors_page),
    "/workers": LivePage(lease_workers_page),
    "/keys": LivePage(api_keys_page),
    "/operations": LivePage(operations_page),
    "/operations/{operation}": LivePage(operation_page),
    "/doctor": LivePage(doctor_page),
}
"""Pages whose cells and rows are updated live, by path."""

STILL_PAGES: dict[str, PageFunction] = {
    "/schedules/{entry}": schedule_page,
    "/audit": audit_page,
    "/bulk": bulk_page,
    "/views": views_page,
    "/views/new": new_view_page,
    "/doctor/repair": repair_question,
    "/enqueue": enqueue_page,
    "/errors": errors_page,
    "/task-types/{type}/edit": edit_page,
    "/new-task-type": new_page,
    "/keys/new": new_key_page,
    "/types": types_page,
    "/types/{type}": type_page,
    "/redis": redis_page,
    "/settings": settings_page,
    "/help": help_page,
}
