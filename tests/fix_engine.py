"""A server of pyasynq on the real Redis of a test, and everything that it reports."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq import events as all_events
from pyasynq._engine.core import EngineCore
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.queue_state import QueuePhase, Watch
from pyasynq._redis.key_watcher import ServerWatcher
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.server import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

    from pyasynq._engine.handlers.routes import Handler, Router, RouterSource
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq.events import Events
    from pyasynq.task import Task

Event = TypeVar("Event", bound=tuple[object, ...])

EVENT_CLASSES = [
    value
    for value in (getattr(all_events, name) for name in all_events.__all__)
    if inspect.isclass(value) and issubclass(value, tuple)
]
QUICK = EngineSettings(heartbeat_interval=0.05, syncer_interval=0.1, look_interval=0.1, sweep_interval=0.02)
"""Engine settings with short intervals; leases are as in production."""


@dataclass
class Recorder:
    """Recorder of all events, in order."""

    events: Events
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    _waiting: list[tuple[Callable[[Any], bool], asyncio.Future[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        for event_class in EVENT_CLASSES:
            self.events.subscribe(event_class, self._take)

    def _take(self, event: Any) -> None:
        # The heartbeat thread also emits events, when the loop is blocked.
        self._loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: Any) -> None:
        self.seen.append(event)
        for wanted, future in self._waiting:
            if not future.done() and wanted(event):
                future.set_result(event)

    def of(self, event_class: type[Event]) -> list[Event]:
        """Return the events of a class so far."""
        return [event for event in self.seen if type(event) is event_class]

    async def wait(
        self,
        event_class: type[Event],
        wanted: Callable[[Event], bool] = lambda event: True,
        *,
        new: bool = False,
    ) -> Event:
        """Return the first event of a class that is wanted, past or future; with `new`, a future one."""

        def matches(event: Any) -> bool:
            return type(event) is event_class and wanted(event)

        if not new:
            for event in self.seen:
                if matches(event):
                    return event  # type: ignore[return-value]
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting.append((matches, future))
        return await future


@dataclass
class Running:
    """A server at work, a client of the same Redis, and what the server reports."""

    server: Server
    client: Client
    recorder: Recorder

    async def finished(self, task_id: str, *, retried: int = 0) -> all_events.TaskFinished:
        """Wait until an attempt at a task has ended."""
        return await self.recorder.wait(
            all_events.TaskFinished,
            lambda event: event.task_id == task_id and event.retried == retried,
        )

    async def settled(self) -> None:
        """Wait until Redis has confirmed every outcome."""
        engine = self.server._engine
        assert engine is not None
        while engine._settles.outstanding or len(engine._roster):
            await self.recorder.wait(
                all_events.RoundFinished,
                lambda event: event.service in {"processor", "syncer", "heartbeater"},
                new=True,
            )

    @property
    def queues(self) -> list[ServedQueue]:
        """The queues of the server."""
        engine = self.server._engine
        assert engine is not None
        return engine._intake.board.queues

    async def next_round(self, service: str) -> None:
        """Wait until a service has finished one more round."""
        await self.recorder.wait(
            all_events.RoundFinished,
            lambda event: event.service == service,
            new=True,
        )


def make_server(url: str, config: ServerConfig | None = None, settings: EngineSettings = QUICK) -> Server:
    """Return a server with the engine's settings of a test."""
    server = Server(url, config or ServerConfig(concurrency=10, shutdown_timeout=5))
    server._settings = settings
    return server


def is_watched(queue: ServedQueue) -> bool:
    """Return whether a queue is empty and Redis reports its next task."""
    return queue.state.phase is QueuePhase.EMPTY and queue.state.watch is Watch.TASKS


@asynccontextmanager
async def serving(
    url: str,
    handler: RouterSource | Router | Handler,
    config: ServerConfig | None = None,
    settings: EngineSettings = QUICK,
) -> AsyncIterator[Running]:
    """Run a server for the duration of a block, and shut it down afterwards."""
    server = make_server(url, config, settings)
    recorder = Recorder(server.events)
    async with Client(url) as client:
        await server.start(handler)
        try:
            yield Running(server, client, recorder)
        finally:
            await server.shutdown()


def trust_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers take tasks of dead ones back at once, as if Redis had been up for long.

    After a start of Redis, which may be a moment ago, they wait for the duration of a lease.
    """
    make = EngineCore._make_recoverer
    monkeypatch.setattr(EngineCore, "_make_recoverer", lambda core, _seconds: make(core, 3_600.0))


def swallow_reports(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Drop notifications of Redis from now on; return an event that the first one sets."""
    swallowed = asyncio.Event()

    def swallow(watcher: ServerWatcher, keys: list[bytes] | None) -> None:
        del watcher, keys
        swallowed.set()

    monkeypatch.setattr(ServerWatcher, "_invalidate", swallow)
    return swallowed


async def do_nothing(task: Task) -> None:
    """Do nothing: a handler that succeeds."""
    del task


class Gate:
    """Handler that waits until a test releases it, and records whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = False

    async def __call__(self, task: Task) -> None:
        del task
        self.begun.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
