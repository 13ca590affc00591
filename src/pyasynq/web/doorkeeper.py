"""Access checks of each request before its page function: user, session, origin of a form."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.routing import Match

from pyasynq.errors import RedisError
from pyasynq.operations import User
from pyasynq.web.auth.identify import LoopbackOnly, bearer_token, client_address
from pyasynq.web.auth.origin import FORM_FIELD, SAFE_METHODS, is_form_token, is_same_origin
from pyasynq.web.locations import UNKNOWN_PATH, Links, from_segment, route_path
from pyasynq.web.page import PageRequest
from pyasynq.web.preferences import PREFERENCES_COOKIE, read_preferences
from pyasynq.web.problems import NextStep, Trouble, bug_page, problem_page, trouble_page
from pyasynq.web.respond import page_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from pyasynq.web.auth.sessions import LoginSession
    from pyasynq.web.page import Page, PageFunction
    from pyasynq.web.settings import Settings
    from pyasynq.web.targets import Target

    ResponseFunction = Callable[[PageRequest], Awaitable[Response]]
    FormFunction = Callable[[PageRequest, dict[str, str]], Awaitable[Response]]

_MOST_FIELDS: Final = 2_000
_LARGEST_BODY: Final = 1_000_000
_LONGEST_QUERY: Final = 8_000
_NOT_SIGNED_IN: Final = User("")


class FormError(Exception):
    """Error: a form is refused; the page shows the reason.

    Attributes:
        status: status of the response.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Doorkeeper:
    """Factory of endpoints for one Redis: wraps page functions in the access checks.

    Args:
        settings: settings of the dashboard.
        target: the Redis instance that the pages show.
        targets: all Redis instances of the dashboard.
    """

    def __init__(self, settings: Settings, target: Target, targets: Sequence[Target]) -> None:
        self.settings = settings
        self.target = target
        self.targets = targets

    def page(self, function: PageFunction) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a read-only page."""

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            ask = await self.admit(request)
            if not self.knows(ask):
                return self.refuse(ask, began)
            return await self._answer(ask, function, began)

        return endpoint

    def response(
        self, function: ResponseFunction, *, is_open: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a read-only function whose response is not a page.

        `is_open` also admits users who have not signed in.
        """

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            ask = await self.admit(request)
            if not self.knows(ask) and not is_open:
                return Response("Sign in first.\n", 401, media_type="text/plain")
            try:
                if not is_open:
                    ask.require_known_session()
                return await function(ask)
            except Exception as error:  # noqa: BLE001 - every error becomes a page
                return page_response(ask, await problem_page(ask, error), began)

        return endpoint

    def form(
        self, function: FormFunction, *, is_open: bool = False, takes_unknown_sessions: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a form that changes something.

        `is_open` also admits users who have not signed in. `takes_unknown_sessions` also admits a session
        while Redis cannot be asked whether the session was ended.
        """

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            ask = await self.admit(request)
            if not self.knows(ask) and not is_open:
                return self.refuse(ask, began)
            try:
                if not (is_open or takes_unknown_sessions):
                    ask.require_known_session()
                return await function(ask, await self._read_form(ask))
            except FormError as error:
                trouble = Trouble(
                    "The form was not taken", str(error), (NextStep("Back to overview", ask.links.to()),)
                )
                return page_response(ask, trouble_page(error.status, trouble), began)
            except Exception as error:  # noqa: BLE001 - every error becomes a page
                return page_response(ask, await problem_page(ask, error), began)

        return endpoint

    async def admit(self, request: Request) -> PageRequest:
        """Authenticate a request; return it with its user, or with the user `_NOT_SIGNED_IN`.

        If the request may change something, pages show no stale cached answers for some seconds.
        """
        if request.method not in SAFE_METHODS:
            self.target.expect_change()
        session = self.settings.sessions.find(request)
        user = self._find_session_user(session, request) if session is not None else None
        session_error = None
        if session is not None and user is not None:
            try:
                if await self.target.signed_out.has(session):
                    self.settings.sessions.end(session)
                    session = user = None
            except RedisError as error:
                session_error = error
        user = user or await self._identify(request) or _NOT_SIGNED_IN
        links = Links(route_path(request.scope), _read_query(request))
        return PageRequest(
            request=request,
            settings=self.settings,
            target=self.target,
            user=user,
            operator=self.target.operator(user),
            preferences=read_preferences(request.cookies.get(PREFERENCES_COOKIE)),
            links=links,
            now=datetime.now(UTC),
            session=session,
            session_error=session_error,
        )

    def knows(self, ask: PageRequest) -> bool:
        """Return whether the user of a request is signed in, or no sign-in is needed."""
        return ask.user is not _NOT_SIGNED_IN

    def refuse(self, ask: PageRequest, began: float) -> Response:
        """Redirect a user who is not signed in to the login page.

        Without a login page, or after a wrong bearer token, return a page that explains the refusal.
        """
        request = ask.request
        if self.settings.has_login_page and not bearer_token(request):
            back = ask.links.path + (f"?{request.url.query}" if request.url.query else "")
            address = ask.links.to("login", next=back if _has_page(request) else "/")
            return Response(status_code=303, headers={"Location": address})
        return page_response(ask, _closed_page(self.settings, request), began)

    async def _identify(self, request: Request) -> User | None:
        for authenticator in self.settings.authenticators:
            user = await authenticator.identify(request)
            if user is not None:
                return user
        return None

    def _find_session_user(self, session: LoginSession, request: Request) -> User | None:
        credentials, openid = self.settings.credentials, self.settings.openid
        if openid is not None and openid.began(session):
            return openid.find_user(session, client_address(request))
        found = credentials.find(session.name) if credentials is not None else None
        if found is None or found.fingerprint != session.fingerprint:
            return None
        return User.with_role(
            found.name, found.role, queues=found.queues, login="password", address=client_address(request)
        )

    async def _answer(self, ask: PageRequest, function: PageFunction, began: float) -> Response:
        try:
            ask.require_known_session()
            page = await function(ask)
        except Exception as error:  # noqa: BLE001 - every error becomes a page
            page = await problem_page(ask, error)
        try:
            response = page_response(ask, page, began)
        except Exception as error:  # noqa: BLE001 - a template that fails must not show its traceback
            response = page_response(ask, bug_page(ask, error), began)
        self._renew_session(ask, response)
        return response

    def _renew_session(self, ask: PageRequest, response: Response) -> None:
        if ask.session is None or ask.session_error is not None:
            return
        renewed = self.settings.sessions.renew(ask.session)
        if renewed is not None:
            self.settings.sessions.write(ask.request, response, renewed)

    async def _read_form(self, ask: PageRequest) -> dict[str, str]:
        """Return the fields of a form, after checking the origin of the request and the CSRF token."""
        request = ask.request
        if not bearer_token(request) and not is_same_origin(request):
            raise await self._refuse_form(ask, "It was sent by another site.")
        body = await _read_body(request)
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except (UnicodeDecodeError, ValueError):
            raise FormError(400, "Its content cannot be read.") from None
        fields: dict[str, str] = {}
        for name, value in pairs:
            fields[name] = f"{fields[name]}\n{value}" if name in fields and name == "id" else value
        if not bearer_token(request) and not is_form_token(
            ask.settings.secret, ask.form_key, fields.pop(FORM_FIELD, "")
        ):
            why = "The page was too old. Go back, load it again, and repeat what you did."
            raise await self._refuse_form(ask, why)
        return fields

    async def _refuse_form(self, ask: PageRequest, why: str) -> FormError:
        if self.knows(ask):
            await ask.note_refusal(why, from_segment(ask.request.path_params.get("queue", "")))
        return FormError(403, why)


def _has_page(request: Request) -> bool:
    """Return whether the path of a request has a page, to which a user can be sent after signing in."""
    scope = {**request.scope, "method": "GET"}
    found = (route for route in request.scope["router"].routes if route.matches(scope)[0] is Match.FULL)
    return getattr(next(found, None), "path", UNKNOWN_PATH) != UNKNOWN_PATH


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise FormError(413, "It is larger than 1 MB.")
    return bytes(body)


def _read_query(request: Request) -> dict[str, str]:
    text = request.scope["query_string"][:_LONGEST_QUERY].decode("latin-1")
    try:
        return dict(parse_qsl(text, max_num_fields=100, errors="surrogateescape"))
    except ValueError:
        return {}


def _closed_page(settings: Settings, request: Request) -> Page:
    if len(settings.authenticators) == 1 and isinstance(settings.authenticators[0], LoopbackOnly):
        trouble = Trouble(
            "This dashboard is open to its own machine alone",
            "It was started without a way to sign in. Give it one: a file of passwords, an OpenID provider, "
            "a proxy that signs people in, or a function of the application that it is part of.",
            code='dashboard(url, auth=CredentialsFile("people"))\n'
            "dashboard(url, auth=OpenIdConnect(issuer=issuer, client_id=name, url=own_url, roles=roles))\n"
            'dashboard(url, auth=TrustedProxy(["10.0.0.0/8"], roles={"ops": "operator"}))\n'
            "dashboard(url, auth=my_async_function)",
            code_label="Ways to sign in",
        )
        return trouble_page(403, trouble)
    wrong, missing = "The token is wrong or has expired.", "Nothing in the request says who you are."
    return trouble_page(401, Trouble("You are not signed in", wrong if bearer_token(request) else missing))
