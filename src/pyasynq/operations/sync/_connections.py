# Generated from src/pyasynq/operations/operator/_connections.py by tools/unasync.py; change that file and run `make sync`.
"""The connections of an operator."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyasynq.errors import ClientClosedError, RedisPermissionError, RedisReplyError
from pyasynq.operations.published_secrets import PublishedSecrets

from ._operator_inspector import OperatorInspector
from ._recorder import AuditRecorder

if TYPE_CHECKING:
    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq.sync.client import Client
    from pyasynq.operations.sync.sweep import Sweep
    from pyasynq.options import Duration

_LOGGER = logging.getLogger("pyasynq.operations")
_CLIENT_NAME: Final = "pyasynq-operator"


class OperatorConnections:
    """The connections of an operator, shared by the operators of all its users."""

    def __init__(self, target: RedisSource, timeout: Duration, clock: Clock) -> None:
        self.target = target
        self.timeout = timeout
        self.clock = clock
        self._client: Client | None = None
        self._sweep: Sweep | None = None
        self._closed = False
        self.secrets = PublishedSecrets()
        self.inspector = OperatorInspector(target, timeout=timeout, client_name=_CLIENT_NAME, clock=clock)
        self.recorder = AuditRecorder(self.inspector)

    @property
    def sweep(self) -> Sweep:
        """Cached reader of all queues (sweep); made at the first access."""
        if self._sweep is None:
            from pyasynq.operations.sync.sweep import Sweep  # noqa: PLC0415 - most commands need no sweep

            self._sweep = Sweep(self.inspector, self.clock.monotonic)
        return self._sweep

    @property
    def client(self) -> Client:
        """Client that enqueues tasks; made at the first access."""
        if self._closed:
            raise ClientClosedError("the operator has been closed")
        if self._client is None:
            from pyasynq.sync.client import Client  # noqa: PLC0415 - most commands enqueue nothing

            self._client = Client(
                self.target, timeout=self.timeout, client_name=_CLIENT_NAME, clock=self.clock
            )
        return self._client

    def read_secrets(self) -> None:
        """Read the secret fields that workers have declared; keep them for a minute before the next read.

        Raises:
            RedisError: Redis cannot be reached, so nothing may be shown.
        """
        if not self.secrets.is_old():
            return
        try:
            self.secrets.learn(self.inspector.task_types())
        except (RedisReplyError, RedisPermissionError) as error:
            # A damaged key must not keep users from examining the damage.
            _LOGGER.warning("secret fields of tasks are known by their names only: %s", error)
            self.secrets.learn(())

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        self.inspector.close()
        if self._client is not None:
            self._client.close()
