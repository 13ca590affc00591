"""Slots move while plans run and workers work."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from pyasynq._broker.delayed import forward
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.settings import EngineSettings
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.key_watcher import Watcher
from pyasynq._redis.plan import CommandCall, Plan, Replay, ask
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import queue_keys
from pyasynq.config import ServerConfig
from pyasynq.errors import RedisUnavailableError
from pyasynq.events import RoundFinished
from pyasynq.task import Task
from tests.fix_engine import do_nothing, is_watched, serving
from tests.invariants import check_invariants
from tests.redis_6 import is_redis_6
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_cluster import Cluster, Node
    from tests.fix_drivers import ClientFace, DriverFace

KEYS = queue_keys("default")
SLOT = find_slot(KEYS.pending)


@pytest.fixture
def source(cluster: Cluster) -> Iterator[Node]:
    """The node that has the queue; the queue's slot is brought back to it, empty."""
    source = cluster.owner(SLOT)
    yield source
    with cluster.client() as client:
        check_invariants(client)
        client.flushall()
    for node in cluster.primaries:
        node.cluster("SETSLOT", SLOT, "STABLE")
    cluster.move(SLOT, source)


def get(key: str) -> Plan[Any]:
    """Read a field of a task."""
    return ask(CommandCall(("HGET", key, "state"), key, Replay.SAFE))


def test_after_a_move_one_call_is_sent_on_and_the_others_know(
    cluster: Cluster, source: Node, make_client: Callable[..., ClientFace]
) -> None:
    """MOVED is answered once to each who did not know."""
    to = cluster.other_than(source)
    client = make_client(cluster.url)
    client.enqueue(Task("t", task_id="a"))
    cluster.move(SLOT, to)
    before = source.errors("MOVED")
    for task_id in ("b", "c", "d"):
        client.enqueue(Task("t", task_id=task_id))
    assert before + 1 == source.errors("MOVED")
    assert [b"d", b"c", b"b", b"a"] == to.client.lrange(KEYS.pending, 0, -1)


def test_what_one_learns_all_of_the_process_know(cluster: Cluster, source: Node) -> None:
    """The drivers of a worker, and its connection for wake-ups, share one map."""
    to = cluster.other_than(source)
    with sync.Client(cluster.url) as one, sync.Client(cluster.url) as other:
        one.enqueue(Task("t", task_id="a"))
        other.enqueue(Task("t", task_id="b"))
        cluster.move(SLOT, to)
        one.enqueue(Task("t", task_id="c"))
        before = source.errors("MOVED")
        other.enqueue(Task("t", task_id="d"))
    assert before == source.errors("MOVED")


def test_a_key_that_has_left_already_is_asked_for_where_it_is(
    cluster: Cluster, source: Node, make_driver: Callable[..., DriverFace]
) -> None:
    """ASK is for this once: what is still at the source is read there."""
    to = cluster.other_than(source)
    driver = make_driver(cluster.url)
    with sync.Client(cluster.url) as client:
        client.enqueue_many([Task("t", task_id="gone"), Task("t", task_id="here")])
    cluster.begin_move(SLOT, source, to)
    cluster.move_keys(SLOT, source, to, KEYS.task("gone"))
    before = source.errors("ASK")
    found = driver.run_batch([get(KEYS.task(name)) for name in ("here", "gone", "here", "gone")])
    assert [b"pending"] * 4 == found
    assert before + 2 == source.errors("ASK")
    cluster.move_keys(SLOT, source, to)
    cluster.finish_move(SLOT, to)


def explain_refusal(node: Node) -> str:
    """Return how a node refuses a call of which some keys have left.

    Redis 6.2 sends it on to the other node, which refuses it because some have not come yet.
    """
    return "ASK" if is_redis_6(node.client) else "TRYAGAIN"


def test_w38_no_script_runs_on_half_of_its_keys(
    cluster: Cluster, source: Node, make_driver: Callable[..., DriverFace]
) -> None:
    """All keys that the call names are there, and a task that the script would meet on its way has left.

    It would have taken both tasks from `scheduled`, and have ended before it put any of them into `pending`.
    """
    to = cluster.other_than(source)
    driver = make_driver(cluster.url, timeout=30.0)
    with sync.Client(cluster.url) as client, sync.Inspector(cluster.url) as inspector:
        inspector.set_queue_limits("default", max_run=5)
        client.enqueue("t", task_id="first")
        client.enqueue("t", task_id="member", group="g")
        for task_id in ("a", "b"):
            client.enqueue("t", task_id=task_id, process_in=60)
    cluster.begin_move(SLOT, source, to)
    cluster.move_keys(SLOT, source, to, KEYS.task("b"))
    refusal = explain_refusal(source)
    refused = source.errors(refusal)
    moved: list[int] = []
    plan = forward("default", now=SYSTEM_CLOCK.now().plus(120))
    thread = threading.Thread(target=lambda: moved.append(driver.run(plan).moved))
    thread.start()
    wait_until(lambda: source.errors(refusal) > refused, "the script was refused")
    assert [b"a", b"b"] == source.client.zrange(KEYS.scheduled, 0, -1)
    cluster.move_keys(SLOT, source, to)
    cluster.finish_move(SLOT, to)
    thread.join()
    assert [2] == moved
    assert {b"first", b"a", b"b"} == set(to.client.lrange(KEYS.pending, 0, -1))


