"""Inspectors that read from replicas: of a single server, under Sentinel and in a cluster."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Client, Inspector, sync
from pyasynq._broker.inspecting.reading import only_reads
from pyasynq._broker.inspecting.walks import NO_FILTER
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._redis.replica_search import EnterFirst, EnterReplica, seek_replica
from pyasynq._redis.session import Close, Received, Send
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import InvalidOptionError, ReadFromReplicaError, RedisUnavailableError
from pyasynq.task import TaskState
from tests.contract.test_inspector_doors import NEEDS_QUEUE
from tests.fix_cluster import Cluster
from tests.fix_replica import wait_for_replication
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.url import RedisTarget
    from tests.fix_replica import Replicated
    from tests.fix_sentinel import SentinelGroup

pytestmark = pytest.mark.single_server("each test has the servers that it needs")

READS: dict[str, tuple[Any, ...]] = {
    "queues": (),
    "queue_info": ("default",),
    "queue_infos": (),
    "queue_memory": ("default",),
    "replicas": (),
    "history": ("default", 1),
    "groups": ("default",),
    "group_page": ("default",),
    "list_tasks": ("default", "pending"),
    "task_info": ("default", "a"),
    "search_tasks": ("default", "pending"),
    "error_report": ("default",),
    "type_report": ("default",),
    "servers": (),
    "task_types": (),
    "recent_events": ("default",),
    "scheduler_entries": (),
    "scheduler_events": ("e",),
    "redis_info": (),
    "redis_texts": (),
    "queue_locations": (["mail"],),
    "redis_report": (),
    "walk_tasks": ("default", "pending"),
    "find_tasks": (["a"],),
    "marks": (datetime(2026, 1, 1, tzinfo=UTC),),
    "count_collections": ([("default", TaskState.PENDING, "", NO_FILTER)],),
}
WRITES: dict[str, tuple[Any, ...]] = {
    name: ("default", *NEEDS_QUEUE[name])
    for name in (
        *("run_task", "archive_task", "delete_task", "update_payload", "update_process_at", "remove_queue"),
        *("run_all", "archive_all", "delete_all", "run_tasks", "archive_tasks", "delete_tasks"),
        *("reschedule_tasks", "cancel_tasks"),
    )
} | {
    "cancel": ("a",),
    "pause_queue": ("default",),
    "unpause_queue": ("default",),
    "set_queue_limits": ("default",),
    "quiet_server": ("s",),
    "stop_server": ("s",),
    "pause_entry": ("e",),
    "unpause_entry": ("e",),
    "run_entry": ("e",),
    "add_mark": ("deployed",),
    "remove_mark": ("m",),
}
ELSEWHERE = {"attempt_series", "close", "follow", "cluster_keyslot", "cluster_nodes"}
"""Methods that have a test of their own, or that only a cluster answers."""


@contextmanager
def reading(url: str, **settings: Any) -> Iterator[sync.Inspector]:
    """Return an inspector that reads from a replica."""
    with sync.Inspector(url, read_from="replica", **settings) as inspector:
        yield inspector


async def fill(url: str) -> None:
    """Enqueue a task to each of some queues."""
    async with Client(url) as client:
        for queue in ("default", "low", "mail"):
            await client.enqueue("t", task_id="a", queue=queue)


def commands_of(client: redis.Redis) -> set[str]:
    """Return the commands of pyasynq that a server has run since its statistics were reset."""
    found: Any = client.info("commandstats")
    told = {name.removeprefix("cmdstat_") for name in found}
    return told & {"evalsha", "smembers", "sismember", "hmget", "zrangebyscore"}


def read_everything(inspector: sync.Inspector) -> None:
    """Call each method that reads."""
    for name, arguments in READS.items():
        getattr(inspector, name)(*arguments)


def test_every_method_either_reads_or_is_refused() -> None:
    """A new one is added here, and calls `_require_primary` if it writes."""
    methods = {name for name, _ in inspect.getmembers(Inspector, inspect.isfunction) if name[0] != "_"}
    assert methods == {*READS, *WRITES, *ELSEWHERE}


def test_the_whole_read_side_works_on_a_replica(replicated: Replicated) -> None:
    """The URL names the replica; the primary is not touched."""
    replica = replicated.add_replica()
    asyncio.run(fill(replicated.url))
    wait_for_replication(replicated.primary)
    replicated.primary.config_resetstat()

    with reading(replicated.replica_url()) as inspector:
        read_everything(inspector)
        infos = inspector.queue_infos()

    assert [("default", 1), ("low", 1), ("mail", 1)] == [(info.queue, info.pending) for info in infos]
    assert set() == commands_of(replicated.primary)
    assert "evalsha" in commands_of(replica)


def test_a_replica_is_found_by_what_the_primary_tells(replicated: Replicated) -> None:
    """The URL names the primary, which is asked for its replicas alone."""
    replica = replicated.add_replica(port=free_port())
    asyncio.run(fill(replicated.url))
    wait_for_replication(replicated.primary)
    replicated.primary.config_resetstat()

    async def read() -> list[str]:
        async with Inspector(replicated.url, read_from="replica") as inspector:
            return [info.queue for info in await inspector.queue_infos()]

    assert ["default", "low", "mail"] == asyncio.run(read())
    with reading(replicated.url) as inspector:
        read_everything(inspector)
    assert set() == commands_of(replicated.primary)
    assert "evalsha" in commands_of(replica)


def test_a_primary_without_replicas_is_an_error_that_says_so(replicated: Replicated) -> None:
    """It is not read from instead."""
    with (
        reading(replicated.url, timeout=0.2) as inspector,
        pytest.raises(RedisUnavailableError, match="no replica that is online"),
    ):
        inspector.queues()


def test_a_replica_tells_how_far_it_is_behind(replicated: Replicated) -> None:
    """By its link to the primary; a primary that is gone does not stop the reading."""
    replicated.add_replica()
    asyncio.run(fill(replicated.url))
    wait_for_replication(replicated.primary)
    with reading(replicated.replica_url()) as inspector:
        [state] = inspector.replicas()
        assert (True, f"127.0.0.1:{replicated.port}") == (state.is_connected, state.primary)
        assert state.behind is not None
        as_of = inspector.queue_infos().as_of
        assert as_of is not None
        assert as_of <= datetime.now(UTC)

        replicated.primary.shutdown(nosave=True)
        wait_until(lambda: not inspector.replicas()[0].is_connected, "the replica notices")
        assert 3 == len(inspector.queue_infos())
    with sync.Inspector(replicated.replica_url()) as plain:
        assert ([], None) == (plain.replicas(), plain.queue_infos().as_of)


def test_a_write_is_refused_before_anything_is_sent(replicated: Replicated) -> None:
    """Asyncio and blocking; not even the existence of the queue is asked for."""

    async def write() -> None:
        async with Inspector(replicated.url, read_from="replica") as inspector:
            for method, arguments in WRITES.items():
                with pytest.raises(ReadFromReplicaError, match="changes nothing"):
                    await getattr(inspector, method)(*arguments)

    connections = replicated.primary.info("stats")["total_connections_received"]
    asyncio.run(write())
    with reading(replicated.url) as inspector:
        for method, arguments in WRITES.items():
            with pytest.raises(ReadFromReplicaError):
                getattr(inspector, method)(*arguments)
    assert connections == replicated.primary.info("stats")["total_connections_received"]


def test_a_plan_that_would_write_is_ended_before_it_does(replicated: Replicated) -> None:
    """The driver ends such a plan, so a method that forgets to refuse does no harm."""
    replicated.add_replica()

    def plan() -> Any:
        try:
            yield CommandCall(("SMEMBERS", "asynq:queues"), "asynq:queues", Replay.SAFE)
            yield CommandCall(("SADD", "asynq:queues", "q"), "asynq:queues", Replay.SAFE)
        finally:
            ended.append(True)

    ended: list[bool] = []
    with reading(replicated.replica_url()) as inspector, pytest.raises(ReadFromReplicaError):
        inspector._run(plan())
    assert [True] == ended
    assert not only_reads(CommandCall(("PUBLISH", "c", "m"), None, Replay.SAFE))


@pytest.mark.parametrize("read_from", ["replicas", "", None])
def test_the_place_to_read_from_is_checked(read_from: Any) -> None:
    """At once."""
    with pytest.raises(InvalidOptionError, match=r"^read_from="):
        sync.Inspector("redis://localhost", read_from=read_from)


def test_an_embedded_server_has_no_replicas() -> None:
    """The error says so instead of waiting for one."""
    with pytest.raises(InvalidOptionError, match="embedded"):
        sync.Inspector("embedded://", read_from="replica")


@pytest.fixture(scope="module")
def cluster_with_replicas() -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    with Cluster(replicas=1) as cluster:
        cluster.wait_for_replicas()
        asyncio.run(fill(cluster.url))
        yield cluster


def test_a_cluster_is_read_from_its_replicas(cluster_with_replicas: Cluster) -> None:
    """Each queue from a replica of its node; no primary is asked for anything but the map."""
    primaries = cluster_with_replicas.primaries
    for node in primaries:
        wait_for_replication(node.client)
        node.client.config_resetstat()

    async def read() -> list[str]:
        async with Inspector(cluster_with_replicas.url, read_from="replica") as inspector:
            await inspector.cluster_nodes("mail")
            return [info.queue for info in await inspector.queue_infos()]

    assert ["default", "low", "mail"] == asyncio.run(read())
    with reading(cluster_with_replicas.url) as inspector:
        read_everything(inspector)
        assert 3 == len(inspector.replicas())
        assert all(state.is_connected for state in inspector.replicas())
        assert inspector.queue_infos().as_of is not None
    assert [set()] * 3 == [commands_of(node.client) for node in primaries]


def test_a_cluster_without_replicas_is_an_error_that_says_so(cluster: Cluster) -> None:
    """Its primaries are not read from instead."""
    with (
        reading(cluster.url, timeout=0.5) as inspector,
        pytest.raises(RedisUnavailableError, match="no replica serves slot"),
    ):
        inspector.queues()


def test_a_primary_under_sentinel_is_read_from_its_replicas(sentinel_group: SentinelGroup) -> None:
    """And from those of the next primary after a failover."""
    url = sentinel_group.url()
    asyncio.run(fill(url))
    with reading(url, timeout=20) as inspector:
        wait_until(lambda: 3 == len(inspector.queue_infos()), "the replica has everything")
        assert inspector.replicas()[0].primary.endswith(f":{sentinel_group.primary.port}")
        sentinel_group.fail_over()
        wait_until(
            lambda: (
                [str(sentinel_group.primary.port)]
                == [state.primary.rpartition(":")[2] for state in inspector.replicas()]
            ),
            "a replica of the new primary is read from",
        )
        read_everything(inspector)


ROLE_OF_PRIMARY = (
    b"role:master\r\nslave0:ip=a,port=1,state=online,offset=5,lag=0\r\n"
    b"slave1:ip=b,port=2,state=online,offset=9,lag=0\r\nslave2:ip=c,port=3,state=wait_bgsave,offset=9,lag=0\r\n"
    b"slave3:ip=d,port=0,state=online,offset=9,lag=0\r\nslave4:nonsense\r\n"
)


def search(answers: list[Any], preferred: Address | None = None) -> tuple[list[Any], Any]:
    """Answer the steps of a search; return the addresses that it connects to, and its result."""
    target: RedisTarget = parse_redis_url("redis://host")
    steps = seek_replica(target, 5.0, preferred)
    seen: list[Any] = []
    answer: Any = None
    try:
        while True:
            step = steps.send(answer)
            answer = None
            if isinstance(step, EnterFirst):
                seen.append("first")
            elif isinstance(step, EnterReplica):
                assert (step.target.host, step.target.port) == step.address
                seen.append(step.address)
            if not isinstance(step, Close):
                answer = answers.pop(0)
                assert isinstance(step, Send) is isinstance(answer, Received)
    except StopIteration as stop:
        return seen, stop.value


def test_the_replica_that_has_received_most_is_taken() -> None:
    """The one that was used before comes first; one that is not online, or has no port, is left out."""
    primary, replica = Received([ROLE_OF_PRIMARY]), Received([b"role:slave\r\n"])
    assert (["first", ("b", 2)], (("b", 2), None)) == search([None, primary, None, replica])
    assert (["first", ("a", 1)], (("a", 1), None)) == search([None, primary, None, replica], ("a", 1))
    assert (["first"], (None, None)) == search([None, replica])


def test_the_next_replica_is_tried_when_one_fails() -> None:
    """One that does not answer, and one that has become a primary."""
    primary, promoted = Received([ROLE_OF_PRIMARY]), Received([b"role:master\r\n"])
    seen, (found, refusal) = search([None, primary, "silence", None, promoted])
    assert (["first", ("b", 2), ("a", 1)], None) == (seen, found)
    assert "no longer a replica" in str(refusal)
    assert (["first"], (None, "away")) == search(["away"])
    assert "no replica that is online" in str(search([None, promoted])[1][1])
