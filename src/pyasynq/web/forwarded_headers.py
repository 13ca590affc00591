"""Headers of trusted proxies: scheme, host, path prefix and client of a request as the browser sent it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.datastructures import Headers

from pyasynq.errors import ConfigurationError, InvalidOptionError
from pyasynq.web.auth.identify import FORWARDED_CLIENT, is_in_networks, parse_proxy_networks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyasynq.web.auth.identify import ProxyNetwork

_SCHEMES: Final = ("http", "https")
_LONGEST: Final = 255
_HOST: Final = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+;=:@-]+)+")
_WITH_PORT: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")


class ForwardedHeaders:
    """ASGI middleware for `X-Forwarded-Proto`, `-Host`, `-Prefix` and `-For`, as trusted proxies send them.

    The headers of all other requests, and invalid values, are ignored. The last of several
    values counts: a proxy adds its own at the end, and earlier ones may be forged.

    Args:
        app: answers the requests.
        networks: addresses of the proxies, such as `["10.0.0.0/8"]`.

    Raises:
        InvalidOptionError: for an invalid network.
    """

    def __init__(self, app: ASGIApp, networks: Sequence[str]) -> None:
        self._app = app
        if isinstance(networks, str):
            raise InvalidOptionError("trusted_proxies", networks, 'give a list, such as ["10.0.0.0/8"]')
        try:
            self._networks = parse_proxy_networks(networks)
        except ConfigurationError as error:
            said = str(error).removeprefix("networks: ")
            remedy = f"give the addresses of proxies, such as 10.0.0.0/8: {said}"
            raise InvalidOptionError("trusted_proxies", str, remedy) from None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to `app`, with the scheme, host, prefix and client from a trusted proxy."""
        client = scope.get("client")
        if scope["type"] == "http" and client and is_in_networks(client[0], self._networks):
            scope = read_forwarded(scope, self._networks)
        await self._app(scope, receive, send)


def read_forwarded(scope: Scope, networks: Sequence[ProxyNetwork]) -> Scope:
    """Return the scope of a request with the scheme, host, prefix and client that a trusted proxy reports."""
    headers = Headers(raw=list(scope["headers"]))
    changed = dict(scope)

    def find_last(name: str) -> str:
        return ",".join(headers.getlist(name)).rpartition(",")[2].strip()

    scheme, host = find_last("x-forwarded-proto").lower(), find_last("x-forwarded-host")
    if scheme in _SCHEMES:
        changed["scheme"] = scheme
    if len(host) <= _LONGEST and _HOST.fullmatch(host):
        others = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
        changed["headers"] = [(b"host", host.encode()), *others]
    if address := _find_client(headers.getlist("x-forwarded-for"), networks):
        changed[FORWARDED_CLIENT] = address
    prefix = find_last("x-forwarded-prefix").rstrip("/")
    if len(prefix) <= _LONGEST and _PREFIX.fullmatch(prefix) and not {".", ".."} & set(prefix.split("/")):
        changed |= _add_prefix(scope, prefix)
    return changed


def _add_prefix(scope: Scope, prefix: str) -> Scope:
    """Return root path and path with a prefix that a proxy has stripped.

    The result is empty if the root path begins with the prefix already.
    """
    root, path = str(scope.get("root_path", "")), str(scope["path"])
    if f"{root}/".startswith(f"{prefix}/"):
        return {}
    if root and path != root and not path.startswith(f"{root}/"):
        return {"root_path": prefix + root}  # the application has stripped its own root, too
    sent = bytes(scope.get("raw_path") or quote(path).encode())
    return {"root_path": prefix + root, "path": prefix + path, "raw_path": prefix.encode() + sent}


def _find_client(values: Sequence[str], networks: Sequence[ProxyNetwork]) -> str:
    """Return the client's address in `X-Forwarded-For`: the last one that is not a trusted proxy's.

    If all addresses belong to trusted proxies, return the first one; without any, an empty string.
    """
    found = ""
    for text in reversed([one.strip() for value in values for one in value.split(",")]):
        match = _WITH_PORT.fullmatch(text)
        address = (match[1] or match[2]) if match else text
        try:
            is_proxy = is_in_networks(address, networks, strict=True)
        except ValueError:
            return found
        found = address
        if not is_proxy:
            return found
    return found
