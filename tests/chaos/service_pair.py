"""Two instances of the task service behind a round robin, one killed every five seconds: nothing is lost.

    PYTHONPATH=src:. python -m tests.chaos.service_pair [--minutes 10] [--seed 1]

Producers enqueue over HTTP with idempotency keys, and workers lease over HTTP; each connection goes to the
next instance that answers. In the end each acknowledged task must have run and be completed once, and nothing
else may have run. A task may run twice only if its lease has lapsed: a worker that loses an answer repeats it
through the other instance. Exit code 1 on any violation.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import aiohttp
import redis

from pyasynq.embedded import EmbeddedServer
from tests.chaos.hosted import KILL_SECONDS
from tests.chaos.instances import PatientSession, make_instance, read_tasks, wait_until_ready
from tests.invariants import violations
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.fleet import Fleet

QUEUE: Final = "pair"
PRODUCERS: Final = 4
WORKERS: Final = 4
_REST_SECONDS: Final = 0.02
"""Time between two tasks of a producer."""
_REQUEST_SECONDS: Final = 30.0
_LEASE_SECONDS: Final = 10
_LIMIT: Final = 10
_PATIENCE_SECONDS: Final = 120.0
_MILLISECONDS: Final = 20
_CHUNK: Final = 65_536


class RoundRobin:
    """Passes each connection on to the next port that accepts it, for the time of an `async with` block.

    Args:
        ports: of the instances.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.port = 0
        self._ports = itertools.cycle(ports)
        self._number = len(ports)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0, backlog=1_000)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self._number):
            with suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", next(self._ports))
                break
        else:
            writer.close()
            return
        with suppress(asyncio.CancelledError):  # at the end of the block
            await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, until one side ends."""
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


class PairLoad:
    """Producers and workers on one address. Belongs to one event loop.

    Args:
        session: sends requests, each on a connection of its own.
        numbers: draws how long tasks take.
    """

    def __init__(self, session: PatientSession, numbers: random.Random) -> None:
        self.acknowledged: set[str] = set()
        self.runs: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.is_over = asyncio.Event()
        """Set when the producers are to end."""
        self._session = session
        self._numbers = numbers
        self._made = itertools.count(1)

    async def produce(self) -> None:
        """Enqueue one task after another, each until it is acknowledged."""
        while not self.is_over.is_set():
            task_id = f"task-{next(self._made)}"
            body = {"type": QUEUE, "payload": task_id, "options": {"task_id": task_id}}
            status, _ = await self._session.ask("/v1/tasks", body, {"Idempotency-Key": task_id})
            if status not in {200, 201, 409}:
                raise SystemExit(f"{task_id} was answered {status}")
            self.acknowledged.add(task_id)
            await asyncio.sleep(_REST_SECONDS)

    async def work(self) -> None:
        """Lease tasks, run them, and complete each."""
        body = {"queues": [QUEUE], "wait": 1, "lease": _LEASE_SECONDS, "limit": _LIMIT}
        while True:
            status, answer = await self._session.ask("/v1/leases", body)
            for task in answer["tasks"] if status == 200 else ():
                self.runs[task["payload"]] += 1
                await asyncio.sleep(self._numbers.randint(0, _MILLISECONDS) / 1_000)
                status, _ = await self._session.ask(f"/v1/attempts/{task['token']}:complete", {})
                self.completed[task["payload"]] += status == 204


async def run_pair(
    ports: Sequence[int], fleets: Sequence[Fleet], seconds: float, numbers: random.Random
) -> tuple[PairLoad, int]:
    """Run load and kills for this long, and until no task is left; return the load and the kills."""
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
    async with (
        RoundRobin(ports) as front,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as session,
    ):
        patient = PatientSession(session, itertools.repeat(f"http://127.0.0.1:{front.port}"))
        load = PairLoad(patient, numbers)
        producing = [asyncio.create_task(load.produce()) for _ in range(PRODUCERS)]
        working = [asyncio.create_task(load.work()) for _ in range(WORKERS)]
        kills = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(min(KILL_SECONDS, seconds / 2))
            fleet = numbers.choice(fleets)
            await asyncio.to_thread(fleet.kill, fleet.pids()[0])
            kills += 1
            print(f"\r{len(load.acknowledged):,} tasks, {kills} kills ", end="", file=sys.stderr)
        load.is_over.set()
        await asyncio.gather(*producing)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while load.acknowledged - load.completed.keys():
                await asyncio.sleep(0.1)
                for one in working:
                    if one.done():
                        one.result()
        for one in working:
            one.cancel()
        await asyncio.wait(working)
    print(file=sys.stderr)
    return load, kills


def start_pair(stack: ExitStack, url: str, folder: Path) -> tuple[list[int], list[Fleet]]:
    """Start two instances; return their ports and the fleets that they are."""
    ports = [free_port(), free_port()]
    fleets = []
    for port in ports:
        service = {"redis": url, "listen": f"127.0.0.1:{port}", "dashboard": False}
        settings = {"service": service, "tasks": {QUEUE: {"retention": "24h"}}}
        fleets.append(stack.enter_context(make_instance(settings, folder)))
    for port in ports:
        wait_until_ready(port)
    return ports, fleets


def find_losses(load: PairLoad, states: Mapping[str, str]) -> list[str]:
    """Return a sentence for each kind of violation.

    Args:
        load: what producers and workers saw.
        states: of all tasks in Redis, by id.
    """
    faults = []
    ids = load.acknowledged
    if lost := {one for one in ids if states.get(one) != "completed"}:
        faults.append(f"{len(lost):,} tasks were not completed, as {min(lost)}")
    if foreign := (load.runs.keys() | states.keys()) - ids:
        faults.append(f"{len(foreign):,} tasks were never acknowledged, as {min(foreign)}")
    if twice := [one for one, number in load.completed.items() if number > 1]:
        faults.append(f"{len(twice):,} tasks were completed twice, as {min(twice)}")
    return faults


def main() -> int:
    """Run it, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        EmbeddedServer() as server,
        tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as name,
        ExitStack() as stack,
    ):
        ports, fleets = start_pair(stack, server.url, Path(name))
        begun = time.monotonic()
        numbers = random.Random(arguments.seed)
        load, kills = asyncio.run(run_pair(ports, fleets, arguments.minutes * 60, numbers))
        seconds = time.monotonic() - begun
        faults = [one for fleet in fleets for one in fleet.failures()]
        tasks = asyncio.run(read_tasks(server.url, [QUEUE]))
        faults += find_losses(load, {name: one.state for name, one in tasks.items()})
        with redis.Redis.from_url(server.url) as client:
            faults += violations(client)
    again = sum(load.runs.values()) - len(load.runs)
    print(
        f"{len(load.acknowledged):,} tasks acknowledged, {len(load.completed):,} completed in "
        f"{seconds:.0f} s, {again:,} ran again; {kills} kills"
    )
    for fault in faults:
        print(f"  VIOLATION: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
