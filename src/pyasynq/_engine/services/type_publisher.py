"""Type publisher service: publishes the task types that this server has handlers for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._background.service import Service
from pyasynq._broker.task_types import publish_types, renew_types
from pyasynq.events import TypesNotPublished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq.task_types import TaskTypeInfo

_RENEW_SECONDS: Final = 3_600.0
"""Seconds between two renewals of the types, which expire after 30 days."""


class TypePublisher(Service):
    """Writes descriptions of all types at the start, then renews them every hour.

    Renewal keeps the description that a worker of a newer version may have written.
    """

    name = "type_publisher"

    def __init__(self, parts: Parts, types: Sequence[TaskTypeInfo]) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._types = {one.type: one for one in types}
        self._is_published = False
        self._refused: set[str] = set()

    async def round(self) -> float:
        """Publish all types in the first round, and later the types that Redis no longer has."""
        driver, now = self._parts.driver, self._parts.clock.redis_now()
        missing = [*self._types]
        if self._is_published:
            missing = await driver.run(renew_types([*self._types], now))
        types = [self._types[name] for name in missing if name in self._types]
        refused = set(await driver.run(publish_types(types, now))) if types else set[str]()
        self._is_published = True
        if refused - self._refused:
            self.events.emit(TypesNotPublished(self._parts.server_id, tuple(sorted(refused))))
        self._refused = refused
        return _RENEW_SECONDS
