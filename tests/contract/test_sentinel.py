"""A primary under Sentinel: what the connections do when another server becomes it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyasynq import sync
from pyasynq._redis.plan import CommandCall, Replay, ask
from pyasynq._redis.sentinel import primary_watch
from pyasynq._redis.subscription import Subscription
from pyasynq._redis.url import parse_redis_url
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import (
    ConfigurationError,
    EnqueueError,
    RedisAuthenticationError,
    RedisError,
    RedisTLSError,
    RedisUnavailableError,
)
from pyasynq.events import Outcome
from pyasynq.task import Task
from tests.factories import Tasks
from tests.fix_engine import do_nothing, serving
from tests.fix_sentinel import NAME, wait_until
from tests.fix_tls import TlsFront
from tests.invariants import check_invariants
from tests.run_async import run_async
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_drivers import ClientFace
    from tests.fix_sentinel import Node, SentinelGroup
    from tests.fix_tls import Certificates

LONG = ("publish-period", "3000")
"""Four of these pass until the Sentinels tell an old primary that it is a replica now."""
PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
[RULE] = re.findall(r"^ACL SETUSER watcher on >PASSWORD (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
_AFTER_FAIL_OVER = 20.0


def ours(node: Node) -> set[str]:
    """Return the names of our connections to a server, except those of the drivers that all tests share."""
    clients = node.client.client_list()
    return {client["name"] for client in clients if client["name"].startswith("pyasynq-")}


def follows(url: str, node: Node) -> bool:
    """Whether this process takes a server for the primary of a group."""
    return not primary_watch.get_watch(parse_redis_url(url)).suspects(("127.0.0.1", node.port))


def threads() -> set[threading.Thread]:
    """Return the threads that watch over primaries, in this test and around it."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("pyasynq watches")}


def started(before: set[threading.Thread]) -> threading.Thread:
    """Wait for the one thread that was not there before; a client does not wait for it."""
    wait_until(lambda: threads() - before, "the start of the thread")
    [thread] = threads() - before
    return thread


@pytest.fixture
def locked(sentinel_group: SentinelGroup) -> Iterator[SentinelGroup]:
    """The group, with one password for Redis and another one for the Sentinels."""
    for node in sentinel_group.servers:
        node.client.execute_command("ACL", "SETUSER", "worker", "on", ">r3dis", "~*", "&*", "+@all")
    for node in sentinel_group.sentinels:
        node.client.execute_command("ACL", "SETUSER", "watcher", "on", ">s3ntinel", *RULE.split())
        node.client.execute_command("ACL", "SETUSER", "default", "resetpass", ">only-peers")
    yield sentinel_group
    for node in sentinel_group.sentinels:
        node.client.execute_command("ACL", "SETUSER", "default", "nopass")
        node.client.execute_command("ACL", "DELUSER", "watcher")
    for node in sentinel_group.servers:
        node.client.execute_command("ACL", "DELUSER", "worker")


