"""`rediss://`: everything works over TLS, and what is wrong with certificates is said at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._redis.key_watcher import Watcher
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._redis.subscription import Subscription
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import ConfigurationError, RedisError, RedisTLSError, RedisUnavailableError
from pyasynq.events import Outcome
from pyasynq.task import Task
from tests.contract import test_driver_forks as forks
from tests.fix_engine import do_nothing, serving
from tests.fix_proxy import Cut, Proxy
from tests.fix_tls import Certificates, TlsFront
from tests.run_async import run_async
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis

    from pyasynq._redis.plan import Plan
    from tests.contract.test_driver_run import MakeDriver
    from tests.factories import Tasks
    from tests.fix_drivers import ClientFace

    MakeClient = Callable[..., ClientFace]


pytestmark = pytest.mark.single_server("its TLS proxy serves one server")


def echo(word: str) -> Plan[Any]:
    """Have Redis say a word; the call is sent once and no more."""
    return (yield CommandCall(("ECHO", word), None, Replay.NEVER))


def connections(client: redis.Redis) -> int:
    """Return how many connections the server has taken."""
    stats: Any = client.info("stats")
    return int(stats["total_connections_received"])


def test_calls_go_over_one_connection(
    make_driver: MakeDriver, tls: TlsFront, certificates: Certificates, redis_client: redis.Redis
) -> None:
    """The session tickets of TLS 1.3 do not cause another connection."""
    driver = make_driver(tls.url(ssl_ca_certs=certificates.authority))
    before = connections(redis_client)
    assert [b"a", b"b", b"c"] == [driver.run(echo(word)) for word in "abc"]
    assert 1 == connections(redis_client) - before


def test_megabytes_go_both_ways(make_driver: MakeDriver, tls: TlsFront, certificates: Certificates) -> None:
    """Many TLS records make one reply."""
    word = "x" * 5_000_000
    assert word.encode() == make_driver(tls.url(ssl_ca_certs=certificates.authority)).run(echo(word))


def test_a_client_enqueues(
    make_client: MakeClient, tls: TlsFront, certificates: Certificates, tasks: Tasks
) -> None:
    """One, and many."""
    client = make_client(tls.url(ssl_ca_certs=certificates.authority))
    client.enqueue("t", task_id="a")
    assert all(client.enqueue_many(Task("t", b"x" * 1000) for _ in range(1000)))
    assert 1001 == len(tasks.ids("pending"))


@pytest.mark.parametrize(
    "options",
    [{"ssl_cert_reqs": "none"}, {"ssl_cert_reqs": "CERT_NONE", "ssl_check_hostname": "true"}],
)
def test_checks_can_be_switched_off(make_driver: MakeDriver, tls: TlsFront, options: dict[str, str]) -> None:
    """For trials only; an attacker in between may then read and change everything."""
    assert b"a" == make_driver(tls.url(**options)).run(echo("a"))


@pytest.mark.parametrize(
    "options", [{"ssl_check_hostname": "false"}, {"ssl_server_hostname": "redis.example"}]
)
def test_a_certificate_for_another_name_can_be_accepted(
    make_driver: MakeDriver, redis_url: str, certificates: Certificates, options: dict[str, str]
) -> None:
    """Through a tunnel the server's name is not the name that we connect to."""
    with TlsFront(redis_url, certificates.elsewhere) as front:
        url = front.url(ssl_ca_certs=certificates.authority, **options)
        assert b"a" == make_driver(url).run(echo("a"))


def test_a_client_shows_its_certificate(
    make_driver: MakeDriver, redis_url: str, certificates: Certificates
) -> None:
    """Where the server asks for one; without it the error says what to give."""
    certificate, key = certificates.client
    with TlsFront(redis_url, certificates.server, client_authority=certificates.authority) as front:
        url = front.url(ssl_ca_certs=certificates.authority, ssl_certfile=certificate, ssl_keyfile=key)
        assert b"a" == make_driver(url).run(echo("a"))
        without = make_driver(front.url(ssl_ca_certs=certificates.authority), timeout=0.5)
        with pytest.raises(RedisUnavailableError, match="ssl_certfile="):
            without.run(echo("a"))


