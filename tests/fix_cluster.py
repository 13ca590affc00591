"""A cluster on free ports of the loopback, from the same program as the server under test."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
import redis

from pyasynq._redis.addresses import format_address
from pyasynq.embedded import find_server_binary
from tests.cluster_client import ClusterClient, raw
from tests.ports import free_ports
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

SLOTS: Final = 16_384
_HOST: Final = "127.0.0.1"
_BUS_OFFSET: Final = 10_000
_OPTIONS: Final = (
    "--cluster-enabled", "yes",
    "--cluster-config-file", "nodes.conf",
    "--cluster-replica-validity-factor", "0",
    "--repl-diskless-sync-delay", "0",
    "--bind", _HOST,
    "--save", "",
    "--appendonly", "no",
)  # fmt: skip


class Node:
    """One server of a cluster."""

    def __init__(self, folder: Path, port: int, timeout: float) -> None:
        self.address = (_HOST, port)
        self.announced_port = port
        """Port that all nodes announce for this one to clients, after its start."""
        self._timeout = timeout
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(host=_HOST, port=port, protocol=2)

    def start(self, *more: str) -> None:
        """Start the server, with more options; it dies with this process."""
        self._folder.mkdir(exist_ok=True)
        binary = find_server_binary(os.environ.get("PYASYNQ_TEST_BINARY"))
        options = ["--port", str(self.address[1]), "--cluster-node-timeout", str(int(self._timeout * 1_000))]
        if self.announced_port != self.address[1]:
            options += ["--cluster-announce-port", str(self.announced_port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary.path, *options, *_OPTIONS, "--dir", str(self._folder), *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it makes one system call
            )
        wait_until(self.answers, f"{format_address(self.address)} answers")

    def answers(self) -> bool:
        """Return whether the node answers commands."""
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    @property
    def id(self) -> str:
        """Id of the node in the cluster."""
        return str(self.cluster("MYID").decode())

    def cluster(self, *command: object) -> Any:
        """Run a subcommand of CLUSTER, and return the reply without conversion."""
        return raw(self.client, "CLUSTER", *command)

    def epoch_of(self, other: Node) -> int:
        """Return the configuration epoch of another node, as this node knows it."""
        # A line is: id, address, flags, primary, ping sent, pong received, epoch, ...
        lines = str(self.cluster("NODES").decode()).splitlines()
        return next(int(fields[6]) for fields in map(str.split, lines) if fields[0] == other.id)

    def errors(self, code: str) -> int:
        """Return how often the node has answered with an error of this code."""
        return int(self.client.info("errorstats").get(f"errorstat_{code}", {}).get("count", 0))

    def signal(self, number: int) -> None:
        """Send a signal to the process of the node."""
        assert self._process is not None
        self._process.send_signal(number)

    def cut_off(self) -> None:
        """Restart the node with its old view of the cluster, unreachable for its peers but not clients."""
        self.kill()
        view = self._folder / "nodes.conf"
        # Each line has an address such as 127.0.0.1:7000@17000, whose end is the port for peers. Nothing
        # listens at port 1, and where its own peers look for this node nothing does either.
        view.write_text(re.sub(r"@\d+", "@1", view.read_text("utf-8")), "utf-8")
        [port] = free_ports(1)
        self.start("--cluster-port", str(port))

    def kill(self) -> None:
        """Kill the node, if it runs, and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        self.client.close()


