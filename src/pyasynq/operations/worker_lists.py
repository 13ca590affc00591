"""Lists through which the task service passes tasks to workers that only speak Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pyasynq._broker.operating import worker_lists as plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.plan import Plan
    from pyasynq.operations.operator import Operator

_T = TypeVar("_T")

MAX_SHARDS: Final = 64
"""Maximum number of shards of a task type; the service sweeps each shard every second."""


@dataclass(frozen=True, slots=True)
class WorkerList:
    """One shard of a task type of the kind `list`.

    The methods are not verbs of an operator: the service calls them for each task, without audit entries. The
    methods raise `RedisError` if Redis cannot be reached.

    Args:
        operator: operator with which the instance reaches Redis.
        task_type: name of the type.
        shard: number of the shard.
    """

    operator: Operator
    task_type: str
    shard: int

    async def push(self, token: str, entry: bytes, lease: str) -> bool:
        """Append an entry if a worker is free for it; return whether one is. The entry begins with `token`.

        `lease` is the lease token of the entry's attempt; Redis keeps it for `find_lease`.
        """
        return await self._run(plans.push_entry(self.task_type, self.shard, token, entry, lease))

    async def sweep(self, dead: Sequence[str] = ()) -> plans.ListSweep:
        """Remove those of the `dead` workers that have no heartbeat; return the state of the shard."""
        return await self._run(plans.sweep_list(self.task_type, self.shard, dead))

    async def read(self) -> tuple[list[bytes], int]:
        """Return the oldest replies of workers, and the number of replies that were removed as too long.

        The returned replies stay in the list until `withdraw` removes them.
        """
        return await self._run(plans.read_list_replies(self.task_type, self.shard))

    async def find_lease(self, token: str) -> str | None:
        """Return the lease token of an entry's attempt; None if the entry has ended."""
        return await self._run(plans.find_entry_lease(self.task_type, self.shard, token))

    async def renew(self, token: str, lease: str) -> bool:
        """Replace the lease token of an entry's attempt; return False if the entry has ended."""
        return await self._run(plans.renew_entry_lease(self.task_type, self.shard, token, lease))

    async def withdraw(self, token: str, reply: bytes = b"") -> bool:
        """End an entry, and remove a reply to it; return True if no worker had taken the entry."""
        return await self._run(plans.withdraw_entry(self.task_type, self.shard, token, reply))

    async def _run(self, plan: Plan[_T]) -> _T:
        return await self.operator._inspector.run(plan)  # noqa: SLF001 - of this package


async def count_listening(operator: Operator, task_type: str, shards: int) -> int:
    """Return the number of live workers (with a heartbeat) of all shards of a task type.

    Raises:
        RedisError: Redis cannot be reached.
    """
    inspector = operator._inspector  # noqa: SLF001 - of this package
    counts = [
        await inspector.run(plans.count_list_workers(task_type, shard))
        for shard in range(min(shards, MAX_SHARDS))
    ]
    return sum(counts)
