from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.facts import check_health
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import RedisUnavailableError

if TYPE_CHECKING:
    from pyasynq._redis.pool_blocking import BlockingPool


def test_a_connection_is_back_before_the_next_thread_may_want_it() -> None:
    """Otherwise that thread finds none and opens one more: ten would not be the most there can be."""
    driver = BlockingDriver(parse_redis_url("redis://127.0.0.1:1"), timeout=0.01)
    connections: BlockingPool = driver._own.connections  # type: ignore[assignment]
    idle_at_end: list[int] = []

    class Line(dict[Any, None]):
        def pop(self, *arguments: Any) -> Any:
            idle_at_end.append(len(connections._idle))
            return super().pop(*arguments)

    connections._line = Line()
    with pytest.raises(RedisUnavailableError):
        driver.run(check_health())
    assert [1] == idle_at_end
