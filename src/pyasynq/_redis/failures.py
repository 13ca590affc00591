"""Connection failures in plain words: the cause, and the remedy."""

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
    errno.EACCES: "this user may not use the socket; correct its permissions (unixsocketperm in redis.conf)",
    errno.EHOSTUNREACH: "there is no route to this host; correct the address, or repair the network",
    errno.ENETUNREACH: "there is no route to this network; correct the address, or repair the network",
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


def explain_refusal(error: BaseException, target: RedisTarget, seconds: float) -> RedisTLSError | str:
    """Return why no connection could be made, and how to correct it."""
    if isinstance(error, (RedisTimeoutError, TimeoutError)):
        silent = f"no connection within {seconds:.2g} s"
        if target.tls is not None:
            return f"{silent}; is it a Redis with TLS? Without TLS its URL begins with redis://"
        return f"{silent}; correct the address, or check whether a firewall drops the packets"
    if fault := tls_fault(error):
        return RedisTLSError(target.address, fault)
    return _remedy(error) or explain_protocol_failure(failure_text(error))


def explain_protocol_failure(cause: str) -> str:
    """Explain a failure between the TCP connection and the server's first reply: it may not be Redis."""
    return f"{cause}; is it a Redis? It may want TLS (rediss://) and a certificate of ours (ssl_certfile=)"


def failure_text(error: BaseException) -> str:
    """Return why a connection broke, or could not be made."""
    if remedy := _remedy(error):
        return remedy
    for one in _chain(error):
        if isinstance(one, OSError) and (words := _WORDS.get(_get_errno(one))):
            return words
    return str(error) or type(error).__name__


def drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of an error and its causes, once their texts have been read.

    A traceback refers to frames, and a frame that stores the error refers back to it. Only the garbage
    collector frees such a cycle, and the connection inside it.
    """
    for one in _chain(error):
        one.__traceback__ = None


def _remedy(error: BaseException) -> str | None:
    for one in _chain(error):
        if isinstance(one, ssl.SSLError) and (alert := _alert(one)):
            return alert
        if isinstance(one, socket.gaierror):
            return f"its name is not known ({one.strerror}); correct it, or repair the name service"
        if isinstance(one, (InvalidResponse, hiredis.ProtocolError)):
            return f"the server there is not Redis ({one}); correct the address"
        if isinstance(one, OSError) and (remedy := _REMEDIES.get(_get_errno(one))):
            return remedy
    return None


def tls_fault(error: BaseException) -> str | None:
    """Return the TLS fault that a retry cannot cure; None for any other error."""
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
            f"its certificate is for another name ({said}): connect by a name that is in it, or give "
            "such a name as ssl_server_hostname= in the URL"
        )
    if error.verify_code in _TIME_CODES:
        return f"its certificate is not valid now ({said}): renew it, or set this computer's clock"
    return (
        f"its certificate is not trusted ({said}): name the file of the authority that signed it as "
        "ssl_ca_certs= in the URL"
    )


def _alert(error: ssl.SSLError) -> str | None:
    """Explain a TLS alert of the server: our certificate is wrong or missing. None for other errors."""
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


def _get_errno(error: OSError) -> int:
    if error.errno is not None:
        return error.errno
    # asyncio tried several addresses of the host, and reports all of them in one text.
    numbers = set(_ERRNO.findall(str(error)))
    return int(numbers.pop()) if len(numbers) == 1 else 0
