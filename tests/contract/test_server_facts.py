from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._clock import Instant
from pyasynq._redis.facts import RedisFacts, read_redis_facts, require_supported
from pyasynq.errors import RedisPermissionError, RedisVersionError

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def facts_of(info: bytes) -> RedisFacts:
    """Return what is made of a reply to INFO."""
    plan = read_redis_facts()
    next(plan)
    plan.send(info)
    try:
        plan.send([b"2000000000", b"5"])
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError


def test_the_server_under_test_is_known(perform: Perform, redis_client: RedisClient) -> None:
    """Name, version, policy, uptime and clock are its own."""
    info = redis_client.info()
    facts = perform(read_redis_facts())
    version = info.get("valkey_version", info["redis_version"])
    assert ("valkey" if "valkey_version" in info else "redis") == facts.name
    assert version == ".".join(map(str, facts.version))
    assert info["maxmemory_policy"] == facts.maxmemory_policy
    assert facts.uptime_seconds >= 0
    assert abs(facts.redis_now.seconds - redis_client.time()[0]) <= 1


def test_valkey_tells_its_own_version() -> None:
    """It also says which Redis it is compatible with."""
    info = b"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.0-rc1\r\nuptime_in_seconds:12\r\n"
    assert RedisFacts("valkey", (9, 1, 0), "", 12, Instant(2_000_000_000, 5)) == facts_of(info)


def test_a_server_that_refuses_info_is_taken_for_a_redis_7() -> None:
    """`-@dangerous`, as access lists of managed servers have it, takes INFO away."""
    plan = read_redis_facts()
    next(plan)
    plan.throw(RedisPermissionError("command INFO was refused"))
    with pytest.raises(StopIteration) as end:
        plan.send([b"2000000000", b"5"])
    assert RedisFacts("redis", (7, 0), "", 0, Instant(2_000_000_000, 5)) == end.value.value
    require_supported(end.value.value)


@pytest.mark.parametrize("info", [b"redis_version:6.0.16\r\n", b"redis_version:5.0.7\r\n", b"nothing"])
def test_an_old_server_is_refused(info: bytes) -> None:
    """The error says what it is and what is needed."""
    with pytest.raises(RedisVersionError, match=r"needs Redis 6\.2"):
        require_supported(facts_of(info))


@pytest.mark.parametrize("info", [b"redis_version:6.2.0\r\n", b"redis_version:8.0.1\r\n"])
def test_a_younger_server_is_accepted(info: bytes) -> None:
    """From Redis 6.2 on."""
    require_supported(facts_of(info))
