"""Tasks for tests of child processes, which import this module by its name."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq import (
    App,
    Archive,
    Cancel,
    LeaseExpiredError,
    Mux,
    Retry,
    SkipRetry,
    Snooze,
    TaskContext,
    context,
    depends,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pyasynq import Task

_log = logging.getLogger("shop")


class CardDeclinedError(Exception):
    """An error with arguments and attributes of its own."""

    def __init__(self, amount: int, *, after: float) -> None:
        super().__init__(f"no {amount}")
        self.amount = amount
        self.after = after
        self.handle = object()


@asynccontextmanager
async def open_state(app: App) -> AsyncIterator[dict[str, Any]]:
    """Yield what is shared by the tasks of a process, and say so when it is left."""
    yield {"pid": os.getpid(), "entered": 0, "types": sorted(app.tasks)}
    note("left")


def note(what: str) -> None:
    """Write an empty file that says what this process has done, if a test has named a folder."""
    if (folder := os.environ.get("CHILD_TASKS_FOLDER")) is not None:
        write(Path(folder, f"{what}-{os.getpid()}"), "")


def write(path: str | Path, text: str) -> None:
    """Write a file in one step: somebody waits for it."""
    whole = Path(f"{path}.new")
    whole.write_text(text, "ascii")
    whole.rename(path)


app = App("redis://localhost:1/0", lifespan=open_state)
mux = Mux()


@dataclass
class Order:
    """A payload that is not JSON's own."""

    number: int


@app.task("where", executor="process", result_ttl=60)
def where() -> int:
    """Return the process."""
    return os.getpid()


@app.task("where_async", executor="process", result_ttl=60)
async def where_async() -> int:
    """Return the process."""
    await asyncio.sleep(0)
    return os.getpid()


@app.task("double", executor="process", result_ttl=60)
def double(order: Order, times: int = 2) -> Order:
    """Get typed arguments and return one."""
    return Order(order.number * times)


def transact(running: TaskContext) -> Iterator[str]:
    """Report how the transaction ended in this process."""
    try:
        yield "transaction"
    except BaseException as error:
        running.progress(1, note=f"roll back for {type(error).__name__}")
        raise
    running.progress(1, note="commit")


@app.task("transaction", executor="process", retention=60)
def archive_in_transaction(is_returned: bool, transaction: str = depends(transact)) -> str | Archive:
    """Archive the task inside a transaction."""
    if is_returned:
        return Archive("enough")
    raise Archive("enough")


@app.task("facts", executor="process", result_ttl=60, max_retry=7)
def facts() -> dict[str, Any]:
    """Return all that the context says."""
    here = context()
    here.state["entered"] += 1
    return {
        "id": here.task_id,
        "type": here.task_type,
        "queue": here.queue,
        "retried": here.retried,
        "max_retry": here.max_retry,
        "seconds_left": here.deadline.timestamp() - time.time() if here.deadline else None,
        "has_waited": here.waited is not None,
        "headers": dict(here.headers),
        "state_is_of_this_process": here.state["pid"] == os.getpid(),
        "tasks_of_this_state": here.state["entered"],
        "cancelled": here.cancelled.is_set(),
        "url": app.url,
    }


@app.task("report", executor="process", retention=60)
def report() -> None:
    """Say much of one's progress, and write a result."""
    for done in range(1_001):
        context().progress(done, 1_000, "counting")
    context().write_result_sync(b"from a thread")


@app.task("report_async", executor="process", retention=60)
async def report_async() -> None:
    """Write a result from a coroutine."""
    context().progress(1, note="half \ud800")
    await context().write_result(b"from a coroutine")


@app.task("say", executor="process", result_ttl=60)
def say(text: str) -> bool:
    """Write log records, and return whether records of less weight would be written."""
    context().log.warning("%s of the task", text, extra={"colour": "red"})
    try:
        raise ValueError(text)
    except ValueError:
        _log.exception("%s with a traceback", text)
    return _log.isEnabledFor(logging.DEBUG)


@app.task("decline", executor="process", retry_delay=lambda _n, error, _t: getattr(error, "after", 1.0))
def decline() -> None:
    """Raise an error that the worker knows."""
    raise CardDeclinedError(5, after=500.0)


@app.task("busy", executor="process", is_failure=lambda error: not isinstance(error, CardDeclinedError))
def busy() -> None:
    """Raise an error that is not a failure."""
    raise CardDeclinedError(6, after=1.0)


@app.task("strange", executor="process")
def strange() -> None:
    """Raise an error whose class the worker cannot know."""

    class StrangeError(Exception):
        pass

    raise StrangeError("from nowhere")


@app.task("control", executor="process", retention=60)
def control(what: str) -> Snooze | Retry | Archive | Cancel | None:
    """Return or raise each control value."""
    wish: Any = {
        "snooze": Snooze(100),
        "retry": Retry(200, spend=False),
        "archive": Archive("enough"),
        "cancel": Cancel("gone"),
        "skip": SkipRetry("skipped"),
    }[what.removesuffix(" raised").removesuffix(" from")]
    if what.endswith(" from"):
        raise ValueError("the reason") from wish
    if what.endswith(" raised"):
        raise wish
    return wish  # type: ignore[no-any-return]


def open_books() -> Iterator[int]:
    """Yield the process that has made this dependency, and say so when it is closed."""
    yield os.getpid()
    note("closed")


async def begin_entry(
    running: TaskContext, books: int = depends(open_books, per="worker")
) -> AsyncIterator[str]:
    """Depend on the task and on another provider; say when it is closed."""
    yield f"{running.task_id} in {books}"
    note("committed")


