"""Redis that cannot be reached, or is none: the time-out holds, and the error says where and what to do."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pyasynq._redis.plan import CommandCall, Replay
from pyasynq.cli import main
from pyasynq.errors import RedisTLSError, RedisUnavailableError
from tests.fix_listener import Listener, be_silent, dribble, hang_up, reset, say
from tests.ports import free_port
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from pyasynq._redis.plan import Plan
    from tests.contract.test_driver_run import MakeDriver
    from tests.fix_listener import Behaviour
    from tests.fix_proxy import Proxy

TIMEOUT = 0.5


def ping() -> Plan[Any]:
    """Ask for a sign of life."""
    return (yield CommandCall(("PING",), None, Replay.SAFE))


def unreachable(make_driver: MakeDriver, url: str, address: str) -> str:
    """Return what the error says of a server that is not reached within the time-out."""
    driver = make_driver(url, timeout=TIMEOUT)
    before = time.monotonic()
    with pytest.raises(RedisUnavailableError) as error:
        driver.run(ping())
    assert time.monotonic() - before < PATIENCE
    text = str(error.value)
    assert text.startswith(f"Redis at {address} cannot be reached: ")
    assert "s3cr3t" not in text
    assert address == error.value.address
    return text


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("behave", "remedy"),
    [
        pytest.param(be_silent, "is it a Redis?", id="silent"),
        pytest.param(hang_up, "is it a Redis?", id="hangs up"),
        pytest.param(reset, "is it a Redis?", id="resets"),
        pytest.param(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "correct the address", id="HTTP"),
        pytest.param(dribble(b"+OK\r\n", 0.2), "is it a Redis?", id="answers slowly"),
        pytest.param(dribble(b"+" + b"x" * 500, 0.05), "is it a Redis?", id="answers without end"),
        pytest.param(None, "firewall", id="black hole"),
    ],
)
@pytest.mark.parametrize("login", [True, False])
def test_h20_what_does_not_answer_like_redis_is_given_up_in_time(
    make_driver: MakeDriver, behave: Behaviour | None, remedy: str, login: bool
) -> None:
    """Whether the greeting or the login before it gets no answer."""
    with Listener(behave) as listener:
        url = listener.url if login else listener.url.replace(":s3cr3t@", "")
        assert remedy in unreachable(make_driver, url, listener.address)


def test_h20_nothing_listens(make_driver: MakeDriver) -> None:
    """On each address of the host's name."""
    port = free_port()
    for host in ("127.0.0.1", "localhost"):
        text = unreachable(make_driver, f"redis://:s3cr3t@{host}:{port}", f"{host}:{port}")
        assert "nothing listens there; start Redis" in text


def test_h20_a_name_that_is_not_known(make_driver: MakeDriver) -> None:
    """The name service, or the spelling."""
    text = unreachable(make_driver, "redis://:s3cr3t@redis.invalid:6379", "redis.invalid:6379")
    assert "its name is not known" in text


def test_h20_a_socket_that_is_not_there(make_driver: MakeDriver, tmp_path: Path) -> None:
    """Unix sockets have errors of their own."""
    path = str(tmp_path / "s")
    assert "there is no such socket" in unreachable(make_driver, f"unix://:s3cr3t@{path}", path)
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(path)
    assert "nothing listens there" in unreachable(make_driver, f"unix://:s3cr3t@{path}", path)


def test_h20_tls_with_something_else(make_driver: MakeDriver) -> None:
    """It answers, but not in TLS."""
    with Listener(say(b"220 mail.example ESMTP\r\n")) as listener:
        driver = make_driver(f"rediss://:s3cr3t@{listener.address}", timeout=TIMEOUT)
        with pytest.raises(RedisTLSError, match=rf"{listener.address} .*redis://") as error:
            driver.run(ping())
        assert "s3cr3t" not in str(error.value)


def test_h20_a_server_that_slows_down_is_given_up_in_time(make_driver: MakeDriver, proxy: Proxy) -> None:
    """One round is bounded as a whole, not each wait for a byte."""
    driver = make_driver(proxy.url, timeout=TIMEOUT)
    driver.run(ping())
    proxy.dribble(0.05)
    before = time.monotonic()
    with pytest.raises(ConnectionError, match="no reply within"):
        driver.run(echo("x" * 1000))
    assert time.monotonic() - before < PATIENCE


@pytest.mark.sample(1)
def test_h20_a_server_that_takes_nothing_more_is_given_up_in_time(
    make_driver: MakeDriver, proxy: Proxy
) -> None:
    """The time-out bounds the sending, too, of more than the network holds."""
    driver = make_driver(proxy.url, timeout=TIMEOUT)
    driver.run(ping())
    proxy.hold()
    before = time.monotonic()
    with pytest.raises(ConnectionError, match="no reply within"):
        driver.run(echo("x" * 50_000_000))
    assert time.monotonic() - before < PATIENCE
    proxy.release()


def echo(word: str) -> Plan[Any]:
    """Have Redis say a word."""
    return (yield CommandCall(("ECHO", word), None, Replay.SAFE))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("behave", [hang_up, reset, None])
def test_the_command_line_prints_one_line(behave: Behaviour | None) -> None:
    """With the address, without the password and without a traceback."""
    with Listener(behave) as listener:
        result = CliRunner().invoke(main, ["ping", "--redis", listener.url])
    assert 5 == result.exit_code
    assert 1 == result.stderr.count("\n")
    assert result.stderr.startswith(f"Error: Redis at {listener.address} cannot be reached: ")
    assert "s3cr3t" not in result.output
