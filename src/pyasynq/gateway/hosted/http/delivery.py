"""Handler of the kind `http`: one request for each attempt, whose answer decides the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from yarl import URL

from pyasynq._visible_text import visible
from pyasynq.control import Archive, Retry
from pyasynq.errors import ConfigurationError
from pyasynq.gateway.configurations import HostRule, find_host_rule
from pyasynq.gateway.configurations.host_rule import DEFAULT_PORTS
from pyasynq.gateway.configurations.url_template import TemplateError, UrlTemplate
from pyasynq.gateway.hosted.outcome import HandedOver, Throttled
from pyasynq.operations import MOST_BODY

from .delivery_table import DeliveryTable, ReceivedAnswer, SentRequest
from .guard import Guard, RefusedAddressError, guarded_connector
from .outcomes import Gone, judge_answer
from .redis_addresses import find_redis_addresses
from .signature import message_id, read_signing_secret, signature_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.gateway.hosted.outcome import HostedOutcome

    from .addresses import NetworkAddress

_log = logging.getLogger("pyasynq.gateway")

_CONNECT_SECONDS: Final = 5.0
_CALLBACK_SECONDS: Final = 20.0
"""Timeout in seconds of a request whose host may take over the task (callback): half of the first lease."""
_CALLBACK_LEASE: Final = 40.0
"""Seconds until the host must have extended the lease; the token of the request is valid that long."""
_CALLBACK_HEADER: Final = "Pyasynq-Callback"
_TOKEN_HEADER: Final = "X-Pyasynq-Token"  # noqa: S105 - the name of a header
_ACCEPTED: Final = 202
_LARGEST_HEAD: Final = 64_000
_RESULT_BYTES: Final = 20_000
"""Maximum number of bytes of an answer that are kept as the result."""
_CHUNK_BYTES: Final = 16_384
_FAILED_SECONDS: Final = 0.5
"""Maximum seconds to read the beginning of a failed attempt's answer, which the dashboard shows."""
_TRACE_HEADERS: Final = ("traceparent", "tracestate", "baggage")
_METHODS_WITHOUT_BODY: Final = frozenset({"GET", "DELETE"})


