"""Choice of the transport for tasks: Redis or HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._checks import check_label
from pyasynq.errors import ConfigurationError

from .http_transport import HttpTransport
from .http_work import HttpWork
from .redis_transport import RedisTransport, RedisWork

if TYPE_CHECKING:
    from .handlers import HandlerTable
    from .worker_settings import WorkerSettings

Transport: TypeAlias = "RedisTransport | HttpTransport"
Work: TypeAlias = "RedisWork | HttpWork"


def make_transport(
    *, redis: Any = None, service: str | None = None, key: str = "", team: str = ""
) -> Transport:
    """Return the transport that the arguments choose: `redis` or `service`.

    Raises:
        ConfigurationError: when neither or both are given, and for invalid values.
    """
    check_label("team", team)
    if redis is not None and service is not None:
        raise ConfigurationError("redis, service: these are two transports for tasks; give one of them")
    if service is not None:
        return HttpTransport(service, key)
    if redis is None:
        raise ConfigurationError(
            'redis, service: give one of them, as in redis="redis://localhost:6379/0" or '
            'service="http://task-queue:8080"'
        )
    if key:
        raise ConfigurationError("key: it is for service=; the password of Redis is in its URL")
    return RedisTransport(redis, team)


def make_work(transport: Transport, table: HandlerTable, settings: WorkerSettings) -> Work:
    """Return the worker that runs the table's handlers over this transport."""
    if isinstance(transport, RedisTransport):
        return RedisWork(transport, table, settings)
    return HttpWork(transport, table, settings)
