"""Why a connection could not be made or broke: in words, with what to do about it."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from typing import TYPE_CHECKING, Final

import hiredis
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

from pyasynq.errors import RedisTLSError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._redis.url import RedisTarget

_REMEDIES: Final = {
    errno.ECONNREFUSED: "nothing listens there; start Redis, or correct the address",
    errno.ENOENT: "there is no such socket; start Redis, or correct the path",
    errno.EACCES: "this user may not use the socket; mend its permissions (unixsocketperm in redis.conf)",
    errno.EHOSTUNREACH: "there is no way to this host; correct the address, or mend the network",
    errno.ENETUNREACH: "there is no way to this network; correct the address, or mend the network",
}
_WORDS: Final = {
    errno.ECONNRESET: "the server reset the connection",
    errno.EPIPE: "the server closed the connection",
}
_NAME_CODES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_TIME_CODES: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_PASSING: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_ALERTS_ABOUT_US: Final = ("CERTIFICATE", "HANDSHAKE_FAILURE", "UNKNOWN_CA", "ACCESS_DENIED")
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")


def refusal_of(error: BaseException, target: RedisTarget, seconds: float) -> RedisTLSError | str:
    """Return why no connection could be made."""
    if isinstance(error, (RedisTimeoutError, TimeoutError)):
        silent = f"no connection within {seconds:.2g} s"
        if target.tls is not None:
            return f"{silent}; is it a Redis with TLS? Without TLS its URL begins with redis://"
        return f"{silent}; correct the address, or see whether a firewall swallows what is sent to it"
    if fault := tls_fault(error):
        return RedisTLSError(target.address, fault)
    return _remedy(error) or unlike_redis(failure_text(error))


def unlike_redis(cause: str) -> str:
    """Return a cause that came to light after the connection was made and before the server had greeted."""
    return f"{cause}; is it a Redis? It may want TLS (rediss://) and a certificate of ours (ssl_certfile=)"


def failure_text(error: BaseException) -> str:
    """Return why a connection broke, or could not be made."""
    if remedy := _remedy(error):
        return remedy
    for one in _chain(error):
        if isinstance(one, OSError) and (words := _WORDS.get(_number_of(one))):
            return words
    return str(error) or type(error).__name__


def drop_tracebacks(error: BaseException) -> None:
    """Have an error and those behind it hold no frames, once it is known what they say.

    A frame that keeps the error which was raised in it, in a variable or a list, is held by it in turn: only
    the collector would free both, and a connection with them.
    """
    for one in _chain(error):
        one.__traceback__ = None


def _remedy(error: BaseException) -> str | None:
    for one in _chain(error):
        if isinstance(one, ssl.SSLError) and (alert := _alert(one)):
            return alert
        if isinstance(one, socket.gaierror):
            return f"its name is not known ({one.strerror}); correct it, or mend the name service"
        if isinstance(one, (InvalidResponse, hiredis.ProtocolError)):
            return f"what answers is no Redis ({one}); correct the address"
        if isinstance(one, OSError) and (remedy := _REMEDIES.get(_number_of(one))):
            return remedy
    return None


def tls_fault(error: BaseException) -> str | None:
    """Return what is wrong about TLS so that trying again is of no use; None when it is something else."""
    for one in _chain(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            return _certificate_fault(one)
        if isinstance(one, ssl.SSLError) and not isinstance(one, _PASSING):
            return (
                _alert(one) or f"TLS failed ({_reason(one)}); if it has no TLS, its URL begins with redis://"
            )
    return None


def _certificate_fault(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message
    if error.verify_code in _NAME_CODES:
        return (
            f"its certificate is for another name ({said}): connect by a name that stands in it, or give "
            "such a name as ssl_server_hostname= in the URL"
        )
    if error.verify_code in _TIME_CODES:
        return f"its certificate is not valid now ({said}): renew it, or set this computer's clock"
    return (
        f"its certificate is not trusted ({said}): name the file of the authority that signed it as "
        "ssl_ca_certs= in the URL"
    )


def _alert(error: ssl.SSLError) -> str | None:
    """Return what the server says is wrong with our certificate, or with its absence."""
    reason = _reason(error)
    if "ALERT" in reason and any(word in reason for word in _ALERTS_ABOUT_US):
        return (
            f"it refuses our certificate, or wants one ({reason}): name certificate and key as "
            "ssl_certfile= and ssl_keyfile= in the URL"
        )
    return None


def _reason(error: ssl.SSLError) -> str:
    # Errors that Python itself raises have no reason, not even None.
    return getattr(error, "reason", None) or str(error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _number_of(error: OSError) -> int:
    if error.errno is not None:
        return error.errno
    # asyncio tried several addresses of the host, and tells of all in one text.
    numbers = set(_ERRNO.findall(str(error)))
    return int(numbers.pop()) if len(numbers) == 1 else 0
