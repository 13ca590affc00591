"""The interface of peers, as the harness uses it.

A peer is a module next to this one with a `PEER`. It runs in an environment of its own, so this file needs
only the standard library. The harness starts it as

    python -m bench.peers NAME describe          one JSON object: what this peer is and how it is set up
    python -m bench.peers NAME enqueue           takes orders from standard input, one JSON object a line
    python -m bench.peers NAME work SETTINGS     a worker, until SIGTERM; SETTINGS is a JSON object

with the variables `BENCH_REDIS_URL` and `BENCH_COUNTERS`. The peer in Go does the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import inspect
import json
import multiprocessing
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from bench.peers.counters import COUNTERS_VARIABLE, STAY, map_counters, sum_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

URL_VARIABLE = "BENCH_REDIS_URL"
QUEUE = "default"
TASK = "bench:note"
ADDRESS = "somebody@example.com"
SMALLEST = 100


class Arguments(TypedDict):
    """The arguments of a task; their JSON has the size given in the order."""

    number: int
    email: str
    sent: int
    text: str


Mode: TypeAlias = "Callable[[Sequence[Arguments], Sequence[str]], Awaitable[None] | None]"
"""Function that enqueues tasks, round robin over the queues if there are several."""


@dataclass(frozen=True)
class Order:
    """Order to enqueue `count` tasks of one payload size, in one of the peer's modes.

    Attributes:
        paced: seconds from the run of one task to the next one, which carries its time; 0 for all at once.
        limit: seconds after which a paced order ends early.
        stay: whether the first handler call of each task never ends.
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
    """Interface of a peer module: how to enqueue to a task queue, and how to run its worker.

    Attributes:
        packages: packages whose versions are reported.
        setup: how the task queue is set up, and where its documentation says so.
        after_a_crash: outcome of the tasks of a killed worker.
        at_least_once: whether the tasks of a killed worker run again.
        modes: the ways to enqueue; a coroutine function runs in one event loop, always the same.
        fill: name of the fastest mode.
        left: commands whose integers add up to what is left in Redis of tasks that have not ended; QUEUE in
            them stands for each queue.
        work: runs a worker with the settings until SIGTERM.
        loop_factory: factory of the event loop for enqueueing.
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
    """Description of a peer, printed by the command `describe`."""

    title: str
    versions: dict[str, str]
    setup: str
    after_a_crash: str
    at_least_once: bool
    modes: list[str]
    fill: str
    left: list[list[str]] = field(default_factory=list)


def describe(peer: Peer) -> Description:
    """Return the description of a peer for the harness and the reader."""
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
    """Enqueues tasks with a peer's library, by orders from stdin."""

    def __init__(self, peer: Peer, runner: asyncio.Runner) -> None:
        self._peer = peer
        self._runner = runner

    def serve(self) -> None:
        """Read orders from stdin and write their results to stdout, as JSON lines, until stdin ends.

        An order is carried out in two steps, so that preparing its tasks is not measured. The producer makes
        the tasks and writes `{"ready": true}`; it enqueues them when it reads another line.
        """
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
            # One run of the loop for all tasks of the order: starting a loop takes as long as a pick-up.
            count = self._runner.run(self._carry_out_paced(order, tasks))
        elif inspect.iscoroutinefunction(mode := self._peer.modes[order.mode]):
            self._runner.run(mode(tasks, order.queues))
        else:
            mode(tasks, order.queues)
        seconds = time.perf_counter() - begun
        return {"count": count, "seconds": seconds, "cpu": time.process_time() - cpu}

    async def _carry_out_paced(self, order: Order, tasks: list[Arguments]) -> int:
        """Enqueue each task after the previous one has run; return how many were enqueued and have run."""
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


def in_turn(tasks: Sequence[Arguments], queues: Sequence[str]) -> Iterator[tuple[Arguments, str]]:
    """Yield each task with a queue, round robin over the queues."""
    for position, task in enumerate(tasks):
        yield task, queues[position % len(queues)]


def in_processes(settings: dict[str, Any], run: Callable[[], None]) -> None:
    """Run a single-process worker in several processes, as its documentation advises."""
    others = [
        multiprocessing.get_context("spawn").Process(target=run, daemon=True)
        for _ in range(settings.get("processes", 1) - 1)
    ]
    for other in others:
        other.start()
    run()


async def in_flight(calls: Iterator[Awaitable[object]], most: int = 100) -> None:
    """Await calls, at most `most` of them concurrently."""

    async def one_after_another() -> None:
        for call in calls:
            await call

    await asyncio.gather(*(one_after_another() for _ in range(most)))


def _tell(message: object) -> None:
    print(json.dumps(message), flush=True)


def main(peer: Peer, command: str, *rest: str) -> None:
    """Run a command of the harness: `describe`, `enqueue` or `work`."""
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
        raise SystemExit(f"{command!r} is not a command: use describe, enqueue or work")


async def _close(close: Callable[[], Awaitable[None]]) -> None:
    await close()
