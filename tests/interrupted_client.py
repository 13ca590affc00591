"""A blocking client in four threads and the main thread, all interrupted at random moments; run as a program.

    python -m tests.interrupted_client URL INTERRUPTS SEED

Half of the interrupts are exceptions that are thrown into a thread, the others come from a signal handler in
the main thread. Prints one line of JSON: what the client was still able to do afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import random
import signal
import sys
import threading
import time
from collections import Counter

from pyasynq import Task, sync
from pyasynq.errors import PyasynqError
from tests.waiting import wait_until

THREADS = 4
PATIENCE = 30.0


class TimeLimitError(Exception):
    """A job's time limit."""


INTERRUPTS = (KeyboardInterrupt, TimeLimitError)


class Workload:
    """Calls of one client, made again and again in several threads."""

    def __init__(self, client: sync.Client) -> None:
        self.client = client
        self.kept = client.enqueue("kept").id
        self.is_over = False
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def work(self, seed: int) -> None:
        """Make calls until the end; an interrupt in here that is not caught ends the thread."""
        choice = random.Random(seed)
        while not self.is_over:
            try:
                while not self.is_over:
                    self.call(choice.random())
            except INTERRUPTS as error:
                self.done[type(error).__name__] += 1

    def call(self, dice: float) -> None:
        """Make one call."""
        try:
            if dice < 0.1:
                self.client.wait("default", self.kept, timeout=0)
            elif dice < 0.2:
                self.client.wait("default", self.kept, timeout=0.01)
            elif dice < 0.3:
                self.client.enqueue_many([Task("many") for _ in range(20)])
            else:
                self.client.enqueue("one", b"x")
            self.done["calls"] += 1
        except PyasynqError as error:
            self.errors[type(error).__name__] += 1


def throw(thread: threading.Thread, kind: type[BaseException]) -> None:
    """Raise an exception in a thread, at the next moment that a signal handler could."""
    identifier = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(identifier, ctypes.py_object(kind))


class Threads:
    """The threads of a workload; one that an interrupt has ended is started again."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.threads = [self._start(number) for number in range(THREADS)]

    def _start(self, number: int) -> threading.Thread:
        thread = threading.Thread(target=self.workload.work, args=[number], daemon=True)
        thread.start()
        return thread

    def interrupt(self, choice: random.Random) -> None:
        number = choice.randrange(THREADS)
        if not self.threads[number].is_alive():
            self.threads[number] = self._start(number)
        throw(self.threads[number], choice.choice(INTERRUPTS))

    def end(self) -> bool:
        """Let them end; return whether they all did."""
        self.workload.is_over = True
        for thread in self.threads:
            thread.join(PATIENCE)
        return not any(thread.is_alive() for thread in self.threads)


def interrupt_main_thread(workload: Workload, choice: random.Random, times: int) -> int:
    """Work in this thread under a timer whose signal handler raises; return how often it did."""
    signals = 0

    def on_alarm(*_: object) -> None:
        nonlocal signals
        signals += 1
        raise choice.choice(INTERRUPTS)

    def work() -> None:
        signal.setitimer(signal.ITIMER_REAL, choice.uniform(0.0005, 0.01))
        # The interpreter swallows an error in a destructor, so the loop also ends without one.
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            workload.call(choice.random())

    signal.signal(signal.SIGALRM, on_alarm)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    while signals < times:
        with contextlib.suppress(*INTERRUPTS):  # a late one may strike between two calls of `work`
            while signals < times:
                with contextlib.suppress(*INTERRUPTS):
                    work()
    return signals


def within_patience(*calls: object) -> int:
    """Make calls in a thread; return how many of them ended in time."""
    ended = []

    def make() -> None:
        for call in calls:
            call()  # type: ignore[operator] # each is a function
            ended.append(call)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return len(ended)


def main(url: str, interrupts: int, seed: int) -> None:
    """Interrupt, then see what works."""
    faulthandler.enable()
    threading.excepthook = lambda _: None  # an interrupt may strike outside of a call, and end its thread
    choice = random.Random(seed)
    client = sync.Client(url)
    workload = Workload(client)
    threads = Threads(workload)
    for _ in range(interrupts // 2):
        time.sleep(choice.uniform(0, 0.01))
        threads.interrupt(choice)
    signals = interrupt_main_thread(workload, choice, interrupts - interrupts // 2)
    have_ended = threads.end()
    works = within_patience(
        lambda: client.enqueue("after"),
        lambda: workload.call(0.0),
        client.close,
    )
    wait_until(lambda: threading.active_count() == 1 or not have_ended, "threads end with the client")
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if not have_ended or works < 3:
        faulthandler.dump_traceback(all_threads=True)
    answer = {
        "threads ended": have_ended,
        "calls that work": works,
        "threads left": left,
        "signals": signals,
        "done": workload.done,
        "errors": workload.errors,
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
