"""Wake-up: Redis tells who waits that a key has changed, whoever changed it, so nobody need poll.

One RESP3 connection with `CLIENT TRACKING` serves all keys. A key is armed by reading it; the next change
of it is pushed once, and arms nothing further. Nothing is written to Redis. Pushes can get lost with the
connection, so this makes waiting short, and a slow poll beside it makes it certain.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from pyasynq._broker.async_connection import AsyncConnection, Push
from pyasynq._broker.backoff import jittered_pause
from pyasynq._broker.location import Location
from pyasynq._broker.reply_errors import WAITED_OUT, ReplyError
from pyasynq._broker.session import log_warning
from pyasynq.errors import PyasynqError
from pyasynq.events import ServerWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._broker.redis_url import RedisTarget

_ARMED_SECONDS: Final = 9.0
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_NOT_YET: Final = frozenset({"NOAUTH", "WRONGPASS", *WAITED_OUT})


class Watcher:
    """Watches keys for one event loop.

    It connects with the first `arm` and again, with growing jittered pauses, whenever the connection breaks.
    After each connection `on_change` is called for every key that was ever armed and not forgotten, since
    changes may have been missed.

    Args:
        target: the server.
        on_change: called in the event loop with the name of a key that may have changed; it must not raise.
        client_name: what `CLIENT LIST` shows.
        timeout: seconds that the server may take to connect or to confirm an `arm`.
        instead: what is done where the server cannot do this, for the warning.
        on_warning: told once if the server cannot do this; then `supported` is False.
    """

    def __init__(
        self,
        target: RedisTarget,
        on_change: Callable[[str], object],
        *,
        client_name: str = "pyasynq-watcher",
        timeout: float = 5.0,
        instead: str = "empty queues are polled",
        on_warning: Callable[[ServerWarning], object] = log_warning,
    ) -> None:
        self._target = target
        self._location = Location(target)
        self._on_change = on_change
        self._client_name = client_name
        self._timeout = timeout
        self._instead = instead
        self._on_warning = on_warning
        self._connection: AsyncConnection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._watched: dict[str, None] = {}
        self._armed_at: dict[str, float] = {}
        self._expected: deque[asyncio.Future[bool]] = deque()
        self._supported = True

    @property
    def supported(self) -> bool:
        """False once the server, or a proxy before it, has refused RESP3 or `CLIENT TRACKING`."""
        return self._supported

    async def arm(self, *keys: str) -> bool:
        """Ask for `on_change` at the next change of each key, and wait until Redis has confirmed it.

        A key that was armed within the last nine seconds and has not changed costs nothing. Later it is armed
        anew, because a server that lost a key's slot while the key was empty does not say so.

        Returns:
            True if Redis watches all keys now: what is seen after that is not missed. False if it is not
            connected; `on_change` is called when it is, unless this is not `supported`.
        """
        if not self._supported:
            return False
        self._watched.update(dict.fromkeys(keys))
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run())
        connection = self._connection
        if connection is None:
            return False
        wanted = [key for key in keys if time.monotonic() - self._armed_at.get(key, 0.0) >= _ARMED_SECONDS]
        if not wanted:
            return True
        try:
            async with asyncio.timeout(self._timeout):
                return await self._read_tracked(connection, wanted)
        except TimeoutError:
            await connection.close()
        except ConnectionError:
            pass  # the reader meets the same and connects anew
        return False

    def forget(self, *keys: str) -> None:
        """Report no more changes of these keys; Redis is not asked to stop, and its next push is dropped."""
        for key in keys:
            self._watched.pop(key, None)
            self._armed_at.pop(key, None)

    async def close(self) -> None:
        """Stop watching and close the connection."""
        runner, self._runner = self._runner, None
        self._supported = False
        if runner is not None:
            runner.cancel()
            await asyncio.wait([runner])
        await self._location.let_go_async()

    async def _read_tracked(self, connection: AsyncConnection, keys: list[str]) -> bool:
        now = time.monotonic()
        replies = [asyncio.get_running_loop().create_future() for _ in keys]
        self._expected.extend(replies)
        for key in keys:
            # Before the reply: an invalidation may come with it, and has the last word.
            self._armed_at[key] = now
        await connection.send([("EXISTS", key) for key in keys])
        return all(await asyncio.gather(*replies))

    async def _run(self) -> None:
        failures = 0
        while self._supported:
            connection = AsyncConnection(protocol=3)
            try:
                if await self._connect(connection):
                    failures = 0
                    self._connection = connection
                    self._change(self._watched)
                    await self._listen(connection)
            except (ConnectionError, PyasynqError):  # broken, or an embedded server that does not start
                pass
            finally:
                self._connection = None
                self._forget_arms()
                await connection.close()
            await asyncio.sleep(jittered_pause(failures, shortest=_SHORTEST_PAUSE, longest=_LONGEST_PAUSE))
            failures += 1

    async def _connect(self, connection: AsyncConnection) -> bool:
        target = await self._location.find_async()
        refusal = await connection.open(target, self._timeout)
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
            message = (
                f"Redis at {self._target.address} does not tell of changes ({refusal}): "
                f"{self._instead} instead"
            )
            self._on_warning(ServerWarning("wakeup_refused", message))
        return False

    async def _listen(self, connection: AsyncConnection) -> None:
        while True:
            reply = await connection.read()
            if isinstance(reply, Push):
                if reply.parts[0] == b"invalidate":
                    self._invalidate(reply.parts[1])
            elif self._expected:
                confirmed = self._expected.popleft()
                if not confirmed.done():
                    confirmed.set_result(not isinstance(reply, ReplyError))

    def _invalidate(self, keys: list[bytes] | None) -> None:
        if keys is None:  # the whole database was emptied
            self._armed_at.clear()
            self._change(self._watched)
            return
        names = [key.decode("utf-8", "replace") for key in keys]
        for name in names:
            self._armed_at.pop(name, None)
        self._change(name for name in names if name in self._watched)

    def _change(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._on_change(key)

    def _forget_arms(self) -> None:
        self._armed_at.clear()
        while self._expected:
            confirmed = self._expected.popleft()
            if not confirmed.done():
                confirmed.set_result(False)
