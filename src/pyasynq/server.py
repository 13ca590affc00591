"""The server: works on queues until it is told to stop.

    server = Server("redis://localhost:6379/0", ServerConfig(queues={"critical": 6, "default": 3}))
    raise SystemExit(server.run_forever(mux))

Inside a program that has an event loop and other work, `await server.run(mux)`, or `start` and `shutdown`.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from pyasynq._broker.drivers.redis_url import parse_redis_url
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._server.engine import Engine
from pyasynq._server.logs import LogSubscriber
from pyasynq._server.routes import router_of
from pyasynq._server.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq._server.signals import SignalWatch
from pyasynq.config import ServerConfig
from pyasynq.errors import ConfigurationError, PyasynqError, ServerStateError
from pyasynq.events import Events, ServerStarting, ServerStateChanged, TasksPutBack
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from pyasynq._broker.drivers.redis_clients import RedisSource
    from pyasynq._clock import Clock
    from pyasynq._server.routes import Handler, Router

_log = logging.getLogger("pyasynq")

EXIT_CLEAN = 0
EXIT_START_FAILED = 1
EXIT_UNFINISHED = 3
EXIT_OVERDUE = 4


class ServerState(enum.StrEnum):
    """How far a server's life has come."""

    NEW = "new"
    ACTIVE = "active"
    STOPPED = "stopped"
    """Takes no more tasks; what runs goes on."""
    CLOSED = "closed"


