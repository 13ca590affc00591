"""Passwords stay out of logs, representations, errors and their tracebacks, whatever goes wrong."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq
import pyasynq.sync
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import PyasynqError, RedisAuthenticationError
from pyasynq.events import RedisWarning
from tests.fix_engine import do_nothing, serving
from tests.fix_listener import Listener, be_silent, hang_up, reset, say
from tests.fix_tls import Certificates, TlsFront
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_drivers import ClientFace, OwnServer
    from tests.fix_listener import Behaviour

    MakeClient = Callable[..., ClientFace]

SECRET = "s3cr3t/p@ss"
QUOTED = "s3cr3t%2Fp%40ss"
FORMS = ("s3cr3t", "s3cr3t/p@ss", "s3cr3t%2Fp%40ss")


def is_clean(text: str) -> bool:
    """Return whether a text holds the password in no form."""
    return not any(form in text for form in FORMS)


@pytest.fixture
def nothing_told(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Everything that is logged by anybody during a test, and printed, is clean."""
    caplog.set_level(logging.DEBUG)
    yield
    logged = [record.getMessage() + str(record.exc_text) + repr(record.args) for record in caplog.records]
    assert all(map(is_clean, logged))
    assert all(map(is_clean, capfd.readouterr()))


def error_of(client: ClientFace) -> PyasynqError:
    """Return the error that a ping ends with; all of it must be clean."""
    with pytest.raises(PyasynqError) as caught:
        client.ping()
    error = caught.value
    shown = [str(error), repr(error), repr(vars(error)), repr(client.client)]
    assert all(map(is_clean, shown))
    assert is_clean("".join(traceback.format_exception(error)))
    return error


@pytest.mark.parametrize(
    "behave",
    [
        be_silent,
        hang_up,
        reset,
        say(b"-ERR unknown command 'AUTH', with args beginning with: 's3cr3t/p@ss' \r\n" * 9),
        say(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n" * 9),
        say(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ],
)
@pytest.mark.usefixtures("nothing_told")
def test_whatever_answers(make_client: MakeClient, behave: Behaviour) -> None:
    """The server quotes the password, or gives no answer, or is none."""
    with Listener(behave) as listener:
        error_of(make_client(f"redis://bob:{QUOTED}@{listener.address}/0", timeout=0.3))


@pytest.mark.usefixtures("nothing_told")
def test_a_refused_login(make_client: MakeClient, own_server: OwnServer) -> None:
    """Neither what was given, nor that there was something."""
    with own_server.connect() as admin:
        admin.config_set("requirepass", SECRET)
        error = error_of(make_client(own_server.url.replace("unix://", f"unix://nobody:{QUOTED}@")))
        assert isinstance(error, RedisAuthenticationError)


@pytest.mark.usefixtures("nothing_told")
def test_a_missing_right(make_client: MakeClient, own_server: OwnServer) -> None:
    """The user is named, and the password is not."""
    with own_server.connect() as admin:
        command: Any = admin.execute_command
        command("ACL", "SETUSER", "bob", "on", f">{SECRET}", "+@all", "-ping")
    error = error_of(make_client(own_server.url.replace("unix://", f"unix://bob:{QUOTED}@")))
    assert isinstance(error, pyasynq.RedisPermissionError)


@pytest.mark.usefixtures("nothing_told")
def test_a_key_of_tls_has_a_password_too(
    make_client: MakeClient, redis_url: str, certificates: Certificates
) -> None:
    """It is part of the URL as well."""
    with TlsFront(redis_url, certificates.server) as front:
        error_of(make_client(front.url(ssl_ca_certs=certificates.stranger, ssl_password=SECRET), timeout=0.3))


@pytest.mark.usefixtures("nothing_told")
@run_async
async def test_a_server_logs_none(own_server: OwnServer) -> None:
    """From the start over a refused HELLO, which Redis quotes, to the end."""
    own_server.stop()
    own_server.start("--rename-command", "HELLO", "", "--requirepass", SECRET)
    url = own_server.url.replace("unix://", f"unix://:{QUOTED}@")
    while not await listens(url):
        pass
    async with serving(url, do_nothing) as running:
        warning = await running.recorder.wait(RedisWarning)
        assert "wakeup_refused" == warning.code
        assert is_clean(warning.message)
        assert is_clean(repr(running.server) + repr(vars(running.server)))


async def listens(url: str) -> bool:
    """Return whether the server answers already."""
    async with pyasynq.Client(url) as client:
        try:
            await client.ping()
        except ConnectionError:
            return False
    return True


def test_representations() -> None:
    """The repr of each object that knows the URL is checked."""
    url = f"rediss://bob:{QUOTED}@h:1/0?ssl_certfile=/c&ssl_password={QUOTED}"
    target = parse_redis_url(url)
    knowing = [
        target,
        target.tls,
        pyasynq.App(url),
        pyasynq.Server(url),
        pyasynq.Client(url),
        pyasynq.sync.Client(url),
        AsyncDriver(target),
        BlockingDriver(target),
    ]
    assert all(is_clean(repr(one) + str(one)) for one in knowing)
