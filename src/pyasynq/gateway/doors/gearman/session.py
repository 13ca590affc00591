"""One connection of a Gearman client or worker: reads its packets, and sends the answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError

from .admin import answer_command
from .client_side import ClientSide
from .packets import Packet, PacketType, ProtocolViolationError, read_packet, write_packet
from .worker_side import WorkerSide

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .parts import DoorParts

_log = logging.getLogger("pyasynq.gateway")

_NUL: Final = b"\x00"
_LONGEST_LINE: Final = 8_000
_MOST_BUFFERED: Final = 10_000_000
"""Maximum bytes that wait to be read by the peer; above it, the connection is closed."""
_OPTIONS: Final = frozenset({b"exceptions"})


class GearmanSession:
    """A connection. It may be a client, a worker and an administrator at once, as in gearmand.

    Args:
        parts: objects that all connections of the Gearman server share.
        reader: reader of the connection.
        writer: writer of the connection.
    """

    def __init__(self, parts: DoorParts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._parts = parts
        self._reader = reader
        self._writer = writer
        self.address = str((writer.get_extra_info("peername") or ("local",))[0])
        self.client_id = b"-"
        self.wants_exceptions = False
        self.client = ClientSide(parts, self.send, lambda: self.wants_exceptions)
        self.worker = WorkerSide(parts, self.send, lambda: self.name)
        self._handlers: dict[int, Callable[..., Awaitable[None]]] = {
            PacketType.ECHO_REQ: self._echo,
            PacketType.OPTION_REQ: self._set_option,
            PacketType.SET_CLIENT_ID: self._set_client_id,
            **self.client.handlers(),
            **self.worker.handlers(),
        }

    @property
    def name(self) -> str:
        """Display name that the client or worker has set for the connection."""
        return visible(self.client_id.decode("utf-8", "surrogateescape"))

    def send(self, kind: PacketType, *arguments: bytes) -> None:
        """Send a packet. A peer that does not read loses its connection."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > _MOST_BUFFERED:
            self._writer.transport.abort()
            return
        self._writer.write(write_packet(kind, *arguments))

    async def run(self) -> None:
        """Serve the connection until it ends; then settle its jobs."""
        try:
            while first := await self._reader.read(1):
                if first == _NUL:
                    await self._handle(await read_packet(self._reader, first, self._parts.max_packet))
                else:
                    await self._answer_line(first)
                await self._writer.drain()
        except ProtocolViolationError as error:
            self.send(PacketType.ERROR, b"invalid_packet", str(error).encode())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the peer is gone, or speaks another protocol
        finally:
            await self._end()

    async def _handle(self, packet: Packet) -> None:
        handler = self._handlers.get(packet.type)
        if handler is None:
            self.send(PacketType.ERROR, b"unknown_command", b"this packet is not served here")
            return
        try:
            await handler(*packet.arguments)
        except PyasynqError as error:
            _log.debug("a Gearman packet failed: %s", visible(error))
            self.send(PacketType.ERROR, b"failed", visible(error).encode())

    async def _answer_line(self, first: bytes) -> None:
        line = first + await self._reader.readuntil(b"\n") if first != b"\n" else first
        if len(line) > _LONGEST_LINE:
            raise ProtocolViolationError("the line is too long")
        answer = await answer_command(self._parts, line.strip())
        self._writer.write(answer)

    async def _end(self) -> None:
        await self.client.end()
        await self.worker.end(f"the connection to the Gearman worker {self.name} broke")
        self._writer.close()
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._writer.wait_closed()

    async def _echo(self, data: bytes) -> None:
        self.send(PacketType.ECHO_RES, data)

    async def _set_option(self, name: bytes) -> None:
        if name not in _OPTIONS:
            self.send(PacketType.ERROR, b"unknown_option", b"the only option is exceptions")
            return
        self.wants_exceptions = True
        self.send(PacketType.OPTION_RES, name)

    async def _set_client_id(self, name: bytes) -> None:
        self.client_id = name[:200] or b"-"
