"""Packets of the Gearman protocol: a header of twelve bytes, and arguments separated by NUL bytes.

The protocol is described in the file PROTOCOL of gearmand.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

REQUEST_MAGIC: Final = b"\x00REQ"
RESPONSE_MAGIC: Final = b"\x00RES"
_HEADER: Final = struct.Struct(">4sII")
_NUL: Final = b"\x00"


class PacketType(enum.IntEnum):
    """Types of packets, by the names of the protocol."""

    CAN_DO = 1
    CANT_DO = 2
    RESET_ABILITIES = 3
    PRE_SLEEP = 4
    NOOP = 6
    SUBMIT_JOB = 7
    JOB_CREATED = 8
    GRAB_JOB = 9
    NO_JOB = 10
    JOB_ASSIGN = 11
    WORK_STATUS = 12
    WORK_COMPLETE = 13
    WORK_FAIL = 14
    GET_STATUS = 15
    ECHO_REQ = 16
    ECHO_RES = 17
    SUBMIT_JOB_BG = 18
    ERROR = 19
    STATUS_RES = 20
    SUBMIT_JOB_HIGH = 21
    SET_CLIENT_ID = 22
    CAN_DO_TIMEOUT = 23
    ALL_YOURS = 24
    WORK_EXCEPTION = 25
    OPTION_REQ = 26
    OPTION_RES = 27
    WORK_DATA = 28
    WORK_WARNING = 29
    GRAB_JOB_UNIQ = 30
    JOB_ASSIGN_UNIQ = 31
    SUBMIT_JOB_HIGH_BG = 32
    SUBMIT_JOB_LOW = 33
    SUBMIT_JOB_LOW_BG = 34
    SUBMIT_JOB_SCHED = 35
    SUBMIT_JOB_EPOCH = 36
    SUBMIT_REDUCE_JOB = 37
    SUBMIT_REDUCE_JOB_BACKGROUND = 38
    GRAB_JOB_ALL = 39
    JOB_ASSIGN_ALL = 40
    GET_STATUS_UNIQUE = 41
    STATUS_RES_UNIQUE = 42


_ARGUMENTS: Final = {
    PacketType.CAN_DO: 1,
    PacketType.CANT_DO: 1,
    PacketType.CAN_DO_TIMEOUT: 2,
    PacketType.SET_CLIENT_ID: 1,
    PacketType.OPTION_REQ: 1,
    PacketType.ECHO_REQ: 1,
    PacketType.GET_STATUS: 1,
    PacketType.GET_STATUS_UNIQUE: 1,
    PacketType.WORK_STATUS: 3,
    PacketType.WORK_COMPLETE: 2,
    PacketType.WORK_FAIL: 1,
    PacketType.WORK_EXCEPTION: 2,
    PacketType.WORK_DATA: 2,
    PacketType.WORK_WARNING: 2,
    PacketType.SUBMIT_JOB: 3,
    PacketType.SUBMIT_JOB_BG: 3,
    PacketType.SUBMIT_JOB_HIGH: 3,
    PacketType.SUBMIT_JOB_HIGH_BG: 3,
    PacketType.SUBMIT_JOB_LOW: 3,
    PacketType.SUBMIT_JOB_LOW_BG: 3,
    PacketType.SUBMIT_JOB_EPOCH: 4,
}
"""Number of arguments of each known request; the last argument may contain NUL bytes."""


class ProtocolViolationError(Exception):
    """Error: the bytes of a connection are not packets; nothing after them can be understood."""


class PacketTooLargeError(ProtocolViolationError):
    """Error: the packet is larger than allowed."""


class Packet(NamedTuple):
    """Request packet from a Gearman client or worker.

    Attributes:
        type: number of its type; a number that is not in `PacketType` is unknown.
        arguments: its arguments; empty for types without arguments.
    """

    type: int
    arguments: tuple[bytes, ...]


async def read_packet(reader: asyncio.StreamReader, first: bytes, largest: int) -> Packet:
    """Read a request.

    Args:
        reader: reader of the connection.
        first: the first byte, read before to distinguish packets from lines of the text protocol.
        largest: maximum size of its arguments, in bytes.

    Raises:
        ProtocolViolationError: it is not a request, is too large, or lacks arguments.
        asyncio.IncompleteReadError: the connection ends within it.
    """
    magic, number, size = _HEADER.unpack(first + await reader.readexactly(_HEADER.size - len(first)))
    if magic != REQUEST_MAGIC:
        raise ProtocolViolationError("this is not a request of the Gearman protocol")
    if size > largest:
        raise PacketTooLargeError(f"a packet may have {largest:,} bytes")
    data = await reader.readexactly(size)
    expected = _ARGUMENTS.get(number, 0)
    if not expected:
        return Packet(number, ())
    arguments = tuple(data.split(_NUL, expected - 1))
    if len(arguments) != expected:
        raise ProtocolViolationError(f"{PacketType(number).name} has {expected} arguments")
    return Packet(number, arguments)


def write_packet(kind: PacketType, *arguments: bytes) -> bytes:
    """Encode a response packet."""
    data = _NUL.join(arguments)
    return _HEADER.pack(RESPONSE_MAGIC, kind, len(data)) + data
