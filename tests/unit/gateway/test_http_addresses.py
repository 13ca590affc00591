"""Addresses that requests of tasks may go to, and the guard that each connection passes."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address, ip_network
from typing import Any

import aiohttp
import pytest

from pyasynq.gateway.configurations import HostRule
from pyasynq.gateway.hosted.http.addresses import is_allowed, is_public, is_this_machine
from pyasynq.gateway.hosted.http.guard import Guard, GuardedResolver, RefusedAddressError, guarded_connector
from pyasynq.gateway.hosted.http.redis_addresses import find_redis_addresses, list_redis_hosts
from tests.run_async import run_async

PRIVATE = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1"),
    *("64:ff9b::7f00:1", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:10::1", "2001:20::1"),
    *("2001:db8::1", "2002:7f00:1::1", "2002:a00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1"),
    *("fe80::1", "fec0::1", "ff02::1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1"),
    *("198.17.255.255", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"),
    *("64:ff9b::808:808",),
]


@pytest.mark.parametrize("text", PRIVATE)
def test_addresses_of_no_public_host_are_refused(text: str) -> None:
    """Private, special, and those that hold such an address."""
    assert not is_public(ip_address(text))
    assert not is_allowed(ip_address(text), ())


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_allowed(text: str) -> None:
    """Also the neighbours of the private blocks."""
    assert is_public(ip_address(text))
    assert is_allowed(ip_address(text), ())


def test_a_listed_network_allows_its_addresses_only() -> None:
    """In IPv4 and within IPv6, and no other private one."""
    allowed = [ip_network("10.1.0.0/16"), ip_network("fd00:1::/64")]
    answers = {
        text: is_allowed(ip_address(text), allowed)
        for text in ("10.1.2.3", "::ffff:10.1.2.3", "10.2.0.1", "fd00:1::5", "fd00:2::5", "8.8.8.8")
    }
    assert {
        "10.1.2.3": True,
        "::ffff:10.1.2.3": True,
        "10.2.0.1": False,
        "fd00:1::5": True,
        "fd00:2::5": False,
        "8.8.8.8": True,
    } == answers


def test_addresses_of_this_machine_are_known() -> None:
    """Whatever interface they are of."""
    assert is_this_machine(ip_address("127.0.0.1"))
    assert not is_this_machine(ip_address("192.0.2.1"))


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis://localhost/0", [("localhost", 6_379)]),
        ("redis://user:p%40ss:1@[::1]:7000/1", [("::1", 7_000)]),
        ("rediss-cluster://:secret@a:1,b,[::1]", [("a", 1), ("b", 6_379), ("::1", 6_379)]),
        ("redis-sentinel://a,b:2/0?master=x", [("a", 26_379), ("b", 2)]),
        ("redis://", [("localhost", 6_379)]),
        ("unix:///run/redis.sock", []),
        ("redis-socket:///run/redis.sock", []),
        ("embedded://", []),
    ],
)
def test_the_servers_of_a_redis_url_are_found(url: str, hosts: list[tuple[str, int]]) -> None:
    """A single server, a cluster and Sentinels have some; a socket has none."""
    assert hosts == list_redis_hosts(url)


@run_async
async def test_redis_is_never_called_even_where_its_address_is_listed() -> None:
    """Its port alone is refused, and so is the service's own."""
    forbidden = await find_redis_addresses("redis://127.0.0.1:7001")
    loopback = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    rule = HostRule("a", addresses=loopback, ports=frozenset({7_001, 7_002, 7_003}))
    guard = Guard(rule, lambda: forbidden, {7_002})
    guard.check("127.0.0.1", 7_003)
    for text, port in (
        ("127.0.0.1", 7_001),
        ("::ffff:127.0.0.1", 7_001),
        ("127.0.0.1", 7_002),
        ("::1", 7_002),
    ):
        with pytest.raises(RefusedAddressError):
            guard.check(text, port)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *rounds: list[str]) -> list[str]:
    """Let the running loop resolve each name to the addresses of the next round; return the names asked."""
    asked: list[str] = []
    left = list(rounds)

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        answers = left.pop(0) if len(left) > 1 else left[0]
        return [
            (
                socket.AF_INET6 if ":" in one else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (one, port),
            )
            for one in answers
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["1.1.1.1", "10.0.0.1"],
        ["2606:4700::1", "::1"],
        ["::ffff:169.254.169.254"],
        ["fe80::1%lo"],
    ],
)
@run_async
async def test_a_name_with_one_bad_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    """Which of its addresses is connected to is not left to chance."""
    resolve_to(monkeypatch, answers)
    with pytest.raises(RefusedAddressError):
        await GuardedResolver(Guard(HostRule())).resolve("a.example", 443)


@run_async
async def test_a_connection_goes_to_an_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: a name that is public when it is checked and loopback when it is asked again."""
    asked = resolve_to(monkeypatch, ["1.1.1.1"], ["127.0.0.1"])
    found = await GuardedResolver(Guard(HostRule())).resolve("a.example", 443)
    assert (["a.example"], ["1.1.1.1"]) == (asked, [one["host"] for one in found])


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "0x7f.1", "0x7f000001"),
        *(
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "017700000001",
            "127.0.0.1.",
            "①②⑦.0.0.1",
            "[0:0:0:0:0:ffff:7f00:1]",
        ),
        *("localhost.", "LOCALHOST", "127。0。0。1", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
    ],
)
@run_async
async def test_a_listener_of_this_machine_is_never_reached(host: str) -> None:
    """Spelling does not matter; the port is allowed, so the address alone decides."""
    reached: list[Any] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(answer, None, 0, family=socket.AF_UNSPEC)
    ports = {one.getsockname()[1] for one in server.sockets}
    rule = HostRule(ports=frozenset(ports))
    async with server, aiohttp.ClientSession(connector=guarded_connector(Guard(rule))) as session:
        for port in ports:
            with pytest.raises((aiohttp.ClientError, OSError, ValueError)):
                await session.get(f"http://{host}:{port}/", timeout=aiohttp.ClientTimeout(total=5))
    assert [] == reached


@run_async
async def test_a_listed_address_is_reached() -> None:
    """So that the test above cannot pass by itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rule = HostRule(addresses=(ip_network("127.0.0.1"),), ports=frozenset({port}))
    async with server, aiohttp.ClientSession(connector=guarded_connector(Guard(rule))) as session:
        for host in ("127.0.0.1", "localhost"):
            found = await session.get(f"http://{host}:{port}/")
            assert 204 == found.status
