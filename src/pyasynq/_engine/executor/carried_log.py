"""Log records of a child process, which the worker logs as its own."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from pyasynq.context import TaskFieldsFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CARRIED_APART: Final = frozenset({"args", "exc_info", "msg"})
_FORMATTER: Final = logging.Formatter()


def log_levels() -> dict[str, Any]:
    """Return the log levels of this process, for `adopt_log_levels` in another one."""
    loggers = {
        name: logger.level
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"root": logging.root.level, "loggers": loggers, "disabled": logging.root.manager.disable}


def adopt_log_levels(levels: Mapping[str, Any]) -> None:
    """Set the log levels of this process to the levels of another process."""
    logging.root.setLevel(levels["root"])
    for name, level in levels["loggers"].items():
        logging.getLogger(name).setLevel(level)
    logging.disable(levels["disabled"])


class CarryingHandler(logging.Handler):
    """Handler that sends records as JSON, with the text of their tracebacks.

    Args:
        send: called with the fields of each record, from any thread.
    """

    def __init__(self, send: Callable[[dict[str, Any]], object]) -> None:
        super().__init__()
        self._send = send
        self.addFilter(TaskFieldsFilter())

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; an error is reported to standard error, as by any handler."""
        try:
            fields = {
                name: value if _is_json(value) else str(value)
                for name, value in record.__dict__.items()
                if name not in _CARRIED_APART
            }
            fields["msg"] = record.getMessage()
            if record.exc_info and not record.exc_text:
                kind, error, trace = record.exc_info
                if kind is not None and error is not None:
                    fields["exc_text"] = _FORMATTER.formatException((kind, error, trace))
            self._send(fields)
        except Exception:  # noqa: BLE001 - as every log handler does
            self.handleError(record)


def write_record(fields: Mapping[str, Any]) -> None:
    """Log a record from another process, if the loggers of this process are enabled for it."""
    record = logging.makeLogRecord({**fields, "args": None, "exc_info": None})
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def log_to(send: Callable[[dict[str, Any]], object], levels: Mapping[str, Any]) -> None:
    """Replace the root logger's handlers by one that calls `send`, and adopt the given log levels."""
    adopt_log_levels(levels)
    logging.root.handlers = [CarryingHandler(send)]
