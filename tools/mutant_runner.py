"""Run tests against mutants: each in a fork of this warm process, on a copy of the package.

A fork starts with pytest and the libraries already imported; the package itself is imported in the fork,
from a copy in which one Lua script is wrong.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "pyasynq"
SCRIPTS = Path("_broker", "lua")
"""Folder of the Lua scripts inside the package."""

_TEST_TIMEOUT = 15
"""Seconds after which a test is killed: a mutated script may loop for ever."""
_EXTRA_TIME = 30.0
"""Extra seconds that a fork may take beyond four times the duration of its tests on the unmutated scripts."""
_FIRST_STAGE = 12
"""Number of tests that are tried first: they kill most mutants, and few files are collected quickly."""
_POLL = 0.01
_PASSED, _FAILED, _INTERNAL_ERROR, _BROKE_OFF = 0, 1, 3, 70
_OUT_OF_TIME = "from pytest-timeout"
"""Text in the log of a test whose timeout hit a pytest hook, which pytest reports as an internal error."""
# Modules that every test imports; never pyasynq, because each fork imports another copy of it.
_PRELOADED = (
    "asyncio",
    "click",
    "google.protobuf.message_factory",
    "hiredis",
    "hypothesis.stateful",
    "redis.asyncio",
    "uvloop",
)


class RunError(Exception):
    """Error: the tests could not be run, so there is no result about the scripts."""


class Recorded(NamedTuple):
    """Record of one test run on the unmutated scripts."""

    scripts: frozenset[str]
    seconds: float


class Job(NamedTuple):
    """One mutant to try."""

    number: int
    script: str
    """Name without suffix, as in `lease/dequeue`."""
    source: str
    tests: tuple[str, ...]
    """Ids of the tests that run the script, the most effective first."""
    seconds: float
    """Duration of these tests without a mutation, in seconds."""


def record_tests(folder: str, *, processes: int) -> dict[str, Recorded]:
    """Run all tests of a folder on the unmutated scripts; return a record of each.

    Raises RunError if a test fails.
    """
    with tempfile.TemporaryDirectory() as records:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "tools.record_scripts", "-n", str(processes), "--dist", "loadfile", folder]
        environment = {**os.environ, "RECORD_SCRIPTS_TO": records}
        run = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
        if run.returncode != _PASSED:
            message = f"the tests fail before anything is broken:\n{run.stdout[-4000:]}{run.stderr[-2000:]}"
            raise RunError(message)
        return read_records(Path(records), folder)


def read_records(records: Path, folder: str) -> dict[str, Recorded]:
    """Return the records of the tests in a folder, by test. Raises RunError if there is none."""
    recorded = {
        test: Recorded(frozenset(entry["scripts"]), entry["seconds"])
        for record in records.glob("*.json")
        for test, entry in json.loads(record.read_text(encoding="utf-8")).items()
        if test.startswith(f"{folder}/")
    }
    if not recorded:
        message = f"{records}: no test of {folder} is recorded there"
        raise RunError(message)
    return recorded


def run_jobs(jobs: Iterable[Job], *, processes: int) -> Iterator[tuple[int, bool]]:
    """Try every job, some at a time; yield its number and whether a test failed (mutant killed)."""
    for module in _PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    waiting = iter(jobs)
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        free = [_Bench(Path(temporary, str(number))) for number in range(processes)]
        busy: list[_Bench] = []
        try:
            while True:
                while free and (job := next(waiting, None)):
                    busy.append(free.pop())
                    busy[-1].start(job)
                if not busy:
                    return
                for bench in list(busy):
                    if (killed := bench.outcome()) is not None:
                        busy.remove(bench)
                        free.append(bench)
                        yield bench.job.number, killed
                time.sleep(_POLL)
        finally:
            for bench in busy:
                bench.stop()


class _Bench:
    """A copy of the package, and the process that runs tests on it."""

    job: Job

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._pid = 0
        self._deadline = 0.0
        self._tests: tuple[str, ...] = ()
        # `copytree` keeps the files' times, so compiled modules stay valid.
        shutil.copytree(PACKAGE, folder / PACKAGE.name)

    def start(self, job: Job) -> None:
        """Write the mutant into the copy, and run the most effective tests in a fork."""
        self.job = job
        self._script.write_text(job.source, encoding="utf-8")
        self._fork(job.tests[:_FIRST_STAGE])

    def _fork(self, tests: tuple[str, ...]) -> None:
        self._tests = tests
        self._deadline = time.monotonic() + _EXTRA_TIME + 4 * self.job.seconds
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            exit_code = _BROKE_OFF
            try:
                exit_code = self._run_tests()
            except BaseException:  # noqa: BLE001 - a fork must not run on into its parent's code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(exit_code)

    def outcome(self) -> bool | None:
        """Return whether the mutant is killed, or None while the tests run. Raises RunError."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() < self._deadline:
                return None
            self.stop()
            return True
        self._pid = 0
        exit_code = os.waitstatus_to_exitcode(status)
        others = self.job.tests[_FIRST_STAGE:]
        if exit_code == _PASSED and others and self._tests != others:
            self._fork(others)
            return None
        self._repair()
        if exit_code not in (_PASSED, _FAILED):
            log = self._log.read_text(encoding="utf-8", errors="replace")
            if exit_code == _INTERNAL_ERROR and _OUT_OF_TIME in log:
                return True
            message = (
                f"the tests of {self.job.script} could not be run (exit code {exit_code}):\n{log[-4000:]}"
            )
            raise RunError(message)
        return exit_code == _FAILED

    def stop(self) -> None:
        """End the fork, if one runs, and all that it started."""
        if not self._pid:
            return
        with suppress(psutil.NoSuchProcess):
            for process in [*psutil.Process(self._pid).children(recursive=True), psutil.Process(self._pid)]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0
        self._repair()

    @property
    def _script(self) -> Path:
        return self._folder / PACKAGE.name / SCRIPTS / f"{self.job.script}.lua"

    def _repair(self) -> None:
        shutil.copy2(PACKAGE / SCRIPTS / f"{self.job.script}.lua", self._script)

    def _run_tests(self) -> int:
        os.setsid()
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(self._folder)
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self._folder / "hypothesis")
        sys.path.insert(0, str(self._folder))
        package = importlib.import_module(PACKAGE.name)
        if not str(package.__file__).startswith(str(self._folder)):
            message = f"the copy of the package is not the one imported: {package.__file__}"
            raise RunError(message)
        options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", f"--timeout={_TEST_TIMEOUT}"]
        # The preloaded modules include plugins.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        # A test that fails halfway leaves connections to the garbage collector; errors of these mean nothing
        # here.
        options += ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
        return int(pytest.main([*options, *self._tests]))
