"""The names of queues in `asynq:queues`: written after the tasks, and until Redis has confirmed them."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import AggregationSet, Finish, finish_set
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._broker.registrar_blocking import BlockingRegistrar
from pyasynq._broker.schedules import fire
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq.config import ServerConfig
from pyasynq.task import Task, TaskState
from tests.contract.enqueueing import composed
from tests.factories import NOW
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._redis.plan import Plan
    from pyasynq.events import RedisWarning
    from tests.factories import Tasks
    from tests.fix_cluster import Cluster, Node
    from tests.fix_drivers import ClientFace, OwnServer
    from tests.invariants import RedisClient


def listed(client: RedisClient) -> set[bytes]:
    """Return the names in `asynq:queues`."""
    names: set[bytes] = client.smembers(ALL_QUEUES)
    return names


def test_a_queue_is_listed_with_its_first_task(
    redis_url: str, redis_client: RedisClient, make_client: Callable[..., ClientFace]
) -> None:
    """Fails if the script no longer calls SADD, also in a cluster, where the name follows the task."""
    client = make_client(redis_url)
    client.enqueue(Task("t", queue="critical"))
    wait_until(lambda: {b"critical"} == listed(redis_client), "the queue is listed")


@pytest.mark.parametrize("before", [1, 30], ids=["few", "busy"])
def test_w08_d48_a_queue_that_was_removed_is_listed_again_with_its_next_task(
    redis_url: str, redis_client: RedisClient, make_client: Callable[..., ClientFace], before: int
) -> None:
    """By the same client, without another enqueue after it; the name of a busy client follows the task."""
    client = make_client(redis_url)
    for _ in range(before):
        client.enqueue(Task("t"))
    redis_client.delete(ALL_QUEUES)
    client.enqueue(Task("t"))

    def is_listed() -> bool:
        client.ping()  # lets the event loop of the asyncio client turn
        return {b"default"} == listed(redis_client)

    wait_until(is_listed, "the queue is listed again")


@pytest.mark.single_server("in a cluster the name is on another node")
def test_the_name_travels_in_the_pipeline_of_the_tasks(redis_url: str, redis_client: RedisClient) -> None:
    """A client that enqueues now and then makes one round trip for both. (D48)"""
    batches: list[int] = []

    class Counting(BlockingDriver):
        def run_batch(self, plans: Sequence[Plan[Any]]) -> list[Any]:
            batches.append(len(plans))
            return super().run_batch(plans)

    driver = Counting(parse_redis_url(redis_url))
    registrar = BlockingRegistrar(driver)
    tick = fire(composed("a"), entry_id="e", tick=100, now=NOW)
    [fired] = registrar.run([tick], ["default"])
    assert not isinstance(fired, Exception)
    assert {b"default"} == listed(redis_client)
    assert [2] == batches
    driver.close()
    registrar.close()


def test_a_name_that_redis_refuses_is_a_warning_and_the_task_is_enqueued(own_server: OwnServer) -> None:
    """A user without the right to the set loses no task, and learns what is missing, once."""
    with own_server.connect() as raw:
        raw.execute_command("ACL", "SETUSER", "u", "on", ">p", "~asynq:{*", "+@all")
        warnings: list[RedisWarning] = []
        url = own_server.url.replace("unix://", "unix://u:p@")
        driver = BlockingDriver(parse_redis_url(url), on_warning=warnings.append)
        registrar = BlockingRegistrar(driver)
        for number in range(2):
            tick = fire(composed(f"{number}"), entry_id="e", tick=100 + number, now=NOW)
            [fired] = registrar.run([tick], ["default"])
            assert not isinstance(fired, Exception)
        assert [b"1", b"0"] == raw.lrange(queue_keys("default").pending, 0, -1)
        assert ["queue_names"] == [warning.code for warning in warnings]
        driver.close()
        registrar.close()


@run_async
async def test_a_worker_registers_its_queues_that_have_tasks(redis_url: str, tasks: Tasks) -> None:
    """For a client that died before it could; a queue without tasks or history is not made up. (D45)"""
    tasks.put(TaskState.SCHEDULED, "a", score=NOW.seconds + 3_600)
    tasks.client.delete(ALL_QUEUES)
    config = ServerConfig(queues={"default": 1, "empty": 1})
    async with serving(redis_url, do_nothing, config) as running:
        while not listed(tasks.client):
            await running.next_round("queue_look")
        await running.next_round("queue_look")
    assert {b"default"} == listed(tasks.client)


def other_queue(cluster: Cluster) -> tuple[Node, str]:
    """Return the node of the set of names, and a queue on another one."""
    node = cluster.owner(find_slot(ALL_QUEUES))
    queues = (f"q{number}" for number in range(100))
    return node, next(q for q in queues if cluster.owner(find_slot(queue_keys(q).pending)) is not node)


def test_an_enqueue_needs_the_node_of_its_queue_alone(
    cluster: Cluster, make_client: Callable[..., ClientFace]
) -> None:
    """The node of `asynq:queues` is silent; when it is back, it is told, without another enqueue. (D45)"""
    node, queue = other_queue(cluster)
    client = make_client(cluster.url, timeout=2.0)
    client.ping()
    node.signal(signal.SIGSTOP)
    try:
        for number in range(20):
            client.enqueue(Task("t", task_id=f"{number}", queue=queue))
        assert all(client.enqueue_many(Task("t", queue=queue) for _ in range(20)))
    finally:
        node.signal(signal.SIGCONT)
    with cluster.client() as raw:

        def is_listed() -> bool:
            # The event loop of the asyncio client runs during its calls alone.
            client.ping()
            return {queue.encode()} == listed(raw)

        wait_until(is_listed, "the queue is listed")


@run_async
async def test_schedulers_and_aggregators_need_the_node_of_their_queue_alone(cluster: Cluster) -> None:
    """Their keys are written at once, and the queue is listed when the node is back. (D45)"""
    node, queue = other_queue(cluster)
    driver = AsyncDriver(parse_redis_url(cluster.url), timeout=2.0)
    registrar = AsyncRegistrar(driver)
    node.signal(signal.SIGSTOP)
    try:
        tick = fire(composed("a", queue=queue), entry_id="e", tick=100, now=NOW)
        fired = await registrar.run_one(tick, queue)
        assert fired.result
        gone = AggregationSet(queue, "g", "s")
        plan = finish_set(gone, composed("b", queue=queue), locks=(), now=NOW)
        assert Finish.LOST is await registrar.run_one(plan, queue)
    finally:
        node.signal(signal.SIGCONT)
    with cluster.client() as raw:
        while {queue.encode()} != listed(raw):  # noqa: ASYNC110 - pytest's time-out bounds it
            await asyncio.sleep(0.01)
    await driver.close()
    await registrar.close()
