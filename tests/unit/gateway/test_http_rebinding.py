"""Names whose addresses another program chooses: a DNS server that lies, and listeners of this machine."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest

from pyasynq.gateway.configurations import HostRule
from pyasynq.gateway.hosted.http.addresses import is_public
from pyasynq.gateway.hosted.http.guard import Guard, guarded_connector
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux, which has all of 127.0.0.0/8")

GOOD = "127.0.0.2"
"""Address that the rule lists; every other one of this machine is a trap."""
TYPES = {socket.AF_INET: 1, socket.AF_INET6: 28}


class LyingServer(asyncio.DatagramProtocol):
    """DNS server (RFC 1035) whose answers to one question differ from time to time.

    Args:
        rounds: addresses that it gives in the first round of questions, the second, and so on; the last one
            stays.
    """

    def __init__(self, rounds: list[list[str]]) -> None:
        self._rounds = rounds
        self.asked = dict.fromkeys(TYPES.values(), 0)
        """Number of questions, by type."""
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer a question."""
        assert self._transport is not None
        question = data[12:]
        kind, _ = struct.unpack(">HH", question[-4:])
        round_ = self._rounds[min(self.asked[kind], len(self._rounds) - 1)]
        self.asked[kind] += 1
        found = [ip_address(text).packed for text in round_ if (28 if ":" in text else 1) == kind]
        records = b"".join(
            struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed for packed in found
        )
        head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0)
        self._transport.sendto(head + question + records, addr)


class StubResolver(asyncio.DatagramProtocol):
    """Asks the server as a resolver of the system does, without a cache."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Keep an answer."""
        self.answers.put_nowait(data)


async def ask(port: int, name: str, family: socket.AddressFamily) -> list[str]:
    """Return the addresses of a name."""
    loop = asyncio.get_running_loop()
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    question = labels + b"\0" + struct.pack(">HH", TYPES[family], 1)
    transport, stub = await loop.create_datagram_endpoint(StubResolver, remote_addr=("127.0.0.1", port))
    try:
        transport.sendto(struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + question)
        data = await stub.answers.get()
    finally:
        transport.close()
    [number] = struct.unpack(">H", data[6:8])
    size = 16 if family is socket.AF_INET6 else 4
    records = data[12 + len(question) :]
    starts = [one * (12 + size) + 12 for one in range(number)]
    return [str(ip_address(records[start : start + size])) for start in starts]


@dataclass
class World:
    """A DNS server, a listener at the listed address, and traps at all others of this machine."""

    dns: LyingServer
    port: int = 0
    reached: list[str] = field(default_factory=list)
    """Address at which each connection arrived."""

    def session(self) -> aiohttp.ClientSession:
        """Return a session as deliveries use it."""
        rule = HostRule(addresses=(ip_network(GOOD),), ports=frozenset({self.port}))
        return aiohttp.ClientSession(connector=guarded_connector(Guard(rule)))


@asynccontextmanager
async def lying(monkeypatch: pytest.MonkeyPatch, *rounds: list[str]) -> AsyncIterator[World]:
    """Let all names be answered by the lying server for the time of a block."""
    loop = asyncio.get_running_loop()
    dns_transport, dns = await loop.create_datagram_endpoint(
        lambda: LyingServer(list(rounds)), local_addr=("127.0.0.1", 0)
    )
    dns_port = dns_transport.get_extra_info("sockname")[1]
    world = World(dns)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        world.reached.append(writer.get_extra_info("sockname")[0])
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        found = [(family, one) for family in TYPES for one in await ask(dns_port, host, family)]
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, port)) for family, one in found]

    good, traps = await listen_at_one_port(serve)
    world.port = good.sockets[0].getsockname()[1]
    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    try:
        async with good, traps:
            yield world
    finally:
        dns_transport.close()


async def listen_at_one_port(serve: Any) -> tuple[asyncio.Server, asyncio.Server]:
    """Listen at the listed address, and at one port with it at the loopback addresses."""
    traps = ["127.0.0.1", "::1"] if socket.has_ipv6 else ["127.0.0.1"]
    while True:
        good = await asyncio.start_server(serve, GOOD, 0)
        try:
            return good, await asyncio.start_server(serve, traps, good.sockets[0].getsockname()[1])
        except OSError:  # another program has the port there
            good.close()


@run_async
async def test_a_name_that_is_bound_to_another_address_later_reaches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: each connection asks once, and goes where the checked answer says."""
    async with lying(monkeypatch, [GOOD], ["127.0.0.1"]) as world, world.session() as session:
        url = f"http://rebinding.example:{world.port}/"
        assert 204 == (await session.get(url)).status
        for _ in range(3):
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(url)
        assert [GOOD] == world.reached
        assert {1: 4, 28: 4} == world.dns.asked


@run_async
async def test_a_name_that_alternates_reaches_the_listed_address_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it is tried: a check never counts for a later connection."""
    rounds = [[GOOD], ["127.0.0.1"], [GOOD, "::1"]] * 4
    statuses: list[int] = []
    async with lying(monkeypatch, *rounds) as world, world.session() as session:
        for _ in rounds:
            try:
                statuses.append((await session.get(f"http://a.example:{world.port}/")).status)
            except aiohttp.ClientConnectorError:
                statuses.append(0)
    assert [204, 0, 0] * 4 == statuses
    assert [GOOD] * 4 == world.reached


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        [GOOD, "127.0.0.1"],
        ["127.0.0.1", GOOD],
        [GOOD, "::1"],
        [GOOD, "::ffff:127.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["::127.0.0.1"],
        ["2002:7f00:1::1"],
        ["64:ff9b::7f00:1"],
        ["2001:0:7f00:1::1"],
        [GOOD, "169.254.169.254"],
        [GOOD, "fe80::1"],
        ["0.0.0.0"],
        ["::"],
    ],
)
@run_async
async def test_one_bad_address_of_a_name_refuses_all(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """A and AAAA records together, and IPv4 addresses in each of the forms that IPv6 has for them."""
    async with lying(monkeypatch, addresses) as world, world.session() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://mixed.example:{world.port}/")
        assert [] == world.reached


def edges() -> Iterator[str]:
    """Return the first and the last address of each block that Svix' guard refuses."""
    blocks = (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
        *("127.0.0.0/8", "169.254.0.0/16", "255.255.255.255/32"),
        *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
        *("100.64.0.0/10", "192.0.0.0/24", "240.0.0.0/4", "198.18.0.0/15", "0.0.0.0/8"),
        *("ff00::/8", "::1/128", "fe80::/10", "fc00::/7", "::/128", "2001:db8::/32"),
    )
    for block in map(ip_network, blocks):
        yield from dict.fromkeys((str(block[0]), str(block[-1])))


def forms(text: str) -> Iterator[str]:
    """Return an address, and an IPv4 address also as it is mapped into IPv6 and translated (NAT64)."""
    yield text
    if "." in text:
        yield f"::ffff:{text}"
        yield f"64:ff9b::{text}"


@pytest.mark.parametrize("text", list(itertools.chain.from_iterable(map(forms, edges()))))
def test_the_list_of_svix_is_refused_in_each_form(text: str) -> None:
    """First and last address of each of its blocks."""
    assert not is_public(ip_address(text))
