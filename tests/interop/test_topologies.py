"""Clients and servers of both kinds on a cluster and under Sentinel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from pyasynq import Task, sync
from tests.fix_sentinel import NAME
from tests.fix_worker import Program, Worker
from tests.interop.go_peer import SOURCE as PEER
from tests.interop.go_peer import build_program
from tests.invariants import check_invariants
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fix_cluster import Cluster
    from tests.fix_sentinel import SentinelGroup
    from tests.invariants import RedisClient

SOURCE = PEER.parent / "member"
QUEUES = ("default", "low")
"""On two nodes of a cluster of three."""


class Place(NamedTuple):
    """Where Redis is: for us, for a program in Go, and for the test."""

    url: str
    for_go: tuple[str, str]
    client: RedisClient


@pytest.fixture(scope="session")
def member(programs: Path) -> Path:
    """The compiled program."""
    return build_program(SOURCE, programs)


@pytest.fixture(params=["cluster", "sentinel"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A cluster of three primaries, or a primary with two replicas and three Sentinels; empty."""
    if request.param == "cluster":
        cluster: Cluster = request.getfixturevalue("cluster")
        addresses = cluster.url.partition("://")[2]
        with cluster.client() as client:
            yield Place(cluster.url, ("cluster", addresses), client)
            check_invariants(client)
    else:
        group: SentinelGroup = request.getfixturevalue("sentinel_group")
        addresses = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in group.sentinels)
        yield Place(group.url(), ("sentinel", f"{NAME}@{addresses}"), group.primary.client)
        check_invariants(group.primary.client)


def enqueue_here(place: Place, count: int) -> list[str]:
    """Enqueue this many tasks into each queue, and return all ids."""
    tasks = [Task("mark", queue=queue, task_id=f"{queue}-py{n}") for queue in QUEUES for n in range(count)]
    with sync.Client(place.url) as client:
        assert all(client.enqueue_many(tasks))
    return [task.options["task_id"] for task in tasks]


def enqueue_in_go(place: Place, member: Path, count: int) -> list[str]:
    """Have Asynq do the same."""
    for queue in QUEUES:
        with Program(str(member), *place.for_go, "enqueue", queue, str(count), f"{queue}-go") as program:
            assert 0 == program.end(), program.text
    return [f"{queue}-go{n}" for queue in QUEUES for n in range(count)]


def serve_in_go(place: Place, member: Path) -> Program:
    """Start a server of Asynq."""
    return Program(str(member), *place.for_go, "serve", ",".join(QUEUES))


def serve_here(place: Place) -> Worker:
    """Start one of ours."""
    return Worker(place.url, queues=dict.fromkeys(QUEUES, 1), concurrency=4)


def ran(program: Program) -> list[str]:
    """Return which tasks a server has run."""
    return program.all("ran (.*)")


def test_asynq_runs_what_python_enqueues(place: Place, member: Path) -> None:
    """From each queue."""
    with serve_in_go(place, member) as server:
        ids = enqueue_here(place, 20)
        server.wait_for("ran ", times=len(ids))
        assert sorted(ids) == sorted(ran(server))


def test_python_runs_what_asynq_enqueues(place: Place, member: Path) -> None:
    """Woken by what a Go client writes."""
    with serve_here(place) as server:
        server.wait_until_active(place.client)
        ids = enqueue_in_go(place, member, 20)
        server.wait_for("ran ", times=len(ids))
        assert sorted(ids) == sorted(ran(server))
        assert 0 == server.terminate()


def test_servers_of_both_kinds_share_the_tasks_of_clients_of_both_kinds(place: Place, member: Path) -> None:
    """Each task is run once."""
    with serve_in_go(place, member) as in_go, serve_here(place) as here:
        in_go.wait_for("serving")
        here.wait_until_active(place.client)
        ids = enqueue_in_go(place, member, 50) + enqueue_here(place, 200)
        wait_until(lambda: len(ran(in_go)) + len(ran(here)) >= len(ids))
        assert sorted(ids) == sorted(ran(in_go) + ran(here))
        assert ran(in_go)
        assert ran(here)
        assert 0 == here.terminate()
