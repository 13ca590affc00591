"""Selection of the task names that a worker serves: its handlers' names with a configured task type."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from .handlers import HandlerTable

_log = logging.getLogger("pyasynq.sdk")

_KIND: Final = "worker"
"""Kind of the task types that workers run."""


class KnowsTypes(Protocol):
    """Protocol of a transport that knows the configured task types."""

    def find_kind(self, name: str) -> str:
        """Return the kind of a task type, such as `worker`; empty if the type is not configured."""

    def nearest(self, name: str) -> str:
        """Return a suggestion for the message about an unknown task name, such as the most similar name."""


def find_configured(table: HandlerTable, transport: KnowsTypes) -> set[str]:
    """Return the names in the handler table that are configured as task types of the kind `worker`."""
    return {name for name in table.names if transport.find_kind(name) == _KIND}


def select_names(table: HandlerTable, transport: KnowsTypes) -> set[str]:
    """Return the table's configured names; log the others.

    Raises:
        ConfigurationError: when no name is configured.
    """
    found = find_configured(table, transport)
    unknown = [_describe_unknown(name, transport) for name in sorted(table.names - found)]
    if not found:
        raise ConfigurationError(f"handlers: {unknown[0]}")
    for one in unknown:
        _log.warning("handlers: %s; it is served as soon as it is configured", one)
    return found


def _describe_unknown(name: str, transport: KnowsTypes) -> str:
    kind = transport.find_kind(name)
    if kind:
        return f"{visible(name)!r} is run by the service itself, as its kind is {visible(kind)!r}"
    return f"{visible(name)!r} is not a configured task type{transport.nearest(name)}"
