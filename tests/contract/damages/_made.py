"""Damages: definition and registration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq.doctor import FindingKind
from tests.factories import Tasks, message_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.invariants import RedisClient

K = FindingKind
LOCK: Final = "asynq:{default}:unique:email:deliver:x"
OVER: Final = 1_700_000_000
PAST: Final = 1_600_000_000


class Damage(NamedTuple):
    """A change to a sound database, its findings, and the keys that differ once it is repaired."""

    kind: FindingKind
    subjects: tuple[str, ...]
    make: Callable[[RedisClient, Tasks], object]
    changed: frozenset[str]
    queue: str


DAMAGES: dict[str, Damage] = {}


def damage(
    kind: FindingKind, *subjects: str, changed: Iterable[str] = (), queue: str = "default"
) -> Callable[[Callable[[RedisClient, Tasks], object]], object]:
    """Register a function whose name says what it does; `changed` are keys without `asynq:{default}:`."""

    def register(make: Callable[[RedisClient, Tasks], object]) -> object:
        full = {key if key.startswith("asynq:") else f"asynq:{{default}}:{key}" for key in changed}
        DAMAGES[make.__name__] = Damage(kind, subjects, make, frozenset(full), queue)
        return make

    return register


def hash_of(client: RedisClient, tasks: Tasks, task_id: str, state: str, **fields: Any) -> None:
    """Make a hash and nothing else."""
    extra = {"group": fields["group_key"]} if "group_key" in fields else {}
    if state == "pending":
        extra["pending_since"] = "1600000000000000000"
    values = {"msg": message_bytes(task_id, **fields), "state": state, **extra}
    client.hset(tasks.keys.task(task_id), mapping=values)