class Cluster:
    """Primaries with an equal share of the slots, and for each this many replicas; started on entering.

    The other nodes regard a node as dead after `node_timeout` seconds of silence, which a busy machine can
    also cause.
    """

    def __init__(self, *, primaries: int = 3, replicas: int = 0, node_timeout: float = 30.0) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pyasynq-cluster-"))
        self.nodes = [
            Node(self._folder / str(port), port, node_timeout)
            for port in free_ports(primaries * (1 + replicas), offset=_BUS_OFFSET)
        ]
        self._count = primaries
        self.url = "redis-cluster://" + ",".join(format_address(node.address) for node in self.nodes)

    @property
    def primaries(self) -> list[Node]:
        """The nodes that began as primaries."""
        return self.nodes[: self._count]

    def client(self) -> ClusterClient:
        """Return a client of the whole cluster."""
        return ClusterClient([node.address for node in self.nodes])

    def owner(self, slot: int, *, told_by: Node | None = None) -> Node:
        """Return the node that serves a slot, as another node knows it."""
        for first, last, primary, *_ in (told_by or self.nodes[0]).cluster("SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.announced_port == primary[1])
        raise LookupError(slot)

    def other_than(self, node: Node) -> Node:
        """Return another primary."""
        return next(other for other in self.primaries if other is not node)

    def begin_move(self, slot: int, source: Node, to: Node) -> None:
        """Begin to migrate a slot; its keys are not moved yet."""
        to.cluster("SETSLOT", slot, "IMPORTING", source.id)
        source.cluster("SETSLOT", slot, "MIGRATING", to.id)

    def move_keys(self, slot: int, source: Node, to: Node, *names: str) -> None:
        """Migrate these keys of a slot, or all of its keys."""
        keys = names or source.cluster("GETKEYSINSLOT", slot, 10_000)
        for key in keys:
            raw(source.client, "MIGRATE", *to.address, key, 0, 5_000)

    def finish_move(self, slot: int, to: Node) -> None:
        """Assign the slot on all nodes, on the new owner first, and wait until no node can lose the change.

        The new owner raises its epoch. On a node that does not know this epoch yet, a late message of the old
        owner reverts the change.
        """
        for node in [to, *(node for node in self.primaries if node is not to)]:
            node.cluster("SETSLOT", slot, "NODE", to.id)

        def agreed() -> bool:
            epochs = {node.epoch_of(to) for node in self.nodes}
            return len(epochs) == 1 and all(self.owner(slot, told_by=node) is to for node in self.nodes)

        wait_until(agreed, f"all nodes know that slot {slot} is at {format_address(to.address)}")

    def move(self, slot: int, to: Node) -> None:
        """Move a slot with all its keys."""
        source = self.owner(slot, told_by=to)
        if source is not to:
            self.begin_move(slot, source, to)
            self.move_keys(slot, source, to)
            self.finish_move(slot, to)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _join(self) -> None:
        share = SLOTS // self._count
        for number, node in enumerate(self.nodes):
            # Different from the start: nodes with equal epochs would first have to resolve the conflict.
            node.cluster("SET-CONFIG-EPOCH", number + 1)
            if number < self._count:
                last = SLOTS - 1 if number == self._count - 1 else (number + 1) * share - 1
                node.cluster("ADDSLOTS", *range(number * share, last + 1))
        # Introduce each node to each: by gossip alone, a replica learns of its primary seconds later.
        for number, node in enumerate(self.nodes):
            for other in self.nodes[number + 1 :]:
                node.cluster("MEET", *other.address)
        # A primary begins to answer two seconds after its start; meanwhile the replicas can follow theirs.
        for number, node in enumerate(self.nodes[self._count :]):
            primary = self.nodes[number % self._count].id
            wait_until(lambda node=node, primary=primary: _replicates(node, primary), "a replica follows")  # type: ignore[misc]
        self._wait_for_agreement()
        self.wait_for_replicas()

    def _wait_for_agreement(self) -> None:
        def agree() -> bool:
            infos = [node.cluster("INFO") for node in self.nodes]
            known = b"cluster_known_nodes:%d\r\n" % len(self.nodes)
            return all(b"cluster_state:ok" in info and known in info for info in infos)

        wait_until(agree, "the nodes agree")

    def wait_for_replicas(self) -> None:
        """Wait until every node that replicates has all that its primary has."""
        for node in self.nodes[self._count :]:
            wait_until(
                lambda node=node: node.client.info("replication").get("master_link_status") == "up",  # type: ignore[misc]
                "a replica is in step",
            )

        def all_know() -> bool:
            replicated = len(self.nodes) // self._count
            return all(
                all(len(serving) == replicated for _, _, *serving in node.cluster("SLOTS"))
                for node in self.nodes
            )

        wait_until(all_know, "all nodes know all replicas")


def _replicates(node: Node, primary: str) -> bool:
    try:
        node.cluster("REPLICATE", primary)
    except redis.ResponseError:  # the replica does not know its primary yet
        return False
    return True


_LIBC: Final = ctypes.CDLL(None) if os.uname().sysname == "Linux" else None
_PR_SET_PDEATHSIG: Final = 1


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@pytest.fixture(scope="session")
def cluster_server() -> Iterator[Cluster]:
    """The cluster of this test process: three primaries."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_server: Cluster) -> Cluster:
    """The cluster of this test process, emptied."""
    with cluster_server.client() as client:
        client.flushall()
        client.script_flush()
    return cluster_server


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A separate cluster for one test, which may damage it: three primaries with a replica each."""
    with Cluster(replicas=1, node_timeout=2.0) as cluster:
        yield cluster
