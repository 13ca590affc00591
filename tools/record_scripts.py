"""A pytest plugin that records the Lua scripts run by each test, and the test's duration.

    RECORD_SCRIPTS_TO=FOLDER python -m pytest -p tools.record_scripts tests/contract

FOLDER gets a JSON file from each process of pytest-xdist that ran tests, or one without it: {test id:
{"scripts": [name, ...], "seconds": float}}. The names come from the `ScriptCall`s that plans yield; scripts
of child processes are not recorded.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_AS_STEP = b"local function take_step("
"""Text that identifies a script as a step of an operation; its `-- Uses:` line omits this fragment."""

_scripts: dict[str, set[str]] = {}
_seconds: dict[str, float] = {}
_running: list[str] = []


def pytest_configure() -> None:
    """Wrap the creation of script calls, to record the names of the scripts."""
    # Imported late: pytest loads plugins before it knows where the package is.
    from pyasynq._redis.plan import ScriptCall  # noqa: PLC0415

    make: Any = ScriptCall.__new__

    def listen(cls: type[ScriptCall], script: Any, *args: Any, **kwargs: Any) -> ScriptCall:
        if _running:
            _scripts[_running[-1]].add(script.name)
            if _AS_STEP in script.plain.text:
                _scripts[_running[-1]].add("shared/take_step")
        call: ScriptCall = make(cls, script, *args, **kwargs)
        return call

    setattr(ScriptCall, "__new__", listen)  # noqa: B010 - for mypy a plain assignment is an error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember which test is running, its fixtures included."""
    _scripts[item.nodeid] = set()
    _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.pop()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up set-up, call and tear-down."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Write the record of this process."""
    record = {
        test: {"scripts": sorted(scripts), "seconds": round(_seconds.get(test, 0.0), 4)}
        for test, scripts in _scripts.items()
    }
    file = Path(os.environ["RECORD_SCRIPTS_TO"], f"{os.getpid()}.json")
    file.write_text(json.dumps(record), encoding="utf-8")
