"""Task id, type, queue and attempt on every log record that is made inside a handler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyasynq.context import current_task, task_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TaskFieldsFilter(logging.Filter):
    """Adds `task_id`, `task_type`, `queue` and `attempt` to records; empty outside of handlers.

    Put it on a log *handler*: a logger's filter would not see the records of other loggers. It passes
    every record, and leaves fields alone that a record brings itself.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields and let the record pass."""
        for name, value in task_fields(current_task.get(None)).items():
            if name not in record.__dict__:
                setattr(record, name, value)
        return True


def install_task_fields(handlers: Iterable[logging.Handler] | None = None) -> Callable[[], None]:
    """Add the fields to all records of these log handlers (the root logger's unless given).

    Only a program that owns its logging calls it, such as `pyasynq worker`; the library does not by
    itself. Return a function that undoes it.
    """
    chosen = list(logging.getLogger().handlers if handlers is None else handlers)
    fields = TaskFieldsFilter()
    for handler in chosen:
        handler.addFilter(fields)

    def uninstall() -> None:
        for handler in chosen:
            handler.removeFilter(fields)

    return uninstall