class Deliveries:
    """Sends the requests of `http` tasks from one instance to their hosts. Belongs to one event loop.

    Args:
        rules: rule of each host that the file lists.
        redis: URL of Redis, whose servers are never called.
        own_ports: ports of the service itself on this machine, which are never called.
        seal: returns the lease token of an attempt, for types with callbacks.
        version: version of the program, for `User-Agent`.
        table: counts the requests for the dashboard.
    """

    def __init__(
        self,
        rules: Mapping[str, HostRule],
        *,
        redis: str = "",
        own_ports: Collection[int] = (),
        seal: Callable[[Attempt], str] | None = None,
        version: str = "",
        table: DeliveryTable | None = None,
    ) -> None:
        self._rules = rules
        self._redis = redis
        self._forbidden: Collection[tuple[NetworkAddress, int]] = ()
        self._own_ports = own_ports
        self._seal = seal
        self._table = table or DeliveryTable()
        self._agent = f"pyasynq/{version}" if version else "pyasynq"
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        """HTTP session of each host rule, by the rule's name; the empty name is for unlisted hosts."""
        self._contexts: dict[str, ssl.SSLContext] = {}
        """SSL contexts by the file of CA certificates; the empty name means the system's certificates."""
        self._opening = asyncio.Lock()

    async def start(self) -> None:
        """Resolve the addresses of Redis, which are never called; each further call resolves them again."""
        self._forbidden = await find_redis_addresses(self._redis)

    def rule_of(self, template: UrlTemplate) -> HostRule:
        """Return the rule for the host of a task type."""
        return find_host_rule(self._rules, template.host, template.port)

    async def deliver(self, attempt: Attempt, configuration: TaskConfiguration) -> HostedOutcome | Throttled:
        """Send the request of an attempt; return the outcome.

        A cancelled call closes the connection; the host may have processed the request.
        """
        template = configuration.url
        assert template is not None  # noqa: S101 - the kind http has one
        rule = self.rule_of(template)
        body = attempt.task.payload or b""
        try:
            url = template.fill(_read_params(body))
            headers = self._headers_of(attempt, configuration, rule, body)
            session = await self._session_of(rule)
        except TemplateError as error:
            return Archive(str(error))
        except ConfigurationError as error:
            _log.error("host %s cannot be called: %s", visible(template.host), visible(error))
            return Retry(reason="the service cannot read a secret of the host; its log says which")
        left = max(0.0, attempt.deadline.timestamp() - time.time())
        total = min(left, _CALLBACK_SECONDS) if configuration.callback else left
        request = _describe(attempt, configuration, rule, headers)
        try:
            async with session.request(
                configuration.method,
                URL(url, encoded=True),
                data=None if configuration.method in _METHODS_WITHOUT_BODY else body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=total, sock_connect=_CONNECT_SECONDS),
                allow_redirects=False,
            ) as answer:
                outcome = await _judge(answer, configuration)
                received = await self._read_failed(request, answer, outcome)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            outcome, received = _judge_error(error, template.host), ReceivedAnswer()
        except asyncio.CancelledError:
            if attempt.deadline.timestamp() <= time.time():
                self._note(request, ReceivedAnswer(), Retry(reason=_TOO_LATE.format(template.host)))
            raise
        self._note(request, received, outcome)
        return outcome

    async def _read_failed(
        self, request: SentRequest, answer: aiohttp.ClientResponse, outcome: HostedOutcome | Throttled
    ) -> ReceivedAnswer:
        """Return the status of an HTTP answer; after a failure also its headers and the start of its body.

        Headers and body are left out if a recent failed request of this host and queue is stored already.
        """
        if _find_failure(outcome) is None or not self._table.wants_failed(request):
            return ReceivedAnswer(answer.status)
        # More bytes are read than are kept, so that a secret which the cut would divide is found and hidden.
        most = MOST_BODY + max(map(len, request.secrets), default=0)
        kept = bytearray()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
            async with asyncio.timeout(_FAILED_SECONDS):
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    kept += chunk
                    if len(kept) >= most:
                        break
        return ReceivedAnswer(answer.status, tuple(answer.headers.items()), bytes(kept[:most]))

    def _note(
        self, request: SentRequest, received: ReceivedAnswer, outcome: HostedOutcome | Throttled
    ) -> None:
        """Count a request. If its attempt failed, keep the request for the dashboard."""
        self._table.note(request, received.status)
        reason = _find_failure(outcome)
        if reason is not None and self._table.wants_failed(request):
            self._table.note_failed(request, received, reason)
        if isinstance(outcome, Throttled):
            self._table.note_throttled(request, outcome.seconds)
        elif isinstance(outcome, Gone):
            self._table.note_gone(request)

    async def close(self) -> None:
        """Close the connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def _headers_of(
        self, attempt: Attempt, configuration: TaskConfiguration, rule: HostRule, body: bytes
    ) -> dict[str, str]:
        """Return the headers of a request; the headers that the service sets override those of the type."""
        headers = {
            "User-Agent": self._agent,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            **configuration.headers,
        }
        if configuration.method not in _METHODS_WITHOUT_BODY:
            headers.setdefault("Content-Type", "application/json")
        for name in _TRACE_HEADERS:
            value = attempt.task.headers.get(name, "")
            if value and value.isascii() and value.isprintable():
                headers[name] = value
        headers.update({name: one.read() for name, one in rule.secret_headers})
        secrets = [read_signing_secret(one.path, one.read()) for one in rule.signing_secrets]
        signed = b"" if configuration.method in _METHODS_WITHOUT_BODY else body
        name = message_id(attempt.queue, attempt.id)
        headers.update(signature_headers(secrets, name, int(time.time()), signed))
        headers.update(
            {
                "X-Pyasynq-Queue": _to_header(attempt.queue),
                "X-Pyasynq-Task-Id": _to_header(attempt.id),
                "X-Pyasynq-Attempt": str(attempt.retried + 1),
                "X-Pyasynq-Max-Retry": str(attempt.max_retry),
                "X-Pyasynq-Deadline": attempt.deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
        if configuration.callback and self._seal is not None:
            headers[_TOKEN_HEADER] = self._seal(attempt)
        return headers

    async def _session_of(self, rule: HostRule) -> aiohttp.ClientSession:
        name = rule.name if rule.name in self._rules else ""
        session = self._sessions.get(name)
        if session is not None:
            return session
        async with self._opening:
            tls = self._contexts.get(rule.ca_file)
            if tls is None:
                # Reading the system's certificates takes long enough to hold up all other tasks.
                tls = self._contexts[rule.ca_file] = await asyncio.to_thread(_make_tls, rule.ca_file)
        session = self._sessions.get(name)
        if session is None:
            guard = Guard(rule, lambda: self._forbidden, self._own_ports)
            session = self._sessions[name] = aiohttp.ClientSession(
                connector=guarded_connector(guard, tls),
                # An answer must set no cookie for the next task.
                cookie_jar=aiohttp.DummyCookieJar(),
                # Proxy settings of the environment would bypass the guard.
                trust_env=False,
                # A small compressed answer may expand to a huge one.
                auto_decompress=False,
                max_line_size=_LARGEST_HEAD,
                max_field_size=_LARGEST_HEAD,
            )
        return session


def _describe(
    attempt: Attempt, configuration: TaskConfiguration, rule: HostRule, headers: Mapping[str, str]
) -> SentRequest:
    """Return a record of a request that can be shown: method, URL template and headers."""
    template = configuration.url
    assert template is not None  # noqa: S101 - the kind http has one
    return SentRequest(
        template.host if template.port in DEFAULT_PORTS else f"{template.host}:{template.port}",
        attempt.queue,
        attempt.id,
        attempt.retried + 1,
        configuration.method,
        template.text,
        headers,
        frozenset(name for name, _ in rule.secret_headers),
    )


def _find_failure(outcome: HostedOutcome | Throttled) -> str | None:
    """Return the reason of a failed attempt; None if it has not failed."""
    if isinstance(outcome, Throttled):
        return outcome.reason
    return outcome.reason if isinstance(outcome, (Archive, Retry)) else None


def _make_tls(ca_file: str) -> ssl.SSLContext:
    """Return the SSL context for requests: it trusts the CA certificates of a file, or of the system."""
    tls = ssl.create_default_context(cafile=ca_file or None)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    return tls


async def _judge(
    answer: aiohttp.ClientResponse, configuration: TaskConfiguration
) -> HostedOutcome | Throttled:
    """Return the outcome of an answer; its body becomes the result of a task that is done."""
    if configuration.callback and answer.status == _ACCEPTED:
        said = answer.headers.get(_CALLBACK_HEADER, "").strip().lower()
        if said == "lease":
            return HandedOver(_CALLBACK_LEASE)
    outcome = judge_answer(
        answer.status,
        answer.headers,
        retry_on=configuration.retry_on,
        archive_on=configuration.archive_on,
    )
    if outcome is not None:
        return outcome
    return await _read_result(answer)


async def _read_result(answer: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, cut at the maximum size of a result; close the connection of a longer body."""
    kept = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        kept += chunk
        if len(kept) > _RESULT_BYTES:
            answer.close()
            break
    return bytes(kept[:_RESULT_BYTES]) or None


_TOO_LATE: Final = "host {} did not answer in time"
_REASONS: Final = (
    (aiohttp.ClientConnectorDNSError, "host {} cannot be resolved"),
    (aiohttp.ClientSSLError, "TLS with host {} failed"),
    (aiohttp.ClientConnectorError, "host {} cannot be reached"),
    (TimeoutError, _TOO_LATE),
)
"""Reasons for requests without an answer, by error class; the first matching class counts."""


def _judge_error(error: BaseException, host: str) -> HostedOutcome:
    """Return the outcome of a request without an answer."""
    cause = getattr(error, "os_error", None) or error.__cause__
    if isinstance(cause, RefusedAddressError):
        remedy = f'list its addresses and ports under [hosts."{host}"] in the service\'s file'
        return Archive(f"host {host} has an address or port that may not be called: {remedy}")
    if isinstance(error, aiohttp.InvalidURL):
        return Archive("the URL of the type cannot be called with these params")
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return Retry(reason=reason.format(host))
    return Retry(reason=f"the connection to host {host} broke: {type(error).__name__}")


def _read_params(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _to_header(name: str) -> str:
    """Percent-encode a name for a header, except visible ASCII."""
    data = name.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 0x21 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in data)
