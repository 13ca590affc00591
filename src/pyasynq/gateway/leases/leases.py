"""Leases of one instance: one consumer takes tasks for all workers, which settle by lease token."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible
from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import LeaseExpiredError, PyasynqError, ServerStateError, TaskTimeoutError
from pyasynq.gateway.leases.access import CALLBACK_KEY, check_queue, may_use
from pyasynq.gateway.leases.acts import act_by_token, name_act
from pyasynq.gateway.leases.bodies import Extended
from pyasynq.gateway.leases.leased_tasks import seal_attempt, split_by_size
from pyasynq.gateway.leases.problems import OutcomeUnknownError, to_lease_problem
from pyasynq.gateway.leases.served_queues import ServedQueues
from pyasynq.gateway.leases.tokens import InvalidTokenError
from pyasynq.gateway.leases.worker_table import WorkerTable
from pyasynq.gateway.waits import WaitEndedError, Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyasynq.consumer import Attempt
    from pyasynq.events import Events
    from pyasynq.gateway.leases.access import WorkKey
    from pyasynq.gateway.leases.acts import DelayOfFailure
    from pyasynq.gateway.leases.bodies import AttemptAct, LeaseRequest
    from pyasynq.gateway.leases.tokens import Keyring, LeaseToken
    from pyasynq.gateway.service_metrics import ServiceMetrics

_log = logging.getLogger("pyasynq.gateway")

_MAX_LEASES: Final = 10_000
_SETTLE_SECONDS: Final = 25.0
"""Maximum seconds that a request waits for Redis: less than clients and proxies wait."""


class Leases:
    """Leases tasks to remote workers. Belongs to one event loop; connects at the first request.

    Args:
        redis: where Redis is, as for `Consumer`.
        keyring: signs the tokens; the same in all instances.
        queues: returns the names of the queues that may be leased from; called for each request. None allows
            any queue.
        config: config of the consumer; its `queues` are ignored.
        events: receive the events of the consumer, such as expired leases.
        settle_seconds: seconds that a request waits for Redis to confirm an act.
        retry_delay: returns the seconds until a failed task is retried, by queue and earlier failures; None
            is the back-off of Asynq. A worker's own `delay` overrides it.
        metrics: count leases and acts.
    """

    def __init__(
        self,
        redis: Any,
        keyring: Keyring,
        *,
        queues: Callable[[], Collection[str]] | None = None,
        config: ConsumerConfig | None = None,
        events: Events | None = None,
        settle_seconds: float = _SETTLE_SECONDS,
        retry_delay: DelayOfFailure | None = None,
        metrics: ServiceMetrics | None = None,
    ) -> None:
        self.keyring = keyring
        self.workers = WorkerTable()
        self._queues = queues
        self._config = config if config is not None else ConsumerConfig(concurrency=_MAX_LEASES)
        self._served = ServedQueues(redis, self._config, events, is_held=self.workers.holds)
        self._settle_seconds = settle_seconds
        self._waits = Waits()
        self._retry_delay = retry_delay
        self._metrics = metrics
        self._returns: set[asyncio.Task[None]] = set()
        """Asyncio tasks that put attempts back; each removes itself."""

    @property
    def waiting(self) -> int:
        """Number of requests that wait for tasks."""
        return len(self._waits)

    def end_waits(self) -> None:
        """Answer the waiting requests with no tasks, and lease no more; acts are accepted until `close`.

        Call it at a shutdown, before the HTTP server waits for its open requests.
        """
        self._waits.end()

    async def lease(self, key: WorkKey, request: LeaseRequest) -> list[Attempt]:
        """Return attempts for a worker; an empty list if no task came within the wait.

        If the call is cancelled, leased tasks go back to the front of their queues.

        Raises:
            ProblemError: for an unknown queue, or one that the key may not use.
            ServerStateError: after `end_waits` and `close`.
            PyasynqError: as `Consumer.lease` does.
        """
        if self._waits.is_ending:
            raise ServerStateError("the instance is closing")
        known = None if self._queues is None else self._queues()
        for name in request.queues:
            check_queue(key, name, known)
        self._config.lease_seconds(request.lease)
        names = dict.fromkeys(request.queues)
        async with self._served.using(*names) as consumer:
            take = consumer.lease(*names, limit=request.limit, wait=request.wait, duration=request.lease)
            try:
                attempts = await self._waits.run(take)
            except WaitEndedError:
                return []
        fitting = split_by_size(attempts, request.max_bytes)
        self.put_back(attempts[fitting:])
        if self._metrics is not None:
            self._metrics.note_leased(attempt.queue for attempt in attempts[:fitting])
        return attempts[:fitting]

    def put_back(self, attempts: Sequence[Attempt], worker: str = "") -> None:
        """Put attempts back to the front of their queues, without waiting for Redis.

        Args:
            attempts: the leased attempts.
            worker: id of the worker for which they were leased, if it is known.
        """
        if attempts:
            for attempt in attempts if worker else ():
                self.workers.note_settled(worker, attempt.queue, attempt.id)
            task = asyncio.create_task(_put_back(attempts), name="pyasynq leases put back")
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def act(self, key: WorkKey, token: str, act: AttemptAct) -> Extended | None:
        """Perform a worker's act: extend the lease of an attempt (return the new lease), or settle it (None).

        Raises:
            InvalidTokenError: the lease token was not issued to this API key.
            OutcomeUnknownError: when Redis has not confirmed the act in time.
            PyasynqError: as `Consumer.find` and the settles of an attempt do.
        """
        try:
            return await self._act(key, token, act)
        except Exception as error:
            if self._metrics is not None:
                self._metrics.note_refused(name_act(act), to_lease_problem(error).code)
            raise

    async def _act(self, key: WorkKey, token: str, act: AttemptAct) -> Extended | None:
        opened = self._open(key, token)
        try:
            async with (
                asyncio.timeout(self._settle_seconds),
                self._served.using(opened.queue) as consumer,
            ):
                attempt = await act_by_token(consumer, opened, act, self._retry_delay)
        except TaskTimeoutError:
            raise
        except TimeoutError:
            raise OutcomeUnknownError from None
        self._note_act(opened, attempt)
        if self._metrics is not None:
            self._metrics.note_act(opened.queue, name_act(act))
        if attempt is None:
            return None
        token = seal_attempt(attempt, self.keyring, opened.key_id, opened.worker)
        return Extended(token, attempt.lease_expires_at, attempt.deadline)

    def _note_act(self, token: LeaseToken, attempt: Attempt | None) -> None:
        if not token.worker:
            return
        if attempt is None:
            self.workers.note_settled(token.worker, token.queue, token.task_id)
        else:
            self.workers.note_leased(token.worker, [attempt])

    def is_callback(self, token: str) -> bool:
        """Return whether a token was sent with the request of an `http` task, so that it needs no API key."""
        try:
            self.keyring.open(token, CALLBACK_KEY.id)
        except InvalidTokenError:
            return False
        return True

    def _open(self, key: WorkKey, token: str) -> LeaseToken:
        try:
            opened = self.keyring.open(token, key.id)
        except InvalidTokenError:
            # A token that a host got with the request of a task belongs to no API key.
            return self.keyring.open(token, CALLBACK_KEY.id)
        if not may_use(key, opened.queue):
            raise InvalidTokenError
        return opened

    async def close(self) -> None:
        """Call `end_waits`, put back tasks that reached no worker, and close the connections.

        Leases stay valid: workers settle them through other instances.
        """
        self.end_waits()
        if self._returns:
            await asyncio.wait(self._returns, timeout=self._settle_seconds)
        await self._served.close()


async def _put_back(attempts: Sequence[Attempt]) -> None:
    # All calls start together, so that they leave in one pipeline, and the tasks keep their order.
    results = await asyncio.gather(*(one.requeue() for one in attempts), return_exceptions=True)
    for attempt, error in zip(attempts, results, strict=True):
        if isinstance(error, PyasynqError) and not isinstance(error, LeaseExpiredError):
            _log.debug("task %s was not put back: %s", visible(attempt.id), visible(error))
        elif isinstance(error, Exception) and not isinstance(error, PyasynqError):
            _log.error("task %s was not put back", visible(attempt.id), exc_info=error)
