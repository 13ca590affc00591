"""Sentinels of which one is silent, or has not heard of a fail-over."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import hiredis
import pytest

from pyasynq._redis.sentinel import primary_watch
from pyasynq._redis.url import parse_redis_url
from tests.factories import Tasks
from tests.fix_listener import Listener
from tests.fix_sentinel import NAME, Node, wait_until
from tests.ports import free_ports

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fix_drivers import ClientFace
    from tests.fix_sentinel import SentinelGroup


class ToldSentinel(Listener):
    """A Sentinel that says what it is told to say, as one that is cut off from the others would.

    Attributes:
        primary: the port of the server that it names.
        epoch: its configuration epoch.
    """

    def __init__(self, primary: int, epoch: int) -> None:
        super().__init__(self._answer)
        self.primary, self.epoch = primary, epoch

    def _answer(self, connection: socket.socket, over: threading.Event) -> None:
        reader = hiredis.Reader()
        connection.settimeout(0.1)
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                data = connection.recv(4_096)
                if not data:
                    return
                reader.feed(data)
            while (command := reader.gets()) is not False:
                connection.sendall(self._reply(command[1].upper()))

    def _reply(self, subcommand: bytes) -> bytes:
        if subcommand == b"GET-MASTER-ADDR-BY-NAME":
            words = ["127.0.0.1", str(self.primary)]
        else:
            words = ["name", NAME, "config-epoch", str(self.epoch)]
        return b"".join(
            [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(one), one.encode()) for one in words)]
        )


def test_a_sentinel_that_was_silent_is_heard_again(
    sentinel_group: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """The thread that asks every second tries it, though the others are enough. (D63)"""
    url = sentinel_group.url()
    dead = sentinel_group.sentinels[1]
    address = ("127.0.0.1", dead.port)
    make_client(url).ping()
    watch = primary_watch.get_watch(parse_redis_url(url))
    dead.kill()
    wait_until(lambda: watch.is_silent(address), "a Sentinel that is known to be silent")
    assert address == watch.sentinels()[-1]
    sentinel_group.heal()
    wait_until(lambda: not watch.is_silent(address), "a Sentinel that is heard again")
    assert address == watch.sentinels()[1]


@pytest.fixture
def two_primaries(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two servers that know nothing of one another, and both say that they are primaries."""
    nodes = tuple(Node(tmp_path / str(port), port) for port in free_ports(2))
    for node in nodes:
        node.start_server()
        wait_until(node.client.ping, "a server that answers")
    yield nodes[0], nodes[1]
    for node in nodes:
        node.kill()
        node.client.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("stale", [0, 1, 2])
def test_sentinels_that_disagree_lead_to_the_primary_of_the_highest_epoch(
    two_primaries: tuple[Node, Node], make_client: Callable[..., ClientFace], stale: int
) -> None:
    """One has not heard of a fail-over, and the old primary goes on answering. (D63)"""
    old, new = two_primaries
    with contextlib.ExitStack() as stack:
        sentinels = [stack.enter_context(ToldSentinel(old.port, 3)) for _ in range(3)]
        url = f"redis-sentinel://{','.join(one.address for one in sentinels)}/{{}}?master={NAME}"
        client = make_client(url.format(0))
        client.enqueue("t", task_id="before")
        for sentinel in sentinels:
            if sentinel is not sentinels[stale]:
                sentinel.primary, sentinel.epoch = new.port, 7
        watch = primary_watch.get_watch(parse_redis_url(url.format(0)))
        address = ("127.0.0.1", new.port)
        wait_until(lambda: not watch.suspects(address), "a process that knows of the new primary")
        client.enqueue("t", task_id="after")
        newcomer = make_client(url.format(1))
        for number in range(12):
            newcomer.enqueue("t", task_id=str(number))
    assert ["before"] == Tasks(old.client).ids("pending")
    assert ["after"] == Tasks(new.client).ids("pending")
    assert {"db0", "db1"} == set(new.client.info("keyspace"))
    assert {"db0"} == set(old.client.info("keyspace"))
