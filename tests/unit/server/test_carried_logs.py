from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.executor.carried_log import (
    CarryingHandler,
    adopt_log_levels,
    log_levels,
    write_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger whose records go nowhere else."""
    logger = logging.getLogger("carried")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers = []
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def carried(logger: logging.Logger) -> list[dict[str, Any]]:
    """Let a logger carry its records into this list, by way of JSON."""
    sent: list[dict[str, Any]] = []
    logger.handlers = [CarryingHandler(lambda fields: sent.append(json.loads(json.dumps(fields))))]
    return sent


def test_a_record_is_written_as_it_was_made(logger: logging.Logger) -> None:
    """Message, level, place, time, extra fields, and the text of the traceback."""
    sent = carried(logger)
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("%s of %d", "one", 2, extra={"colour": "red", "thing": ValueError})
    written: list[logging.LogRecord] = []
    logger.handlers = [_Keeping(written)]

    write_record(sent[0])

    [record] = written
    assert ("one of 2", "ERROR", __name__) == (
        record.getMessage(),
        record.levelname,
        record.module and __name__,
    )
    assert ("red", "<class 'ValueError'>") == (record.colour, record.thing)  # type: ignore[attr-defined]
    assert "ValueError: why" in logging.Formatter("%(message)s").format(record)
    assert "test_carried_logs.py" == record.filename


def test_a_record_that_this_process_does_not_want_is_dropped(logger: logging.Logger) -> None:
    """Levels may have changed since the child was told."""
    sent = carried(logger)
    logger.info("no")
    written: list[logging.LogRecord] = []
    logger.handlers = [_Keeping(written)]
    logger.setLevel(logging.WARNING)

    write_record(sent[0])

    assert [] == written


def test_levels_are_adopted(logger: logging.Logger) -> None:
    """A child makes no records that its worker would not log."""
    logger.setLevel(logging.ERROR)
    levels = log_levels()
    assert logging.ERROR == levels["loggers"]["carried"]
    logger.setLevel(logging.DEBUG)
    disabled = logging.root.manager.disable

    adopt_log_levels({**levels, "disabled": logging.INFO})
    try:
        assert logging.ERROR == logger.level
        assert not logging.getLogger("carried.by").isEnabledFor(logging.WARNING)
        assert logging.INFO == logging.root.manager.disable
    finally:
        logging.disable(disabled)


class _Keeping(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)
