"""Redis transport: a server in this event loop takes tasks, and a client enqueues them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_OVERDUE
from pyasynq._visible_text import visible
from pyasynq.callbacks import Callback
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.errors import InvalidOptionError, ServerStateError, nearest
from pyasynq.events import ServerStateChanged
from pyasynq.gateway.configurations import ConfigurationFollower, ConfigurationStore
from pyasynq.gateway.new_tasks import check_params, enqueue_short, make_callback, short_form_options
from pyasynq.operations import Operator, User
from pyasynq.retry import default_retry_delay
from pyasynq.server import Server, ServerState
from pyasynq.task import EnqueueStatus, Task

from .served_names import find_configured, select_names
from .task_request import RequestedTask

if TYPE_CHECKING:
    from pyasynq.gateway.configurations import TaskConfiguration

    from .handlers import HandlerTable
    from .task_request import TaskReq
    from .worker_settings import WorkerSettings

_log = logging.getLogger("pyasynq.sdk")

_TIMEOUT_SECONDS: Final = 5.0
_NO_TYPES: Final = "; no types are stored in this Redis: start `pyasynq service` with a file that has them"


class RedisTransport:
    """Redis transport: reads task configurations, and enqueues tasks. Belongs to one event loop.

    Args:
        url: where Redis is, as for `Client`.
        team: name of the program's team, for the audit.

    Raises:
        ConfigurationError: for a URL that cannot work.
    """

    def __init__(self, url: Any, team: str) -> None:
        self.url = url
        user = User.with_role(f"sdk:{team}" if team else "sdk", "admin", login="sdk")
        self._operator = Operator(url, user, timeout=_TIMEOUT_SECONDS)
        self._client = Client(url, client_name="pyasynq-sdk", timeout=_TIMEOUT_SECONDS)
        self.follower = ConfigurationFollower(ConfigurationStore(self._operator), {})

    async def start(self) -> None:
        """Read the task configurations, and begin to poll them for changes. Idempotent.

        Raises:
            RedisError: Redis cannot be reached.
        """
        await self.follower.start()

    def find(self, name: str) -> TaskConfiguration | None:
        """Return the configuration of a task type; None if it is not configured."""
        found = self.follower.types.get(name)
        return None if found is None else found[0]

    def find_kind(self, name: str) -> str:
        """Return the kind of a task type, such as `worker`; empty if the type is not configured."""
        found = self.find(name)
        return "" if found is None else found.kind

    def nearest(self, name: str) -> str:
        """Return a suggestion for the message about an unknown task name, such as the most similar name."""
        return nearest(name, self.follower.types) or ("" if self.follower.types else _NO_TYPES)

    async def enqueue(self, request: TaskReq, finished_name: str = "") -> RequestedTask:
        """Enqueue a task as the short form of the HTTP API does.

        Args:
            request: the task.
            finished_name: task name of the report about its end; empty for no report.

        Raises:
            InvalidOptionError: for an unknown task name, and for params that do not fit.
            PyasynqError: as `Client.enqueue` does.
        """
        await self.start()
        configuration = self.find(request.task_name)
        if configuration is None:
            await self.follower.refresh()  # the type may be new
            configuration = self.find(request.task_name)
        if configuration is None:
            remedy = f"there is no such task type{self.nearest(request.task_name)}"
            raise InvalidOptionError("task_name", request.task_name, remedy)
        payload = request.encode_params()
        check_params(configuration, payload, is_json=True)
        options = dict(configuration.options)
        if finished_name:
            told = self.find(finished_name)
            plain = Callback(finished_name, finished_name)
            options["on_finished"] = plain if told is None else make_callback(told)
        if request.task_id is None:
            info = await self._client.enqueue(Task(configuration.name, payload, **options))
            existing = info.enqueue_status not in {None, EnqueueStatus.ENQUEUED}
        else:
            task = Task(configuration.name, payload, **options, **short_form_options(request.task_id))
            info, existing = await enqueue_short(self._client, self._operator, task)
        return RequestedTask(info.id, info.queue, str(info.state), existing)

    async def close(self) -> None:
        """Close the connections."""
        await self.follower.close()
        await self._client.close()
        await self._operator.close()


class RedisWork:
    """Worker over Redis: a `Server` for the names in its table that are configured as types of kind `worker`.

    It belongs to one event loop.

    Args:
        transport: Redis transport of the program.
        table: the handlers.
        settings: settings of the worker.
    """

    def __init__(self, transport: RedisTransport, table: HandlerTable, settings: WorkerSettings) -> None:
        self._transport = transport
        self._table = table
        self._settings = settings
        self._served: set[str] = set()
        """Queues that the server serves; written by `start` and `_follow`."""
        self._inner = table.inner_names
        self._server: Server | None = None
        self._run: asyncio.Task[int] | None = None

    async def start(self) -> asyncio.Task[int]:
        """Start to take tasks; return the asyncio task that runs until the server ends.

        Raises:
            ConfigurationError: when none of the table's names is configured.
            PyasynqError: as `Server.start` does; nothing is left running.
        """
        await self._transport.start()
        self._served = select_names(self._table, self._transport)
        config = ServerConfig(
            queues=dict.fromkeys([*self._served, *self._inner], 1),
            concurrency=self._settings.concurrency,
            shutdown_timeout=self._settings.shutdown_timeout,
            overdue_limit=self._settings.overdue_limit,
            retry_delay=self._find_delay,
            publish_events=self._settings.publish_events,
        )
        self._server = Server(
            self._transport.url, config, lifespan=self._table.lifetime, team=self._settings.team
        )
        active: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_state(event: ServerStateChanged) -> None:
            if event.state == ServerState.ACTIVE and not active.done():
                active.set_result(None)

        self._server.events.subscribe(ServerStateChanged, on_state)
        self._run = asyncio.create_task(
            self._server.run(self._table, signals=False), name="pyasynq sdk worker"
        )
        try:
            either: set[asyncio.Future[Any]] = {self._run, active}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._run.done():
            self._run.result()
            raise ServerStateError("the worker was stopped while it started")
        self._transport.follower.on_look = self._follow
        return self._run

    def describe_end(self, code: int) -> str:
        """Return why the server has ended by itself; empty if an operator has stopped it."""
        if code == EXIT_CLEAN:
            return ""
        if code == EXIT_OVERDUE:
            return "handlers that run far over their time and cannot be stopped hold its slots"
        return f"the worker's server has ended with the code {code}; the log above says why"

    async def close(self) -> None:
        """Take no more tasks, let running ones end within `shutdown_timeout`, and requeue the others."""
        self._transport.follower.on_look = None
        if self._server is not None:
            await self._server.shutdown()
        if self._run is not None:
            await asyncio.wait({self._run})

    async def _follow(self) -> None:
        """Serve types that have been configured since the last check, and drop deleted ones."""
        assert self._server is not None  # noqa: S101 - it is called after the start
        wanted = find_configured(self._table, self._transport)
        with suppress(ServerStateError):
            for name in sorted(wanted - self._served):
                await self._server.add_queue(name)
                self._served.add(name)
                _log.info("task type %s is configured: it is served", visible(name))
            for name in sorted(self._served - wanted):
                if len(self._served) + len(self._inner) == 1:
                    break  # a server needs at least one queue; no new tasks come into this one
                await self._server.remove_queue(name)
                self._served.discard(name)
                _log.warning("task type %s is configured no longer: it is not served", visible(name))

    def _find_delay(self, retried: int, error: BaseException, task: Task) -> float:
        """Return the seconds until a failed task is retried, by the newest configuration of its type."""
        configuration = self._transport.find(task.type)
        if configuration is None or configuration.retry is None:
            return default_retry_delay(retried, error, task)
        return configuration.retry.delay(retried)