def test_each_kind_of_server_gets_its_own_login(
    locked: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """Credentials before the hosts are for Redis; the parameters are for the Sentinels."""
    url = locked.url("worker:r3dis@", database=3, sentinel_username="watcher", sentinel_password="s3ntinel")
    make_client(url).enqueue("t", task_id="1")
    assert ["db3"] == list(locked.primary.client.info("keyspace"))
    [user] = {
        client["user"] for client in locked.primary.client.client_list() if client["name"] == "pyasynq-client"
    }
    assert "worker" == user


@pytest.mark.parametrize(
    ("login", "parameters", "says"),
    [
        ("worker:r3dis@", {}, "the Sentinel at 127.0.0.1:"),
        ("worker:r3dis@", {"sentinel_password": "wr0ng"}, "the Sentinel at 127.0.0.1:"),
        (
            "worker:wr0ng@",
            {"sentinel_username": "watcher", "sentinel_password": "s3ntinel"},
            "Redis at 127.0.0.1:",
        ),
    ],
)
def test_a_wrong_login_is_an_error_at_once_that_says_whose(
    locked: SentinelGroup,
    make_client: Callable[..., ClientFace],
    login: str,
    parameters: dict[str, str],
    says: str,
) -> None:
    """It names the parameter to correct, and no password."""
    client = make_client(locked.url(login, database=0, **parameters), timeout=60)
    with pytest.raises(RedisAuthenticationError) as error:
        client.ping()
    assert str(error.value).startswith(says)
    assert "sentinel_username= and sentinel_password= are for the Sentinels" in str(error.value)
    assert "wr0ng" not in str(error.value)


def test_a_wrong_name_of_the_primary_is_an_error_at_once(
    sentinel_group: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """It names the one that the Sentinels know."""
    client = make_client(sentinel_group.url(master="task"), timeout=60)
    with pytest.raises(ConfigurationError, match=r"does not know primary 'task': correct master= .*'tasks'"):
        client.ping()


def test_a_redis_is_not_a_sentinel(
    sentinel_group: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """The likeliest wrong address of all."""
    port = sentinel_group.primary.port
    client = make_client(f"redis-sentinel://127.0.0.1:{port}?master={NAME}", timeout=60)
    with pytest.raises(ConfigurationError, match=f"the server at 127.0.0.1:{port} is not a Sentinel"):
        client.ping()


def test_sentinels_that_are_away_are_named_when_the_time_is_over(
    make_client: Callable[..., ClientFace],
) -> None:
    """They may come back, so they are asked until then."""
    client = make_client("redis-sentinel://127.0.0.1:1,127.0.0.1:2?master=m", timeout=0.3)
    begun = time.monotonic()
    with pytest.raises(RedisUnavailableError) as error:
        client.ping()
    assert 0.25 < time.monotonic() - begun < PATIENCE
    nothing = "nothing listens there; start Redis, or correct the address"
    assert (
        "Redis at m (Sentinels 127.0.0.1:1, 127.0.0.1:2) cannot be reached: none of its Sentinels answers "
        f"(127.0.0.1:1: {nothing}; 127.0.0.1:2: {nothing}); "
        "start them, or correct their addresses, whose port is 26379 unless given"
    ) == str(error.value)


def test_one_sentinel_that_answers_is_enough_and_is_asked_first_from_then_on(
    sentinel_group: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """The dead one costs time once."""
    sentinel_group.sentinels[0].kill()
    sentinel_group.sentinels[1].kill()
    url = sentinel_group.url()
    client = make_client(url)
    client.ping()
    _, port = primary_watch.get_watch(parse_redis_url(url)).sentinels()[0]
    assert sentinel_group.sentinels[2].port == port


def test_an_old_primary_that_still_works_gets_nothing_more(
    sentinel_group: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """Commands that it accepts are lost when it becomes a replica; idle connections to it are not reused."""
    sentinel_group.tune(*LONG)
    url = sentinel_group.url()
    client = make_client(url)
    client.enqueue("t", task_id="before", durable=2)
    old = sentinel_group.fail_over()
    wait_until(lambda: not follows(url, old), "a process that knows of the new primary")
    client.enqueue("t", task_id="after")
    assert "master" == old.client.info("replication")["role"], "it was told before we looked"
    assert ["after", "before"] == sorted(Tasks(sentinel_group.primary.client).ids("pending"))
    assert "pyasynq-client" not in ours(old)


@pytest.mark.long
@run_async
async def test_everything_of_a_worker_leaves_an_old_primary_that_still_works(
    sentinel_group: SentinelGroup,
) -> None:
    """Its tasks, its wake-up, its cancellations, its heartbeat, and a client that waits for a result."""
    sentinel_group.tune(*LONG)
    url = sentinel_group.url()
    async with serving(url, do_nothing) as running:
        await running.client.enqueue("t", task_id="before")
        await running.finished("before")
        await running.settled()
        later = asyncio.create_task(running.client.wait("default", "later"))
        await running.client.enqueue("t", task_id="later", process_in=3600, retention=60, durable=2)
        names = {"pyasynq-client", "pyasynq-server", "pyasynq-watcher", "pyasynq-subscriber"}
        while ours(sentinel_group.primary) != names:
            await running.next_round("heartbeater")
        old = await asyncio.to_thread(sentinel_group.fail_over)
        await asyncio.to_thread(wait_until, lambda: not ours(old), "no connection at the old primary")
        assert "master" == old.client.info("replication")["role"], "it was told before we looked"
        while ours(sentinel_group.primary) != names:
            await running.next_round("heartbeater")
        await running.client.enqueue("t", task_id="after")
        assert Outcome.SUCCEEDED is (await running.finished("after")).outcome
        with sync.Inspector(url) as inspector:
            await asyncio.to_thread(inspector.run_task, "default", "later")
        assert "later" == (await later).id
        await running.settled()
    check_invariants(sentinel_group.primary.client)


@run_async
async def test_a_subscription_ends_when_the_primary_changes(sentinel_group: SentinelGroup) -> None:
    """So that its owner subscribes where messages come from now."""
    sentinel_group.tune(*LONG)
    target = parse_redis_url(sentinel_group.url())
    async with Subscription(target, "asynq:cancel") as messages:
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.to_thread(sentinel_group.fail_over)
        with pytest.raises(RedisUnavailableError):
            await waiting


def test_a_replica_that_a_sentinel_of_the_past_names_is_refused(
    sentinel_group: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """What it says of itself decides."""
    past, present, _ = sentinel_group.sentinels
    primary, replica = sentinel_group.primary, sentinel_group.replicas[0]
    # With the same name, the Sentinels would exchange their data.
    for sentinel, named in ((past, replica), (present, primary)):
        sentinel.client.execute_command("SENTINEL", "MONITOR", "other", "127.0.0.1", named.port, "3")
    try:
        client = make_client(f"redis-sentinel://127.0.0.1:{past.port}?master=other", timeout=2)
        with pytest.raises(RedisUnavailableError, match=f"127.0.0.1:{replica.port}: it is a replica"):
            client.ping()
        client = make_client(sentinel_group.url(master="other"))
        client.enqueue("t", task_id="1")
        assert ["1"] == Tasks(primary.client).ids("pending")
    finally:
        for sentinel in (past, present):
            sentinel.client.execute_command("SENTINEL", "REMOVE", "other")


def test_the_watch_ends_with_the_last_client(sentinel_group: SentinelGroup) -> None:
    """The next one starts from the beginning."""
    url = sentinel_group.url(database=7)
    before = threads()
    for _ in range(2):
        with sync.Client(url) as one, sync.Client(url) as other:
            one.ping()
            other.ping()
            thread = started(before)
        wait_until(lambda: not thread.is_alive(), "the end of the thread")  # noqa: B023 - it is called here


def test_the_watch_ends_with_a_client_that_was_not_closed(sentinel_group: SentinelGroup) -> None:
    """Nothing of it keeps the client alive."""
    before = threads()
    client = sync.Client(sentinel_group.url(database=7))
    client.ping()
    thread = started(before)
    with pytest.warns(ResourceWarning):
        del client
    wait_until(lambda: not thread.is_alive(), "the end of the thread")


def test_a_forked_child_watches_for_itself(sentinel_group: SentinelGroup) -> None:
    """Threads do not go over into it."""
    with sync.Client(sentinel_group.url(database=7)) as client:
        client.enqueue("t", task_id="parent")
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                client.enqueue("t", task_id="child")
                started(set())
                client.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert 0 == os.waitpid(child, 0)[1]
        client.enqueue("t", task_id="parent, later")
    with sync.Inspector(sentinel_group.url(database=7)) as inspector:
        assert 3 == inspector.queue_info("default").pending


class Producer:
    """Enqueues without end, and knows which tasks two replicas had before the next was enqueued."""

    def __init__(self, url: str) -> None:
        self.client = Client(url, timeout=60)
        self.acknowledged: list[str] = []
        self.secured: set[str] = set()
        self.over = False
        self._news = asyncio.Condition()

    async def run(self) -> None:
        """Go on until it is over."""
        while not self.over:
            first = len(self.acknowledged)
            for number in range(first, first + 10):
                try:
                    await self.client.enqueue(Task("t", task_id=str(number)))
                except (RedisError, EnqueueError):  # a reply that was lost: who knows
                    self.acknowledged.append("")
                else:
                    self.acknowledged.append(str(number))
            await self._secure(self.acknowledged[first:])

    async def _secure(self, task_ids: list[str]) -> None:
        marked = ask(CommandCall(("SADD", "asynq:queues", "default"), None, Replay.SAFE))
        mark = ask(CommandCall(("SET", "asynq:mark", "1"), None, Replay.SAFE))
        wait = ask(CommandCall(("WAIT", 2, 200), None, Replay.SAFE))
        *_, replicas = await self.client._driver.run_batch([marked, mark, wait])
        async with self._news:
            if replicas == 2:
                self.secured.update(task_ids)
                self.secured.discard("")
            self._news.notify_all()

    async def acknowledges(self, count: int) -> None:
        """Wait until Redis has taken this many more tasks."""
        wanted = len(self.acknowledged) + count
        async with self._news:
            await self._news.wait_for(lambda: len(self.acknowledged) >= wanted)

    async def secures(self, count: int) -> None:
        """Wait until this many more tasks are safe."""
        wanted = len(self.secured) + count
        async with self._news:
            await self._news.wait_for(lambda: len(self.secured) >= wanted)


@pytest.mark.long
@pytest.mark.parametrize("happens", ["kill_primary", "fail_over"])
@run_async
async def test_a_fail_over_loses_nothing_that_the_replicas_had(
    sentinel_group: SentinelGroup, happens: str
) -> None:
    """While a client enqueues and a worker drains; both go on by themselves within seconds."""
    url = sentinel_group.url()
    runs: Counter[str] = Counter()

    async def handle(task: Task) -> None:
        del task
        runs[context().task_id] += 1

    config = ServerConfig(concurrency=10, shutdown_timeout=5)
    async with serving(url, handle, config) as running:
        producer = Producer(url)
        producing = asyncio.create_task(producer.run())
        await producer.secures(200)
        old = await asyncio.to_thread(getattr(sentinel_group, happens))
        async with asyncio.timeout(_AFTER_FAIL_OVER):
            # Writes that an old primary acknowledged after the fail-over are not waited for.
            await asyncio.to_thread(wait_until, lambda: not follows(url, old), "a process that follows")
            await producer.acknowledges(30)
            await running.finished(next(filter(None, reversed(producer.acknowledged))))
        await asyncio.to_thread(sentinel_group.heal)
        await producer.secures(100)
        producer.over = True
        await producing
        await producer.client.close()
        for task_id in producer.secured:
            while not runs[task_id]:
                await running.next_round("heartbeater")
        await running.settled()
    client = sentinel_group.primary.client
    client.delete("asynq:mark")
    check_invariants(client)
    # Writes that only the old primary had are lost; the recoverer finds these tasks when their leases lapse.
    assert set(Tasks(client).ids("active")) <= runs.keys()


def test_the_documented_rights_at_the_sentinels_are_enough_for_each_error(
    locked: SentinelGroup, make_client: Callable[..., ClientFace]
) -> None:
    """They let us ask which names are known."""
    login = {"sentinel_username": "watcher", "sentinel_password": "s3ntinel"}
    client = make_client(locked.url("worker:r3dis@", database=0, master="task", **login), timeout=60)
    with pytest.raises(ConfigurationError, match="'tasks'"):
        client.ping()


@pytest.fixture
def behind_tls(sentinel_group: SentinelGroup, certificates: Certificates) -> Iterator[str]:
    """A URL without `ssl_` parameters: there is TLS before the Sentinel and before the primary."""
    group = sentinel_group
    sentinel, primary = group.sentinels[0].client, group.primary
    with (
        TlsFront(f"redis://127.0.0.1:{primary.port}", certificates.server) as redis_front,
        TlsFront(f"redis://127.0.0.1:{group.sentinels[0].port}", certificates.server) as sentinel_front,
    ):
        sentinel.execute_command("SENTINEL", "MONITOR", "behind-tls", "127.0.0.1", redis_front.port, "3")
        yield f"rediss-sentinel://127.0.0.1:{sentinel_front.port}?master=behind-tls"
        sentinel.execute_command("SENTINEL", "REMOVE", "behind-tls")


@run_async
async def test_sentinels_and_redis_are_both_spoken_to_over_tls(
    behind_tls: str, certificates: Certificates
) -> None:
    """With the same authority, and for all that a worker does."""
    url = f"{behind_tls}&ssl_ca_certs={certificates.authority}"
    async with serving(url, do_nothing) as running:
        await running.client.enqueue("t", task_id="1")
        assert Outcome.SUCCEEDED is (await running.finished("1")).outcome
        await running.settled()


def test_a_sentinel_whose_certificate_is_not_trusted_is_an_error_at_once(
    behind_tls: str, make_client: Callable[..., ClientFace]
) -> None:
    """It names the Sentinel and the remedy."""
    with pytest.raises(RedisTLSError, match=r"127\.0\.0\.1:\d+ cannot .* not trusted .* ssl_ca_certs="):
        make_client(behind_tls, timeout=60).ping()


def test_an_old_primary_that_still_works_is_left_over_tls(
    sentinel_group: SentinelGroup, certificates: Certificates, make_client: Callable[..., ClientFace]
) -> None:
    """Connections with TLS are cut as others are."""
    sentinel = sentinel_group.sentinels[0].client
    port = sentinel_group.sentinels[0].port
    server = f"redis://127.0.0.1:{sentinel_group.primary.port}"
    with (
        TlsFront(server, certificates.server) as one,
        TlsFront(server, certificates.server) as other,
        TlsFront(f"redis://127.0.0.1:{port}", certificates.server) as front,
    ):
        sentinel.execute_command("SENTINEL", "MONITOR", "behind-tls", "127.0.0.1", one.port, "3")
        url = f"rediss-sentinel://127.0.0.1:{front.port}?master=behind-tls&ssl_cert_reqs=none"
        client = make_client(url)
        client.enqueue("t", task_id="1")
        sentinel.execute_command("SENTINEL", "REMOVE", "behind-tls")
        sentinel.execute_command("SENTINEL", "MONITOR", "behind-tls", "127.0.0.1", other.port, "3")
        watch = primary_watch.get_watch(parse_redis_url(url))
        wait_until(lambda: watch.suspects(("127.0.0.1", one.port)), "a process that follows")
        client.enqueue("t", task_id="2")
        assert not watch.suspects(("127.0.0.1", other.port))
        sentinel.execute_command("SENTINEL", "REMOVE", "behind-tls")
    assert 2 == len(Tasks(sentinel_group.primary.client).ids("pending"))
