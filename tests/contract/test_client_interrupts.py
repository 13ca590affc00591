"""A blocking client that is interrupted: exceptions from signal handlers, and handlers that enqueue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

INTERRUPTS = int(os.environ.get("PYASYNQ_TEST_INTERRUPTS", "200"))
PATIENCE = 20.0
MOMENTS = ("call", "return", "c_return")
"""Where the interpreter looks for signals: at the beginning of a function, and after a call."""


class Moment:
    """Does something at one moment of a call, counted from its beginning."""

    def __init__(self, number: int, do: Callable[[], object]) -> None:
        self._left = number
        self._do = do
        self.has_come = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in MOMENTS and not self.has_come:
            self._left -= 1
            if self._left < 0:
                self.has_come = True
                sys.setprofile(None)
                self._do()

    def comes_in(self, call: Callable[[], object]) -> bool:
        """Make the call; return whether the moment came before its end."""
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        return self.has_come


def interrupt() -> None:
    """Raise as the handler of SIGINT does."""
    raise KeyboardInterrupt


def within_patience(call: Callable[[], Any]) -> Any:
    """Make a call in a thread of its own; return what it returned, and fail if it does not end."""
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the call does not end"
    return outcomes[0]


def test_an_exception_at_any_moment_of_an_enqueue_leaves_a_client_that_works(redis_url: str) -> None:
    """The thread that is interrupted leaves nothing that others wait for, and no connection is lost. (D51)"""
    client = sync.Client(redis_url, timeout=20)
    for number in count():
        moment = Moment(number, interrupt)
        has_come = within_patience(partial(moment.comes_in, lambda: client.enqueue("t")))
        assert within_patience(lambda: client.enqueue("t")).id
        if not has_come:
            break
    within_patience(client.close)
    assert number > 50


def test_an_exception_at_any_moment_of_a_first_wait_leaves_a_client_that_waits(redis_url: str) -> None:
    """No thread is left between its start and the place where it is known, and `close` ends it. (D51)"""
    for number in count():
        client = sync.Client(redis_url, timeout=20)
        task_id = client.enqueue("t", retention=60).id
        moment = Moment(number, interrupt)
        has_come = within_patience(
            lambda: moment.comes_in(lambda: look_once(client, task_id))  # noqa: B023 - called at once
        )
        assert within_patience(lambda: look_once(client, task_id)) == "TimeoutError"  # noqa: B023 - called at once
        within_patience(client.close)
        assert [] == [thread for thread in threading.enumerate() if thread.name == "pyasynq waits"]
        if not has_come:
            break
    assert number > 20


def look_once(client: sync.Client, task_id: str) -> str:
    """Look whether a task has ended; it has not."""
    try:
        client.wait("default", task_id, timeout=0)
    except TimeoutError:
        return "TimeoutError"
    return "ended"


def test_a_signal_handler_may_enqueue_at_any_moment_of_an_enqueue(redis_url: str) -> None:
    """A destructor or a log handler may come at any moment as well; both calls are made. (D15)"""
    client = sync.Client(redis_url, timeout=20)
    for number in count():
        inner: list[str] = []
        moment = Moment(number, lambda: inner.append(client.enqueue("inner").id))  # noqa: B023 - called at once
        outer: list[str] = []
        has_come = within_patience(
            lambda: moment.comes_in(lambda: outer.append(client.enqueue("outer").id))  # noqa: B023 - called at once
        )
        assert 1 == len(outer)
        assert has_come == bool(inner)
        if not has_come:
            break
    within_patience(client.close)
    assert number > 50


@pytest.mark.single_server
@pytest.mark.skipif(sys.platform == "win32", reason="only on POSIX")
def test_interrupts_at_random_moments_leave_a_client_that_works_and_closes(redis_url: str) -> None:
    """In four threads that enqueue and wait, and in the main thread with real signals. (D51)"""
    command = [sys.executable, "-m", "tests.interrupted_client", redis_url, str(INTERRUPTS), "51"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == ended.returncode, ended.stderr
    answer = json.loads(ended.stdout)
    assert (True, 3, []) == (answer["threads ended"], answer["calls that work"], answer["threads left"]), (
        ended.stderr
    )
    assert answer["done"]["calls"] > INTERRUPTS


WITHOUT_DESCRIPTORS = """
import os, resource, sys, threading, time
from pyasynq import sync
from pyasynq.errors import PyasynqError

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
client = sync.Client(sys.argv[1], timeout=1)
task_id = client.enqueue("t", retention=60).id
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass


def wait():
    started = time.monotonic()
    try:
        client.wait("default", task_id, timeout=1)
    except PyasynqError as error:
        print(type(error).__name__, time.monotonic() - started < 10, "Too many open files" in str(error))


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(15)
    print("ended" if not thread.is_alive() else "hangs", flush=True)


in_thread(wait)
in_thread(wait)
for descriptor in taken:
    os.close(descriptor)
in_thread(wait)
in_thread(client.close)
os._exit(0)
"""


@pytest.mark.single_server
@pytest.mark.skipif(sys.platform == "win32", reason="only on POSIX")
def test_a_wait_without_a_free_file_descriptor_says_so_and_later_ones_work(redis_url: str) -> None:
    """Neither it nor `close` hangs. (D16)"""
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS, redis_url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    expected = [
        *("RedisUnavailableError True True", "ended") * 2,
        *("WaitTimeoutError True False", "ended"),
        "ended",
    ]
    assert (expected, "") == (ended.stdout.splitlines(), ended.stderr)
