"""The common shape of peers: what the harness asks of each, and how a handler tells that it ran.

A peer is a module beside this one with a `PEER`. It runs in an environment of its own, so this file needs
only the standard library. The harness starts it as

    python -m bench.peers NAME describe          one JSON object: what this peer is and how it is set up
    python -m bench.peers NAME enqueue           takes orders from standard input, one JSON object a line
    python -m bench.peers NAME work SETTINGS     a worker, until SIGTERM; SETTINGS is a JSON object

with the variables `BENCH_REDIS_URL` and `BENCH_COUNTERS`. The peer in Go does the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import importlib.metadata
import inspect
import json
import mmap
import multiprocessing
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

URL_VARIABLE = "BENCH_REDIS_URL"
COUNTERS_VARIABLE = "BENCH_COUNTERS"
QUEUE = "default"
TASK = "bench:note"
ADDRESS = "somebody@example.com"
SMALLEST = 100
STAY = -1
"""As `sent`: the first handler that meets this task never ends."""


class Arguments(TypedDict):
    """The arguments of a task; as JSON they have the size that was ordered."""

    number: int
    email: str
    sent: int
    text: str


Mode: TypeAlias = "Callable[[Sequence[Arguments], Sequence[str]], Awaitable[None] | None]"
"""Enqueues tasks; given queues, it goes round them."""


# Counters: a file that all processes of a measurement share. Words of 8 bytes: how many slots are taken, and
# the process whose handler stays for ever; then the slots, one a process: handlers ended, handlers started;
# then the pick-up delays of numbered tasks in nanoseconds.

SLOTS = 4096
SAMPLES = 4096
STAYING = 1
FIRST_SLOT = 8
FIRST_SAMPLE = FIRST_SLOT + 2 * SLOTS
WORDS = FIRST_SAMPLE + SAMPLES


def map_counters(path: str | Path) -> memoryview[int]:
    """Return the words of a counters file, shared with all who map it."""
    with Path(path).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), WORDS * 8)).cast("q")


class _Own:
    """This process's part of the counters; a forked child takes a part of its own."""

    words: memoryview[int] | None = None
    at = 0


_lock = threading.Lock()


def _attach() -> memoryview[int]:
    path = os.environ[COUNTERS_VARIABLE]
    words = map_counters(path)
    with Path(path).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        slot = words[0]
        words[0] = slot + 1
    _Own.at = FIRST_SLOT + 2 * slot
    _Own.words = words
    return words


def _forget() -> None:
    _Own.words = None


os.register_at_fork(after_in_child=_forget)


def hit(number: int, sent: int) -> None:
    """Count a task that ran, from the one thread of an event loop, and note the delay of a timed one."""
    words = _Own.words or _attach()
    if sent:
        _look_at(words, number, sent)
    words[_Own.at] += 1


def hit_from_thread(number: int, sent: int) -> None:
    """Do the same from any thread."""
    with _lock:
        words = _Own.words or _attach()
    if sent:
        _look_at(words, number, sent)
    with _lock:
        words[_Own.at] += 1


def started() -> None:
    """Count a handler that begins, where beginning and end are apart."""
    words = _Own.words or _attach()
    words[_Own.at + 1] += 1


def _look_at(words: memoryview[int], number: int, sent: int) -> None:
    if sent != STAY:
        words[FIRST_SAMPLE + number % SAMPLES] = time.time_ns() - sent
        return
    if not any(words[FIRST_SLOT + 1 : FIRST_SAMPLE : 2]):
        started()
        words[STAYING] = os.getpid()
        while True:  # until this process is killed
            time.sleep(60)


# Orders.


@dataclass(frozen=True)
class Order:
    """So many tasks of a size, enqueued in one of the ways that a peer has.

    Attributes:
        paced: seconds from the run of one task to the next one, which carries its time; 0 for all at once.
        limit: seconds after which a paced order ends early.
        stay: the tasks are such that their first handler never ends.
    """

    mode: str
    count: int
    size: int = SMALLEST
    queues: tuple[str, ...] = (QUEUE,)
    paced: float = 0.0
    limit: float = 60.0
    stay: bool = False

    def tasks(self) -> list[Arguments]:
        """Make the arguments of all tasks."""
        bare = len(json.dumps(arguments(1_000_000, ""), separators=(",", ":")))
        text = "x" * max(0, self.size - bare)
        sent = STAY if self.stay else 0
        return [arguments(1_000_000 + number, text, sent) for number in range(self.count)]


def arguments(number: int, text: str, sent: int = 0) -> Arguments:
    """Make the arguments of one task."""
    return {"number": number, "email": ADDRESS, "sent": sent, "text": text}


