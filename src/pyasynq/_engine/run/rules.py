"""The user's functions that take part in a decision, made safe: a settle is never lost to their errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyasynq._checks import seconds_of
from pyasynq.retry import default_retry_delay, default_retry_seconds, retry_delay_of

if TYPE_CHECKING:
    from pyasynq._engine.handlers.routes import Route
    from pyasynq.config import ServerConfig
    from pyasynq.task import Task

_log = logging.getLogger("pyasynq")
_LONGEST_DELAY = 100 * 365 * 86_400.0


class AttemptRules:
    """`is_failure` and retry delay of one attempt: its route's, else the server's, else Asynq's default."""

    __slots__ = ("_config", "_route", "_task")

    def __init__(self, config: ServerConfig, route: Route | None, task: Task) -> None:
        self._config = config
        self._route = route
        self._task = task

    def is_failure(self, error: BaseException) -> bool:
        """Return what the user's function says; True when it raises."""
        function = (self._route and self._route.is_failure) or self._config.is_failure
        try:
            return bool(function(error))
        except BaseException:  # noqa: BLE001 - reported, and replaced by the default
            _log.exception("is_failure raised for a task of type %r; it counts as a failure", self._task.type)
            return True

    def delay(self, retried: int, error: BaseException) -> float:
        """Return the user's delay in seconds; Asynq's default if the function raises or returns nonsense."""
        function = (self._route and self._route.retry_delay) or retry_delay_of(self._config.retry_delay)
        try:
            return min(_LONGEST_DELAY, seconds_of("retry_delay", function(retried, error, self._task)))
        except BaseException:  # noqa: BLE001 - reported, and replaced by the default
            _log.exception("retry_delay failed for a task of type %r; the default is used", self._task.type)
            return default_retry_delay(retried, error, self._task)


class _DefaultRules:
    """The rules of an attempt whose own rules, or error, cannot be used."""

    __slots__ = ()

    def is_failure(self, error: BaseException) -> bool:  # noqa: ARG002 - every error is one
        """Return True."""
        return True

    def delay(self, retried: int, error: BaseException) -> float:  # noqa: ARG002 - the same for all errors
        """Return Asynq's default delay in seconds."""
        return default_retry_seconds(retried)


DEFAULT_RULES: Final = _DefaultRules()
