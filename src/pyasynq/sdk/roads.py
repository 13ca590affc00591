"""Choice of the road that tasks take: over Redis."""

from __future__ import annotations

from typing import Any

from pyasynq._checks import check_team
from pyasynq.errors import ConfigurationError

from .redis_road import RedisRoad


def make_road(*, redis: Any = None, team: str = "") -> RedisRoad:
    """Return the road that the arguments name.

    Raises:
        ConfigurationError: when they name none.
    """
    check_team(team)
    if redis is None:
        raise ConfigurationError('redis: give the URL of Redis, as in redis="redis://localhost:6379/0"')
    return RedisRoad(redis, team)
