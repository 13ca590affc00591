"""Redis that is not reached, refuses a call, or answers with an error."""

from pyasynq.errors._base import PyasynqError


class RedisError(PyasynqError):
    """Redis, or the way to it, failed."""


class RedisUnavailableError(RedisError, ConnectionError):
    """No connection could be made or kept within the time-out. What was asked was not done.

    Attributes:
        address: host and port or socket path, without the password.
        cause: what happened, in words.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"Redis at {address} cannot be reached: {cause}")
        self.address = address
        self.cause = cause


class RedisTLSError(RedisUnavailableError):
    """Certificates, or one side's settings of TLS, are wrong; a connection is not tried again and again."""


class ReplyLostError(RedisError, ConnectionError):
    """The connection broke after a call was sent: it may or may not have taken effect.

    Attributes:
        address: host and port or socket path, without the password.
        cause: what happened, in words.
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
    """Redis is at its `maxmemory` and refuses what would make it grow. Nothing was written."""


class RedisVersionError(RedisError):
    """The server is older than Redis 6.2.

    Attributes:
        version: what the server says it is.
    """

    def __init__(self, version: str) -> None:
        super().__init__(f"this server is Redis {version}; pyasynq needs Redis 6.2 or Valkey 7.2 at least")
        self.version = version


class RedisReplyError(RedisError):
    """Redis answered with an error that pyasynq has no better class for; the message is the server's."""


class RedisValueTooLargeError(RedisReplyError):
    """Redis takes no call with a value, or altogether, of this size. Nothing was written.

    The limit is `proto-max-bulk-len` (512 MB), often much lower at managed servers.
    """


class ClientClosedError(PyasynqError):
    """The client or server object was used after it had been closed."""
