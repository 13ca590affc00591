"""Why a connection could not be made or broke; the table in docs/redis.md says the same."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

import hiredis
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

from pyasynq._redis.failures import explain_protocol_failure, explain_refusal, failure_text, tls_fault
from pyasynq._redis.tls import TLSOptions
from pyasynq._redis.url import RedisTarget
from pyasynq.errors import RedisTLSError

PAGE = Path(__file__).parents[3] / "docs" / "redis.md"
TABLE = PAGE.read_text("utf-8").partition("| The error says |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| `(.+?)` \|", TABLE, re.MULTILINE)
PLAIN, WITH_TLS = RedisTarget(), RedisTarget(scheme="rediss", tls=TLSOptions())


class Case(NamedTuple):
    """An error as Python or redis-py raises it, and the words that users read."""

    error: BaseException
    message: str
    target: RedisTarget = PLAIN
    is_tls: bool = False


def oserror(number: int) -> OSError:
    """Return the system's error of this number."""
    return OSError(number, "what the system says")


def ssl_error(reason: str | None, kind: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    """Return an error of OpenSSL; one that Python raises itself has no reason."""
    error = kind(1, f"[SSL: {reason}] in words")
    if reason is not None:
        error.reason = reason
    return error


def certificate_error(code: int, said: str) -> ssl.SSLCertVerificationError:
    """Return what OpenSSL says of a certificate."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, said
    return error


def wrapped(cause: BaseException) -> BaseException:
    """Return the error that redis-py makes of another one."""
    error = RedisConnectionError("Error 1 connecting")
    error.__cause__ = cause
    return error


CASES = {
    "nothing listens": Case(
        oserror(errno.ECONNREFUSED), "nothing listens there; start Redis, or correct the address"
    ),
    "no socket": Case(oserror(errno.ENOENT), "there is no such socket; start Redis, or correct the path"),
    "socket of another user": Case(
        oserror(errno.EACCES),
        "this user may not use the socket; correct its permissions (unixsocketperm in redis.conf)",
    ),
    "no way to the host": Case(
        oserror(errno.EHOSTUNREACH),
        "there is no route to this host; correct the address, or repair the network",
    ),
    "no way to the network": Case(
        oserror(errno.ENETUNREACH),
        "there is no route to this network; correct the address, or repair the network",
    ),
    "unknown name": Case(
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        "its name is not known (Name or service not known); correct it, or repair the name service",
    ),
    "time-out": Case(
        RedisTimeoutError("Timeout connecting"),
        "no connection within 0.5 s; correct the address, or check whether a firewall drops the packets",
    ),
    "time-out of TLS": Case(
        TimeoutError(),
        "no connection within 0.5 s; is it a Redis with TLS? Without TLS its URL begins with redis://",
        WITH_TLS,
    ),
    "reset": Case(
        oserror(errno.ECONNRESET),
        "the server reset the connection; is it a Redis? "
        "It may want TLS (rediss://) and a certificate of ours (ssl_certfile=)",
    ),
    "closed": Case(
        oserror(errno.EPIPE),
        "the server closed the connection; is it a Redis? "
        "It may want TLS (rediss://) and a certificate of ours (ssl_certfile=)",
    ),
    "another protocol": Case(
        InvalidResponse("Protocol Error: b'HTTP/1.1'"),
        "the server there is not Redis (Protocol Error: b'HTTP/1.1'); correct the address",
    ),
    "plain Redis on a rediss URL": Case(
        ssl_error("WRONG_VERSION_NUMBER"),
        "TLS failed (WRONG_VERSION_NUMBER); if it has no TLS, its URL begins with redis://",
        WITH_TLS,
        is_tls=True,
    ),
    "certificate wanted": Case(
        ssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        "it refuses our certificate, or wants one (TLSV13_ALERT_CERTIFICATE_REQUIRED): name certificate and "
        "key as ssl_certfile= and ssl_keyfile= in the URL",
        WITH_TLS,
        is_tls=True,
    ),
    "untrusted certificate": Case(
        certificate_error(20, "unable to get local issuer certificate"),
        "its certificate is not trusted (unable to get local issuer certificate): name the file of the "
        "authority that signed it as ssl_ca_certs= in the URL",
        WITH_TLS,
        is_tls=True,
    ),
    "certificate for another name": Case(
        certificate_error(62, "Hostname mismatch"),
        "its certificate is for another name (Hostname mismatch): connect by a name that is in it, or "
        "give such a name as ssl_server_hostname= in the URL",
        WITH_TLS,
        is_tls=True,
    ),
    "certificate of another time": Case(
        certificate_error(10, "certificate has expired"),
        "its certificate is not valid now (certificate has expired): renew it, or set this computer's clock",
        WITH_TLS,
        is_tls=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_says_what_is_wrong_and_what_to_do(name: str) -> None:
    """Also where redis-py has made an error of its own of it, time-outs apart; only TLS is hopeless."""
    case = CASES[name]
    errors = [case.error] if name.startswith("time-out") else [case.error, wrapped(case.error)]
    for error in errors:
        refusal = explain_refusal(error, case.target, 0.5)
        assert case.is_tls is isinstance(refusal, RedisTLSError)
        prefix = f"Redis at {case.target.address} cannot be reached: " if case.is_tls else ""
        assert prefix + case.message == str(refusal)


def test_the_table_in_the_docs_has_each_of_these_messages_and_no_other() -> None:
    """Variable parts are shown as an ellipsis."""
    patterns = [re.escape(row).replace("…", ".+") for row in ROWS]
    for case in CASES.values():
        assert 1 == sum(re.fullmatch(pattern, case.message) is not None for pattern in patterns), case.message
    for pattern in patterns:
        assert any(re.fullmatch(pattern, case.message) for case in CASES.values()), pattern


@pytest.mark.parametrize(
    "reason",
    [
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_ACCESS_DENIED",
    ],
)
def test_each_alert_about_our_certificate_is_one(reason: str) -> None:
    """Servers choose among several; they come while connecting, or with the first reply (TLS 1.3)."""
    assert "it refuses our certificate, or wants one" in failure_text(ssl_error(reason))
    assert "it refuses our certificate, or wants one" in (tls_fault(ssl_error(reason)) or "")


@pytest.mark.parametrize("reason", ["TLSV1_ALERT_PROTOCOL_VERSION", "CERTIFICATE_VERIFY_FAILED"])
def test_an_alert_about_something_else_and_our_own_finding_are_none(reason: str) -> None:
    """A certificate would not help."""
    assert (tls_fault(ssl_error(reason)) or "").startswith(f"TLS failed ({reason})")


def test_an_error_of_python_itself_is_quoted_where_it_has_no_reason() -> None:
    """`ssl.SSLError` without the attribute, as Python's own are."""
    assert "TLS failed (" in (tls_fault(ssl_error(None)) or "")
    assert "in words" in (tls_fault(ssl_error(None)) or "")


@pytest.mark.parametrize("kind", [ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError])
def test_a_connection_that_only_ended_is_not_a_tls_failure(kind: type[ssl.SSLError]) -> None:
    """A server that restarts hangs up too; it is tried again."""
    assert tls_fault(ssl_error("UNEXPECTED_EOF_WHILE_READING", kind)) is None


def test_a_plain_url_on_a_tls_port_is_told_to_try_tls() -> None:
    """The server closes a connection without a TLS greeting."""
    assert "It may want TLS (rediss://)" in explain_protocol_failure(
        failure_text(RedisConnectionError("Connection closed"))
    )
    refusal = explain_refusal(hiredis.ProtocolError("Protocol error, got \\x15"), PLAIN, 0.5)
    assert str(refusal).startswith("the server there is not Redis (Protocol error")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (oserror(errno.ECONNRESET), "the server reset the connection"),
        (wrapped(oserror(errno.EPIPE)), "the server closed the connection"),
        (oserror(errno.EIO), "[Errno 5] what the system says"),
        (RedisConnectionError("Connection closed by server."), "Connection closed by server."),
        (EOFError(), "EOFError"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"),
            "nothing listens there; start Redis, or correct the address",
        ),
        (OSError("Multiple exceptions: [Errno 111] x, [Errno 113] y"), "Multiple exceptions: [Errno 111] x"),
    ],
)
def test_a_cause_is_words_of_ours_or_the_errors_own(error: BaseException, cause: str) -> None:
    """Asyncio tells of several addresses in one text; where they failed for several reasons, it is quoted."""
    assert failure_text(error).startswith(cause)
