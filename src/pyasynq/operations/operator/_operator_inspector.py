"""The connection of an operator to Redis: an inspector that also runs plans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pyasynq._broker import inspecting
from pyasynq._broker.arguments import chunks
from pyasynq._broker.operating.operations import read_operation
from pyasynq._broker.stored_limits import get_limits
from pyasynq._checks import check_whole
from pyasynq.errors import OperationNotFoundError, PyasynqError, RedisUnavailableError
from pyasynq.inspector import Inspector
from pyasynq.inspector._base import MOST_PLANS
from pyasynq.operations.operation_record import decode_operation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq._broker.inspecting.actions import ArchiveLimits
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Place, Plan
    from pyasynq.info import CollectionCount, ErrorReport
    from pyasynq.limits import QueueLimits
    from pyasynq.operations.operation import OperationInfo
    from pyasynq.task import TaskState

_T = TypeVar("_T")

_MOST_READ: Final = 2_000
"""Largest number of tasks that error reports read in one pipeline: some 10 ms of Redis' time."""


class OperatorInspector(Inspector):
    """The connection through which an operator reads and changes Redis: an inspector that also runs plans."""

    async def run(self, plan: Plan[_T]) -> _T:
        """Run one plan and return what it returns."""
        return await self._run(plan)

    async def run_batch(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans concurrently in shared pipelines; return a result or an exception for each."""
        return await self._driver.run_batch(plans)

    async def error_reports(
        self,
        queues: Sequence[str],
        state: str,
        *,
        scan: int,
        since: datetime | None,
        until: datetime | None,
    ) -> dict[str, ErrorReport]:
        """Return the error reports of queues, read in pipelines for each node; raise the first error."""
        check_whole("scan", scan, 1)
        sizes = await self.state_counts(queues, inspecting.reports.parse_error_state(state))
        reports: dict[str, ErrorReport] = {}
        read = {queue: min(size or 0, scan) for queue, size in sizes.items()}
        for part in chunks(tuple(read), most=MOST_PLANS, size_of=read.__getitem__, most_size=_MOST_READ):
            plans = [
                inspecting.reports.error_report(
                    *(queue, state), scan=scan, since=since, until=until, now=self._now(), size=sizes[queue]
                )
                for queue in part
            ]
            for queue, report in zip(part, await self._run_batch_in_steps(plans), strict=True):
                if isinstance(report, Exception):
                    raise report
                reports[queue] = report
        return reports

    async def state_counts(self, queues: Sequence[str], state: TaskState) -> dict[str, int | None]:
        """Return the number of tasks of a state by queue; None for a queue that cannot be counted.

        Raises:
            RedisUnavailableError: Redis could not be reached for any queue.
        """
        outcomes: list[CollectionCount | Exception] = []
        for part in chunks(queues):
            count = partial(inspecting.collection_sizes.count_collection, now=self._now())
            plans = [count(queue, state, "", inspecting.walks.NO_FILTER) for queue in part]
            outcomes += await self.run_batch(plans)
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        for error in errors:
            if not isinstance(error, PyasynqError):
                raise error
        if errors and len(errors) == len(outcomes) and isinstance(errors[0], RedisUnavailableError):
            raise errors[0]
        return {
            queue: None if isinstance(outcome, Exception) else outcome.size
            for queue, outcome in zip(queues, outcomes, strict=True)
        }

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
        """Return the present time of the operator's clock."""
        return self._now()

    def redis_now(self) -> Instant | None:
        """Return the present time for scripts; None means that a script uses Redis' own clock."""
        return self._clock.redis_now()

    def limits(self) -> ArchiveLimits:
        """Return the maximum size and age of archives."""
        return self._limits()
