"""Choice of the event loop for long-running commands: uvloop if installed, otherwise asyncio's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory; None, which means asyncio's own, if it is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


def run_until_done(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine like `asyncio.run`, on uvloop if it is installed."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