def test_a_move_that_lasts_longer_than_the_time_out_is_an_outage(
    cluster: Cluster, source: Node, make_client: Callable[..., ClientFace]
) -> None:
    """Nothing has been done, and the error says why."""
    to = cluster.other_than(source)
    client = make_client(cluster.url, timeout=1.0)
    client.enqueue(Task("t", task_id="a"))
    cluster.begin_move(SLOT, source, to)
    with pytest.raises(RedisUnavailableError, match=f"{explain_refusal(source)}|TRYAGAIN"):
        client.enqueue(Task("t", task_id="b"))
    cluster.move_keys(SLOT, source, to)
    cluster.finish_move(SLOT, to)
    assert [b"a"] == to.client.lrange(KEYS.pending, 0, -1)


async def _arm(watcher: Watcher, changes: asyncio.Queue[str], key: str) -> None:
    while not await watcher.arm(key):
        assert key == await changes.get()  # it is connected now


@run_async
async def test_h14_who_watches_an_empty_list_that_moves_is_told_after_the_next_arm(
    cluster: Cluster, source: Node
) -> None:
    """Redis pushes nothing then. The slow poll alongside the watch learns of the move, and an arm follows."""
    changes: asyncio.Queue[str] = asyncio.Queue()
    to = cluster.other_than(source)
    watcher = Watcher(parse_redis_url(cluster.url), changes.put_nowait)
    try:
        await _arm(watcher, changes, KEYS.pending)
        await asyncio.to_thread(cluster.move, SLOT, to)
        assert changes.empty()
        driver = AsyncDriver(parse_redis_url(cluster.url))
        await driver.run(get(KEYS.task("a")))
        await driver.close()
        await _arm(watcher, changes, KEYS.pending)
        assert 1 == len(watcher._servers)
        await asyncio.to_thread(to.client.lpush, KEYS.pending, "x")
        assert KEYS.pending == await changes.get()
        await asyncio.to_thread(to.client.delete, KEYS.pending)
    finally:
        await watcher.close()


@run_async
async def test_a_worker_watches_an_empty_queue_at_the_node_that_it_moves_to(
    cluster: Cluster, source: Node
) -> None:
    """The look is sent on to that node, and the worker has the next task reported there. (D25)"""
    to = cluster.other_than(source)
    settings = EngineSettings(look_interval=0.1)
    async with serving(cluster.url, do_nothing, settings=settings) as running:
        [queue] = running.queues
        while not is_watched(queue):
            await running.recorder.wait(RoundFinished, new=True)
        await asyncio.to_thread(cluster.move, SLOT, to)
        assert running.server._engine is not None
        servers = running.server._engine._watcher._servers
        keys = {KEYS.pending, KEYS.scheduled}
        while to.address not in servers or not keys <= servers[to.address]._armed:
            await running.recorder.wait(RoundFinished, new=True)
        await running.client.enqueue(Task("t", task_id="a"))
        await running.finished("a")
        await running.settled()


@run_async
async def test_h14_a_list_that_moves_with_its_tasks_is_a_change(cluster: Cluster, source: Node) -> None:
    """MIGRATE deletes it at the source."""
    changes: asyncio.Queue[str] = asyncio.Queue()
    watcher = Watcher(parse_redis_url(cluster.url), changes.put_nowait)
    try:
        await asyncio.to_thread(source.client.set, KEYS.paused, 1)
        await _arm(watcher, changes, KEYS.paused)
        await asyncio.to_thread(cluster.move, SLOT, cluster.other_than(source))
        assert KEYS.paused == await changes.get()
    finally:
        await watcher.close()


@run_async
async def test_a_worker_loses_nothing_while_its_queues_move_to_and_fro(
    cluster: Cluster, source: Node
) -> None:
    """Producers enqueue and handlers run meanwhile; each task runs, and once, for nothing fails."""
    to = cluster.other_than(source)
    ran: list[str] = []

    async def handle(task: Task) -> None:
        ran.append((task.payload or b"").decode())

    names = [str(number) for number in range(300)]
    config = ServerConfig(queues={"default": 1, "other": 1}, concurrency=10)
    async with serving(cluster.url, handle, config) as running:

        async def produce() -> None:
            for name in names:
                await running.client.enqueue(
                    Task("t", name.encode(), task_id=name, queue="other" if int(name) % 3 else "default")
                )

        producing = asyncio.create_task(produce())
        for there in (to, source, to, source):
            await asyncio.to_thread(cluster.move, SLOT, there)
        await producing
        while len(ran) < len(names):
            await running.next_round("processor")
        await running.settled()
    assert sorted(names) == sorted(ran)
