"""Headers of proxies: what is read from a trusted one, and what is ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import InvalidOptionError
from pyasynq.web.api.paths import raw_path
from pyasynq.web.auth.identify import FORWARDED_CLIENT
from pyasynq.web.forwarded_headers import ForwardedHeaders
from pyasynq.web.locations import route_path
from tests.run_async import run_async

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PROXY = ("10.0.0.7", 1)


async def forward(headers: list[tuple[str, str]], **fields: Any) -> Scope:
    """Return the scope that the application gets for a request."""
    seen: list[Scope] = []

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        seen.append(scope)

    scope = {
        "type": "http",
        "scheme": "http",
        "client": PROXY,
        "path": "/queues",
        "raw_path": b"/queues",
        "root_path": "",
        "headers": [(b"host", b"app:8000"), *((name.encode(), value.encode()) for name, value in headers)],
        **fields,
    }
    await ForwardedHeaders(app, ["10.0.0.0/8", "::1"])(scope, None, None)  # type: ignore[arg-type] # not used
    assert "http" == scope["scheme"] or "scheme" in fields, "the scope of the server was changed"
    return seen[0]


def hosts_of(scope: Scope) -> list[str]:
    """Return the values of the header `Host`."""
    return [value.decode() for name, value in scope["headers"] if name == b"host"]


ALL = [
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "ops.example"),
    ("x-forwarded-for", "203.0.113.9"),
    ("x-forwarded-prefix", "/a/b"),
]


@run_async
async def test_a_trusted_proxy_tells_how_the_browser_has_asked() -> None:
    """Scheme, host, client and prefix; the address of the connection stays."""
    scope = await forward(ALL)
    assert ("https", ["ops.example"]) == (scope["scheme"], hosts_of(scope))
    assert ("203.0.113.9", PROXY) == (scope[FORWARDED_CLIENT], scope["client"])
    assert ("/a/b", "/a/b/queues", b"/a/b/queues") == (scope["root_path"], scope["path"], scope["raw_path"])
    assert "/queues" == route_path(scope)


@pytest.mark.parametrize("client", [("203.0.113.9", 1), ("::2", 1), ("", 0), None])
def test_headers_from_elsewhere_are_ignored(client: tuple[str, int] | None) -> None:
    """Anyone can send them."""

    @run_async
    async def send() -> None:
        scope = await forward(ALL, client=client)
        assert ("http", ["app:8000"]) == (scope["scheme"], hosts_of(scope))
        assert ("", "/queues", False) == (scope["root_path"], scope["path"], FORWARDED_CLIENT in scope)

    send()


@pytest.mark.parametrize("client", [("::1", 1), ("::ffff:10.1.2.3", 1)])
def test_a_proxy_may_come_by_ipv6(client: tuple[str, int]) -> None:
    """Also one whose IPv4 address a socket for both writes as IPv6."""

    @run_async
    async def send() -> None:
        assert "https" == (await forward(ALL, client=client))["scheme"]

    send()


@run_async
async def test_the_last_value_counts() -> None:
    """The proxy adds its own at the end; a client may have sent the others."""
    scope = await forward(
        [
            ("x-forwarded-proto", "https, http"),
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-host", "ops.example:8443"),
        ]
    )
    assert ("http", ["ops.example:8443"]) == (scope["scheme"], hosts_of(scope))


@pytest.mark.parametrize(
    ("values", "client"),
    [
        (["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        (["198.51.100.1, 203.0.113.9, 10.2.3.4"], "203.0.113.9"),
        (["198.51.100.1", "203.0.113.9:4711, 10.2.3.4:80"], "203.0.113.9"),
        (["[2001:db8::1]:443"], "2001:db8::1"),
        (["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        (["198.51.100.1, unknown, 10.2.2.2"], "10.2.2.2"),
        (["unknown"], None),
        ([""], None),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_proxy(values: list[str], client: str | None) -> None:
    """A client may have forged what is before it."""

    @run_async
    async def send() -> None:
        scope = await forward([("x-forwarded-for", value) for value in values])
        assert client == scope.get(FORWARDED_CLIENT)

    send()


@pytest.mark.parametrize(
    "header",
    [
        ("x-forwarded-proto", "javascript"),
        ("x-forwarded-host", "a.example/../x"),
        ("x-forwarded-host", "user@a.example"),
        ("x-forwarded-host", "a" * 256),
        ("x-forwarded-prefix", "a/b"),
        ("x-forwarded-prefix", "//evil.example"),
        ("x-forwarded-prefix", "/a/../b"),
        ("x-forwarded-prefix", "/a%2Fb"),
        ("x-forwarded-prefix", "/"),
        ("x-forwarded-prefix", "/a" * 200),
    ],
)
def test_a_value_that_cannot_be_right_is_ignored(header: tuple[str, str]) -> None:
    """The request is answered as it came."""

    @run_async
    async def send() -> None:
        scope = await forward([header])
        assert ("http", ["app:8000"]) == (scope["scheme"], hosts_of(scope))
        assert ("", "/queues") == (scope["root_path"], scope["path"])

    send()


@pytest.mark.parametrize(
    ("root", "path", "new_root", "new_path"),
    [
        ("", "/queues", "/a/b", "/a/b/queues"),
        ("/tasks", "/tasks/queues", "/a/b/tasks", "/a/b/tasks/queues"),
        ("/tasks", "/tasks", "/a/b/tasks", "/a/b/tasks"),
        ("/tasks", "/queues", "/a/b/tasks", "/queues"),
        ("/a/b", "/a/b/queues", "/a/b", "/a/b/queues"),
        ("/a/b/tasks", "/a/b/tasks/queues", "/a/b/tasks", "/a/b/tasks/queues"),
        ("/a/bc", "/a/bc/queues", "/a/b/a/bc", "/a/b/a/bc/queues"),
    ],
)
def test_a_prefix_is_added_to_the_root_that_lacks_it(
    root: str, path: str, new_root: str, new_path: str
) -> None:
    """Mounted or not; the route below the root stays the same."""

    @run_async
    async def send() -> None:
        given: dict[str, Any] = {"root_path": root, "path": path, "raw_path": path.encode()}
        scope = await forward([("x-forwarded-prefix", "/a/b/")], **given)
        assert (new_root, new_path) == (scope["root_path"], scope["path"])
        assert new_path.encode() == scope["raw_path"]
        assert route_path(given) == route_path(scope)

    send()


@run_async
async def test_an_escaped_slash_stays_escaped_below_a_prefix() -> None:
    """Names in the paths of the API may hold one."""
    fields = {"path": "/api/v1/queues/a/b", "raw_path": b"/api/v1/queues/a%2Fb"}
    scope = await forward([("x-forwarded-prefix", "/x")], **fields)
    assert "/api/v1/queues/a%2Fb" == raw_path(scope)


@pytest.mark.parametrize("networks", [["10.0.0.1/8"], ["proxy"], "10.0.0.0/8"])
def test_a_wrong_network_is_refused_at_once(networks: Any) -> None:
    """By the name of the option."""

    async def app(*_: Any) -> None:
        """Do nothing."""

    with pytest.raises(InvalidOptionError, match="trusted_proxies"):
        ForwardedHeaders(app, networks)
