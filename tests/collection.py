"""Plugin that makes the collection of tests cheap in each process of pytest-xdist."""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without garbage collection, and never examine again what has been collected.

    The objects of all tests live as long as the run. Each full collection of it would examine them.
    """
    gc.disable()
    try:
        _import_own_part(session.config)
        result = yield
        gc.freeze()
    finally:
        gc.enable()
    return result


def _import_own_part(config: pytest.Config) -> None:
    """Import a part of the tests first, which differs between the processes.

    A first run has to compile all tests. In this order each is compiled once, by one of the processes.
    """
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not process or not is_whole:
        return
    files = [
        file for folder in config.getini("testpaths") for file in sorted(Path(folder).rglob("test_*.py"))
    ]
    number, processes = int(process.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for file in files[number::processes]:
        # The collection raises the same error again, and reports it.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.with_suffix("").parts))
