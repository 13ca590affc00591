"""Stored task configurations of one service instance: written from its file, and refreshed from Redis."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, QueueLimitsChangedError, QueueNotFoundError
from pyasynq.limits import QueueLimits

from .task_configuration import TaskConfiguration, parse_task_configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.limits import LimitChanges
    from pyasynq.operations import Operator, TypeConfiguration

_log = logging.getLogger("pyasynq.gateway")

_REASON: Final = "configuration of the task type"
_DELETED: Final = "the task type was deleted"


class ConfigurationStore:
    """The configurations of all task types, and the limits of their queues.

    Args:
        operator: reads and writes; its user needs the permissions to edit types and to limit queues.

    Attributes:
        types: configuration and version of each type by name; replaced by `refresh`, read by requests.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._version = -1
        self.types: Mapping[str, tuple[TaskConfiguration, int]] = {}

    async def write_file(self, tasks: Mapping[str, TaskConfiguration]) -> None:
        """Store the configurations of a file; a type that the API manages keeps its stored configuration.

        Types that the file does not name stay as they are: another service may have them.

        Raises:
            RedisError: Redis cannot be reached. What was stored stays; the call may be repeated.
        """
        for name, one in tasks.items():
            if one.managed != "api" or await self._operator.type_configuration(name) is None:
                await self._operator.set_type_configuration(name, one.to_json(), reason="the service's file")

    async def refresh(self) -> bool:
        """Read changed configurations, and apply the limits of changed types; return whether any has changed.

        Raises:
            RedisError: Redis cannot be reached; the next call repeats this.
        """
        newest = await self._operator.type_configurations_version()
        if newest == self._version:
            return False
        read = [(one, _parse(one)) for one in await self._operator.type_configurations()]
        found = {stored.name: (parsed, stored.version) for stored, parsed in read if parsed is not None}
        for name, (one, version) in found.items():
            if self.types.get(name, (None, None))[1] != version:
                await self._set_limits(one)
        self.types, self._version = found, newest
        return True

    async def clear_limits(self, deleted: TypeConfiguration) -> None:
        """Clear the limits of a deleted type's queue, unless other limits have been set since.

        Raises:
            RedisError: Redis cannot be reached; the limits stay.
        """
        one = _parse(deleted)
        limits = None if one is None else one.limits
        if limits is None or limits == QueueLimits() or deleted.name in self.types:
            return
        with suppress(QueueNotFoundError, QueueLimitsChangedError):
            await self._operator.set_queue_limits(
                deleted.name, expected=limits, reason=_DELETED, max_run=None, rate=None, ordered=None
            )

    async def _set_limits(self, one: TaskConfiguration) -> None:
        """Store the limits of a type's queue, unless they are stored already; all workers obey them."""
        limits = one.limits
        if await self._read_limits(one.name) == limits:
            return
        changes: LimitChanges = {"max_run": limits.max_run, "rate": limits.rate, "ordered": limits.ordered}
        if limits.rate is not None:
            changes |= {"period": limits.period, "burst": limits.burst}
        await self._operator.set_queue_limits(one.name, reason=_REASON, **changes)

    async def _read_limits(self, queue: str) -> QueueLimits | None:
        """Return the stored limits of a queue; None before its first task."""
        try:
            return (await self._operator.queue_limits(queue)).stored
        except QueueNotFoundError:
            return None


def _parse(stored: TypeConfiguration) -> TaskConfiguration | None:
    """Parse a stored configuration. If this version of the service cannot read it, log it and return None."""
    try:
        return parse_task_configuration("configuration", dict(stored.content), name=stored.name)
    except InvalidOptionError as error:
        _log.warning("the stored configuration of %s is left out: %s", visible(stored.name), visible(error))
        return None
