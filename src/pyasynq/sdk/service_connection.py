"""HTTP connection to the task service: one session, decoded answers, and retries of idempotent calls."""

from __future__ import annotations

import asyncio
import random
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError

from .errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""Maximum seconds for an answer of the service, which itself waits up to 25 s for Redis."""
_LONGEST_PAUSE: Final = 10.0
_FIRST_PAUSE: Final = 0.25
_LONGEST_SHOWN: Final = 300
_LATER: Final = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may be retried."""


class ServiceAnswer(NamedTuple):
    """An answer of the service.

    Attributes:
        status: HTTP status.
        content: the body.
        retry_after: seconds that the service asks to wait; 0 if it does not.
        at: Unix time by the service's clock, in whole seconds; None if the answer does not contain it.
    """

    status: int
    content: bytes
    retry_after: float
    at: float | None

    @property
    def is_later(self) -> bool:
        """Whether the status means that the request should be retried later."""
        return self.status in _LATER

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty one for any other content."""
        import msgspec  # noqa: PLC0415 - of the extra `service`

        try:
            found = msgspec.json.decode(self.content)
        except msgspec.DecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def reason(self) -> str:
        """Return the text of the problem in the answer (RFC 9457): its detail and its remedy."""
        problem = self.json()
        told = " ".join(str(problem[name]) for name in ("detail", "remedy") if problem.get(name))
        return visible(told)[:_LONGEST_SHOWN] or "it gave no reason"

    def error(self) -> ServiceError:
        """Return the `ServiceError` for the problem in the answer."""
        text = f"the task service has answered {self.status}: {self.reason}"
        return ServiceError(self.status, str(self.json().get("code", "")), text)


class ServiceConnection:
    """A session with the task service. Belongs to one event loop; connects with its first request.

    Args:
        url: address of the service, such as `http://task-queue:8080`.
        key: API key; empty for a service on this machine that requires none.

    Raises:
        ConfigurationError: for an invalid address or key, and without the extra `service`.
    """

    def __init__(self, url: object, key: object) -> None:
        self._base = _check_url(url)
        if not isinstance(key, str) or visible(key) != key or " " in key:
            raise ConfigurationError("key: give an API key of the service, as `pyasynq key make` prints it")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            import aiohttp  # noqa: PLC0415 - of the extra `service`
            import msgspec  # noqa: F401, PLC0415
        except ImportError:
            raise ConfigurationError('service: it needs `pip install "pyasynq[service]"`') from None
        self._aiohttp = aiohttp
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
        on_answer: asyncio.Event | None = None,
    ) -> ServiceAnswer:
        """Send a request once, and return the answer.

        Args:
            method: HTTP method.
            path: path below the address of the service.
            body: content, sent as JSON; None for no body.
            headers: additional headers.
            seconds: timeout for the whole answer.
            on_answer: event that is set when the answer begins to arrive.

        Raises:
            ServiceError: no answer has come; the request may have taken effect.
        """
        import msgspec  # noqa: PLC0415 - of the extra `service`

        if self._session is None:
            self._session = self._aiohttp.ClientSession(
                connector=self._aiohttp.TCPConnector(limit=0), headers=self._headers
            )
        sent = {**(headers or {})}
        data = None
        if body is not None:
            data, sent["Content-Type"] = msgspec.json.encode(body), "application/json"
        timeout = self._aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers=sent, timeout=timeout, allow_redirects=False
            ) as response:
                if on_answer is not None:
                    on_answer.set()
                content = await response.read()
        except (self._aiohttp.ClientError, TimeoutError) as error:
            reason = visible(str(error) or "no answer in time")[:_LONGEST_SHOWN]
            raise ServiceError(0, "", f"the task service at {self._base} does not answer: {reason}") from None
        return ServiceAnswer(
            response.status,
            content,
            _read_seconds(response.headers.get("Retry-After", "")),
            _read_date(response.headers.get("Date", "")),
        )

    async def repeat(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        until: float,
    ) -> ServiceAnswer:
        """Send an idempotent request, and repeat it while the service is busy or away; return the answer.

        The service recognises a repeated request, so nothing is done twice.

        Args:
            method: HTTP method.
            path: path below the address of the service.
            body: content, sent as JSON.
            headers: additional headers.
            until: time of the event loop after which the request is not sent again.

        Raises:
            ServiceError: no answer has come in this time.
        """
        loop = asyncio.get_running_loop()
        pauses = Pauses()
        while True:
            failure: ServiceError
            try:
                answer = await self.send(method, path, body, headers=headers)
                if not answer.is_later:
                    return answer
                failure, least = answer.error(), answer.retry_after
            except ServiceError as error:
                failure, least = error, 0.0
            pause = pauses.next(least)
            if loop.time() + pause > until:
                raise failure
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class Pauses:
    """Delays between tries: exponential back-off with jitter, in seconds."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE

    def next(self, least: float = 0.0) -> float:
        """Return the next delay in seconds; at least `least`, the delay that the service asks for."""
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return max(least, pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load

    def reset(self) -> None:
        """Start again with the shortest delay, after a success."""
        self._pause = _FIRST_PAUSE


def _check_url(url: object) -> str:
    remedy = 'give the address of the task service, as in service="http://task-queue:8080"'
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        is_sound = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_sound = False
    if not is_sound or parts.query or parts.fragment or parts.username:
        raise ConfigurationError(f"service: {remedy}; an API key is given as key=")
    return str(url).rstrip("/")


def _read_seconds(text: str) -> float:
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else 0.0


def _read_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