def refused(driver: Any) -> RedisError:
    """Return the error that a driver with a long time-out meets at once."""
    before = time.monotonic()
    with pytest.raises(RedisTLSError) as error:
        driver.run(echo("a"))
    assert time.monotonic() - before < PATIENCE
    return error.value


def test_a_certificate_of_an_unknown_authority_is_refused_at_once(
    make_driver: MakeDriver, tls: TlsFront, certificates: Certificates, tmp_path: Path
) -> None:
    """Only the authorities of the URL are trusted if it names some, else those of this computer."""
    for options in ({}, {"ssl_ca_certs": certificates.stranger}, {"ssl_ca_path": str(tmp_path)}):
        error = refused(make_driver(tls.url(**options), timeout=10 * PATIENCE))
        assert f"127.0.0.1:{tls.port}" in str(error)
        assert "ssl_ca_certs=" in str(error)


def test_a_certificate_for_another_name_is_refused_at_once(
    make_driver: MakeDriver, redis_url: str, certificates: Certificates
) -> None:
    """The error names both remedies."""
    with TlsFront(redis_url, certificates.elsewhere) as front:
        error = refused(make_driver(front.url(ssl_ca_certs=certificates.authority), timeout=10 * PATIENCE))
    assert f"127.0.0.1:{front.port}" in str(error)
    assert "ssl_server_hostname=" in str(error)


def test_a_server_without_tls_is_named(make_driver: MakeDriver, proxy: Proxy) -> None:
    """Redis waits for the rest of what it takes for a command, so this shows only with the time-out."""
    with pytest.raises(RedisUnavailableError, match="redis://"):
        make_driver(f"rediss://127.0.0.1:{proxy.port}", timeout=0.3).run(echo("a"))


def test_tls_that_is_spoken_to_without_tls_is_named(make_driver: MakeDriver, tls: TlsFront) -> None:
    """The server drops the connection without a word, so the error asks."""
    with pytest.raises(RedisUnavailableError, match="rediss://"):
        make_driver(f"redis://127.0.0.1:{tls.port}", timeout=0.3).run(echo("a"))


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_ca_path", "ssl_certfile"])
def test_a_file_that_is_missing_is_named(make_driver: MakeDriver, tls: TlsFront, option: str) -> None:
    """At the first connection, and at once."""
    with pytest.raises(ConfigurationError, match=rf"{option}='/not/there\.pem'"):
        make_driver(tls.url(**{option: "/not/there.pem"})).run(echo("a"))


