"""Durable enqueues on a cluster with replicas, and under Sentinel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import NotDurableError, Task
from tests.fix_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_drivers import ClientFace
    from tests.fix_sentinel import SentinelGroup

    MakeClient = Callable[..., ClientFace]

QUEUES = [f"queue{number}" for number in range(9)]


@pytest.fixture(scope="module")
def replicated_cluster() -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    with Cluster(replicas=1) as cluster:
        cluster.wait_for_replicas()
        yield cluster


@pytest.mark.long
def test_each_node_of_a_cluster_is_asked_for_its_replicas(
    make_client: MakeClient, replicated_cluster: Cluster
) -> None:
    """A batch over all of them waits at each."""
    client = make_client(replicated_cluster.url)
    results = client.enqueue_many([Task("t", queue=queue, durable=True) for queue in QUEUES])
    assert [None] * len(QUEUES) == [result.error for result in results]
    stats: list[Any] = [node.client.info("commandstats") for node in replicated_cluster.primaries]
    assert all("cmdstat_wait" in one for one in stats)


@pytest.mark.sample(1)
def test_more_replicas_than_a_node_has_are_too_many(
    make_client: MakeClient, replicated_cluster: Cluster
) -> None:
    """The task is in its queue."""
    client = make_client(replicated_cluster.url, timeout=1.0)
    with pytest.raises(NotDurableError, match="1 are connected") as raised:
        client.enqueue("t", queue="queue0", durable=2)
    assert (1, 2) == (raised.value.replicas, raised.value.wanted)


@pytest.mark.sample(1)
def test_under_sentinel_the_primary_of_the_hour_is_asked(
    make_client: MakeClient, sentinel_group: SentinelGroup
) -> None:
    """Both of its replicas have the task; after a failover, a replica of the next one."""
    make_client(sentinel_group.url()).enqueue("t", durable=2)
    sentinel_group.fail_over()
    # The Sentinels name the next primary before it knows that it is one.
    make_client(sentinel_group.url(), timeout=30.0).enqueue("t", durable=True)
