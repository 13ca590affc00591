"""Subscription to a Redis channel (pub/sub)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from pyasynq._redis.connection_async import AsyncConnection
from pyasynq._redis.endpoint import RedisEndpoint
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError, translate
from pyasynq.errors import PyasynqError, RedisUnavailableError

if TYPE_CHECKING:
    from types import TracebackType

    from pyasynq._redis.url import RedisTarget

_SILENCE: Final = 15.0


class Subscription:
    """The messages of one channel, as an async iterator of bytes inside `async with`.

        async with Subscription(target, "asynq:cancel") as messages:
            async for message in messages: ...

    After 15 seconds of silence it sends PING. It does not reconnect, because messages published meanwhile
    would be lost without notice. The caller gets an error instead.

    Args:
        target: the server.
        channel: the channel's name.
        client_name: the name in `CLIENT LIST`.
        timeout: seconds that the server may take to connect or to answer.

    Raises:
        RedisUnavailableError: on entering or iterating, when there is no connection or it breaks.
        RedisTLSError: on entering, when certificates or TLS settings are wrong.
        RedisAuthenticationError: on entering, when the server refuses the user name or password.
        RedisPermissionError: on entering, when the user may not subscribe to the channel.
    """

    def __init__(
        self,
        target: RedisTarget,
        channel: str,
        *,
        client_name: str = "pyasynq-subscriber",
        timeout: float = 5.0,
    ) -> None:
        self._target = target
        self._endpoint = RedisEndpoint(target)
        self._channel = channel
        self._client_name = client_name
        self._timeout = timeout
        self._connection = AsyncConnection()

    async def __aenter__(self) -> Self:
        """Connect and subscribe; messages published after that are received."""
        refusal = await self._endpoint.open_async(self._connection, self._timeout)
        if refusal is None:
            commands: list[tuple[str, ...]] = [
                ("CLIENT", "SETNAME", self._client_name),
                ("SUBSCRIBE", self._channel),
            ]
            received = await self._connection.exchange(commands, self._timeout)
            subscribed = received.broken or received.replies[1]
            refusal = subscribed if isinstance(subscribed, str | ReplyError) else None
        if refusal is None:
            return self
        await self.__aexit__(None, None, None)
        if isinstance(refusal, PyasynqError):
            raise refusal
        if isinstance(refusal, ReplyError) and refusal.code not in WAITED_OUT:
            raise translate(refusal, f"command SUBSCRIBE {self._channel}", self._target.address)
        raise RedisUnavailableError(self._target.address, str(refusal))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self._connection.close()
        await self._endpoint.release_async()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next message, without a timeout."""
        while True:
            reply = await self._next_reply()
            if isinstance(reply, list) and reply[0] == b"message":
                return bytes(reply[2])

    async def _next_reply(self) -> object:
        try:
            try:
                async with asyncio.timeout(_SILENCE):
                    return await self._connection.read()
            except TimeoutError:
                async with asyncio.timeout(self._timeout):
                    await self._connection.send([("PING",)])
                    return await self._connection.read()
        except TimeoutError:
            cause = f"no sign of life within {self._timeout:g} s"
        except ConnectionError as error:
            cause = str(error)
        raise RedisUnavailableError(self._target.address, cause)
