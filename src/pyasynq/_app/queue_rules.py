"""The queues of an app, with the limits that the app and its tasks declare for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyasynq.errors import ConfigurationError, InvalidOptionError, describe_value
from pyasynq.limits import Queue, complete_rate, list_own_limits, read_rate
from pyasynq.options import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class QueueRules(NamedTuple):
    """Limits that a task's declaration sets for its queue; a field that is None sets no limit."""

    max_run: int | None = None
    rate: float | str | None = None
    ordered: bool | None = None

    def fields(self) -> dict[str, Any]:
        """Return the limits as arguments of `Queue`.

        Raises:
            InvalidOptionError: for an invalid value.
        """
        fields: dict[str, Any] = {}
        if self.max_run is not None:
            fields["max_run"] = self.max_run
        if isinstance(self.rate, str):
            fields |= read_rate("rate", self.rate)
        elif self.rate is not None:
            fields |= {"rate": self.rate, "period": 1.0}
        if self.ordered is not None:
            fields["ordered"] = self.ordered
        Queue(**fields)
        return fields


class DeclaredQueues:
    """Settings of queues, gathered from the app and from the declarations of its tasks.

    Raises:
        InvalidOptionError: for an invalid queue of the app.
    """

    def __init__(self, of_app: Mapping[str, int | Queue]) -> None:
        self._weights = {
            name: one.priority if isinstance(one, Queue) else one for name, one in of_app.items()
        }
        self._fields: dict[str, dict[str, Any]] = {}
        self._owners: dict[tuple[str, str], str] = {}
        for name, one in of_app.items():
            if isinstance(one, Queue):
                self._add(name, list_own_limits(one), "App(queues=...)")

    @property
    def names(self) -> Iterable[str]:
        """Names of the queues that the app configures or a task limits."""
        return {**self._weights, **self._fields}

    def add(self, queue: str, rules: QueueRules, owner: str) -> None:
        """Add the limits that a task sets for its queue.

        Raises:
            ConfigurationError: when another declaration gives the queue a different limit.
        """
        fields = rules.fields()
        if fields:
            self._add(queue, fields, owner)

    def _add(self, queue: str, fields: dict[str, Any], owner: str) -> None:
        known = self._fields.get(queue, {})
        for name, value in fields.items():
            if name in known and known[name] != value:
                raise ConfigurationError(
                    f"queue {queue!r} has {name}={describe_value(known[name])} by "
                    f"{self._owners[queue, name]}, and {owner} says {name}={describe_value(value)}: "
                    "a queue has one limit, for all its tasks"
                )
        together = {**known, **fields}
        try:
            Queue(**together)
        except InvalidOptionError as error:
            raise ConfigurationError(f"queue {queue!r}, {owner}: {error}") from None
        self._fields[queue] = together
        for name in fields:
            self._owners.setdefault((queue, name), owner)

    def check_front(self, options: Mapping[str, Any]) -> None:
        """Check the option `front` of a task, before a server has told Redis that the queue is ordered.

        Raises:
            InvalidOptionError: for a task at the front of a queue that is declared as ordered.
        """
        queue = options.get("queue", DEFAULT_QUEUE)
        if options.get("front") and self._fields.get(queue, {}).get("ordered"):
            remedy = f"queue {queue!r} is ordered, by {self._owners[queue, 'ordered']}: leave it out"
            raise InvalidOptionError("front", options["front"], remedy)

    def settings(self, names: Iterable[str]) -> dict[str, int | Queue]:
        """Return the settings of these queues, with weight 1 where the app gives none."""
        return self.limited({name: self._weights.get(name, 1) for name in names})

    def limited(self, queues: Mapping[str, int | Queue]) -> dict[str, int | Queue]:
        """Return queues with weights and declared limits; limits that a `Queue` sets override these.

        Raises:
            ConfigurationError: for a limit that a declared limit excludes.
        """
        return {name: self._limit(name, one) if name in self._fields else one for name, one in queues.items()}

    def _limit(self, name: str, queue: int | Queue) -> Queue:
        declared = Queue(**self._fields[name])
        if not isinstance(queue, Queue):
            return replace(declared, priority=queue)
        own = complete_rate(list_own_limits(queue))
        try:
            return replace(declared, priority=queue.priority, **own)
        except InvalidOptionError as error:
            owners = sorted({self._owners[name, field] for field in self._fields[name]})
            raise ConfigurationError(f"queue {name!r}, limited by {' and '.join(owners)}: {error}") from None