class Server:
    """Takes tasks from queues, runs their handlers, and writes down what came of them.

    A server is used once: start, stop and shutdown belong to one event loop.

    Args:
        url: where Redis is, such as `redis://localhost:6379/0`; or as for `Client`.
        config: queues, concurrency and everything else.
        clock: for tests.
        events: where to report what happens; the server makes its own unless given.
        lifespan: makes an async context manager that is entered before the first task and left after the
            last; handlers find what it yields as `context().state`.

    Raises:
        ConfigurationError: for a URL that cannot work.
    """

    def __init__(
        self,
        url: RedisSource,
        config: ServerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        events: Events | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        self._target = parse_redis_url(url)
        self.config = config if config is not None else ServerConfig()
        self.events = events if events is not None else Events()
        self._clock = clock
        self._lifespan = lifespan
        self._settings = DEFAULT_ENGINE_SETTINGS
        self._state = ServerState.NEW
        self._engine: Engine | None = None
        self._stack = AsyncExitStack()
        self._close_asked: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owns_process = False
        self.exit_code = EXIT_CLEAN
        """0, or 3 when work was left unfinished, or 4 when handlers made the server useless."""

    @property
    def state(self) -> ServerState:
        """Whether the server is new, active, stopped or closed."""
        return self._state

    @property
    def id(self) -> str | None:
        """The server's id in Redis; None before the start."""
        return None if self._engine is None else self._engine.server_id

    async def start(self, handler: Router | Handler) -> None:
        """Begin to work, and return.

        Args:
            handler: a `Mux`, an `App`, or one function that takes each `Task`.

        Raises:
            ServerStateError: when the server was started before.
            ConfigurationError: when the handler is none, when one with `executor="process"` cannot be found
                by its name, and on Windows.
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        if sys.platform == "win32":
            raise ConfigurationError("a server does not run on Windows; clients do. Use WSL or a container")
        if self._state is not ServerState.NEW:
            raise ServerStateError(f"the server is {self._state}; a server starts once, make another one")
        router = router_of(handler)
        for route in router.routes():
            if route.program is not None:
                route.program.reference()
        LogSubscriber(self.config, self._target.address).attach(self.events)
        self._loop = asyncio.get_running_loop()
        self._state = ServerState.ACTIVE
        try:
            task_state = None
            if self._lifespan is not None:
                task_state = await self._stack.enter_async_context(self._lifespan())
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
            self.events.emit(ServerStarting(self._engine.server_id))
            await self._engine.start()
            if self.state is ServerState.ACTIVE:
                self._tell_state()
        except BaseException:
            self._set_state(ServerState.CLOSED)
            await self._stack.aclose()
            raise
        await self._catch_up(self._engine)

    async def _catch_up(self, engine: Engine) -> None:
        """Do what was asked for while the server started."""
        if self._state is ServerState.STOPPED:
            engine.stop_taking()
        elif self._state is ServerState.CLOSED:
            await self.shutdown()
            raise ServerStateError("the server was shut down while it started")

    def stop(self) -> None:
        """Take no more tasks; what runs goes on, and so do leases and records. Twice is harmless."""
        if self._state is ServerState.ACTIVE and self._engine is not None:
            self._set_state(ServerState.STOPPED)
            self._engine.stop_taking()

    async def shutdown(self) -> None:
        """Stop taking, wait `shutdown_timeout` for what runs, cancel the rest, settle, and close.

        Tasks that did not finish are put back. A plain handler's thread cannot be stopped: inside your
        program its task is not put back, an `AttemptAbandoned` names it, and its lease lapses when the
        program ends. A cancelled caller does not undo the shutdown.
        """
        self._ask_to_close()
        if self._closing is None and self._engine is not None and self._engine.ready:
            self._closing = asyncio.ensure_future(self._shut_down(self._engine))
        if self._closing is not None:
            await asyncio.shield(self._closing)
        self._set_state(ServerState.CLOSED)

    async def run(self, handler: Router | Handler, *, signals: bool = True) -> int:
        """Work until told to stop: by a signal, `request_shutdown`, burst or max_tasks; return the exit code.

        Args:
            handler: as for `start`.
            signals: take TERM and INT (shut down) and TSTP (stop taking), if this is the main thread.

        Cancelled, it shuts down in good order first. Raises what `start` raises.
        """
        self._loop = asyncio.get_running_loop()
        self._close_asked = self._loop.create_future()
        with SignalWatch(self, owns_process=self._owns_process, enabled=signals):
            await self.start(handler)
            engine = self._engine
            assert engine is not None  # noqa: S101 - start has set it
            try:
                await asyncio.wait({engine.finished, self._close_asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self.shutdown()
        return self.exit_code

    def run_forever(
        self,
        handler: Router | Handler,
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> int:
        """Be the main program of this process: run until told to stop, and return the exit code.

        0: all done; 1: the start failed, the log says why; 3: unfinished tasks were put back; 4: handlers
        could not be stopped. When a handler's thread still runs at the end, the process ends here, since
        its task is already back in its queue. A second INT ends the process at once.
        """
        self._owns_process = True
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                return runner.run(self._run_as_main(handler))
        except PyasynqError as error:
            _log.error("the server could not start: %s", error)
            return EXIT_START_FAILED

    async def _run_as_main(self, handler: Router | Handler) -> int:
        code = await self.run(handler)
        if not await _clear_loop(seconds_of("cancel_timeout", self.config.cancel_timeout)):
            end_process(code)
        return code

    def request_shutdown(self, *, when_idle: bool = False) -> None:
        """Make `run` shut down and return. Safe from any thread and from signal handlers.

        Args:
            when_idle: take no more tasks now, and shut down when those that run have ended, however long
                that takes. A later call without it puts the usual limit to it.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if when_idle:
            loop.call_soon_threadsafe(self._close_when_idle)
            return
        if self._engine is not None and self._owns_process:
            self._engine.expect_exit()
        loop.call_soon_threadsafe(self._ask_to_close)

    def request_stop(self) -> None:
        """Make the server take no more tasks. Safe from any thread and from signal handlers."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.stop)

    def _close_when_idle(self) -> None:
        if self._engine is None or not self._engine.ready:
            self._ask_to_close()
            return
        self._set_state(ServerState.STOPPED)
        self._engine.close_when_idle()

    def _ask_to_close(self) -> None:
        if self._close_asked is not None and not self._close_asked.done():
            self._close_asked.set_result(None)
        self.stop()

    async def _shut_down(self, engine: Engine) -> None:
        self._set_state(ServerState.CLOSED)
        running = await engine.drain()
        try:
            await self._stack.aclose()
        finally:
            await engine.give_back(running)
            if engine.put_back:
                self.events.emit(TasksPutBack(engine.put_back))
            await engine.close()
            self.exit_code = (
                EXIT_OVERDUE if engine.stuck else EXIT_UNFINISHED if engine.put_back else EXIT_CLEAN
            )
        if running and self._owns_process:
            end_process(self.exit_code)

    def _set_state(self, state: ServerState) -> None:
        if self._state is not state:
            self._state = state
            self._tell_state()

    def _tell_state(self) -> None:
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


async def _clear_loop(seconds: float) -> bool:
    """End what handlers have left behind on the loop; return False when it does not end in time.

    When a loop is closed, asyncio waits without limit for tasks that swallow their cancellation, and for
    threads of its executor.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    executor = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    _, late = await asyncio.wait({*left, executor}, timeout=seconds)
    return not late


def end_process(code: int) -> None:
    """End the process although threads still run."""
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Whatever became of the streams: tasks are back in their queues, and their first runs must not go on.
        os._exit(code)