@dataclass(frozen=True)
class Peer:
    """What a peer module offers.

    Attributes:
        packages: their versions are reported.
        setup: how it is set up, and where that is documented.
        after_a_crash: what becomes of the tasks of a killed worker.
        at_least_once: they are run again.
        modes: the ways to enqueue; a coroutine function runs in one event loop, always the same.
        fill: the fastest of them.
        left: commands whose integers add up to what is left in Redis of tasks that have not ended; QUEUE in
            them stands for each queue.
        work: runs a worker with the settings until SIGTERM.
        loop_factory: of the event loop for enqueueing.
    """

    title: str
    packages: tuple[str, ...]
    setup: str
    after_a_crash: str
    at_least_once: bool
    modes: Mapping[str, Mode]
    fill: str
    left: tuple[tuple[str, ...], ...]
    work: Callable[[dict[str, Any]], None]
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    close: Callable[[], Awaitable[None]] | None = None


@dataclass
class Description:
    """What `describe` prints."""

    title: str
    versions: dict[str, str]
    setup: str
    after_a_crash: str
    at_least_once: bool
    modes: list[str]
    fill: str
    left: list[list[str]] = field(default_factory=list)


def describe(peer: Peer) -> Description:
    """Return what the harness and the reader must know of a peer."""
    return Description(
        peer.title,
        {"Python": sys.version.split()[0], **{name: _version(name) for name in peer.packages}},
        peer.setup,
        peer.after_a_crash,
        peer.at_least_once,
        list(peer.modes),
        peer.fill,
        [list(command) for command in peer.left],
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


class Producer:
    """Carries out orders."""

    def __init__(self, peer: Peer, runner: asyncio.Runner) -> None:
        self._peer = peer
        self._runner = runner

    def serve(self) -> None:
        """Take each order in two steps: answer a line when it is prepared, and start it at the next."""
        for line in sys.stdin:
            order = Order(**json.loads(line))
            tasks = order.tasks()
            gc.collect()
            gc.freeze()
            _tell({"ready": True})
            if not sys.stdin.readline():
                return
            _tell(self._carry_out(order, tasks))
            gc.unfreeze()

    def _carry_out(self, order: Order, tasks: list[Arguments]) -> dict[str, float]:
        cpu, begun = time.process_time(), time.perf_counter()
        count = len(tasks)
        if order.paced:
            # In one run of the loop: to start one takes as long as a pick-up may take.
            count = self._runner.run(self._carry_out_paced(order, tasks))
        elif inspect.iscoroutinefunction(mode := self._peer.modes[order.mode]):
            self._runner.run(mode(tasks, order.queues))
        else:
            mode(tasks, order.queues)
        seconds = time.perf_counter() - begun
        return {"count": count, "seconds": seconds, "cpu": time.process_time() - cpu}

    async def _carry_out_paced(self, order: Order, tasks: list[Arguments]) -> int:
        """Send each task when the one before has run; return how many have been sent and run."""
        words = map_counters(os.environ[COUNTERS_VARIABLE])
        mode = self._peer.modes[order.mode]
        ends = time.monotonic() + order.limit
        ran_before = sum_of(words)
        for position, task in enumerate(tasks):
            task["number"] = position
            queue = order.queues[position % len(order.queues)]
            task["sent"] = time.time_ns()
            enqueued = mode([task], (queue,))
            if enqueued is not None:
                await enqueued
            while sum_of(words) <= ran_before + position:
                if time.monotonic() > ends:
                    return position
                await asyncio.sleep(0.001)
            await asyncio.sleep(order.paced)
            if time.monotonic() > ends:
                return position + 1
        return len(tasks)


def sum_of(words: memoryview[int], word: int = 0) -> int:
    """Add up what all processes have counted: handlers that ended, or (word 1) that were started."""
    return sum(words[FIRST_SLOT + word : FIRST_SLOT + 2 * words[0] : 2])


def in_turn(tasks: Sequence[Arguments], queues: Sequence[str]) -> Iterator[tuple[Arguments, str]]:
    """Give each task one of the queues, in turn."""
    for position, task in enumerate(tasks):
        yield task, queues[position % len(queues)]


def in_processes(settings: dict[str, Any], run: Callable[[], None]) -> None:
    """Run a worker that knows only one process in as many as are wanted, as its documentation advises."""
    others = [
        multiprocessing.get_context("spawn").Process(target=run, daemon=True)
        for _ in range(settings.get("processes", 1) - 1)
    ]
    for other in others:
        other.start()
    run()


async def in_flight(calls: Iterator[Awaitable[object]], most: int = 100) -> None:
    """Await calls, so many at once."""

    async def one_after_another() -> None:
        for call in calls:
            await call

    await asyncio.gather(*(one_after_another() for _ in range(most)))


def _tell(message: object) -> None:
    print(json.dumps(message), flush=True)


def main(peer: Peer, command: str, *rest: str) -> None:
    """Do what the harness asks."""
    if command == "describe":
        _tell(asdict(describe(peer)))
    elif command == "enqueue":
        with asyncio.Runner(loop_factory=peer.loop_factory) as runner, contextlib.suppress(KeyboardInterrupt):
            Producer(peer, runner).serve()
            if peer.close is not None:
                runner.run(_close(peer.close))
    elif command == "work":
        peer.work(json.loads(rest[0]))
    else:
        raise SystemExit(f"{command!r} is no command: describe, enqueue or work")


async def _close(close: Callable[[], Awaitable[None]]) -> None:
    await close()
