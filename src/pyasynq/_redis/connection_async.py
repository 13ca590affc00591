"""A connection for asyncio. redis-py connects, sends and parses."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._redis.failures import explain_refusal, failure_text
from pyasynq._redis.redis_py import BROKEN, REPLIES, async_connection, pack_command, read_replies
from pyasynq._redis.reply_errors import reply_error
from pyasynq._redis.session import Received, RedisSession, login_commands, login_refusal, no_time_left
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.reply_errors import ReplyError
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget


_NO_CONTEXT: Final = contextvars.Context()
"""Empty `contextvars` context for timers: asyncio keeps a cancelled timer and its context until it is due."""


class Push(NamedTuple):
    """An out-of-band RESP3 message: its kind, such as `invalidate`, and its data."""

    parts: list[Any]


async def _as_push(parts: list[Any]) -> Push:
    return Push(parts)


class AsyncConnection:
    """One connection to Redis for asyncio, used by the loop that opened it and by one exchange at a time."""

    __slots__ = (
        "__weakref__",
        "_connection",
        "_deadline",
        "_loop",
        "_pid",
        "_protocol",
        "_timer",
        "_timer_at",
        "session",
    )

    def __init__(self, *, protocol: int = 2) -> None:
        self.session = RedisSession()
        self._protocol = protocol
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._deadline = math.inf
        """Deadline of the exchange in progress, in event loop time; infinity if there is none."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        """Event loop time at which the timer fires; infinity if none is set."""

    async def open(self, target: RedisTarget, seconds: float) -> OpenAnswer:
        """Connect, authenticate and select the database; return None, or the reason of a failure."""
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
            return explain_refusal(error, target, seconds)
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
            connection._parser.set_invalidation_push_handler(_as_push)  # noqa: SLF001 - no public way
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    async def exchange(self, commands: Iterable[tuple[Argument, ...]], seconds: float) -> Received:
        """Send commands in one write, and return a reply for each; a connection that breaks is closed."""
        connection = self._connection
        if connection is None or _is_over(connection):
            await self.close()
            return Received([], "the connection was closed by the server", sent=False)
        if seconds <= 0:
            await self.close()
            return no_time_left()
        commands = list(commands)
        replies: list[Reply | ReplyError] = []
        loop = asyncio.get_running_loop()
        reader = connection._reader  # noqa: SLF001 - as below; redis-py drops it after a break
        self._deadline = deadline = loop.time() + seconds
        if self._timer_at > deadline:
            self._set_timer(loop, deadline)
        try:
            await connection.send_packed_command(pack_command(commands), check_health=False)
            for _ in commands:
                try:
                    replies.append(await connection.read_response(disconnect_on_error=False))
                except REPLIES as error:
                    replies.append(reply_error(error))
        except BROKEN as error:
            is_late = loop.time() >= deadline
            cause = f"no reply within {seconds:.2g} s" if is_late else failure_text(error)
            if not replies and self._protocol == 2:
                # A server that closes the connection before it has read all commands sends the reason as a
                # reply.
                replies += read_replies(reader._buffer, len(commands))  # noqa: SLF001 - as below
        except BaseException:
            await self.close()
            raise
        else:
            return Received(replies)
        finally:
            self._deadline = math.inf
        await self.close()
        return Received(replies, cause)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        """Set the timer that breaks a connection whose exchange is late.

        The timer stays set for later exchanges: a timer for each takes 3 % of the time of a single enqueue.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(at, _check_deadline, weakref.ref(self), context=_NO_CONTEXT)
        self._timer_at = at

    def check_deadline(self) -> None:
        """Break the connection if its exchange is late; otherwise set the timer for its deadline, if any."""
        self._timer, self._timer_at = None, math.inf
        connection, loop = self._connection, asyncio.get_running_loop()
        if connection is None or self._deadline == math.inf:
            return
        if loop.time() >= self._deadline:
            _cut(connection._reader, connection._writer)  # noqa: SLF001 - as below
        else:
            self._set_timer(loop, self._deadline)

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
        """Wait without a timeout for the next reply or, with RESP3, the next push, and return it.

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf
        connection, self._connection = self._connection, None
        if connection is not None:
            await _disconnect(connection)

    def cut(self) -> None:
        """Break the connection, from any thread; a pending read then fails."""
        connection, loop = self._connection, self._loop
        if connection is not None and loop is not None and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_cut, connection._reader, connection._writer)  # noqa: SLF001 - as below

    def abandon(self) -> None:
        """Release a connection from outside its event loop, or in a child process that inherited it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # No part of the connection may be destroyed before it is closed: the destructors use the loop.
        writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001 - there is no public way to it
        connection._writer = connection._reader = None  # noqa: SLF001
        forked = self._pid != os.getpid()
        if not forked and self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop was closed in this very moment
                self._loop.call_soon_threadsafe(_abort, writer)
                return
        if forked:
            _undestroyed.append(writer)
        _close_without_loop(writer.transport)


def _check_deadline(reference: weakref.ref[AsyncConnection]) -> None:
    connection = reference()
    if connection is not None:
        connection.check_deadline()


def _cut(reader: asyncio.StreamReader | None, writer: asyncio.StreamWriter | None) -> None:
    if reader is not None and writer is not None:  # the connection is not closed yet
        writer.transport.abort()
        # The transport reports it one loop iteration later. Until then, data would be sent to a dead socket.
        reader.feed_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _is_over(connection: Any) -> bool:
    reader: asyncio.StreamReader = connection._reader  # noqa: SLF001 - the public can_read costs a coroutine in each round
    return reader.at_eof() or reader.exception() is not None


async def _disconnect(connection: Any) -> None:
    writer: asyncio.StreamWriter | None = connection._writer  # noqa: SLF001 - there is no public way to it
    with contextlib.suppress(*BROKEN, TimeoutError):
        await connection.disconnect(nowait=True)
    if writer is not None:
        # TLS would send a close and wait for the answer, possibly longer than the event loop lives.
        _abort(writer)


_undestroyed: Final[list[object]] = []
"""Writers that a forked child has inherited and must not destroy; this list never shrinks."""


def _close_without_loop(transport: Any) -> None:
    """Close a transport's socket and nothing else.

    Its loop is closed, or belongs to the parent process: a forked child shares the parent's epoll. Closing
    the transport properly, even by the garbage collector, would stop the parent from receiving events.
    """
    raw = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    sock = getattr(raw, "_sock", None)
    if sock is None:  # a transport of uvloop, which was closed with its loop
        return
    raw._closing = True  # noqa: SLF001
    raw._sock = None  # noqa: SLF001
    transport._closed = True  # noqa: SLF001
    sock.close()
