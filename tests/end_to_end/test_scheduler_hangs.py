"""Schedulers whose hooks or providers hang end when they are told to, and say what hung."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = str(Path(__file__).parent.parent.parent / "src")
LIMIT_SECONDS = 30
"""The programs take 3 seconds at most; this is for machines that are busy."""

HEAD = """
import asyncio, contextlib, logging, os, threading, time
from pyasynq import PeriodicTaskConfig, PeriodicTaskManager, Scheduler, SchedulerConfig, Task

logging.basicConfig(level=logging.INFO)
url = os.environ["PYASYNQ_REDIS_URL"]
calls = []

def called():
    print("called", flush=True)

async def wait():
    called()
    await asyncio.Event().wait()

def block():
    called()
    threading.Event().wait()

async def block_loop(*arguments):
    called()
    time.sleep(1_000)

async def refuse_to_end(*arguments):
    called()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1_000)

async def hang(*arguments):
    await wait()

def hang_later(function):
    def provider():
        calls.append(1)
        return [] if len(calls) == 1 else function()
    return provider

"""
SCHEDULER = """
scheduler = Scheduler(url, SchedulerConfig({hook}, shutdown_timeout=0.5){middleware})
scheduler.register("@every 1s", Task("t"))
raise SystemExit(scheduler.run_forever())
"""
MANAGER = """
config = SchedulerConfig(shutdown_timeout=0.5)
raise SystemExit(PeriodicTaskManager(url, {provider}, sync_interval=0.1, config=config).run_forever())
"""


def hook(function: str, name: str = "pre_enqueue") -> str:
    """Return a program whose scheduler has this hook."""
    return HEAD + SCHEDULER.format(hook=f"{name}={function}", middleware="")


def middleware(function: str) -> str:
    """Return a program whose scheduler has this middleware."""
    return HEAD + SCHEDULER.format(hook='location="UTC"', middleware=f", middleware=[{function}]")


def provider(function: str) -> str:
    """Return a program whose periodic task manager has this provider."""
    return HEAD + MANAGER.format(provider=function)


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "named", "code"),
    [
        pytest.param(hook("hang"), "the hook pre_enqueue", 3, id="hook"),
        pytest.param(hook("hang", "post_enqueue"), "the hook post_enqueue", 3, id="later hook"),
        pytest.param(hook("block_loop"), "the hook pre_enqueue", 3, id="hook that blocks the loop"),
        pytest.param(hook("refuse_to_end"), "the hook pre_enqueue", 3, id="hook that refuses to end"),
        pytest.param(middleware("hang"), "the client middleware", 3, id="middleware"),
        pytest.param(provider("wait"), "the provider wait", 0, id="provider"),
        pytest.param(provider("block"), "the provider block", 0, id="plain provider"),
        pytest.param(provider("hang_later(wait)"), "the provider hang_later", 0, id="later provider"),
        pytest.param(provider("hang_later(block)"), "the provider hang_later", 0, id="later plain provider"),
        pytest.param(provider("refuse_to_end"), "the provider refuse_to_end", 3, id="provider that stays"),
    ],
)
def test_term_ends_a_scheduler_in_which_something_hangs(
    program: str, named: str, code: int, redis_url: str, tmp_path: Path
) -> None:
    """Within its limits, and with a line that says what hung. (D53)"""
    assert (code, True) == end_of(program, named, [signal.SIGTERM], redis_url, tmp_path)


def test_a_second_term_changes_nothing(redis_url: str, tmp_path: Path) -> None:
    """The scheduler ends within its limits all the same. (D53)"""
    program, named = hook("refuse_to_end"), "the hook pre_enqueue"
    assert (3, True) == end_of(program, named, [signal.SIGTERM] * 2, redis_url, tmp_path)


def end_of(
    program: str, named: str, signals: list[signal.Signals], url: str, folder: Path
) -> tuple[int, bool]:
    """Run a program, send signals when something hangs; return exit code and whether the log names it."""
    (folder / "program.py").write_text(program)
    path = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH")]))
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYASYNQ_REDIS_URL": url},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert "called\n" == process.stdout.readline()
            for number in signals:
                process.send_signal(number)
            code = process.wait(timeout=LIMIT_SECONDS)
        finally:
            process.kill()
    return code, named in (folder / "log").read_text()
