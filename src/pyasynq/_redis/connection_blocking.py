"""A connection for threads. redis-py connects; sending and reading happen here.

redis-py has a timeout for each read, but none for a whole reply. A server that sends single bytes slowly
never exceeds it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, Final

import hiredis

from pyasynq._redis.failures import drop_tracebacks, explain_refusal, failure_text
from pyasynq._redis.redis_py import BROKEN, blocking_connection, pack_command, read_replies
from pyasynq._redis.reply_errors import read_reply_error
from pyasynq._redis.session import Received, RedisSession, login_commands, login_refusal, no_time_left
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.reply_errors import ReplyError
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget

_PIECE: Final = 65_536
_INCOMPLETE: Final = object()


class BlockingConnection:
    """One connection to Redis for threads, one exchange at a time."""

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_connection",
        "_has_unread_replies",
        "_poll",
        "_reader",
        "_seconds",
        "session",
    )

    def __init__(self) -> None:
        self.session = RedisSession()
        self._connection: Any = None
        self._buffer = bytearray(_PIECE)
        self._reader: Any = None
        self._poll: select.poll | None = None
        self._seconds = 0.0
        self._has_unread_replies = False
        """Whether unread replies of an interrupted exchange may still arrive.

        The connection is then unusable.
        """

    def open(self, target: RedisTarget, seconds: float) -> OpenAnswer:
        """Connect, authenticate and select the database; return None, or the reason of a failure."""
        deadline = time.monotonic() + seconds
        try:
            connection = blocking_connection(target, seconds)
        except ConfigurationError as error:
            return error
        try:
            connection.connect()
        except BROKEN as error:
            connection.disconnect()
            refusal = explain_refusal(error, target, seconds)
            drop_tracebacks(error)
            return refusal
        except BaseException:
            connection.disconnect()
            raise
        self._has_unread_replies = False
        self._connection = connection
        if hasattr(select, "poll"):  # on Windows, and under eventlet, it is missing
            self._poll = select.poll()
            self._poll.register(connection._sock, select.POLLIN)  # noqa: SLF001 - there is no public way to it
        self._seconds = 0.0
        self._reader = hiredis.Reader(replyError=read_reply_error, notEnoughData=_INCOMPLETE)
        if commands := login_commands(target, protocol=2):
            received = self.exchange(commands, deadline - time.monotonic())
            return login_refusal(commands, received)
        return None

    def exchange(self, commands: Iterable[tuple[Argument, ...]], seconds: float) -> Received:
        """Send commands in one write, and return a reply for each; a connection that breaks is closed."""
        deadline = time.monotonic() + seconds
        if self._connection is None or self._has_unread_replies or not self._is_fresh():
            self.close()
            return Received([], "the connection was closed by the server", sent=False)
        if seconds <= 0:
            self.close()
            return no_time_left()
        commands = list(commands)
        replies: list[Reply | ReplyError] = []
        try:
            sock: socket.socket = self._connection._sock  # noqa: SLF001 - as above
            self._has_unread_replies = True
            self._wait_at_most(seconds, sock)
            try:
                sock.sendall(pack_command(commands))
            except BROKEN:
                replies += self._read_rest(sock, len(commands))
                raise
            while len(replies) < len(commands):
                reply = self._reader.gets()
                if reply is _INCOMPLETE:
                    self._receive(sock, deadline)
                else:
                    replies.append(reply)
            self._has_unread_replies = False
        except TimeoutError:
            cause = f"no reply within {seconds:.2g} s"
        except (*BROKEN, hiredis.ProtocolError) as error:
            cause = failure_text(error)
        except BaseException:
            self.close()
            raise
        else:
            return Received(replies)
        self.close()
        return Received(replies, cause)

    def _read_rest(self, sock: socket.socket, most: int) -> list[Any]:
        """Return up to `most` replies of a server that closed the connection before reading all commands."""
        data = bytearray()
        self._seconds = 0.0
        with contextlib.suppress(OSError):
            sock.settimeout(0)
            while size := sock.recv_into(self._buffer):
                data += self._buffer[:size]
        return read_replies(data, most)

    def _receive(self, sock: socket.socket, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._wait_at_most(remaining, sock)
        size = sock.recv_into(self._buffer)
        if not size:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(self._buffer, 0, size)

    def _wait_at_most(self, seconds: float, sock: socket.socket) -> None:
        """Set the socket's timeout, unless it differs by less than 10 %: that saves a system call."""
        if not 0.9 * self._seconds <= seconds <= 1.1 * self._seconds:
            sock.settimeout(seconds)
            self._seconds = seconds

    def _is_fresh(self) -> bool:
        """Return whether the connection is open and has no unread data.

        A readable TLS socket may have no data for us (a session ticket, for instance), so only an attempt to
        read shows that.
        """
        if self._poll is not None and not self._poll.poll(0):
            return not self._reader.has_data()
        try:
            sock = self._connection._sock  # noqa: SLF001 - as above
            self._seconds = 0.0
            sock.settimeout(0)
            sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return not self._reader.has_data()
        except OSError:
            return False
        return False

    def cut(self) -> None:
        """Break the connection, from any thread; a pending read then fails."""
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):  # it is broken or closed already
                # Not the method of the TLS socket: after that, another thread would read on without TLS.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection if it is open. In a forked child the parent's connection stays open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
