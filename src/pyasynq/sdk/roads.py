"""Choice of the transport ("road") for tasks: Redis or HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._checks import check_label
from pyasynq.errors import ConfigurationError

from .http_road import HttpRoad
from .http_work import HttpWork
from .redis_road import RedisRoad, RedisWork

if TYPE_CHECKING:
    from .handlers import HandlerTable
    from .worker_settings import WorkerSettings

Road: TypeAlias = "RedisRoad | HttpRoad"
Work: TypeAlias = "RedisWork | HttpWork"


def make_road(*, redis: Any = None, service: str | None = None, key: str = "", team: str = "") -> Road:
    """Return the transport that the arguments choose: `redis` or `service`.

    Raises:
        ConfigurationError: when neither or both are given, and for invalid values.
    """
    check_label("team", team)
    if redis is not None and service is not None:
        raise ConfigurationError("redis, service: these are two roads for tasks; give one of them")
    if service is not None:
        return HttpRoad(service, key)
    if redis is None:
        raise ConfigurationError(
            'redis, service: give one of them, as in redis="redis://localhost:6379/0" or '
            'service="http://task-queue:8080"'
        )
    if key:
        raise ConfigurationError("key: it is for service=; the password of Redis is in its URL")
    return RedisRoad(redis, team)


def make_work(road: Road, table: HandlerTable, settings: WorkerSettings) -> Work:
    """Return the worker that runs the table's handlers over this transport."""
    if isinstance(road, RedisRoad):
        return RedisWork(road, table, settings)
    return HttpWork(road, table, settings)
