"""The connection of an operator to Redis: an inspector that also runs plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyasynq._broker.operating.operations import read_operation
from pyasynq._broker.stored_limits import get_limits
from pyasynq.errors import OperationNotFoundError
from pyasynq.inspector import Inspector
from pyasynq.operations.operation_record import decode_operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.inspecting.actions import ArchiveLimits
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Place, Plan
    from pyasynq.limits import QueueLimits
    from pyasynq.operations.operation import OperationInfo

_T = TypeVar("_T")


class Door(Inspector):
    """The connection through which an operator reads and changes Redis: an inspector that also runs plans."""

    async def run(self, plan: Plan[_T]) -> _T:
        """Run one plan and return what it returns."""
        return await self._run(plan)

    async def run_batch(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans concurrently in shared pipelines; return a result or an exception for each."""
        return await self._driver.run_batch(plans)

    async def queue_limits(self, queue: str) -> QueueLimits:
        """Return the stored limits of a queue, which need not exist."""
        return await self._run(get_limits(queue))

    async def operation(self, operation_id: str) -> OperationInfo:
        """Return an operation. Raises `OperationNotFoundError` if there is none."""
        fields = await self._run(read_operation(operation_id))
        operation = decode_operation(operation_id, fields, now=self._now().to_datetime())
        if operation is None:
            raise OperationNotFoundError(operation_id)
        return operation

    @property
    def is_cluster(self) -> bool:
        """Whether Redis is a cluster."""
        return self._driver.target.is_cluster

    @property
    def places(self) -> Sequence[Place]:
        """Routing targets for commands to every node: one for each known primary of a cluster."""
        return self._driver.places

    def now(self) -> Instant:
        """Return the present by the operator's clock."""
        return self._now()

    def redis_now(self) -> Instant | None:
        """Return the present for scripts; None means Redis' own clock."""
        return self._clock.redis_now()

    def limits(self) -> ArchiveLimits:
        """Return the size and age limits that archives have."""
        return self._limits()
