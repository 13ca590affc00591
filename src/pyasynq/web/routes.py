"""Table of all URL paths of the dashboard of one Redis: pages, forms and streams."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.routing import Route

from pyasynq.web import actions
from pyasynq.web.api.endpoint import api_route
from pyasynq.web.asynqmon.routes import asynqmon_route
from pyasynq.web.auth.login import login_page, sign_in
from pyasynq.web.auth.logout import sign_out
from pyasynq.web.auth.openid_login import begin_openid_login, finish_openid_login
from pyasynq.web.exposition import metrics_response
from pyasynq.web.live.endpoints import live_snapshot, live_stream
from pyasynq.web.locations import UNKNOWN_PATH
from pyasynq.web.page_table import LIVE_PAGES, STILL_PAGES
from pyasynq.web.pages.bulk import start_bulk
from pyasynq.web.pages.doctor import examine, repair
from pyasynq.web.pages.enqueue import enqueue_task
from pyasynq.web.pages.operations import give_order
from pyasynq.web.pages.palette import palette_response
from pyasynq.web.pages.search import complete_response, search_response
from pyasynq.web.pages.settings import change_settings, switch_target
from pyasynq.web.pages.task import task_data
from pyasynq.web.pages.views import delete_view, save_view
from pyasynq.web.problems import not_found_page

if TYPE_CHECKING:
    from pyasynq.web.doorkeeper import Doorkeeper
    from pyasynq.web.page import Page, PageRequest


def target_routes(door: Doorkeeper) -> dict[str, Route]:
    """Return the routes of the dashboard of one Redis, by path and method."""
    pages = {path: live.function for path, live in LIVE_PAGES.items()} | STILL_PAGES
    routes = {path: Route(path, door.page(page), methods=["GET"]) for path, page in pages.items()}
    for path, response in {
        "/queues/{queue}/tasks/{task}/data/{part}": task_data,
        "/tasks": search_response,
        "/complete.json": complete_response,
        "/palette.json": palette_response,
        "/metrics": metrics_response,
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
    routes["POST /enqueue"] = Route("/enqueue", door.form(enqueue_task), methods=["POST"])
    routes["POST /bulk"] = Route("/bulk", door.form(start_bulk), methods=["POST"])
    routes["POST /operations"] = Route(
        "/operations/{operation}/{order}", door.form(give_order), methods=["POST"]
    )
    routes["POST /views"] = Route("/views", door.form(save_view), methods=["POST"])
    routes["POST /views/{view}/delete"] = Route(
        "/views/{view}/delete", door.form(delete_view), methods=["POST"]
    )
    routes["/login"] = Route("/login", login_page(door), methods=["GET"])
    routes["POST /login"] = Route("/login", door.form(sign_in, is_open=True), methods=["POST"])
    routes["/login/oidc"] = Route(
        "/login/oidc", door.response(begin_openid_login, is_open=True), methods=["GET"]
    )
    routes["/login/oidc/callback"] = Route(
        "/login/oidc/callback", door.response(finish_openid_login, is_open=True), methods=["GET"]
    )
    routes["POST /logout"] = Route(
        "/logout", door.form(partial(sign_out, door.targets), takes_unknown_sessions=True), methods=["POST"]
    )
    routes["POST /settings"] = Route("/settings", door.form(change_settings), methods=["POST"])
    routes["/api/v1"] = api_route(door)
    routes["/api"] = asynqmon_route(door)
    routes[UNKNOWN_PATH] = Route(UNKNOWN_PATH, door.page(_answer_missing_page), methods=["GET"])
    return routes


async def _answer_missing_page(ask: PageRequest) -> Page:
    return not_found_page(ask)
