"""The server: processes queues until it is told to stop.

    server = Server("redis://localhost:6379/0", ServerConfig(queues={"critical": 6, "default": 3}))
    raise SystemExit(server.run_forever(mux))

In a program that has an event loop and other work, use `await server.run(mux)`, or `start` and `shutdown`.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
import sys
from typing import TYPE_CHECKING, Any, Self

from pyasynq._background.exit_guard import end_process
from pyasynq._background.shutdown_watch import ShutdownWatch
from pyasynq._background.signals import SignalWatch
from pyasynq._background.time_limits import report_place, shutdown_limit
from pyasynq._call_shape import describe_function, takes
from pyasynq._checks import check_label, parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.engine import Engine
from pyasynq._engine.handlers.routes import make_router
from pyasynq._engine.lifespan import Lifespan
from pyasynq._engine.logs import LogSubscriber
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq._engine.supervisor.reaper import leave_process_1
from pyasynq._exit_codes import EXIT_CLEAN, EXIT_UNFINISHED
from pyasynq._redis.url import parse_redis_url
from pyasynq.config import ServerConfig, check_queues, check_server_config
from pyasynq.errors import ConfigurationError, ServerStateError
from pyasynq.events import Events, ServerEnded, ServerStarting, ServerStateChanged
from pyasynq.info import ServerAction

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from pyasynq._clock import Clock
    from pyasynq._engine.handlers.routes import Handler, Router, RouterSource
    from pyasynq._engine.supervisor.death_notes import DeathEvent
    from pyasynq._redis.clients import RedisSource
    from pyasynq.limits import Queue

_REPORT_SECONDS = 0.3
"""Extra seconds that a cancelled start gets after its time limit, to report what hung."""


class ServerState(enum.StrEnum):
    """States in the life cycle of a server."""

    NEW = "new"
    ACTIVE = "active"
    STOPPED = "stopped"
    """The server takes no more tasks; running tasks continue."""
    CLOSED = "closed"


class Server:
    """Takes tasks from queues, runs their handlers, and settles their outcomes.

    A server is used once: start, stop and shutdown belong to one event loop.

    Args:
        url: where Redis is, such as `redis://localhost:6379/0`; or as for `Client`.
        config: queues, concurrency and all other settings.
        clock: for tests.
        events: receive reports of what happens; by default the server's own.
        lifespan: function that makes an async context manager, which is entered before the first task and
            left after the last; what it yields is `context().state` in handlers.
        team: name of the team that runs the server, for operators.
        version: version of your application, for operators.

    Raises:
        ConfigurationError: for a URL that cannot work.
        InvalidOptionError: for a `config` that is not one, and for a team or version that is not text, or has
            more than 100 characters.
    """

    def __init__(
        self,
        url: RedisSource,
        config: ServerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        events: Events | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        team: str = "",
        version: str = "",
    ) -> None:
        check_label("team", team)
        check_label("version", version)
        if lifespan is not None and not takes(lifespan, 0):
            raise ConfigurationError(
                f"lifespan {describe_function(lifespan)} of a Server must take no argument; only that of an "
                "App takes one, the app"
            )
        self._target = parse_redis_url(url)
        self.config = config if config is not None else ServerConfig()
        check_server_config(self.config)
        if not self.config.queues:
            raise ConfigurationError(
                "a WorkerConfig without queues takes those of an app: use app.server(config), or name queues"
            )
        self.events = events if events is not None else Events()
        self._clock = clock
        self._team = team
        self._version = version
        self._make_lifespan = lifespan
        self._lifespan: Lifespan | None = None
        self._settings = DEFAULT_ENGINE_SETTINGS
        self._state = ServerState.NEW
        self._engine: Engine | None = None
        self._close_asked: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owns_process = False
        self._started_at = 0.0
        self.related_events: tuple[Events, ...] = ()
        """Events of the scheduler that runs with this server, by `App.server(with_scheduler=True)`."""
        self.ending = False
        """Whether the server was told to close; written and read by its event loop."""
        self.exit_code = EXIT_CLEAN
        """Exit code: 0; 3 if work was left unfinished or something hung.

        4 if overdue handlers held the slots.
        """

    @property
    def state(self) -> ServerState:
        """Whether the server is new, active, stopped or closed."""
        return self._state

    @property
    def id(self) -> str | None:
        """The server's id in Redis; None before the start."""
        return None if self._engine is None else self._engine.server_id

    def running_types(self) -> list[str]:
        """Return the type of each running task."""
        return [] if self._engine is None else self._engine.running_types()

    def unwritten(self) -> int:
        """Return the number of outcomes that Redis has not confirmed."""
        return 0 if self._engine is None else self._engine.unwritten

    async def start(self, handler: RouterSource | Router | Handler) -> None:
        """Start to process tasks, and return.

        Args:
            handler: a `Mux`, an `App`, or one function that takes each `Task`.

        Raises:
            ServerStateError: when the server was started before.
            ConfigurationError: when the handler is not one of these, on Windows, and when a handler with
                `executor="process"` cannot be imported by its name.
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        if sys.platform == "win32":
            raise ConfigurationError("a server does not run on Windows; clients do. Use WSL or a container")
        if self._state is not ServerState.NEW:
            raise ServerStateError(f"the server is {self._state}; a server starts once, make another one")
        router = make_router(handler)
        for route in router.routes():
            if route.program is not None:
                route.program.reference()
        LogSubscriber(self.config, self._target.address, self).attach(self.events)
        self._loop = asyncio.get_running_loop()
        self._started_at = self._clock.monotonic()
        self._state = ServerState.ACTIVE
        try:
            self._engine = await self._start_engine(router)
            if self.state is ServerState.ACTIVE:
                self._emit_state()
        except BaseException:
            self._set_state(ServerState.CLOSED)
            if self._engine is not None:
                # A cancellation may arrive just after the engine has started.
                await self._engine.undo_start()
            await self._leave_lifespan()
            raise
        await self._catch_up(self._engine)

    async def _start_engine(self, router: Router) -> Engine:
        # Handlers see the context variables that the lifespan sets.
        context = contextvars.copy_context()
        task_state = None
        if self._make_lifespan is not None:
            self._watch.stage = "the start of the lifespan"
            self._lifespan = Lifespan(self._make_lifespan, context)
            task_state = await self._lifespan.wait_entered()
        self._watch.stage = "the start"
        self._engine = Engine(
            self._target,
            router,
            self.config,
            self._settings,
            clock=self._clock,
            events=self.events,
            task_state=task_state,
            owns_process=self._owns_process,
        )
        self._engine.team = self._team
        self._engine.version = self._version
        self._engine.on_request = self._obey
        self.events.emit(ServerStarting(self._engine.server_id))
        await asyncio.get_running_loop().create_task(self._engine.start(), context=context)
        self._watch.stage = "the work"
        return self._engine

    async def _catch_up(self, engine: Engine) -> None:
        """Stop taking tasks, or shut down and raise, if that was requested while the server started."""
        if self._state is ServerState.STOPPED:
            engine.stop_taking()
        elif self._state is ServerState.CLOSED:
            await self.shutdown()
            raise ServerStateError("the server was shut down while it started")

    async def add_queue(self, name: str, queue: Queue | int = 1) -> None:
        """Serve one more queue, like the queues of the configuration.

        Any asyncio task of the server's event loop may call this. `config` stays as it is. Settings for all
        queues apply to the new queue too.

        Args:
            name: name of the queue.
            queue: its settings, or its priority.

        Raises:
            InvalidOptionError: for a name or settings that a configuration would refuse.
            ConfigurationError: when the server serves it already.
            ServerStateError: when the server is not started, or is being shut down.
            RedisError: when Redis refuses us this queue, or cannot be reached; then it is not served.
        """
        [(name, settings)] = check_queues({name: queue}).items()
        await self._running().add_queue(name, settings)

    async def set_queue(self, name: str, queue: Queue | int) -> None:
        """Replace priority and limits of a served queue, as if they had been configured from the start.

        Raises what `add_queue` raises; ConfigurationError when the server does not serve the queue.
        """
        [(name, settings)] = check_queues({name: queue}).items()
        self._running().set_queue(name, settings)

    async def remove_queue(self, name: str) -> None:
        """Stop serving a queue. None of its tasks starts after this call.

        Running tasks continue and are settled as usual. Tasks that were taken and have not started go back to
        the front. Delayed tasks, retries and groups wait for other servers, or for a later `add_queue`.

        Raises:
            ConfigurationError: when the server does not serve the queue, or serves no other.
            ServerStateError: when the server is not started, or is being shut down.
        """
        self._running().remove_queue(name)

    def _running(self) -> Engine:
        if self._engine is None or self._state is ServerState.NEW:
            raise ServerStateError("the server is not started")
        if not self._engine.ready:
            is_closed = self._state is ServerState.CLOSED
            raise ServerStateError(f"the server is {'closed' if is_closed else 'not started yet'}")
        return self._engine

    def stop(self) -> None:
        """Take no more tasks; running ones, leases and records continue. Idempotent."""
        if self._state is ServerState.ACTIVE and self._engine is not None:
            self._set_state(ServerState.STOPPED)
            self._engine.stop_taking()

    async def shutdown(self) -> None:
        """Stop taking tasks, wait `shutdown_timeout` for running ones, cancel the rest, settle, and close.

        Unfinished tasks are put back. A plain handler's thread cannot be stopped: inside your program its
        task is not put back, an `AttemptAbandoned` event names it, and its lease expires when the program
        ends. A cancelled caller does not undo the shutdown.
        """
        self._begin_shutdown()
        if self._closing is not None:
            await asyncio.shield(self._closing)
        self._set_state(ServerState.CLOSED)

    def _begin_shutdown(self) -> None:
        self._ask_to_close()
        if self._closing is None and self._engine is not None and self._engine.ready:
            self._closing = asyncio.ensure_future(self._shut_down(self._engine))

    async def run(self, handler: RouterSource | Router | Handler, *, signals: bool = True) -> int:
        """Work until stopped by a signal, `request_shutdown`, burst or max_tasks; return the exit code.

        Args:
            handler: as for `start`.
            signals: handle TERM and INT (shut down) and TSTP (stop taking), if this is the main thread.

        When cancelled, it first shuts down gracefully. Raises what `start` raises.
        """
        self._loop = asyncio.get_running_loop()
        self._close_asked = self._loop.create_future()
        with SignalWatch(self, owns_process=self._owns_process, enabled=signals):
            if not await self._start_unless_closed(handler, self._close_asked):
                return self.exit_code
            engine = self._engine
            assert engine is not None  # noqa: S101 - start has set it
            try:
                await asyncio.wait({engine.finished, self._close_asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self.shutdown()
        return self.exit_code

    async def _start_unless_closed(
        self, handler: RouterSource | Router | Handler, close_asked: asyncio.Future[None]
    ) -> bool:
        """Start, or cancel the start when told to close; return whether it has started."""
        start = asyncio.ensure_future(self.start(handler))
        try:
            await asyncio.wait({start, close_asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not start.done():
                start.cancel()
                await asyncio.wait({start}, timeout=self._watch.time_left()() + _REPORT_SECONDS)
        if not start.done():
            self._watch.report(report_place(start))
            self.exit_code = EXIT_UNFINISHED
            return False
        if start.cancelled() and close_asked.done():
            return False
        start.result()
        return True

    def run_forever(
        self,
        handler: RouterSource | Router | Handler,
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> int:
        """Run as the main program of this process until stopped; return the exit code.

        0: all done; 1: the start failed, the log says why; 3: unfinished tasks were put back, or
        something hung; 4: handlers could not be stopped. If a handler's thread still runs at the end, this
        call ends the process, since its task is already back in its queue. The process also ends if a
        shutdown takes a second longer than `shutdown_timeout` and `cancel_timeout`, whatever hangs. A second
        INT ends the process at once.
        """
        leave_process_1()
        self._owns_process = True
        return self._watch.run_process(lambda: self._run_as_main(handler), "worker", loop_factory)

    async def _run_as_main(self, handler: RouterSource | Router | Handler) -> int:
        code = await self.run(handler)
        await self._watch.clear_loop(parse_seconds("cancel_timeout", self.config.cancel_timeout), code)
        return code

    @functools.cached_property
    def _watch(self) -> ShutdownWatch:
        """Watchdog of the shutdown, which enforces its time limits."""
        return ShutdownWatch(
            self.events,
            shutdown_limit(self.config),
            margin=self._settings.shutdown_margin,
            exit_margin=self._settings.exit_margin,
            put_back=self._put_back,
        )

    def _put_back(self, code: int) -> None:
        """Put running tasks back (requeue), and end the process; called by the watchdog's thread."""
        if self._engine is not None:
            self._engine.end_process(code)

    def request_shutdown(self, *, when_idle: bool = False) -> None:
        """Make `run` shut down and return. Safe from any thread and from signal handlers.

        Args:
            when_idle: take no more tasks now, and shut down when the running ones have ended, without a
                limit. A later call without it applies the usual limit.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if when_idle:
            loop.call_soon_threadsafe(self._close_when_idle)
            return
        self._watch.arm()
        loop.call_soon_threadsafe(self._ask_to_close)

    def request_stop(self) -> None:
        """Make the server take no more tasks. Safe from any thread and from signal handlers."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.stop)

    def request_hooks(self, event: DeathEvent) -> None:
        """Call the app's hooks for a task that a supervisor took back from a dead worker. From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call_hooks, event)

    def _call_hooks(self, event: DeathEvent) -> None:
        if self._engine is not None:
            self._engine.call_hooks(event)

    def _obey(self, action: ServerAction) -> None:
        """Perform an operator's request; called on the event loop."""
        if action is ServerAction.QUIET:
            self.stop()
        elif self._close_asked is not None:
            self.request_shutdown()
        else:
            # The server was started by `start`, so no `run` waits to close it. A start in progress ends with
            # an error.
            self._begin_shutdown()
            self._set_state(ServerState.CLOSED)

    def _close_when_idle(self) -> None:
        if self._engine is None or not self._engine.ready:
            self._ask_to_close()
            return
        self._set_state(ServerState.STOPPED)
        self._engine.close_when_idle()

    def _ask_to_close(self) -> None:
        if self._close_asked is not None and not self._close_asked.done():
            self._close_asked.set_result(None)
        self.ending = True
        self.stop()

    async def _shut_down(self, engine: Engine) -> None:
        self._set_state(ServerState.CLOSED)
        watch = self._watch
        watch.stage = "what runs"
        await engine.drain(watch.time_left())
        try:
            await self._leave_lifespan()
        finally:
            watch.stage = "the connection to Redis"
            is_running = await engine.give_back(watch.time_left())
            await engine.close()
            lived = self._clock.monotonic() - self._started_at
            self.events.emit(ServerEnded(self.id or "", engine.outcomes(), lived, engine.unwritten))
            hung = EXIT_UNFINISHED if watch.has_hung else EXIT_CLEAN
            self.exit_code = max(self.exit_code, engine.exit_code, hung)
        if is_running and self._owns_process:
            end_process(self.exit_code)

    async def _leave_lifespan(self) -> None:
        if self._lifespan is None:
            return
        lifespan, self._lifespan = self._lifespan, None
        if not await lifespan.leave(self._watch):
            self.exit_code = EXIT_UNFINISHED

    def _set_state(self, state: ServerState) -> None:
        if self._state is not state:
            self._state = state
            self._emit_state()

    def _emit_state(self) -> None:
        self.events.emit(ServerStateChanged(self.id or "", self._state.value))

    async def __aenter__(self) -> Self:
        """Return the server; it is not started yet."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down."""
        await self.shutdown()
