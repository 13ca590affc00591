"""A connection for asyncio. Redis-py connects, sends and parses."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._redis.failures import failure_text, refusal_of
from pyasynq._redis.redis_py import BROKEN, REPLIES, async_connection, pack_command, read_replies
from pyasynq._redis.reply_errors import reply_error
from pyasynq._redis.session import Received, Session, login_commands, login_refusal, no_time
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.reply_errors import ReplyError
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget


_NO_CONTEXT: Final = contextvars.Context()
"""Asyncio keeps a cancelled timer until its time, and with it what a handler has in its context."""


class Push(NamedTuple):
    """What Redis said without being asked: its kind, such as `invalidate`, and what belongs to it."""

    parts: list[Any]


async def _as_push(parts: list[Any]) -> Push:
    return Push(parts)


class AsyncConnection:
    """One connection to Redis for asyncio: for the loop that opened it, and one exchange at a time."""

    __slots__ = ("__weakref__", "_connection", "_loop", "_pid", "_protocol", "session")

    def __init__(self, *, protocol: int = 2) -> None:
        self.session = Session()
        self._protocol = protocol
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    async def open(self, target: RedisTarget, seconds: float) -> OpenAnswer:
        """Connect, authenticate and select the database; return None, or why it failed."""
        try:
            connection = async_connection(target, self._protocol, seconds)
        except ConfigurationError as error:
            return error
        deadline = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
        except (*BROKEN, TimeoutError) as error:
            await _disconnect(connection)
            return refusal_of(error, target, seconds)
        except BaseException:
            await _disconnect(connection)
            raise
        self._take(connection)
        if commands := login_commands(target, self._protocol):
            received = await self.exchange(commands, deadline - time.monotonic())
            return login_refusal(commands, received)
        return None

    def _take(self, connection: Any) -> None:
        if self._protocol == 3:
            connection._parser.set_invalidation_push_handler(_as_push)  # noqa: SLF001 - there is no public way
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    async def exchange(self, commands: Iterable[tuple[Argument, ...]], seconds: float) -> Received:
        """Send commands in one write and read a reply for each; a connection that breaks is closed."""
        connection = self._connection
        if connection is None or _is_over(connection):
            await self.close()
            return Received([], "the connection was closed by the server", sent=False)
        if seconds <= 0:
            await self.close()
            return no_time()
        commands = list(commands)
        replies: list[Reply | ReplyError] = []
        loop = asyncio.get_running_loop()
        # A connection that is late is of no use; `asyncio.timeout` would take three times the work of this.
        reader = connection._reader  # noqa: SLF001 - as below; after a break redis-py knows it no more
        cut = partial(_cut, reader, connection._writer)  # noqa: SLF001 - as below
        timer = loop.call_later(seconds, cut, context=_NO_CONTEXT)
        try:
            await connection.send_packed_command(pack_command(commands), check_health=False)
            for _ in commands:
                try:
                    replies.append(await connection.read_response(disconnect_on_error=False))
                except REPLIES as error:
                    replies.append(reply_error(error))
        except BROKEN as error:
            is_late = loop.time() >= timer.when()
            cause = f"no reply within {seconds:.2g} s" if is_late else failure_text(error)
            if not replies and self._protocol == 2:
                # A server that closes the connection before it has read everything says why.
                replies += read_replies(reader._buffer, len(commands))  # noqa: SLF001 - as below
        except BaseException:
            await self.close()
            raise
        else:
            return Received(replies)
        finally:
            timer.cancel()
        await self.close()
        return Received(replies, cause)

    async def send(self, commands: Iterable[tuple[Argument, ...]]) -> None:
        """Send commands whose replies another coroutine reads with `read`.

        Raises:
            ConnectionError: when the connection broke.
        """
        if self._connection is None:
            raise ConnectionError("the connection has been closed")
        try:
            await self._connection.send_packed_command(pack_command(commands), check_health=False)
        except BROKEN as error:
            raise ConnectionError(failure_text(error)) from None

    async def read(self) -> Reply | ReplyError | Push:
        """Wait, for as long as it takes, for the next reply or, with RESP3, the next push.

        Raises:
            ConnectionError: when the connection broke.
        """
        if self._connection is None:
            raise ConnectionError("the connection has been closed")
        try:
            return await self._connection.read_response(
                timeout=math.inf,
                disconnect_on_error=False,
                push_request=True,
            )
        except REPLIES as error:
            return reply_error(error)
        except BROKEN as error:
            raise ConnectionError(failure_text(error)) from None

    async def close(self) -> None:
        """Close the connection if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _disconnect(connection)

    def cut(self) -> None:
        """Break the connection from whatever thread; who waits for a reply finds it broken."""
        connection, loop = self._connection, self._loop
        if connection is not None and loop is not None and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_cut, connection._reader, connection._writer)  # noqa: SLF001 - as below

    def abandon(self) -> None:
        """Let go of a connection from outside its event loop, or in a child process that inherited it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # Nothing of it may be destroyed before it is closed: the destructors in there use the loop.
        writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001 - there is no public way to it
        connection._writer = connection._reader = None  # noqa: SLF001
        forked = self._pid != os.getpid()
        if not forked and self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop was closed in this very moment
                self._loop.call_soon_threadsafe(_abort, writer)
                return
        if forked:
            _kept.append(writer)
        _close_without_loop(writer.transport)


def _cut(reader: asyncio.StreamReader | None, writer: asyncio.StreamWriter | None) -> None:
    if reader is not None and writer is not None:  # nobody has closed it before us
        writer.transport.abort()
        # The transport says so a turn of the loop later, when something may have been sent into the void.
        reader.feed_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _is_over(connection: Any) -> bool:
    reader: asyncio.StreamReader = connection._reader  # noqa: SLF001 - the public can_read costs a coroutine a round
    return reader.at_eof() or reader.exception() is not None


async def _disconnect(connection: Any) -> None:
    writer: asyncio.StreamWriter | None = connection._writer  # noqa: SLF001 - there is no public way to it
    with contextlib.suppress(*BROKEN, TimeoutError):
        await connection.disconnect(nowait=True)
    if writer is not None:
        # TLS would say goodbye and wait for the answer, perhaps for longer than the event loop lives.
        _abort(writer)


_kept: Final[list[object]] = []
"""What a child process inherited and must not destroy."""


def _close_without_loop(transport: Any) -> None:
    """Close a transport's socket and nothing else.

    Its loop is closed, or is the parent's: a forked child shares the parent's epoll, and a transport that is
    closed properly, if only by the collector, would make the parent deaf.
    """
    raw = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    sock = getattr(raw, "_sock", None)
    if sock is None:  # uvloop's: it was closed with its loop
        return
    raw._closing = True  # noqa: SLF001
    raw._sock = None  # noqa: SLF001
    transport._closed = True  # noqa: SLF001
    sock.close()
