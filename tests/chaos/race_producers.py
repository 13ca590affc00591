"""Producers of one process: they enqueue over HTTP and by Gearman until all their tasks are acknowledged.

The one argument is a `ProducerPlan` in JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from pyasynq.gateway.doors.gearman.packets import PacketType
from tests.chaos.instances import PatientSession
from tests.chaos.records import Recorder, What
from tests.fix_gearman import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUEUE: Final = "race"
_ANSWER_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.1
_SHARE_OF_LONG_TASKS: Final = 0.2
_SHORT_MILLISECONDS: Final = 20
_LONG_MILLISECONDS: Final = 300
_KINDS: Final = (PacketType.SUBMIT_JOB_BG, PacketType.SUBMIT_JOB_LOW_BG, PacketType.SUBMIT_JOB_HIGH_BG)


class ProducerPlan(msgspec.Struct, forbid_unknown_fields=True):
    """What a process of producers does.

    Attributes:
        folder: of the records.
        name: begins the names of its tasks.
        producers: number of its producers; every other one speaks Gearman.
        tasks: number of tasks of each of them.
        rest: seconds between two tasks of one, on average.
        seed: of its random choices.
        http: ports of the instances.
        gearman: ports of their doors.
    """

    folder: str
    name: str
    producers: int
    tasks: int
    rest: float
    seed: int
    http: list[int]
    gearman: list[int]


class Producers:
    """Producers of one process.

    Args:
        plan: what they do.
        session: sends requests.
    """

    def __init__(self, plan: ProducerPlan, session: aiohttp.ClientSession) -> None:
        addresses = itertools.cycle(f"http://127.0.0.1:{port}" for port in plan.http)
        self._plan = plan
        self._session = PatientSession(session, addresses)
        self._doors = itertools.cycle(plan.gearman)
        self._numbers = random.Random(plan.seed)
        self._recorder = Recorder(Path(plan.folder))
        self._names = map(f"{plan.name}-{{}}".format, itertools.count(1))

    async def run(self) -> None:
        """Enqueue all tasks."""
        transports = (self._produce_over_http, self._produce_by_gearman)
        await asyncio.gather(*(transports[number % 2]() for number in range(self._plan.producers)))

    async def _produce_over_http(self) -> None:
        async for name in self._draw_names():
            body = {"type": QUEUE, "params": self._draw_params(name), "options": {"task_id": name}}
            status, answer = await self._session.ask("/v1/tasks", body, {"Idempotency-Key": name})
            if status not in {200, 201, 409}:
                raise SystemExit(f"{name} was answered {status}: {answer}")
            self._recorder.note(What.ACKNOWLEDGED, name)

    async def _produce_by_gearman(self) -> None:
        """Submit background jobs; a job whose fate is not known is left behind, and another one made."""
        peer: Peer | None = None
        async for name in self._draw_names():
            fate = What.UNKNOWN
            while fate is What.UNKNOWN:
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        if peer is None:
                            peer = Peer(*await asyncio.open_connection("127.0.0.1", next(self._doors)))
                        workload = json.dumps(self._draw_params(name)).encode()
                        kind = self._numbers.choice(_KINDS)
                        answer, _ = await peer.ask(kind, QUEUE.encode(), b"", workload)
                    fate = What.ACKNOWLEDGED if answer is PacketType.JOB_CREATED else What.UNKNOWN
                except (OSError, EOFError, TimeoutError):
                    if peer is not None:
                        peer.close()
                    peer = None
                self._recorder.note(fate, name)
                if fate is What.UNKNOWN:
                    await asyncio.sleep(_AGAIN_SECONDS)
                    name = next(self._names)  # noqa: PLW2901 - the former one may be in the queue
                    self._recorder.note(What.INTENDED, name)
        if peer is not None:
            peer.close()

    async def _draw_names(self) -> AsyncIterator[str]:
        """Yield the name of each task when it is time to enqueue it."""
        for _ in range(self._plan.tasks):
            await asyncio.sleep(self._numbers.uniform(0, 2 * self._plan.rest))
            name = next(self._names)
            self._recorder.note(What.INTENDED, name)
            yield name

    def _draw_params(self, name: str) -> dict[str, Any]:
        is_long = self._numbers.random() < _SHARE_OF_LONG_TASKS
        most = _LONG_MILLISECONDS if is_long else _SHORT_MILLISECONDS
        return {"name": name, "milliseconds": self._numbers.randint(0, most)}


async def main(plan: ProducerPlan) -> None:
    """Enqueue all tasks of a process."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await Producers(plan, session).run()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=ProducerPlan)))