@app.task("depend", executor="process", result_ttl=60)
def depend_on(
    number: int, entry: str = depends(begin_entry), books: int = depends(open_books, per="worker")
) -> tuple[int, str, int]:
    """Return the argument and the dependencies."""
    return number, entry, books


def end_as_told(how: str, path: str) -> Snooze | None:
    """End in one of the ways that hooks tell apart; `wait` waits to be cancelled, and writes the reason."""
    if how == "fail":
        raise ValueError("no")
    if how == "wait":
        write(path, "begun")
        context().cancelled.wait(30)
        write(path, str(context().cancelled.reason))
    return Snooze(3_600) if how == "snooze" else None


@app.task("ending", executor="process")
def ending(how: str, path: str) -> Snooze | None:
    """End as told, in a child process."""
    return end_as_told(how, path)


@app.task("exit", executor="process")
def leave(code: int) -> None:
    """End as programs end."""
    sys.exit(code)


@app.task("die", executor="process")
def die(how: str) -> None:
    """Take the process along."""
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.Signals[how])


@app.task("fork", executor="process", timeout=1)
def start_and_hang(path: str) -> None:
    """Start a process, tell which, and hang so that nothing in Python can end it."""
    child = subprocess.Popen(["sleep", "1000"])
    write(path, f"{os.getpid()} {child.pid}")
    ctypes.PyDLL(None).sleep(1_000)


@app.task("copy", executor="process", timeout=60, result_ttl=60, max_retry=0)
async def copy_itself(path: str) -> str:
    """Fork a copy that returns too, before this process does, or, with a path, once that file is there."""
    if os.fork() == 0:
        if path:
            wait_for(path)
        return "copy"
    if not path:
        await asyncio.sleep(1_000)
    return "original"


@app.task("repeat", executor="process", timeout=60, result_ttl=60, max_retry=0)
async def repeat(text: str, path: str = "") -> str:
    """Return a text, and with a path write that file and hang before."""
    if path:
        write(path, "")
        await asyncio.sleep(1_000)
    return text


@app.task("hang", executor="process", timeout=300)
def hang(path: str) -> None:
    """Start a process, tell which, and hang so that nothing in Python can end it."""
    start_and_hang(path)


@app.task("poll", executor="process", timeout=300)
def poll(path: str) -> None:
    """End when cancelled, and tell of it."""
    write(path, str(os.getpid()))
    context().cancelled.wait()
    write(path, "told")


@app.task("poll_async", executor="process", timeout=300)
async def poll_async(path: str) -> None:
    """End when cancelled, and tell of it."""
    write(path, str(os.getpid()))
    try:
        await asyncio.Event().wait()
    finally:
        write(path, "told")


@app.task("wait", executor="process", timeout=1, result_ttl=60)
def wait_for(path: str) -> None:
    """Wait until there is such a file."""
    while not Path(path).exists():
        time.sleep(0.01)


@app.task("linger", executor="process", timeout=1)
async def linger(*, blocks: bool) -> None:
    """Wait for longer than the timeout, and block the event loop or not."""
    if blocks:
        time.sleep(1_000)  # noqa: ASYNC251 - on purpose
    await asyncio.sleep(1_000)


@app.task("compute", executor="process", result_ttl=60)
def compute(seconds: float) -> float:
    """Hold the interpreter's lock for so long."""
    began = time.monotonic()
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return time.monotonic() - began


@app.task("rubbish", executor="process")
def talk_rubbish() -> None:
    """Write an invalid frame to the worker, and wait for its reaction."""
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"\0\0\0\4\0\0\0\0rubb")
    threading.Event().wait()


@app.task("late", executor="process")
def write_late(path: str, go: str) -> None:
    """Write a result when told to, and tell which error that gives."""
    write(path, str(os.getpid()))
    while not Path(go).exists():
        time.sleep(0.01)
    try:
        context().write_result_sync(b"late")
    except LeaseExpiredError as error:
        write(path, f"{error}")


@app.task("haunt", executor="process", retention=60)
def haunt() -> None:
    """Leave a thread behind that speaks when the task is over."""
    here = context()

    def speak() -> None:
        time.sleep(0.2)
        here.progress(99)

    threading.Thread(target=speak, daemon=True).start()


@mux.handler("mux:plain", executor="process")
def plain_handler(task: Task) -> str:
    """Return what it was given."""
    return f"{os.getpid()} {task.type} {task.payload!r} {dict(task.headers)} {context().state}"


@mux.handler("mux:async", executor="process")
async def async_handler(task: Task) -> bytes:
    """Return what it was given."""
    return task.payload or b""


@mux.handler("mux:odd", executor="process")
def odd_handler(task: Task) -> Any:
    """Return an invalid result."""
    return {"not": "bytes"}


def traced(handler: Any) -> Any:
    """Wrap a coroutine function in a plain one, as decorators of tracing and retry libraries do."""

    @functools.wraps(handler)
    def call(*arguments: Any, **named: Any) -> Any:
        return handler(*arguments, **named)

    return call


@app.task("traced", result_ttl=60, executor="process")
@traced
async def traced_double(number: int) -> int:
    """Return twice the number, after a turn of the loop."""
    await asyncio.sleep(0)
    return number * 2


@app.task("large", result_ttl=60, executor="process")
async def large(how: str) -> bytes | None:
    """Return or write eleven bytes."""
    if how == "return":
        return bytes(11)
    await context().write_result(bytes(11))
    return None
