"""Tasks of the workers of the chaos runs: they record their outcomes, and do harm on request.

The environment says where records go, and may change the engine's intervals and let the clock jump. It is
read at import, so that it reaches the children of a supervisor as well.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import mmap
import os
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyasynq import App, Retry, context
from pyasynq.events import LeaseLapsed, ServerStarting, SettleRefused, TaskRecovered, TaskSettled
from tests.chaos.records import Recorder, What
from tests.chaos.settings import (
    CLOCK_VARIABLE,
    ENGINE_VARIABLE,
    HANG_VARIABLE,
    OFFSET,
    QUEUE,
    RECORDS_VARIABLE,
    clock_file,
    hanging_file,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq.server import Server

_NEVER_POISON: Final = 1_000
"""A fault is not the doing of the tasks that it meets, so meeting three must not archive one."""
_RETRY_AFTER: Final = 0.5
_MEGABYTE: Final = 1_000_000

_folder = Path(os.environ[RECORDS_VARIABLE])
_recorder = Recorder(_folder)
_engine = json.loads(os.environ.get(ENGINE_VARIABLE, "{}"))
_eaten: list[bytes] = []


class ChaosApp(App):
    """Its servers have other intervals, and write down settled and replaced outcomes, and recoveries."""

    def server(self, *args: Any, **settings: Any) -> Server:
        server = super().server(*args, **settings)
        server._settings = dataclasses.replace(server._settings, **_engine)
        server.events.subscribe(ServerStarting, _note_serving)
        server.events.subscribe(TaskSettled, _note_settled)
        server.events.subscribe(TaskRecovered, _note_recovered)
        server.events.subscribe(LeaseLapsed, _note_recovered)
        server.events.subscribe(SettleRefused, _note_replaced)
        return server


def _note_serving(event: ServerStarting) -> None:
    _recorder.note(What.SERVING, event.server_id)


def _note_settled(event: TaskSettled) -> None:
    if event.written:
        _recorder.note(What.SETTLED, event.task_id)


def _note_recovered(event: TaskRecovered | LeaseLapsed) -> None:
    _recorder.note(What.RECOVERED, f"{event.task_id} {event.server_id}")


def _note_replaced(event: SettleRefused) -> None:
    _recorder.note(What.REPLACED, event.task_id)


def _let_clock_jump(path: Path) -> None:
    """Shift the wall clock from now on by the seconds in a file."""
    path.write_bytes(OFFSET.pack(0.0))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), OFFSET.size)
    right_time, right_time_ns = time.time, time.time_ns

    def offset() -> float:
        seconds: float = OFFSET.unpack_from(shared)[0]
        return seconds

    time.time = lambda: right_time() + offset()
    time.time_ns = lambda: right_time_ns() + int(offset() * 1e9)


if CLOCK_VARIABLE in os.environ:
    _let_clock_jump(clock_file(_folder))


def _hangs_at(place: str) -> bool:
    """Return whether this is the place where lifespans hang now, and leave a mark for the scenario if so."""
    file = Path(os.environ[HANG_VARIABLE])
    hangs = file.exists() and file.read_text() == place
    if hangs:
        hanging_file(_folder, os.getpid()).touch()
    return hangs


async def _hang_at(place: str) -> None:
    if _hangs_at(place):
        await asyncio.Event().wait()


@asynccontextmanager
async def _hanging_lifespan(_: App) -> AsyncIterator[None]:
    await _hang_at("start")
    yield
    await _hang_at("end")


app = ChaosApp(lifespan=_hanging_lifespan if HANG_VARIABLE in os.environ else None)


class _Noted:
    """Writes down that the task of this context begins, and how it ends."""

    __slots__ = ("_task_id",)

    def __enter__(self) -> None:
        self._task_id = context().task_id
        _recorder.note(What.STARTED, self._task_id)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            _recorder.note(What.FINISHED, self._task_id)
        else:
            broken_off = issubclass(kind, asyncio.CancelledError)
            _recorder.note(What.BROKEN_OFF if broken_off else What.FAILED, self._task_id)


@app.task("work", queue=QUEUE, crash_limit=_NEVER_POISON)
async def work(milliseconds: int = 0) -> None:
    """Wait as for a slow service."""
    with _Noted():
        if milliseconds:
            await asyncio.sleep(milliseconds / 1000)


@app.task("thread", queue=QUEUE, crash_limit=_NEVER_POISON)
def work_in_thread(milliseconds: int = 0) -> None:
    """Wait as for a slow service, without asyncio."""
    with _Noted():
        time.sleep(milliseconds / 1000)


@app.task("retry", queue=QUEUE, crash_limit=_NEVER_POISON)
async def fail_once() -> None:
    """Fail at the first try."""
    with _Noted():
        if not context().retried:
            raise Retry(after=_RETRY_AFTER)


@app.task("block", queue=QUEUE, crash_limit=_NEVER_POISON)
async def block(milliseconds: int) -> None:
    """Block the event loop."""
    with _Noted():
        time.sleep(milliseconds / 1000)  # noqa: ASYNC251 - that is the fault


@app.task("eat", queue=QUEUE, crash_limit=_NEVER_POISON)
async def eat(megabytes: int) -> None:
    """Take memory and never give it back."""
    with _Noted():
        _eaten.append(os.urandom(megabytes * _MEGABYTE))


@app.task("neighbour", queue=QUEUE)
async def run_alongside(milliseconds: int = 0) -> None:
    """Wait, with the usual limit of crashes: it must not be blamed for those of others."""
    with _Noted():
        await asyncio.sleep(milliseconds / 1000)


@app.task("crash", queue=QUEUE)
async def crash() -> None:
    """End the process at once, each time."""
    _recorder.note(What.STARTED, context().task_id)
    _recorder.note(What.CRASHING, context().task_id)
    os.kill(os.getpid(), signal.SIGKILL)
