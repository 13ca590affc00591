"""The table of all addresses of one Redis: pages, forms and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from pyasynq.web import actions
from pyasynq.web.asynqmon.routes import asynqmon_route
from pyasynq.web.auth.login import login_page, sign_in, sign_out
from pyasynq.web.live.endpoints import live_snapshot, live_stream
from pyasynq.web.pages.audit import audit_page
from pyasynq.web.pages.bulk import bulk_page, start_bulk
from pyasynq.web.pages.doctor import doctor_page, examine, repair, repair_question
from pyasynq.web.pages.errors import errors_page
from pyasynq.web.pages.help import help_page
from pyasynq.web.pages.operations import operation_page, operations_page, order_operation
from pyasynq.web.pages.overview import overview_page
from pyasynq.web.pages.queue import queue_page
from pyasynq.web.pages.queues import queues_page
from pyasynq.web.pages.redis import redis_page
from pyasynq.web.pages.schedules import schedule_page, schedules_page
from pyasynq.web.pages.search import complete_response, palette_response, search_response
from pyasynq.web.pages.servers import server_page, servers_page
from pyasynq.web.pages.settings import change_settings, settings_page, switch_target
from pyasynq.web.pages.task import task_data, task_page
from pyasynq.web.pages.type import type_page
from pyasynq.web.pages.types import types_page
from pyasynq.web.problems import not_found_page

if TYPE_CHECKING:
    from pyasynq.web.doorkeeper import Doorkeeper
    from pyasynq.web.page import Page, PageFunction, PageRequest

LIVE_PAGES: dict[str, PageFunction] = {
    "/": overview_page,
    "/queues": queues_page,
    "/queues/{queue}": queue_page,
    "/queues/{queue}/tasks/{task}": task_page,
    "/servers": servers_page,
    "/servers/{server}": server_page,
    "/schedules": schedules_page,
    "/operations": operations_page,
    "/operations/{operation}": operation_page,
    "/doctor": doctor_page,
}
"""Pages whose cells and rows are kept current."""

STILL_PAGES: dict[str, PageFunction] = {
    "/schedules/{entry}": schedule_page,
    "/audit": audit_page,
    "/bulk": bulk_page,
    "/doctor/repair": repair_question,
    "/errors": errors_page,
    "/types": types_page,
    "/types/{type}": type_page,
    "/redis": redis_page,
    "/settings": settings_page,
    "/help": help_page,
}


def target_routes(door: Doorkeeper) -> dict[str, Route]:
    """Return the routes below the root of one Redis, by path and method."""
    routes = {
        path: Route(path, door.page(page), methods=["GET"])
        for path, page in (LIVE_PAGES | STILL_PAGES).items()
    }
    for path, response in {
        "/queues/{queue}/tasks/{task}/data/{part}": task_data,
        "/tasks": search_response,
        "/complete.json": complete_response,
        "/palette.json": palette_response,
        "/live": live_stream,
        "/live.json": live_snapshot,
        "/switch": switch_target,
    }.items():
        routes[path] = Route(path, door.response(response), methods=["GET"])
    for path, question in actions.QUESTIONS.items():
        routes[f"ask {path}"] = Route(path, door.page(question), methods=["GET"])
    for path, form in actions.FORMS.items():
        routes[f"POST {path}"] = Route(path, door.form(form), methods=["POST"])
    routes["POST /doctor/examine"] = Route("/doctor/examine", door.form(examine), methods=["POST"])
    routes["POST /doctor/repair"] = Route("/doctor/repair", door.form(repair), methods=["POST"])
    routes["POST /bulk"] = Route("/bulk", door.form(start_bulk), methods=["POST"])
    routes["POST /operations"] = Route(
        "/operations/{operation}/{order}", door.form(order_operation), methods=["POST"]
    )
    routes["/login"] = Route("/login", login_page(door), methods=["GET"])
    routes["POST /login"] = Route("/login", door.form(sign_in, is_open=True), methods=["POST"])
    routes["POST /logout"] = Route("/logout", door.form(sign_out), methods=["POST"])
    routes["POST /settings"] = Route("/settings", door.form(change_settings), methods=["POST"])
    routes["/api"] = asynqmon_route(door)
    routes["/{path:path}"] = Route("/{path:path}", door.page(_no_page), methods=["GET"])
    return routes


async def _no_page(ask: PageRequest) -> Page:
    return not_found_page(ask)
