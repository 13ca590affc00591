"""The event loop of long-running programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the fastest installed event loop; None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


def run_until_done(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the fastest installed event loop, as `asyncio.run` does on its own."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
