"""Wake-ups for changed keys: client tracking (`CLIENT TRACKING`, client-side caching) instead of polling.

One RESP3 connection serves all keys of a server. In a cluster there is one to each node that has some of the
keys. Reading a key arms it: its next change is pushed once, and disarms it. Nothing is written to Redis.
Pushes can get lost with the connection, or with a slot that moves while its keys are empty. So wake-ups make
waits short, and a slow poll in addition guarantees that they end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from pyasynq._backoff import jittered_pause
from pyasynq._redis.cluster.slot_map import find_slot, get_cluster_map
from pyasynq._redis.connection_async import AsyncConnection, Push
from pyasynq._redis.endpoint import RedisEndpoint
from pyasynq._redis.pool_async import learn_map
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError
from pyasynq._redis.session import log_warning
from pyasynq.errors import ForeignRedisError
from pyasynq.events import RedisWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.cluster.slot_map import ClusterMap
    from pyasynq._redis.url import RedisTarget

_NODE_SECONDS: Final = 0.25
"""Maximum seconds that `arm` waits for cluster nodes: a silent node must not delay the keys of the others."""
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_NOT_YET: Final = frozenset({"NOAUTH", "WRONGPASS", *WAITED_OUT})


class ServerWatcher:
    """Watches keys of one server for one event loop.

    It connects at the first `arm`. When the connection breaks, it reconnects (jittered exponential back-off).
    After each connect `on_loss` is called for every key that was ever armed and not forgotten, because its
    changes may have been missed.

    Args:
        target: the server.
        on_change: called in the event loop with the name of a changed key; it must not raise.
        on_loss: called with the name of a key that may have changed and is not armed any more.
        client_name: the name in `CLIENT LIST`.
        timeout: seconds that the server may take to connect or to confirm an `arm`.
        on_refusal: called with the server's refusal of RESP3 or tracking; nothing is watched after that.
        on_elsewhere: called with a MOVED reply, for a key that another node serves.
    """

    def __init__(
        self,
        target: RedisTarget,
        on_change: Callable[[str], object],
        *,
        on_loss: Callable[[str], object],
        client_name: str,
        timeout: float,
        on_refusal: Callable[[ReplyError], object],
        on_elsewhere: Callable[[ReplyError], object],
    ) -> None:
        self._endpoint = RedisEndpoint(target)
        self._on_change = on_change
        self._on_loss = on_loss
        self._client_name = client_name
        self._timeout = timeout
        self._on_refusal = on_refusal
        self._on_elsewhere = on_elsewhere
        self._connection: AsyncConnection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._watched: dict[str, None] = {}
        self._armed: set[str] = set()
        self._unconfirmed: set[str] = set()
        self._expected: deque[asyncio.Future[bool | None]] = deque()
        self._existing: set[str] = set()
        """The keys that existed when they were armed."""
        self._supported = True

    async def arm(self, *keys: str) -> bool:
        """Do the same as `Watcher.arm`, for keys of this server."""
        if not self._supported:
            return False
        self._watched.update(dict.fromkeys(keys))
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run())
        connection = self._connection
        if connection is None:
            return False
        wanted = [key for key in keys if key not in self._armed]
        if not wanted:
            return self._unconfirmed.isdisjoint(keys)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._read_tracked(connection, wanted)
        except TimeoutError:
            await connection.close()
        except ConnectionError:
            pass  # the reader gets the same error and reconnects
        return False

    def exists(self, key: str) -> bool:
        """Do the same as `Watcher.exists`, for a key of this server."""
        return key in self._existing

    def forget(self, *keys: str) -> None:
        """Do the same as `Watcher.forget`, for keys of this server."""
        for key in keys:
            self._watched.pop(key, None)
            self._armed.discard(key)
            self._existing.discard(key)

    async def close(self) -> None:
        """Stop watching and close the connection."""
        runner, self._runner = self._runner, None
        self._supported = False
        if runner is not None:
            runner.cancel()
            await asyncio.wait([runner])
        await self._endpoint.release_async()

    async def _read_tracked(self, connection: AsyncConnection, keys: list[str]) -> bool:
        replies: list[asyncio.Future[bool | None]] = [
            asyncio.get_running_loop().create_future() for _ in keys
        ]
        self._expected.extend(replies)
        # Mark the keys before the reply arrives: an invalidation may come with it, and takes precedence.
        self._armed.update(keys)
        self._unconfirmed.update(keys)
        try:
            await connection.send([("EXISTS", key) for key in keys])
            existing = await asyncio.gather(*replies)
        finally:
            self._unconfirmed.difference_update(keys)
        self._existing.difference_update(keys)
        self._existing.update(key for key, exists in zip(keys, existing, strict=True) if exists)
        self._armed.difference_update(
            key for key, exists in zip(keys, existing, strict=True) if exists is None
        )
        return None not in existing

    async def _run(self) -> None:
        failures = 0
        while self._supported:
            connection = AsyncConnection(protocol=3)
            try:
                if await self._connect(connection):
                    failures = 0
                    self._connection = connection
                    self._lose_all()
                    await self._listen(connection)
            except (ConnectionError, ForeignRedisError):  # broken, or not the server of the test kit in use
                pass
            finally:
                self._connection = None
                self._forget_arms()
                await connection.close()
            await asyncio.sleep(jittered_pause(failures, shortest=_SHORTEST_PAUSE, longest=_LONGEST_PAUSE))
            failures += 1

    async def _connect(self, connection: AsyncConnection) -> bool:
        refusal = await self._endpoint.open_async(connection, self._timeout)
        if refusal is None:
            named: list[tuple[str, ...]] = [("CLIENT", "SETNAME", self._client_name)]
            received = await connection.exchange([*named, ("CLIENT", "TRACKING", "ON")], self._timeout)
            if received.broken is not None:
                return False
            refusal = received.replies[1]
        if not isinstance(refusal, ReplyError):
            return refusal == b"OK"
        if refusal.code not in _NOT_YET:
            self._supported = False
            self._on_refusal(refusal)
        return False

    async def _listen(self, connection: AsyncConnection) -> None:
        while True:
            reply = await connection.read()
            if isinstance(reply, Push):
                if reply.parts[0] == b"invalidate":
                    self._invalidate(reply.parts[1])
            elif self._expected:
                confirmed = self._expected.popleft()
                if isinstance(reply, ReplyError) and reply.code == "MOVED":
                    self._on_elsewhere(reply)
                if not confirmed.done():
                    confirmed.set_result(None if isinstance(reply, ReplyError) else bool(reply))

    def _invalidate(self, keys: list[bytes] | None) -> None:
        if keys is None:  # the whole database was emptied
            self._armed.clear()
            self._lose_all()
            return
        names = [key.decode("utf-8", "replace") for key in keys]
        self._armed.difference_update(names)
        for name in names:
            if name in self._watched:
                self._on_change(name)

    def _lose_all(self) -> None:
        for key in list(self._watched):
            self._on_loss(key)

    def _forget_arms(self) -> None:
        self._armed.clear()
        while self._expected:
            confirmed = self._expected.popleft()
            if not confirmed.done():
                confirmed.set_result(None)


class Watcher:
    """Watches keys for one event loop, on the servers that have them.

    It connects at the first `arm`, and reconnects when a connection breaks. After each connect `on_loss` is
    called for every key of that server that was ever armed and not forgotten.

    Args:
        target: the server or cluster.
        on_change: called in the event loop with the name of a changed key; it must not raise.
        on_loss: called with the name of a key that may have changed and is not armed any more; `on_change`
            by default.
        client_name: the name in `CLIENT LIST`.
        timeout: seconds that a server may take to connect or to confirm an `arm`.
        instead: words for the fallback, for the warning that a server does not support client tracking.
        on_warning: called once if a server does not support client tracking; then `supported` is False.
    """

    def __init__(
        self,
        target: RedisTarget,
        on_change: Callable[[str], object],
        *,
        on_loss: Callable[[str], object] | None = None,
        client_name: str = "pyasynq-watcher",
        timeout: float = 5.0,
        instead: str = "empty queues are polled",
        on_warning: Callable[[RedisWarning], object] = log_warning,
    ) -> None:
        self._target = target
        self._on_change = on_change
        self._on_loss = on_change if on_loss is None else on_loss
        self._client_name = client_name
        self._timeout = timeout
        self._instead = instead
        self._on_warning = on_warning
        self._nodes = get_cluster_map(target) if target.is_cluster else None
        self._servers: dict[Address | None, ServerWatcher] = {}
        self._places: dict[str, Address | None] = {}
        self._arming: set[asyncio.Task[bool]] = set()
        self._supported = True

    @property
    def supported(self) -> bool:
        """False once a server, or a proxy before it, has refused RESP3 or `CLIENT TRACKING`."""
        return self._supported

    async def arm(self, *keys: str) -> bool:
        """Ask for `on_change` at the next change of each key, and wait until Redis has confirmed it.

        A key that is armed and has not changed costs nothing. A cluster node that lost a key's slot while the
        key was empty does not report it. The key is armed at the new node once the slot map names that node.

        Returns:
            True if Redis watches all keys now: no later change is missed. False if the connection is not
                open; if `supported`, `on_loss` is called after the next connect. False also if a cluster node
                is slow; a later call returns True once the node has confirmed.
        """
        if not self._supported:
            return False
        nodes = self._nodes
        if nodes is None:
            return await self._server(None).arm(*keys)
        if not nodes.primaries:
            await learn_map(self._target, self._client_name, self._timeout)
        known = nodes.redirections
        if await self._arm_on_nodes(nodes, keys):
            return True
        # Try again if a node has named the new owner of a key's slot (MOVED).
        return nodes.redirections != known and await self._arm_on_nodes(nodes, keys)

    def exists(self, key: str) -> bool:
        """Return whether a key existed when `arm` confirmed it.

        The key still exists unless `on_change` was called.
        """
        server = self._servers.get(self._places.get(key))
        return server is not None and server.exists(key)

    def forget(self, *keys: str) -> None:
        """Report no more changes of these keys. Redis is not told: its next push for each key is ignored."""
        for server in self._servers.values():
            server.forget(*keys)
        for key in keys:
            self._places.pop(key, None)

    async def close(self) -> None:
        """Stop watching and close the connections."""
        self._supported = False
        for server in self._servers.values():
            await server.close()
        if self._arming:
            await asyncio.wait(self._arming)

    async def _arm_on_nodes(self, nodes: ClusterMap, keys: Sequence[str]) -> bool:
        by_node: dict[Address, list[str]] = {}
        for key in keys:
            node = nodes.owner(find_slot(key))
            self._move(key, node)
            if node is not None:
                by_node.setdefault(node, []).append(key)
        await self._leave_nodes()
        calls = [asyncio.ensure_future(self._server(node).arm(*some)) for node, some in by_node.items()]
        if not calls:
            return False
        self._arming.update(calls)
        for call in calls:
            call.add_done_callback(self._arming.discard)
        _, late = await asyncio.wait(calls, timeout=min(_NODE_SECONDS, self._timeout))
        is_complete = sum(map(len, by_node.values())) == len(keys)
        return is_complete and not late and all(call.result() for call in calls)

    def _move(self, key: str, node: Address | None) -> None:
        before = self._places.get(key)
        if before is not None and before != node and before in self._servers:
            self._servers[before].forget(key)
        self._places[key] = node

    async def _leave_nodes(self) -> None:
        """Close the connections to nodes that have none of our keys any more; such a node may be gone."""
        for node in self._servers.keys() - set(self._places.values()):
            await self._servers.pop(node).close()

    def _server(self, node: Address | None) -> ServerWatcher:
        server = self._servers.get(node)
        if server is None:
            server = self._servers[node] = ServerWatcher(
                self._target if node is None else self._target.node(node),
                self._on_change,
                on_loss=self._on_loss,
                client_name=self._client_name,
                timeout=self._timeout,
                on_refusal=self._handle_refusal,
                on_elsewhere=partial(self._handle_redirection, node),
            )
        return server

    def _handle_refusal(self, refusal: ReplyError) -> None:
        if self._supported:
            self._supported = False
            message = (
                f"Redis at {self._target.address} does not report changes ({refusal}): "
                f"{self._instead} instead"
            )
            self._on_warning(RedisWarning("wakeup_refused", message))

    def _handle_redirection(self, node: Address | None, reply: ReplyError) -> None:
        if self._nodes is not None and node is not None:
            self._nodes.note_redirection(str(reply), node, time.monotonic())
