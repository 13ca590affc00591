"""The task service as an ASGI application: routes, probes, leases, and the parts behind them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocketClose

from pyasynq.client import Client
from pyasynq.errors import PyasynqError
from pyasynq.events import Events, LeaseLapsed, TaskRecovered
from pyasynq.gateway.auth import (
    KeyAuthentication,
    LoopbackAuthentication,
    admit_request,
    get_rate_fields,
    sending_rate_fields,
)
from pyasynq.gateway.configurations import ConfigurationFollower, ConfigurationStore, ServiceFile
from pyasynq.gateway.counted_client import CountedClient
from pyasynq.gateway.doors.gearman import GearmanDoor
from pyasynq.gateway.hosted.cmd.command_table import CommandTable
from pyasynq.gateway.hosted.cmd.commands import HostedCommands
from pyasynq.gateway.hosted.hosted_worker import HostedWorker
from pyasynq.gateway.hosted.http.delivery import Deliveries
from pyasynq.gateway.hosted.http.delivery_table import DeliveryTable
from pyasynq.gateway.hosted.lists.list_types import ListTypes
from pyasynq.gateway.instance_reports import InstanceReports
from pyasynq.gateway.leases import Keyring, Leases, lease_routes
from pyasynq.gateway.leases.access import CALLBACK_KEY, missing_scope, no_key
from pyasynq.gateway.leases.leased_tasks import seal_attempt
from pyasynq.gateway.request_trace import tracing
from pyasynq.gateway.service_metrics import ServiceMetrics
from pyasynq.gateway.waits import Waits
from pyasynq.operations import (
    HostGate,
    Operator,
    User,
    report_commands,
    report_deliveries,
    report_doors,
    report_lease_workers,
)
from pyasynq.web.api.parameters import read_parameters
from pyasynq.web.api.paths import PathTable, raw_path
from pyasynq.web.api.problem import ProblemError
from pyasynq.web.auth.origin import SAFE_METHODS
from pyasynq.web.auth.secret import SigningSecret
from pyasynq.web.locations import route_path

from .back_pressure import BackPressure
from .call import ServiceCall, ServiceParts, answer_json
from .enqueue_batch import BATCHES_AT_ONCE
from .load import LoadGate
from .probes import answer_live, answer_ready
from .problems import to_service_problem
from .request_log import NOTE
from .table import SERVICE_ROUTES
from .task_events import StreamCount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from pyasynq.client import ClientMiddleware
    from pyasynq.gateway.auth import ServiceKey
    from pyasynq.gateway.configurations import GearmanSettings, TaskConfiguration
    from pyasynq.gateway.leases.access import WorkKey

    LeaseEndpoint = Callable[[Request], Awaitable[Response]]

_USER: Final = "task-service"
_TIMEOUT_SECONDS: Final = 5.0
_TABLE: Final = PathTable(SERVICE_ROUTES, "GET /openapi.json lists them.")
HOSTED_END_SECONDS: Final = 10.0
"""Grace period at a shutdown: seconds in which running tasks of hosted types may end."""
_LIVE: Final = "/live"
_METRICS_SCOPE: Final = "metrics:read"
_PROBES: Final = frozenset({_LIVE, "/ready"})
_DOCUMENT: Final = "/openapi.json"
_FREE: Final = _PROBES | {_DOCUMENT}
"""Paths that are answered from memory, even during overload."""
_GATED_LATER: Final = _FREE | {"/v1/leases"}
"""Paths without an overload check on arrival.

