"""Badly behaved errors, as handlers may raise them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Mute(Exception):  # noqa: N818 - its name is what the test looks for
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise ValueError("no text")


BAD_ERRORS: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": lambda: asyncio.CancelledError("not by us"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("all at once", [SystemExit(1), ValueError("two")]),
    "ExceptionGroup": lambda: ExceptionGroup("many", [ValueError("one"), TypeError("two")]),
    "Mute": Mute,
    "surrogates": lambda: ValueError("half \ud83d of a character"),
    "huge": lambda: ValueError("x" * 1_000_000),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "TimeoutError": TimeoutError,
}


def bad_error(name: str) -> BaseException:
    """Make an error of a kind."""
    return BAD_ERRORS[name]()
