"""An aggregator that is killed at any point: nothing strands, and nothing is aggregated twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._broker.aggregation_sets import reclaim_stale_sets
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.engine_parts import Parts
from pyasynq._engine.handlers.group_routes import GroupRoutes
from pyasynq._engine.handlers.routes import OneRoute
from pyasynq._engine.handlers.threads import HandlerThreads
from pyasynq._engine.lease.roster import Roster
from pyasynq._engine.services.aggregator import Aggregator
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._redis.url import RedisTarget
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.events import Events
from pyasynq.task import Task, TaskState
from tests.factories import Tasks
from tests.fix_broker import BlockingPerformer
from tests.fix_engine import do_nothing
from tests.invariants import check_invariants
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from pyasynq._redis.plan import Call, Plan
    from tests.invariants import RedisClient

MEMBERS = ["a", "b", "c", "d", "e"]


class Killed(BaseException):
    """The process was killed."""


class MortalDriver(BlockingPerformer):
    """Dies before or after its call number `fatal`, and does nothing ever after."""

    last_disconnect = None
    target = RedisTarget()
    stays_open = True

    def __init__(self, client: RedisClient, fatal: int, *, after: bool) -> None:
        super().__init__(client)
        self._left = fatal
        self._after = after

    def step(self) -> None:
        """Count a step; raise Killed from the fatal one on."""
        if self._left <= 0:
            self._left = -1
            raise Killed
        self._left -= 1

    def _send(self, call: Call) -> Any:
        if self._left < 0:
            raise Killed
        if not self._after:
            self.step()
            return super()._send(call)
        reply = super()._send(call)
        self.step()
        return reply

    async def run(self, plan: Plan[Any]) -> Any:
        await asyncio.sleep(0)
        return self(plan)

    async def run_batch(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        return [await self.run(plan) for plan in plans]

    run_unshielded = run_batch

    def check_open(self) -> None:
        pass

    def start_task(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return work

    async def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work


def make_aggregator(driver: MortalDriver, options: dict[str, Any]) -> Aggregator:
    """Return the aggregator of a server of its own; its function's work is a step like each call is."""

    async def make(group: str, tasks: list[Task]) -> Task:
        driver.step()
        return Task("digest", b"+".join(task.payload or b"" for task in tasks), **options)

    config = ServerConfig(group_aggregator=make, group_max_size=2)
    fields: dict[str, Any] = {"driver": driver, "settles": None}
    parts = Parts(
        server_id="server",
        config=config,
        settings=EngineSettings(),
        events=Events(),
        clock=SYSTEM_CLOCK,
        redis_time=RedisTime(SYSTEM_CLOCK),
        router=OneRoute(do_nothing),
        board=QueueBoard(config.queues, config.queue),
        roster=Roster(config.queues),
        **fields,
    )
    return Aggregator(parts, GroupRoutes(config, None), HandlerThreads())


async def live(aggregator: Aggregator, tasks: Tasks) -> bool:
    """Work until no group is due; return False when it was killed before that."""
    try:
        while "g" in tasks.groups() or aggregator._running:
            await aggregator.round()
            await asyncio.gather(*(run.task for run in aggregator._running.values()))
    except Killed:
        await asyncio.gather(*(run.task for run in aggregator._running.values()), return_exceptions=True)
        return False
    finally:
        # Its timers have ended with the process.
        await aggregator._registrar.close()
    return True


def aggregated(tasks: Tasks) -> list[str]:
    """Return the payloads of the members that all digests together hold."""
    ids = [*tasks.ids("pending"), *tasks.ids("scheduled"), *tasks.members("days")]
    payloads = [decode_task_message(tasks.fields(one)["msg"]).payload.decode() for one in ids]
    return sorted(part for payload in payloads for part in payload.split("+"))


async def life_and_after(client: RedisClient, fatal: int, *, after: bool, options: dict[str, Any]) -> bool:
    """Let one server live until it is killed, and another one until all is done; return if one was enough."""
    client.flushall()
    tasks = Tasks(client)
    for one in MEMBERS:
        lock = tasks.keys.unique("event", one.encode())
        tasks.put(
            TaskState.AGGREGATING,
            one,
            group="g",
            score=1,
            type="event",
            payload=one.encode(),
            unique_key=lock,
        )
    survived = await live(make_aggregator(MortalDriver(client, fatal, after=after), options), tasks)
    check_invariants(client)
    for key in client.zrange(tasks.keys.aggregation_sets, 0, -1):
        client.zadd(tasks.keys.aggregation_sets, {key: 1})
    heir = MortalDriver(client, 10_000, after=False)
    heir(reclaim_stale_sets("default"))
    assert await live(make_aggregator(heir, options), tasks)
    check_invariants(client)
    assert MEMBERS == aggregated(tasks), "each member exactly once"
    assert ({}, set()) == (tasks.sets(), tasks.groups() - {"days"})
    assert len(client.keys("*unique*")) == (3 if "unique" in options else 0), "no lock is left behind"
    return survived


@pytest.mark.sample(3)
@pytest.mark.parametrize("after", [False, True], ids=["before_the_call", "before_the_reply"])
@pytest.mark.parametrize(
    "options",
    [{}, {"process_in": 60}, {"unique": 60}, {"group": "days"}, {"group": "days", "process_in": 60}],
    ids=["pending", "scheduled", "unique", "grouped", "grouped_later"],
)
@run_async
async def test_h11_w31_a_kill_at_any_step_strands_nothing_and_doubles_nothing(
    redis_client: RedisClient, options: dict[str, Any], after: bool
) -> None:
    """Each call and the function itself is a step; the next server finds what is left and finishes it."""
    fatal = 0
    while not await life_and_after(redis_client, fatal, after=after, options=options):
        fatal += 1
    assert fatal > 3 * 4, "three sets, each checked, read, made into a task and finished"


PROGRAM = """
import os, signal, sys
from pyasynq import Server, ServerConfig, Task

def make(group, tasks):
    os.kill(os.getpid(), signal.SIGKILL)

async def handle(task):
    pass

config = ServerConfig(group_aggregator=make, group_max_size=5)
Server(sys.argv[1], config).run_forever(handle)
"""


@run_async
async def test_h11_a_worker_that_is_killed_in_its_function_loses_nothing(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, tmp_path: Path
) -> None:
    """With a real process and SIGKILL; the members stay in a set with a deadline."""
    for one in MEMBERS:
        tasks.put(TaskState.AGGREGATING, one, group="g", score=1, payload=one.encode())
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(sys.executable, program, redis_url, env=environment)
    assert -signal.SIGKILL == await process.wait()
    [name] = tasks.sets()
    assert MEMBERS == list(tasks.members(name))
    redis_client.zadd(tasks.keys.aggregation_sets, {f"{tasks.keys.group_prefix}{name}": 1})
    heir = MortalDriver(redis_client, 10_000, after=False)
    heir(reclaim_stale_sets("default"))
    assert await live(make_aggregator(heir, {}), tasks)
    assert MEMBERS == aggregated(tasks)