A lease request is checked after its body was read, which says whether the request waits for tasks.
"""
_ACTS: Final = "/v1/attempts"
_LEASES: Final = ("/v1/leases", _ACTS)
"""Prefixes of the lease paths."""
_ACT_PATH: Final = re.compile(f"{_ACTS}/([^/]+):([a-z]+)")


class TaskService:
    """The HTTP API of the task service, an ASGI application. Belongs to one event loop.

    It starts with the lifespan of its server. A mounted service starts with its first request, and must be
    closed with `close`. All state is in Redis, so any number of instances may run.

    Args:
        file: settings and task types; `read_service_file` and `parse_service_file` make one.
        secret: signs lease tokens, and must be the same for all instances; `PYASYNQ_SECRET` unless given.
        needs_keys: whether requests need an API key. Without keys it answers only requests for localhost.
        timeout: seconds that a request may wait for Redis, including reconnects and retries.
        runs_hosted: whether this instance runs tasks of hosted types: the kinds `http`, `cmd` and
            `list`.
        client_middleware: client middleware of the client that enqueues, such as `ClientTracing()`.
        shares_ports: whether other processes also listen on the Gearman port of the file.
    """

    def __init__(
        self,
        file: ServiceFile,
        *,
        secret: SigningSecret | None = None,
        needs_keys: bool = True,
        timeout: float = _TIMEOUT_SECONDS,
        runs_hosted: bool = True,
        client_middleware: Sequence[ClientMiddleware] = (),
        shares_ports: bool = False,
    ) -> None:
        self._gate = LoadGate(file.service.max_inflight, lambda: len(self._waits))
        redis = file.service.redis
        keyring = Keyring.derive(secret or SigningSecret())
        self._operator = Operator(redis, User.with_role(_USER, "admin", login="service"), timeout=timeout)
        self.metrics = ServiceMetrics()
        self._client = Client(
            redis, client_name="pyasynq-service", timeout=timeout, middleware=client_middleware
        )
        self._authenticator = KeyAuthentication(self._operator) if needs_keys else LoopbackAuthentication()
        self._follower = ConfigurationFollower(ConfigurationStore(self._operator), file.tasks)
        self._waits = Waits()
        self._parts = ServiceParts(
            CountedClient(self._client, self.metrics),
            self._operator,
            self._follower,
            self._waits,
            BackPressure(self._operator),
            StreamCount(),
            asyncio.Semaphore(BATCHES_AT_ONCE),
            file.service.max_body,
        )
        self._leases = Leases(
            redis,
            keyring,
            queues=self._list_names,
            retry_delay=self._find_retry_delay,
            events=count_lapses(self.metrics),
            metrics=self.metrics,
        )
        deliveries = DeliveryTable(self.metrics)
        self._command_table = CommandTable(self.metrics)
        self._commands = HostedCommands(file.tasks if runs_hosted else {}, file.commands, self._command_table)
        self._hosted = self._make_hosted_worker(file, keyring, deliveries) if runs_hosted else None
        self._lists = self._make_list_types(redis, keyring) if runs_hosted else None
        self._shares_ports = shares_ports
        self._gearman = None if file.gearman is None else self._make_gearman_door(file, file.gearman)
        self._reports: list[InstanceReports[Any]] = [
            InstanceReports("workers", self._operator, self._leases.workers, report_lease_workers),
            InstanceReports("deliveries", self._operator, deliveries, report_deliveries),
            InstanceReports("commands", self._operator, self._command_table, report_commands),
        ]
        self._door_reports: list[InstanceReports[Any]] = []
        if self._gearman is not None:
            self._door_reports += [
                InstanceReports("workers", self._operator, self._gearman.workers, report_lease_workers),
                InstanceReports("doors", self._operator, self._gearman.table, report_doors),
            ]
        routes = lease_routes(self._leases, self._admit_worker, self._gate.admitting)
        self._lease_answers: dict[str, LeaseEndpoint] = {route.path: route.endpoint for route in routes}
        self._app = Starlette(
            lifespan=self._live,
        )
        self._app.router.default = self._handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the lifespan of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = sending_rate_fields(scope, send)
        path = raw_path(scope)
        answer = self._handle_lease if path.startswith(_LEASES) else self._handle
        if path in _GATED_LATER:
            await answer(scope, receive, send)
            return
        with self._gate.counting():
            await (self._find_refusal(path) or answer)(scope, receive, send)

    def list_command_params(self, name: str) -> tuple[str, ...]:
        """Return the params of a type's command, as read from this instance's file; none if unknown."""
        return self._commands.list_params(name)

    def check_command_payload(self, name: str, payload: bytes) -> None:
        """Raise `PyasynqError` for a payload that does not fit the command of a type; it names the param."""
        self._commands.check_payload(name, payload)

    def measure(self) -> None:
        """Set the metrics of the current state (gauges)."""
        listening = {} if self._lists is None else self._lists.listening
        self.metrics.measure(
            parked=self._leases.waiting,
            held=self._leases.workers.held,
            listening=listening,
            commands=self._command_table.running,
            throttled={} if self._hosted is None else self._hosted.throttled,
            door=None if self._gearman is None else self._gearman.table.describe(),
        )

    def _find_refusal(self, path: str) -> Response | None:
        """Return the response that rejects a request at overload (load shedding); None to process it."""
        try:
            self._gate.check(is_urgent=path.startswith(_ACTS))
        except ProblemError as problem:
            return problem.response()
        return None

    @property
    def types(self) -> Mapping[str, TaskConfiguration]:
        """Configuration of each task type, by name, as this instance knows it."""
        return {name: one for name, (one, _) in self._follower.types.items()}

    def _make_hosted_worker(self, file: ServiceFile, keyring: Keyring, table: DeliveryTable) -> HostedWorker:
        deliveries = Deliveries(
            file.hosts,
            redis=file.service.redis,
            own_ports={file.service.port},
            seal=lambda attempt: seal_attempt(attempt, keyring, CALLBACK_KEY.id),
            table=table,
        )
        return HostedWorker(
            file.service.redis,
            lambda: self.types,
            deliveries,
            self._commands,
            make_gate=lambda rule: HostGate(
                self._operator, rule.name, rate=rule.rate, concurrency=rule.concurrency
            ),
            retry_delay=self._find_retry_delay,
            pause_queue=lambda queue, reason: self._operator.pause_queue(queue, reason=reason),
        )

    def _make_list_types(self, redis: str, keyring: Keyring) -> ListTypes:
        return ListTypes(
            redis, self._operator, lambda: self.types, keyring, retry_delay=self._find_retry_delay
        )

    def _make_gearman_door(self, file: ServiceFile, settings: GearmanSettings) -> GearmanDoor:
        return GearmanDoor(
            settings,
            file.service.redis,
            client=self._parts.client,
            operator=self._operator,
            list_types=lambda: self.types,
            retry_delay=self._find_retry_delay,
            shares_port=self._shares_ports,
            max_packet=file.service.max_body,
        )

    def _list_names(self) -> Collection[str]:
        """Return the names of the types of the kind `worker`, whose tasks remote workers lease."""
        return [name for name, (one, _) in self._follower.types.items() if one.kind == "worker"]

    def _find_retry_delay(self, queue: str, retried: int) -> float | None:
        found = self._follower.types.get(queue)
        rule = None if found is None else found[0].retry
        return None if rule is None else rule.delay(retried)

    async def start(self) -> None:
        """Store the file's task types, poll all types for changes, and begin to run hosted tasks. Idempotent.

        Raises:
            RedisError: Redis cannot be reached.
        """
        await self._follower.start()
        for reports in self._reports:
            reports.start()
        if self._hosted is not None and not self._waits.is_ending:
            self._hosted.start()
        if self._lists is not None and not self._waits.is_ending:
            self._lists.start()
        self._gate.lag.start()

    async def reload(self, tasks: Mapping[str, TaskConfiguration]) -> None:
        """Store the task types of a changed file in Redis, and use them from now on.

        Raises:
            ConfigurationError: a command cannot be run on this machine; nothing has changed.
            RedisError: Redis cannot be reached; what was stored stays, and the call may be repeated.
        """
        if self._hosted is not None:
            self._commands.set_types(tasks)
        await ConfigurationStore(self._operator).write_file(tasks)
        await self._follower.refresh()

    @property
    def is_current(self) -> bool:
        """Whether this instance has read the task types from Redis within the last seconds."""
        return self._follower.is_current

    async def open_doors(self) -> None:
        """Start the Gearman server, if the file configures one. The ASGI lifespan calls this, too.

        Raises:
            ConfigurationError: an address is in use, or not of this machine.
        """
        if self._gearman is not None:
            await self._gearman.start()
        for reports in self._door_reports:
            reports.start()

    async def has_keys(self) -> bool:
        """Return whether there is an API key that has not expired.

        Raises:
            RedisError: Redis cannot be reached.
        """
        now = datetime.now(UTC)
        return any(not key.is_expired(now) for key in await self._operator.api_keys())

    @property
    def waiting(self) -> int:
        """Number of requests that wait for tasks or results (long polls)."""
        return len(self._waits) + self._leases.waiting

    def end_waits(self) -> None:
        """Answer all waiting requests (long polls), and lease no more tasks: the first step of a shutdown."""
        self._waits.end()
        self._leases.end_waits()
        if self._hosted is not None:
            self._hosted.stop()
        if self._lists is not None:
            self._lists.stop()
        if self._gearman is not None:
            self._gearman.stop()

    async def close(self) -> None:
        """Call `end_waits`, give hosted tasks 10 s to end, and close the connections.

        Leases stay valid: other instances settle them.
        """
        self.end_waits()
        ending = [
            part.close(HOSTED_END_SECONDS) for part in (self._hosted, self._gearman) if part is not None
        ]
        if self._lists is not None:
            ending.append(self._lists.close())
        await asyncio.gather(*ending)
        self._gate.lag.stop()
        await self._follower.close()
        await self._leases.close()
        for reports in self._reports:
            await reports.close()
        for reports in self._door_reports:
            await reports.close()
        await self._client.close()
        await self._operator.close()

    @contextlib.asynccontextmanager
    async def _live(self, _: Starlette) -> AsyncIterator[None]:
        await self.start()
        await self.open_doors()
        try:
            yield
        finally:
            await self.close()

    async def _handle_lease(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request about leases. Workers send most requests, so Starlette's layers are left out."""
        path = route_path(scope)
        if act := _ACT_PATH.fullmatch(path):
            path, scope["path_params"] = f"{_ACTS}/{{token}}:{act[2]}", {"token": act[1]}
        answer = self._lease_answers.get(path)
        if answer is None:
            await self._handle(scope, receive, send)
        elif scope["method"] == "POST":
            response = await answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await _answer_wrong_method(path)(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not about leases.

        The path is matched before it is decoded, because an encoded name may contain a slash.
        """
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            with tracing(scope):
                response = await self._answer(request)
        except Exception as error:  # noqa: BLE001 - every error becomes a problem
            response = to_service_problem(error).response()
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = raw_path(request.scope)
        if path in _PROBES and request.method in SAFE_METHODS:
            return await self._probe(path)
        if path == _DOCUMENT and request.method in SAFE_METHODS:
            return answer_json(_read_document().rstrip())
        route, names = _TABLE.find(request.method, path)
        key = await self._authenticate(request)
        if key is None:
            raise no_key()
        if key.scopes.isdisjoint(route.scopes):
            raise missing_scope(route.scopes[0])
        await self.start()
        values = read_parameters(request.scope["query_string"], route.description.parameters)
        return await route.handle(ServiceCall(request, key, names, values, self._parts))

    async def _probe(self, path: str) -> Response:
        if path == _LIVE:
            return answer_live()
        with contextlib.suppress(PyasynqError):
            await self.start()
        return answer_ready(self._follower, is_ending=self._waits.is_ending)

    async def answer_metrics(self, request: Request) -> Response:
        """Answer a Prometheus scrape of this process."""
        response = await self._answer_metrics(request)
        response.raw_headers += get_rate_fields(request.scope)
        return response

    async def _answer_metrics(self, request: Request) -> Response:
        try:
            key = await self._authenticate(request)
        except Exception as error:  # noqa: BLE001 - every error becomes a problem
            return to_service_problem(error).response()
        if key is None:
            return no_key().response()
        if _METRICS_SCOPE not in key.scopes:
            return missing_scope(_METRICS_SCOPE).response()
        self.measure()
        kind, body = self.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": kind, "Cache-Control": "no-store"})

    async def _authenticate(self, request: Request) -> ServiceKey | None:
        """Return the key of a request, note it for the access log, and take a token of its rate limit.

        Raises:
            ProblemError: the key has sent too many requests.
        """
        key = await self._authenticator(request)
        note = request.scope.get(NOTE)
        if key is not None and note is not None:
            note.key_id = key.id
        if key is not None and key.rate is not None:
            await admit_request(request.scope, self._operator, key.id, key.rate)
        return key

    async def _admit_worker(self, request: Request) -> WorkKey | None:
        """Return the API key of a worker's request; None if it has no valid key.

        The host of an `http` task gets a stand-in key: the lease token in its path is enough.
        """
        key: WorkKey | None = await self._authenticate(request)
        if key is None and self._leases.is_callback(request.path_params.get("token", "")):
            key = CALLBACK_KEY
        if key is not None:
            await self.start()
        return key


def _read_document() -> bytes:
    from .openapi import read_service_document  # noqa: PLC0415 - few ask for it

    return read_service_document()


def count_lapses(metrics: ServiceMetrics) -> Events:
    """Return an event source for a consumer, with a subscriber that counts expired leases."""
    events = Events()
    events.subscribe(TaskRecovered, metrics.note_lapsed)
    events.subscribe(LeaseLapsed, metrics.note_lapsed)
    return events


def _answer_wrong_method(path: str) -> Response:
    """Answer 405 to a request for a lease path with another method than POST."""
    headers = {"Allow": "POST"}
    return ProblemError(
        405, "method_not_allowed", f"{path} has other methods.", "Use POST.", headers=headers
    ).response()


def task_service(
    file: ServiceFile | None = None, *, secret: str | None = None, needs_keys: bool = True
) -> TaskService:
    """Return the task service as an ASGI application, to be run or mounted.

    Args:
        file: settings and task types. Without a file, the service uses Redis on this machine, and the task
            types that are stored there.
        secret: signs lease tokens, as `SigningSecret` reads it; `PYASYNQ_SECRET` unless given.
        needs_keys: whether requests need an API key. Without keys the service answers only requests for
            localhost.

    Raises:
        ConfigurationError: for an invalid secret or URL.
    """
    return TaskService(file or ServiceFile(), secret=SigningSecret(secret), needs_keys=needs_keys)
