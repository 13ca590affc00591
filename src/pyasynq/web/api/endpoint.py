"""The endpoint `/api/v1`: authentication, routing, and encoding of responses."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pyasynq.web.auth.identify import bearer_token
from pyasynq.web.auth.origin import SAFE_METHODS, is_form_token, is_same_origin, names_origin
from pyasynq.web.convertors import REST

from .call import ApiCall, Created, Lines, Listing, encode_answer, make_tag, matches_tag
from .json_body import decode_body, read_content
from .parameters import read_parameters
from .paths import PathTable, raw_path
from .problem import ProblemError, to_problem
from .records import COMPONENTS, encode_record
from .rehearse import rehearse
from .table import API_ROUTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from starlette.requests import Request

    from pyasynq.web.doorkeeper import Doorkeeper
    from pyasynq.web.page import PageRequest

    from .table import ProgramRoute

API_PREFIX: Final = "/api/v1"
TOKEN_HEADER: Final = "X-CSRF-Token"  # noqa: S105 - the name of a header
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"
_LARGEST_BODY: Final = 1_000_000


_TABLE: Final = PathTable(API_ROUTES, hint="GET /api/v1/openapi.json lists them.")


def api_route(door: Doorkeeper) -> Route:
    """Return the one Starlette route of the API; its endpoint finds the handler in the API's route table."""

    async def endpoint(request: Request) -> Response:
        try:
            response = await _answer(door, request)
        except Exception as error:  # noqa: BLE001 - every error becomes a problem
            response = to_problem(error).response()
        if request.method == "HEAD" and not isinstance(response, StreamingResponse):
            response.body = b""
        return response

    return Route(f"{API_PREFIX}/{REST}", endpoint, methods=list(METHODS))


async def _answer(door: Doorkeeper, request: Request) -> Response:
    ask = await door.admit(request)
    if not door.knows(ask):
        raise _sign_in(request)
    ask.require_known_session()
    _check_rate(ask)
    path = raw_path(request.scope).removeprefix(API_PREFIX)
    if path == "/openapi.json" and request.method in SAFE_METHODS:
        return _answer_json(ask, _read_document(), 200)
    route, names = _TABLE.find(request.method, path)
    if route.changes:
        await _check_origin(ask, names.get("queue", ""))
    call = ApiCall(
        ask,
        names,
        read_parameters(request.scope["query_string"], route.all_parameters),
        await _read_body(route, request),
        path.count("/"),
    )
    if route.changes and call["dry_run"]:
        found = await (route.rehearse(call) if route.rehearse else rehearse(call, route.verb))
        return _write(call, found, route.dry_returns, 200)
    return _write(call, await route.answer(call), route.returns, route.status)


def _sign_in(request: Request) -> ProblemError:
    is_wrong = bool(bearer_token(request))
    detail = "The token is wrong or has expired." if is_wrong else "Nothing in the request says who you are."
    remedy = "Send Authorization: Bearer TOKEN; pyasynq web token makes one."
    challenge = 'Bearer realm="pyasynq"' + (', error="invalid_token"' if is_wrong else "")
    return ProblemError(401, "not_signed_in", detail, remedy, headers={"WWW-Authenticate": challenge})


def _check_rate(ask: PageRequest) -> None:
    limit = ask.settings.api_requests
    key = (ask.user.name, ask.user.address)
    if limit is not None and not limit.allow(key):
        seconds = str(int(limit.wait_seconds(key)) + 1)
        remedy = f"Wait {seconds} seconds."
        headers = {"Retry-After": seconds}
        raise ProblemError(429, "too_many_requests", "You have asked too often.", remedy, headers=headers)


async def _check_origin(ask: PageRequest, queue: str) -> None:
    """Refuse changes that another site requests in the name of a user (CSRF).

    A browser sends `Sec-Fetch-Site` or `Origin`. A request with a session cookie but without these headers
    needs the CSRF token of the user's forms.
    """
    request = ask.request
    if bearer_token(request):
        return
    token = request.headers.get(TOKEN_HEADER, "")
    has_token = bool(token) and is_form_token(ask.settings.secret, ask.form_key, token)
    if not is_same_origin(request) or (
        ask.session is not None and not names_origin(request) and not has_token
    ):
        remedy = "Send a bearer token, or ask from a page of the dashboard's own site."
        why = "The request was sent by another site."
        await ask.note_refusal(why, queue)
        raise ProblemError(403, "another_site", why, remedy)


async def _read_body(route: ProgramRoute, request: Request) -> Any:
    """Return the body, decoded as the struct that the route declares; None if the route takes no body."""
    content = await read_content(request, _LARGEST_BODY)
    if route.body is not None:
        return decode_body(request, content, route.body)
    if content:
        raise ProblemError(422, "unexpected_body", "This route takes no body.", "Use its query parameters.")
    return None


def _write(call: ApiCall, answer: Any, component: str, status: int) -> Response:
    """Return the HTTP response for the result of a handler."""
    headers: dict[str, str] = {}
    if isinstance(answer, Lines):
        return StreamingResponse(
            _write_lines(answer.lines), media_type=_LINES, headers={"X-Accel-Buffering": "no"}
        )
    if answer is None:
        return Response(status_code=status)
    if isinstance(answer, Created):
        status = answer.status
        headers["Location"] = call.address(*answer.address)
        answer = answer.record
    view = COMPONENTS[component]
    if isinstance(answer, Listing):
        items = [encode_record(view, record) for record in answer.records]
        return _answer_json(call.ask, {"items": items, "next": answer.next or None, **answer.facts}, status)
    return _answer_json(call.ask, encode_record(view, answer), status, headers)


def _answer_json(
    ask: PageRequest, value: Any, status: int, headers: dict[str, str] | None = None
) -> Response:
    content = value if isinstance(value, bytes) else encode_answer(value)
    sent = dict(headers or {})
    if ask.request.method in SAFE_METHODS:
        sent["ETag"] = tag = make_tag(content)
        if matches_tag(ask.request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=sent)
    return Response(content, status, headers=sent, media_type=_JSON)


async def _write_lines(lines: AsyncGenerator[str]) -> AsyncIterator[bytes]:
    """Yield the lines as bytes; if an error occurs, end with a line that holds its problem details."""
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line.encode("utf-8", "backslashreplace") + b"\n"
    except Exception as error:  # noqa: BLE001 - the status was sent already
        yield json.dumps({"problem": to_problem(error).content()}).encode() + b"\n"


def _read_document() -> bytes:
    from .openapi import read_document  # noqa: PLC0415 - few ask for it

    return read_document()
