"""The dashboard as an ASGI application, which mounts anywhere and needs no lifespan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from pyasynq._checks import check_whole
from pyasynq.errors import InvalidOptionError
from pyasynq.web.assets import serve_asset
from pyasynq.web.asynqmon.shapes import TextLimits
from pyasynq.web.auth import CredentialsFile, HostFunction, LoopbackOnly, OpenIdConnect
from pyasynq.web.auth.identify import BearerTokens
from pyasynq.web.auth.openid_people import OpenIdPeople
from pyasynq.web.auth.rate_limit import RateLimit
from pyasynq.web.auth.secret import SigningSecret
from pyasynq.web.auth.sessions import Sessions
from pyasynq.web.doorkeeper import Doorkeeper
from pyasynq.web.forwarded_headers import ForwardedHeaders
from pyasynq.web.notice import make_notice_cookie
from pyasynq.web.routes import target_routes
from pyasynq.web.security_headers import SecurityHeaders
from pyasynq.web.settings import Environment, Settings, check_prometheus, name_targets
from pyasynq.web.targets import Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from pyasynq.app import App
    from pyasynq.operations import Redactor, ShowHook, User
    from pyasynq.task_types import TaskTypeInfo
    from pyasynq.web.auth import Authenticator
    from pyasynq.web.configured_types import CommandKnowledge

    AuthOption = (
        Authenticator
        | CredentialsFile
        | OpenIdConnect
        | Callable[[Request], Awaitable[User | None]]
        | Sequence[Authenticator | CredentialsFile | OpenIdConnect]
        | None
    )


_MINUTE: Final = 60.0
_LOGIN_TRIES: Final = 5
_ADDRESS_TRIES: Final = 30


class Dashboard:
    """An ASGI application; `dashboard()` makes it. Connections open with the first request."""

    def __init__(self, settings: Settings, targets: Sequence[Target]) -> None:
        self.settings = settings
        self._targets = tuple(targets)
        self.routes = tuple(_routes(settings, self._targets))
        app = SecurityHeaders(Starlette(routes=self.routes))
        self._app = ForwardedHeaders(app, settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next request opens them again."""
        for target in self._targets:
            await target.close()


def dashboard(  # noqa: PLR0913 - each is an option of its own, given by name
    redis: Any,
    *,
    auth: AuthOption = None,
    read_only: bool = False,
    app: App | None = None,
    service: CommandKnowledge | None = None,
    redactor: Redactor | None = None,
    show: ShowHook | None = None,
    trusted_proxies: Sequence[str] = (),
    queues: str | Sequence[str] = "*",
    title: str = "pyasynq",
    environment: str | tuple[str, str] | None = None,
    secret: str | None = None,
    trace_url: str = "",
    prometheus: str = "",
    max_payload_length: int | None = None,
    max_result_length: int | None = None,
    api_requests: int | None = 1_200,
) -> Dashboard:
    """Return the dashboard as an ASGI application.

        app.mount("/tasks", dashboard("redis://localhost:6379/0", auth=CredentialsFile("people")))

    Without `auth`, only requests from this machine are accepted. The application needs no lifespan;
    `aclose()` closes its connections early.

    Args:
        redis: URL of Redis, as for `Client`; or several by name, such as `{"eu": url, "us": url}`.
        auth: the authentication: a `CredentialsFile` for passwords and tokens, `OpenIdConnect`, a
            `TrustedProxy`, `Everyone`, a function `async (request) -> User | None` of yours, or a list of
            these, tried in order.
        read_only: refuse every change.
        app: your application: its task types give the form for new tasks their fields, whether or not a
            worker runs, and the fields that it declares secret are redacted.
        service: task service of this program: the form for new tasks then knows the params of its commands.
        redactor: what replaces secrets in payloads, results, headers and errors.
        show: presentation of payloads and results in a format of yours: a function of task type and bytes
            that returns text, or None for data that it does not know.
        trusted_proxies: networks of proxies, such as `["10.0.0.0/8"]`, that tell the scheme, host, prefix and
            client of a request by `X-Forwarded-Proto`, `-Host`, `-Prefix` and `-For`.
        queues: patterns of the queues that are shown at all.
        title: name of the dashboard in the corner of each page.
        environment: badge of each page: a name, or a name and one of red, amber, green, blue and none.
        secret: signs sessions and forms; `PYASYNQ_SECRET` unless given, else random for this process.
        trace_url: URL template of a trace, with the placeholder `{trace_id}`.
        prometheus: address of a Prometheus, such as `http://localhost:9090`, which the charts of asynqmon ask
            through its API.
        max_payload_length: number of characters of a payload in the API of asynqmon; None is all of them.
        max_result_length: number of characters of a result in the API of asynqmon; None is all of them.
        api_requests: number of requests a minute that one user may send to `/api/v1` from one address; None
            is any number.

    Raises:
        ConfigurationError: for an invalid value.
    """
    sources = name_targets(redis)
    authenticators, credentials, openid = _check_authenticators(auth)
    signing = SigningSecret(secret)
    sessions = Sessions(signing)
    settings = Settings(
        title=title,
        environment=Environment.of(environment),
        authenticators=authenticators,
        credentials=credentials,
        openid=OpenIdPeople(openid, signing) if openid is not None else None,
        trusted_proxies=trusted_proxies,
        read_only=read_only,
        queues=(queues,) if isinstance(queues, str) else tuple(queues),
        redactor=redactor,
        show=_check_show(show),
        types=_describe_types(app),
        commands=service,
        secret=signing,
        sessions=sessions,
        notices=make_notice_cookie(signing),
        login_tries=RateLimit(_LOGIN_TRIES, _MINUTE),
        address_tries=RateLimit(_ADDRESS_TRIES, _MINUTE),
        trace_url=trace_url,
        text_limits=TextLimits(max_payload_length, max_result_length),
        prometheus=check_prometheus(prometheus),
        api_requests=None if api_requests is None else RateLimit(_check_requests(api_requests), _MINUTE),
        names=tuple(sources),
    )
    return Dashboard(settings, [Target(name, source, settings) for name, source in sources.items()])


