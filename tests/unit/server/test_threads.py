"""Threads for plain handlers."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from pyasynq._engine.handlers.threads import HandlerThreads, in_thread
from pyasynq.errors import ServerStateError
from tests.run_async import run_async

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


@run_async
async def test_a_plain_function_runs_in_another_thread_with_the_callers_context() -> None:
    """Its result comes back; what it sets stays its own."""
    threads = HandlerThreads()
    VARIABLE.set("caller's")

    def function(argument: int) -> tuple[int, str, bool]:
        seen = VARIABLE.get()
        VARIABLE.set("thread's")
        return argument, seen, threading.current_thread() is threading.main_thread()

    assert (7, "caller's", False) == await threads.call(function, 7)
    assert "caller's" == VARIABLE.get()
    threads.close()


@run_async
async def test_threads_are_daemons_and_are_used_again() -> None:
    """One after the other needs one thread."""
    threads = HandlerThreads()
    names = {await threads.call(lambda: threading.current_thread().name) for _ in range(5)}
    assert 1 == len(names)
    assert await threads.call(lambda: threading.current_thread().daemon)
    assert 1 == threads.alive
    threads.close()


@run_async
async def test_functions_that_block_run_side_by_side() -> None:
    """Each call gets a thread of its own if it needs one."""
    threads = HandlerThreads()
    barrier = threading.Barrier(5)
    await asyncio.gather(*(threads.call(barrier.wait) for _ in range(5)))
    assert 5 == threads.alive
    threads.close()


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
@run_async
async def test_what_the_function_raises_the_caller_gets(kind: type[BaseException]) -> None:
    """The thread survives it."""
    threads = HandlerThreads()

    def function() -> None:
        raise kind("no")

    with pytest.raises(kind, match="no"):
        await threads.call(function)
    assert 1 == await threads.call(lambda: 1)
    assert 1 == threads.alive
    threads.close()


@run_async
async def test_a_cancelled_caller_waits_for_the_thread_and_is_cancelled_then() -> None:
    """A thread cannot be stopped, and the error says so."""
    threads = HandlerThreads()
    begun, end = threading.Event(), threading.Event()

    def function() -> str:
        begun.set()
        end.wait()
        return "dropped"

    calling = asyncio.create_task(threads.call(function))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        calling.cancel()
        await asyncio.sleep(0)
        assert not calling.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    threads.close()


@run_async
async def test_an_error_is_freed_without_the_garbage_collector() -> None:
    """The traceback does not keep its own error alive."""
    threads = HandlerThreads()

    class OwnError(Exception):
        pass

    def function() -> None:
        raise OwnError

    async def call() -> weakref.ref[OwnError]:
        try:
            await threads.call(function)
        except OwnError as error:
            return weakref.ref(error)
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        reference = await call()
        await threads.call(lambda: None)
        assert reference() is None
    finally:
        gc.enable()
        threads.close()


@run_async
async def test_idle_threads_end_when_closed() -> None:
    """Nothing is left behind."""
    threads = HandlerThreads("closing-test")
    await asyncio.gather(*(threads.call(lambda: None) for _ in range(3)))
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("closing-test")]
    threads.close()
    for thread in ours:
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()


@run_async
async def test_a_plain_handler_outside_of_a_server_says_so() -> None:
    """There are no threads to run it in."""
    with pytest.raises(ServerStateError, match="outside of a server"):
        await in_thread(lambda: None)()


def test_a_hanging_handler_does_not_keep_the_interpreter_from_ending() -> None:
    """Handler threads are daemons, unlike those of concurrent.futures."""
    program = (
        "import asyncio, threading\n"
        "from pyasynq._engine.handlers.threads import HandlerThreads\n"
        "async def main():\n"
        "    asyncio.ensure_future(HandlerThreads().call(threading.Event().wait))\n"
        "    await asyncio.sleep(0)\n"
        "loop = asyncio.new_event_loop()\n"
        "loop.run_until_complete(main())\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert "ended\n" == done.stdout
