"""A primary, two replicas and three Sentinels on the loopback, from the server program that the tests use.

They are started once for each test process that asks for them, and end with it.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyasynq.embedded import find_server_binary
from tests import waiting
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME = "tasks"
SLOW = 10_000
"""Milliseconds of silence after which Sentinels regard a server as dead: long, for busy machines."""
QUICK = 400
"""The same timeout in milliseconds, for tests of a fail-over."""
_PATIENCE = 60.0
_PERIODS = ("info-period", "200", "publish-period", "200", "ping-period", "100", "ask-period", "200")
_NEVER_TILT = ("tilt-trigger", "600000")
"""Sentinels that were held up for two seconds, as on a busy computer, would do nothing for thirty."""
_KILL_AT_END = '"$@" & read -r line; kill -9 $!; wait $!'
"""Shell script that kills its server when its input ends: by a test, or by the death of the test process."""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Poll until a condition holds; an unreachable server counts as False."""

    def holds() -> bool:
        try:
            return bool(condition())
        except redis.RedisError:
            return False

    waiting.wait_until(holds, what, seconds=_PATIENCE)


class Node:
    """One server or Sentinel of the group."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Any = redis.Redis(port=port, socket_timeout=5, retry=Retry(NoBackoff(), 0), protocol=2)
        folder.mkdir()

    def start(self, *arguments: str) -> None:
        """Start the program."""
        binary = find_server_binary(os.environ.get("PYASYNQ_TEST_BINARY"))
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _KILL_AT_END, "sh", str(binary.path), *arguments],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def start_server(self, *, replica_of: int | None = None) -> None:
        """Start it as a primary, or as a replica of the server on a port."""
        replica = ("--replicaof", "127.0.0.1", str(replica_of)) if replica_of else ()
        self.start(
            *("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)),
            *("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", *replica),
        )

    def start_sentinel(self, primary: int) -> None:
        """Start it as a Sentinel of the primary on a port."""
        (self.folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary} 2\n"
            f"sentinel down-after-milliseconds {NAME} {SLOW}\n"
            f"sentinel failover-timeout {NAME} 3000\n",
            "utf-8",
        )
        self.start("sentinel.conf", "--sentinel")

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None


class SentinelGroup:
    """The servers and the Sentinels, with methods that inject faults."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(6)
        self.servers = [Node(folder / f"server-{port}", port) for port in ports[:3]]
        self.sentinels = [Node(folder / f"sentinel-{port}", port) for port in ports[3:]]

    def start(self) -> None:
        """Start all, and wait until they know one another."""
        first, *others = self.servers
        first.start_server()
        for server in others:
            server.start_server(replica_of=first.port)
        wait_until(self._replicate, "two replicas at work")
        for sentinel in self.sentinels:
            sentinel.start_sentinel(first.port)
        for sentinel in self.sentinels:
            wait_until(sentinel.client.ping, "a Sentinel that answers")
        self.tune(*_PERIODS, *_NEVER_TILT)
        wait_until(self._is_complete, "Sentinels that know all servers and one another")

    def tune(self, *periods: str) -> None:
        """Set parameters of the Sentinels, by name, in milliseconds, until `heal`."""
        for sentinel in self.sentinels:
            sentinel.client.execute_command("SENTINEL", "DEBUG", *periods)

    def stop(self) -> None:
        """End all."""
        for node in (*self.sentinels, *self.servers):
            node.kill()
            node.client.close()

    def url(self, login: str = "", *, database: int = 0, **parameters: str) -> str:
        """Return the URL of the group, with a login as in `user:password@`."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in {"master": NAME, **parameters}.items())
        return f"redis-sentinel://{login}{hosts}/{database}?{query}"

    @property
    def primary(self) -> Node:
        """The server that the Sentinels agree on."""
        [port] = {self._named_by(sentinel) for sentinel in self.sentinels if sentinel.is_running}
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[Node]:
        """The other servers."""
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def ask(self, *command: str) -> list[Any]:
        """Send a subcommand of SENTINEL to each Sentinel, with the name of the group as first argument."""
        return [
            sentinel.client.execute_command("SENTINEL", command[0], NAME, *command[1:])
            for sentinel in self.sentinels
        ]

    def kill_primary(self) -> Node:
        """Kill the primary, wait until the Sentinels have promoted another node, and return the dead one."""
        dead = self.primary
        self.ask("SET", "down-after-milliseconds", str(QUICK))
        dead.kill()
        self.wait_for_another(dead)
        self.ask("SET", "down-after-milliseconds", str(SLOW))
        return dead

    def fail_over(self) -> Node:
        """Promote a replica while the old primary lives; return the old primary."""
        old = self.primary
        wait_until(lambda: self._fails_over(old), "a fail-over")
        self.wait_for_another(old)
        return old

    def _fails_over(self, old: Node) -> bool:
        """Return whether a Sentinel has another primary; begin with the fail-over if none is going on.

        A Sentinel refuses while the last one is not over, and gives up when it was held up for so long that
        all it knows of the replicas is too old.
        """
        sentinel = self.sentinels[0].client
        facts = _fields(sentinel.execute_command("SENTINEL", "MASTER", NAME))
        if int(facts["port"]) != old.port:
            return True
        if "failover_in_progress" not in facts["flags"]:
            sentinel.execute_command("SENTINEL", "FAILOVER", NAME)
        return False

    def wait_for_another(self, old: Node) -> None:
        """Wait until all Sentinels name another primary, and name the same."""

        def named() -> bool:
            ports = {self._named_by(sentinel) for sentinel in self.sentinels if sentinel.is_running}
            return len(ports) == 1 and old.port not in ports

        wait_until(named, "another primary")

    def heal(self) -> None:
        """Restart killed nodes, and wait until there are one primary and two replicas again."""
        for sentinel in self.sentinels:
            if not sentinel.is_running:
                sentinel.start("sentinel.conf", "--sentinel")
                wait_until(sentinel.client.ping, "a Sentinel that answers")
        self.tune(*_PERIODS, *_NEVER_TILT)
        wait_until(self._is_agreed, "Sentinels that agree")
        primary = self.primary
        for server in self.servers:
            if not server.is_running:
                server.start_server(replica_of=primary.port)
        wait_until(self._replicate, "two replicas at work")
        wait_until(self._is_complete, "Sentinels that know all servers and one another")

    def _is_agreed(self) -> bool:
        return len({self._named_by(sentinel) for sentinel in self.sentinels}) == 1

    def _named_by(self, sentinel: Node) -> int:
        [_, port] = sentinel.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return int(port)

    def _replicate(self) -> bool:
        facts: list[Any] = [server.client.info("replication") for server in self.servers]
        roles = sorted(fact["role"] for fact in facts)
        links = [fact["master_link_status"] for fact in facts if fact["role"] == "slave"]
        return roles == ["master", "slave", "slave"] and links == ["up", "up"]

    def _is_complete(self) -> bool:
        for sentinel in self.sentinels:
            facts = _fields(sentinel.client.execute_command("SENTINEL", "MASTER", NAME))
            if (facts["num-slaves"], facts["num-other-sentinels"], facts["flags"]) != ("2", "2", "master"):
                return False
            replicas = sentinel.client.execute_command("SENTINEL", "REPLICAS", NAME)
            if any(_fields(replica)["flags"] != "slave" for replica in replicas):
                return False
        return self._is_agreed()


def _fields(reply: list[bytes]) -> dict[str, str]:
    texts = [field.decode() for field in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))


@pytest.fixture(scope="session")
def running_sentinel_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelGroup]:
    """The group of this test process."""
    group = SentinelGroup(tmp_path_factory.mktemp("sentinel"))
    try:
        group.start()
        yield group
    except redis.ResponseError as error:
        if "'DEBUG'" not in str(error):
            raise
        pytest.skip("only on servers whose Sentinels can be told to make haste")
    finally:
        group.stop()


@pytest.fixture
def sentinel_group(running_sentinel_group: SentinelGroup) -> Iterator[SentinelGroup]:
    """The group, with one empty primary and two replicas, which the end of the test restores."""
    primary = running_sentinel_group.primary.client
    primary.flushall()
    # A Sentinel that learns of a fail-over late may reconnect a replica after the group has healed.
    wait_until(lambda: primary.execute_command("WAIT", 2, 500) >= 2, "replicas that confirm")
    yield running_sentinel_group
    running_sentinel_group.heal()
