"""A Gearman peer with its own implementation of the protocol, and a door for the duration of a block."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyasynq.client import Client
from pyasynq.gateway.configurations import GearmanSettings, parse_service_file
from pyasynq.gateway.counted_client import CountedClient
from pyasynq.gateway.doors.gearman import GearmanDoor
from pyasynq.gateway.doors.gearman.packets import PacketType
from pyasynq.gateway.instance_reports import InstanceReports
from pyasynq.gateway.service_metrics import ServiceMetrics
from pyasynq.operations import Operator, User, report_lease_workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

TYPES: dict[str, Any] = {
    "resize": {"retention": "1h", "max_retry": 5, "retry": ["1h"]},
    "checked": {"schema": {"type": "object", "required": ["path"]}},
    "hosted": {"kind": "http", "url": "https://a.example/"},
}


@dataclass
class Door:
    """A door, and an operator with which tests read the result."""

    door: GearmanDoor
    operator: Operator
    types: dict[str, Any]


@asynccontextmanager
async def opened(
    url: str, types: Mapping[str, Any] | None = None, networks: tuple[Any, ...] = ()
) -> AsyncIterator[Door]:
    """Open a door for the duration of a block."""
    tasks = dict(parse_service_file({"tasks": TYPES if types is None else types}).tasks)
    async with Operator(url, User.with_role("admin", "admin")) as operator, Client(url) as client:
        door = GearmanDoor(
            GearmanSettings("127.0.0.1", 0, networks),
            url,
            client=CountedClient(client, ServiceMetrics()),
            operator=operator,
            list_types=lambda: tasks,
            retry_delay=lambda _queue, _retried: 3_600.0,
        )
        reports = InstanceReports("workers", operator, door.workers, report_lease_workers, rest=0.05)
        await door.start()
        reports.start()
        try:
            yield Door(door, operator, tasks)
        finally:
            await door.close(0.1)
            await reports.close()


class Peer:
    """A client or worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, kind: int, *arguments: bytes) -> None:
        """Send a request."""
        data = b"\x00".join(arguments)
        self.writer.write(struct.pack(">4sII", b"\x00REQ", kind, len(data)) + data)

    async def receive(self) -> tuple[PacketType, bytes]:
        """Return the next answer."""
        magic, kind, size = struct.unpack(">4sII", await self.reader.readexactly(12))
        assert b"\x00RES" == magic
        return PacketType(kind), await self.reader.readexactly(size)

    async def ask(self, kind: int, *arguments: bytes) -> tuple[PacketType, list[bytes]]:
        """Send a request, and return its answer with its arguments."""
        self.send(kind, *arguments)
        answer, data = await self.receive()
        return answer, data.split(b"\x00")

    async def expect(self, kind: PacketType) -> list[bytes]:
        """Return the arguments of the next answer, which must be of a type."""
        found, data = await self.receive()
        assert kind is found, (found.name, data)
        return data.split(b"\x00")

    async def submit(self, function: str, workload: bytes = b"", unique: bytes = b"", kind: int = 7) -> bytes:
        """Submit a job; return its handle."""
        self.send(kind, function.encode(), unique, workload)
        [handle] = await self.expect(PacketType.JOB_CREATED)
        return handle

    async def grab(self) -> tuple[bytes, bytes, bytes]:
        """Return handle, function and workload of the next job, sleeping until there is one."""
        while True:
            answer, arguments = await self.ask(PacketType.GRAB_JOB)
            if answer is PacketType.JOB_ASSIGN:
                return arguments[0], arguments[1], b"\x00".join(arguments[2:])
            assert PacketType.NO_JOB is answer
            self.send(PacketType.PRE_SLEEP)
            await self.expect(PacketType.NOOP)

    async def command(self, line: bytes) -> bytes:
        """Send a line of the text protocol; return its answer."""
        self.writer.write(line + b"\n")
        answer = await self.reader.readuntil(b"\n")
        while answer[:2] not in {b"OK", b"ER"} and answer != b".\n" and not answer.endswith(b"\n.\n"):
            answer += await self.reader.readuntil(b"\n")
        return answer

    def close(self) -> None:
        """Break the connection at once."""
        self.writer.transport.abort()


@asynccontextmanager
async def connected(door: Door, *functions: str) -> AsyncIterator[Peer]:
    """Connect a peer that offers functions, for the duration of a block."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", door.door.port))
    for function in functions:
        peer.send(PacketType.CAN_DO, function.encode())
    try:
        yield peer
    finally:
        peer.close()
