"""Run tests at moments that are hard for tests: `make test-moments`.

Each test begins at the moment; from there the clock goes on as usual. Servers and workers that a test starts
see the same time. Time-outs and monotonic clocks stay right. Linux only, with a C compiler.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.moments.moments import MOMENTS
from tests.moments.moved_clock import MovedClock, build_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NO_TESTS: Final = 5
_ABOUT_TIME: Final = (
    "tests/unit/cron",
    "tests/unit/scheduler",
    "tests/unit/test_app_cron.py",
    "tests/unit/test_cli_logs.py",
    "tests/contract/test_counters.py",
    "tests/contract/test_inspect.py",
    "tests/contract/test_inspect_schedulers.py",
    "tests/contract/test_kit_drain.py",
    "tests/contract/test_kit_enqueued.py",
    "tests/contract/test_kit_time.py",
    "tests/contract/test_periodic.py",
    "tests/contract/test_schedule.py",
    "tests/contract/test_scheduler.py",
    "tests/contract/test_schedules.py",
    "tests/contract/test_consumer_docs.py",
    "tests/contract/test_doctor_docs.py",
    "tests/contract/test_inspector_docs.py",
    "tests/contract/test_limits_docs.py",
    "tests/contract/test_outcomes_docs.py",
    "tests/contract/test_results_docs.py",
    "tests/contract/test_workers_docs.py",
    "tests/end_to_end/test_pytest_plugin.py",
    "tests/end_to_end/test_recipes.py",
)
"""Tests of code that computes with times, and of the programs on all pages; others can be named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests at each moment, print a line for each, and return 1 if any of them failed."""
    options = _parser().parse_args(arguments)
    if options.ignore_signals:
        # Inherited by everything that is started here, as under nohup or with `make test &`.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    chosen = [name for name in options.moments.split(",") if name] or list(MOMENTS)
    with tempfile.TemporaryDirectory(prefix="pyasynq-moments-") as folder, _busy(options.busy):
        library = build_library(Path(folder))
        with ThreadPoolExecutor(options.jobs) as pool:
            runs = [pool.submit(_run, name, library, Path(folder), options.pytest) for name in chosen]
            failed = [name for name, run in zip(chosen, runs, strict=True) if not run.result()]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} moments passed", *failed and ["failed:", *failed])
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.moments.run", description=__doc__)
    parser.add_argument("--moments", default="", metavar="NAMES", help=", ".join(MOMENTS))
    parser.add_argument("--jobs", type=int, default=1, help="moments at a time")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that burn a core")
    parser.add_argument("--ignore-signals", action="store_true", help="start with SIGINT and SIGHUP ignored")
    parser.add_argument("pytest", nargs="*", help="options and paths for pytest, after --")
    return parser


@contextmanager
def _busy(number: int) -> Iterator[None]:
    """Keep this many processes busy within the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _run(name: str, library: Path, folder: Path, arguments: Sequence[str]) -> bool:
    """Run pytest at a moment; return whether nothing failed."""
    moment = MOMENTS[name]
    clock = MovedClock(folder / f"{name}.offset")
    clock.set_to(moment.time)
    environment = {
        **os.environ,
        **clock.environment(library),
        "MOVED_CLOCK_MOMENT": name,
        "TZ": moment.zone,
    }
    options = ["-q", "-n", "0", "-p", "tests.moments.plugin", "-p", "no:cacheprovider"]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(arguments or _ABOUT_TIME)],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    passed = done.returncode in {0, _NO_TESTS}
    if not passed:
        print(done.stdout)
    lines = done.stdout.strip().splitlines()
    print(
        f"{name} ({moment.time:%Y-%m-%d %H:%M:%S} UTC, {moment.zone}): {lines[-1] if lines else 'no output'} "
        f"[{time.monotonic() - began:.0f} s]",
        flush=True,
    )
    return passed


if __name__ == "__main__":
    raise SystemExit(main())