def _check_show(show: ShowHook | None) -> ShowHook | None:
    if show is not None and not callable(show):
        raise InvalidOptionError("show", show, "a function of task type and bytes that returns text or None")
    return show


def _describe_types(app: App | None) -> tuple[TaskTypeInfo, ...]:
    if app is None:
        return ()
    if not hasattr(app, "describe_types"):
        raise InvalidOptionError("app", app, "the App that declares the tasks")
    app.load()
    return tuple(app.describe_types())


def _check_requests(number: int) -> int:
    check_whole("api_requests", number, 1)
    return number


def _check_authenticators(
    auth: AuthOption,
) -> tuple[tuple[Authenticator, ...], CredentialsFile | None, OpenIdConnect | None]:
    given: Sequence[Any] = auth if isinstance(auth, (list, tuple)) else [auth]
    found: list[Authenticator] = []
    credentials = openid = None
    for one in given:
        if one is None:
            found.append(LoopbackOnly())
        elif isinstance(one, CredentialsFile):
            credentials = one
            found.append(BearerTokens(one))
        elif isinstance(one, OpenIdConnect):
            openid = one
        elif hasattr(one, "identify"):
            found.append(one)
        elif callable(one):
            found.append(HostFunction(one))
        else:
            raise InvalidOptionError(
                "auth", one, "an authenticator, a credentials file, or an async function"
            )
    return tuple(found), credentials, openid


def _routes(settings: Settings, targets: Sequence[Target]) -> list[BaseRoute]:
    if len(targets) == 1 and not targets[0].name:
        return _below(settings, targets[0], targets)
    first = targets[0].name

    async def go_to_first(_: Request) -> Response:
        return Response(status_code=307, headers={"Location": f"{first}/"})

    mounts: list[BaseRoute] = [
        Mount(f"/{target.name}", routes=_below(settings, target, targets)) for target in targets
    ]
    return [Route("/", go_to_first), *mounts]


def _below(settings: Settings, target: Target, targets: Sequence[Target]) -> list[BaseRoute]:
    routes: Mapping[str, Route] = target_routes(Doorkeeper(settings, target, targets))
    return [Route("/static/{version}/{name}", serve_asset, name="static"), *routes.values()]
