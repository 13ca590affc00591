"""Errors of a Redis that cannot be reached, refuses a call, or answers with an error."""

from pyasynq.errors._base import PyasynqError


class RedisError(PyasynqError):
    """Redis, or the connection to it, failed."""


class RedisUnavailableError(RedisError, ConnectionError):
    """No connection could be made or kept within the timeout. The call did not take effect.

    Attributes:
        address: host and port or socket path, without the password.
        cause: a description of what happened.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"Redis at {address} cannot be reached: {cause}")
        self.address = address
        self.cause = cause


class RedisTLSError(RedisUnavailableError):
    """Certificates or TLS settings of one side are wrong; connecting is not retried."""


class ReplyLostError(RedisError, ConnectionError):
    """The connection broke after a call was sent: it may or may not have taken effect.

    Attributes:
        address: host and port or socket path, without the password.
        cause: a description of what happened.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"the reply of Redis at {address} was lost, the call may have taken effect: {cause}")
        self.address = address
        self.cause = cause


class RedisAuthenticationError(RedisError):
    """Redis refused the user name or the password."""


class RedisPermissionError(RedisError):
    """The Redis user lacks a right; the message names the command or key."""


class RedisOutOfMemoryError(RedisError):
    """Redis is at its `maxmemory` and refuses calls that would make it grow. Nothing was written."""


class RedisVersionError(RedisError):
    """The Redis server is older than Redis 6.2.

    Attributes:
        version: the version that the Redis server reports.
    """

    def __init__(self, version: str) -> None:
        super().__init__(f"this server is Redis {version}; pyasynq needs Redis 6.2 or Valkey 7.2 at least")
        self.version = version


class RedisReplyError(RedisError):
    """Redis answered with an error that has no better class; the message is Redis' own."""


class RedisValueTooLargeError(RedisReplyError):
    """Redis does not accept a value, or a call, of this size. Nothing was written.

    The limit is `proto-max-bulk-len` (512 MB), often much lower at managed servers.
    """


class ClientClosedError(PyasynqError):
    """The client or server object was used after it had been closed."""