def test_a_file_without_certificates_is_named(
    make_driver: MakeDriver, tls: TlsFront, certificates: Certificates, tmp_path: Path
) -> None:
    """The same holds for a key that belongs to another certificate."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(ConfigurationError, match="ssl_ca_certs="):
        make_driver(tls.url(ssl_ca_certs=str(empty))).run(echo("a"))
    url = tls.url(ssl_certfile=certificates.client[0], ssl_keyfile=certificates.server[1])
    with pytest.raises(ConfigurationError, match="ssl_keyfile="):
        make_driver(url).run(echo("a"))


def encrypted_key(path: str, password: bytes, folder: Path) -> str:
    """Return the path of an encrypted copy of a key."""
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415 - trustme brings it

    with open(path, "rb") as file:  # noqa: PTH123 - a path as text
        key = form.load_pem_private_key(file.read(), None)
    data = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(password)
    )
    copy = folder / "encrypted.key"
    copy.write_bytes(data)
    return str(copy)


def test_an_encrypted_key_needs_its_password(
    make_driver: MakeDriver, redis_url: str, certificates: Certificates, tmp_path: Path
) -> None:
    """Without it there is an error, and no prompt appears at a terminal; the password appears nowhere."""
    certificate, key = certificates.client
    key = encrypted_key(key, b"s3cr3t word", tmp_path)
    with TlsFront(redis_url, certificates.server, client_authority=certificates.authority) as front:
        options = {"ssl_ca_certs": certificates.authority, "ssl_certfile": certificate, "ssl_keyfile": key}
        url = front.url(**options, ssl_password="s3cr3t word")
        assert b"a" == make_driver(url).run(echo("a"))
        for wrong in ({}, {"ssl_password": "s3cr3t"}):
            with pytest.raises(ConfigurationError, match="ssl_password=") as error:
                make_driver(front.url(**options, **wrong)).run(echo("a"))
            assert "s3cr3t" not in str(error.value)


def test_a_lost_connection_is_made_again(
    make_driver: MakeDriver, redis_url: str, certificates: Certificates
) -> None:
    """A driver with TLS reconnects like one without."""
    with Proxy(redis_url) as proxy, TlsFront(proxy.url, certificates.server) as front:
        driver = make_driver(front.url(ssl_ca_certs=certificates.authority))
        assert b"a" == driver.run(echo("a"))
        proxy.cut(Cut.BEFORE_REPLY, containing=b"again")
        assert b"again" == driver.run(echo_safe("again"))


def echo_safe(word: str) -> Plan[Any]:
    """Have Redis say a word; the call may be sent again."""
    return (yield CommandCall(("ECHO", word), None, Replay.SAFE))


def test_h14_changes_are_watched_over_tls(
    tls: TlsFront, certificates: Certificates, redis_client: redis.Redis
) -> None:
    """The watch starts again after the connection was lost."""

    async def watch() -> None:
        changes: asyncio.Queue[str] = asyncio.Queue()
        target = parse_redis_url(tls.url(ssl_ca_certs=certificates.authority))
        watcher = Watcher(target, changes.put_nowait)
        try:
            await watcher.arm("k")
            assert "k" == await changes.get()
            for value in (1, 2):
                assert await watcher.arm("k")
                redis_client.set("k", value)
                assert "k" == await changes.get()
            tls.cut_all()
            assert "k" == await changes.get()
        finally:
            await watcher.close()

    asyncio.run(watch())


def test_messages_are_heard_over_tls(
    tls: TlsFront, certificates: Certificates, redis_client: redis.Redis
) -> None:
    """A wrong certificate is an error on entering."""

    async def listen() -> None:
        target = parse_redis_url(tls.url(ssl_ca_certs=certificates.authority))
        async with Subscription(target, "news") as messages:
            redis_client.publish("news", "1")
            assert b"1" == await anext(messages)
        with pytest.raises(RedisTLSError):
            await Subscription(parse_redis_url(tls.url()), "news").__aenter__()

    asyncio.run(listen())


@run_async
async def test_a_server_works_over_tls(tls: TlsFront, certificates: Certificates) -> None:
    """Tasks are taken at once, since the wake-up works too, and no warning is given."""
    async with serving(tls.url(ssl_ca_certs=certificates.authority), do_nothing) as running:
        for number in range(3):
            info = await running.client.enqueue("t", task_id=str(number))
            assert Outcome.SUCCEEDED is (await running.finished(info.id)).outcome
        await running.settled()


# Without the debug mode of asyncio, which writes down what took long on a busy machine.
ENDS = {
    "asyncio": """
import asyncio, sys
from pyasynq.client import Client

async def main():
    async with Client(sys.argv[1]) as client:
        await client.enqueue("t")

asyncio.run(main(), debug=False)
""",
    "blocking": """
import sys
from pyasynq.sync import Client

with Client(sys.argv[1]) as client:
    client.enqueue("t")
""",
    "two loops": """
import asyncio, sys
from pyasynq.client import Client

client = Client(sys.argv[1])
asyncio.run(client.enqueue("t"), debug=False)
async def main():
    await client.enqueue("t")
    await client.close()
asyncio.run(main(), debug=False)
""",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_nothing_of_a_connection_is_left_behind(
    tls: TlsFront, certificates: Certificates, program: str
) -> None:
    """A program that ends right after its last call ends without a warning."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    command.append(tls.url(ssl_ca_certs=certificates.authority))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)


@pytest.mark.sample(1)
@pytest.mark.parametrize("program", [forks.ASYNC, forks.INSIDE_LOOP, forks.BLOCKING])
def test_a_forked_child_leaves_the_connection_of_its_parent_alone(
    tls: TlsFront, certificates: Certificates, program: str, tasks: Tasks
) -> None:
    """Neither its socket nor its TLS: the parent goes on over the connection that it had."""
    command = [sys.executable, *forks.STRICT, "-c", program, tls.url(ssl_ca_certs=certificates.authority)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ("None\n", "") == (done.stdout, done.stderr)
    assert {"parent-1", "parent-2", "child-1", "child-2"} == set(tasks.ids("pending"))
