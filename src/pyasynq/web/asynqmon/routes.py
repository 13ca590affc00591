"""The table of asynqmon's routes, and the endpoint below `/api` that answers them."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response
from starlette.routing import Route

from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError
from pyasynq.web.auth.identify import bearer_token
from pyasynq.web.auth.origin import SAFE_METHODS, is_same_origin, names_origin
from pyasynq.web.convertors import REST
from pyasynq.web.locations import route_path

from . import changes, prometheus, redis, views
from .answer import ApiError, ApiRequest, answer_error, error_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from typing import Any

    from starlette.requests import Request

    from pyasynq.web.doorkeeper import Doorkeeper

    Answer = Callable[[ApiRequest], Awaitable[Response]]

_log = logging.getLogger("pyasynq.web")
_MEMORY_SECONDS: Final = 10.0
"""Seconds for which an estimate of memory is cached."""
_PREFIX: Final = "/api"
_METHODS: Final = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
_SEGMENT: Final = re.compile(r"\{(\w+)\}")


class ApiRoute(NamedTuple):
    """One route: its method, its path below `/api`, and its handler."""

    method: str
    path: str
    answer: Answer
    verb: str
    """The verb of `Operator` that the route needs; empty for none."""


def _state_routes() -> list[ApiRoute]:
    """Return the routes for the tasks of each state except active."""
    states = {
        "pending": ("archive",),
        "scheduled": ("run", "archive"),
        "retry": ("run", "archive"),
        "archived": ("run",),
        "completed": (),
        "aggregating": ("run", "archive"),
    }
    routes = []
    for state, acts in states.items():
        folder = "groups/{group}/" if state == "aggregating" else ""
        tasks = f"/queues/{{queue}}/{folder}{state}_tasks"
        routes += [
            ApiRoute("GET", tasks, views.answer_list_tasks, "tasks"),
            ApiRoute("DELETE", f"{tasks}/{{task}}", changes.answer_delete_task, "delete_task"),
            ApiRoute("DELETE", f"{tasks}:delete_all", changes.answer_delete_all, "delete_all_tasks"),
            ApiRoute("POST", f"{tasks}:batch_delete", changes.answer_delete_batch, "delete_tasks"),
        ]
        if "run" in acts:
            routes += [
                ApiRoute("POST", f"{tasks}/{{task}}:run", changes.answer_run_task, "run_task"),
                ApiRoute("POST", f"{tasks}:run_all", changes.answer_run_all, "run_all_tasks"),
                ApiRoute("POST", f"{tasks}:batch_run", changes.answer_run_batch, "run_tasks"),
            ]
        if "archive" in acts:
            routes += [
                ApiRoute("POST", f"{tasks}/{{task}}:archive", changes.answer_archive_task, "archive_task"),
                ApiRoute("POST", f"{tasks}:archive_all", changes.answer_archive_all, "archive_all_tasks"),
                ApiRoute("POST", f"{tasks}:batch_archive", changes.answer_archive_batch, "archive_tasks"),
            ]
    return routes


_ACTIVE: Final = "/queues/{queue}/active_tasks"

ROUTES: Final = (
    ApiRoute("GET", "/queues", views.answer_list_queues, "queue_infos"),
    ApiRoute("GET", "/queues/{queue}", views.answer_get_queue, "queue"),
    ApiRoute("DELETE", "/queues/{queue}", changes.answer_delete_queue, "delete_queue"),
    ApiRoute("POST", "/queues/{queue}:pause", changes.answer_pause_queue, "pause_queue"),
    ApiRoute("POST", "/queues/{queue}:resume", changes.answer_resume_queue, "resume_queue"),
    ApiRoute("GET", "/queue_stats", views.answer_list_queue_statistics, "queues"),
    ApiRoute("GET", _ACTIVE, views.answer_list_tasks, "tasks"),
    ApiRoute("POST", f"{_ACTIVE}/{{task}}:cancel", changes.answer_cancel_task, "cancel_tasks"),
    ApiRoute("POST", f"{_ACTIVE}:cancel_all", changes.answer_cancel_all, "cancel_tasks"),
    ApiRoute("POST", f"{_ACTIVE}:batch_cancel", changes.answer_cancel_batch, "cancel_tasks"),
    *_state_routes(),
    ApiRoute("GET", "/queues/{queue}/tasks/{task}", views.answer_get_task, "task"),
    ApiRoute("GET", "/queues/{queue}/groups", views.answer_list_groups, "groups"),
    ApiRoute("GET", "/servers", views.answer_list_servers, "servers"),
    ApiRoute("GET", "/scheduler_entries", views.answer_list_scheduler_entries, "schedules"),
    ApiRoute(
        "GET",
        "/scheduler_entries/{entry}/enqueue_events",
        views.answer_list_enqueue_events,
        "schedule_events",
    ),
    ApiRoute("GET", "/redis_info", redis.answer_get_redis_info, "redis_texts"),
    ApiRoute("GET", "/metrics", prometheus.answer_get_metrics, ""),
)
"""All routes. A path parameter is one segment; the first route that matches answers."""

_STATE_IN_PATH: Final = re.compile(r"/(\w+)_tasks")


class _Matcher(NamedTuple):
    route: ApiRoute
    pattern: re.Pattern[str]


def _compile_matcher(route: ApiRoute) -> _Matcher:
    pieces = _SEGMENT.split(route.path)
    text = "".join(f"(?P<{piece}>[^/]+)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
    return _Matcher(route, re.compile(text))


_MATCHERS: Final = tuple(map(_compile_matcher, ROUTES))


def asynqmon_route(door: Doorkeeper) -> Route:
    """Return the one Starlette route of this API; its endpoint finds the handler in the route table."""

    async def endpoint(request: Request) -> Response:
        ask = await door.admit(request)
        if not door.knows(ask):
            return error_answer(401, "Sign in first.")
        if ask.session_error is not None:
            return answer_error(ask.session_error)
        path = route_path(request.scope).removeprefix(_PREFIX)
        is_change = request.method not in SAFE_METHODS
        route, names, is_known = _find(request.method, path)
        if is_change and (why := _suspect_other_site(request, has_session=ask.session is not None)):
            await ask.note_refusal(why, names.get("queue", ""))
            return error_answer(403, why)
        is_read_only = is_change and ask.operator.access.read_only
        if route is None:
            if is_known and not is_read_only:
                return Response(status_code=405)
            return _refuse_change(request) if is_read_only else error_answer(404, "404 page not found")

        async def recent(question: Hashable, read: Callable[[], Awaitable[Any]]) -> Any:
            return await door.target.recent(ask.user, question, read, _MEMORY_SECONDS)

        call = ApiRequest(request, ask.operator, door.settings, recent, names)
        return await _answer(route, call, is_read_only=is_read_only)

    return Route(f"{_PREFIX}/{REST}", endpoint, methods=list(_METHODS))


async def _answer(route: ApiRoute, call: ApiRequest, *, is_read_only: bool) -> Response:
    request = call.request
    try:
        return await route.answer(call)
    except (ApiError, PyasynqError) as error:
        # The operator has audited its refusal. A read-only asynqmon refuses every change with the same text.
        return _refuse_change(request) if is_read_only else answer_error(error)
    except Exception:  # noqa: BLE001 - the server goes on
        _log.exception("%s %s failed", request.method, visible(request.url.path))
        return error_answer(500, "internal error; the log has more")


def _refuse_change(request: Request) -> Response:
    text = f"API Server is running in read-only mode: {request.method} request is not allowed"
    return error_answer(405, text)


def _suspect_other_site(request: Request, *, has_session: bool) -> str:
    """Return why a change may be a forged request of another site (CSRF); empty without a suspicion."""
    if bearer_token(request):
        return ""
    if not is_same_origin(request):
        return "The request was sent by another site."
    if has_session and not names_origin(request):
        return "Nothing in the request says which site has sent it."
    return ""


def _find(method: str, path: str) -> tuple[ApiRoute | None, dict[str, str], bool]:
    """Return the route of a request, its path parameters, and whether the path has a route of any method."""
    is_known = False
    for route, pattern in _MATCHERS:
        found = pattern.fullmatch(path)
        if found and route.method == method:
            state = _STATE_IN_PATH.search(route.path)
            return route, found.groupdict() | ({"state": state[1]} if state else {}), True
        is_known = is_known or found is not None
    return None, {}, is_known
