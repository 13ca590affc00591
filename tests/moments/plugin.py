"""A pytest plugin that sets the moved clock to the chosen moment before each test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.moments.moments import MOMENTS
from tests.moments.moved_clock import MovedClock

if TYPE_CHECKING:
    from collections.abc import Generator

_CLOCK: Final = MovedClock(Path(os.environ["MOVED_CLOCK_FILE"]))
_MOMENT: Final = MOMENTS[os.environ["MOVED_CLOCK_MOMENT"]]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None]:
    """Begin at the moment, fixtures included. Threads left by the test before see time go back."""
    _CLOCK.set_to(_MOMENT.time)
    return (yield)
