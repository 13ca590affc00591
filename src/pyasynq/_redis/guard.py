"""A guard that limits a process under test to given servers, so that no test reaches a real one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyasynq.errors import ForeignRedisError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyasynq._redis.url import RedisTarget

_guards: list[frozenset[str]] = []


@contextmanager
def only(addresses: Collection[str]) -> Iterator[None]:
    """Allow only exchanges with servers at these addresses, within the block and in all threads.

    Blocks may overlap; an address is allowed if any block allows it.
    """
    guard = frozenset(addresses)
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)


def is_on() -> bool:
    """Return whether a test kit is in use; its server has no replicas."""
    return bool(_guards)


def check(target: RedisTarget) -> None:
    """Raise `ForeignRedisError` for a server that no active `only` block allows."""
    if _guards and not any({target.address, target.found_as} & guard for guard in _guards):
        raise ForeignRedisError(target.address)
