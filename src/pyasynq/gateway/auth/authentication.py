"""API keys of requests: read from the header, looked up in Redis, and cached for a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq.operations.api_keys import SCOPES, split_key_text
from pyasynq.operations.patterns import EVERYTHING
from pyasynq.operations.permissions import User
from pyasynq.web.api.problem import ProblemError
from pyasynq.web.auth.identify import bearer_token, came_through_proxy
from pyasynq.web.auth.origin import SAFE_METHODS, is_same_origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from pyasynq.operations import ApiKey, Operator, RequestRate

_KEPT_SECONDS: Final = 1.0
"""Seconds for which a key is cached: a deleted key is accepted that much longer."""
_MOST_KEPT: Final = 1_000
_ALL_SCOPES: Final = frozenset(SCOPES)
_ALL_GRANTS: Final = dict.fromkeys(SCOPES["admin"], (EVERYTHING,))
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """The API key of a request's program, as far as the service needs it.

    Attributes:
        id: id of its API key.
        scopes: names of its scopes, including those that `admin` implies.
        queues: patterns of the queues that it may use.
        user: the program as the audit log names it, with its permissions.
        rate: rate limit of its requests; None means unlimited.
    """

    id: str
    scopes: frozenset[str]
    queues: tuple[str, ...]
    user: User
    rate: RequestRate | None = None


class KeyAuthentication:
    """Admits programs by their API keys.

    Args:
        operator: reads the keys; its user needs the permission for it.
        monotonic: clock of the cache, in seconds.
    """

    def __init__(self, operator: Operator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._operator = operator
        self._monotonic = monotonic
        self._kept: dict[str, tuple[float, ApiKey]] = {}
        """Cached keys by id, each with the monotonic time until which it is not read again."""

    async def __call__(self, request: Request) -> ServiceKey | None:
        """Return the key of a request; None if it has none that is valid.

        Raises:
            ProblemError: the checksum in the key's text is wrong, so it was mistyped.
            RedisError: the key cannot be looked up.
        """
        text = bearer_token(request)
        if not text:
            return None
        split = split_key_text(text)
        if split is None:
            detail = "The text of the API key is wrong: its checksum does not fit."
            raise _refuse("mistyped_key", detail, "Copy the whole key, from pq_ to its end.")
        key_id, secret = split
        key = await self._read(key_id)
        if key is None or not key.accepts(secret, datetime.now(UTC)):
            return None
        address = request.client.host if request.client else ""
        return ServiceKey(key.id, key.all_scopes, key.patterns, key.to_user(address), key.rate)

    async def _read(self, key_id: str) -> ApiKey | None:
        now = self._monotonic()
        until, key = self._kept.get(key_id, (0.0, None))
        if key is not None and now < until:
            return key
        key = await self._operator.api_key(key_id)
        self._kept.pop(key_id, None)
        if key is not None:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key_id] = now + _KEPT_SECONDS, key
        return key


class LoopbackAuthentication:
    """Admits every program of this machine; for a service that listens on loopback only.

    Two checks keep web pages out. The `Host` header must be a loopback name, which stops DNS rebinding. A
    request that changes something must not come from another site (CSRF).
    """

    def __init__(self) -> None:
        self._key = _make_local_key("")
        """Key made for the newest request; reused while requests come from the same address."""

    async def __call__(self, request: Request) -> ServiceKey | None:
        """Return a key with all scopes.

        Raises:
            ProblemError: the `Host` header is not a loopback name, a proxy has forwarded the request, or a
                page of another site has sent it.
        """
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _LOOPBACK_NAMES:
            remedy = "Ask for http://localhost or http://127.0.0.1, or let the service ask for keys."
            raise ProblemError(403, "other_host", "This service is for its own machine only.", remedy)
        if came_through_proxy(request):
            remedy = "A proxy brings requests from elsewhere: let the service ask for keys."
            raise ProblemError(403, "forwarded", "This service is for its own machine only.", remedy)
        if request.method not in SAFE_METHODS and not is_same_origin(request):
            remedy = "Ask from a program, or let the service ask for keys."
            raise ProblemError(403, "another_site", "The request was sent by a web page.", remedy)
        address = request.client.host if request.client else ""
        if address != self._key.user.address:
            self._key = _make_local_key(address)
        return self._key


def _make_local_key(address: str) -> ServiceKey:
    user = User("local", _ALL_GRANTS, "admin", "loopback", address)
    return ServiceKey("local", _ALL_SCOPES, (EVERYTHING,), user)


def _refuse(code: str, detail: str, remedy: str) -> ProblemError:
    challenge = 'Bearer realm="pyasynq", error="invalid_token"'
    return ProblemError(401, code, detail, remedy, headers={"WWW-Authenticate": challenge})
