"""`pyasynq demo` as a user types it: piped, interrupted, and killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyasynq
from tests.processes import MARK, marked_processes
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import RawIOBase

FILES = 40
PATIENCE = 30.0
PATIENCE_AFTER_A_KILL = 90.0
"""Workers let their tasks finish, and look for a Redis that may end before them."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a folder of small Python files."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"module_{number}.py").write_text("import os\n\n\ndef f():\n    return os.sep\n")
    return folder


class RunningDemo:
    """A `pyasynq worker` process whose descendants can be found even after its end."""

    def __init__(self, *arguments: str | Path, temporary: Path, stdout: int = subprocess.PIPE) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyasynq.cli", "demo", *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(pyasynq.__file__).parents[1]),
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": str(temporary),
                MARK: self.mark,
            },
        )

    def finish(self) -> tuple[str, str]:
        """Wait for the end and return what it said on standard output and standard error."""
        return self.process.communicate(timeout=PATIENCE)

    def wait_for_line(self, part: str) -> None:
        """Read what it prints until a line contains a text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if part in line:
                return
        pytest.fail(f"the demo ended without saying {part!r}: {self.process.communicate()}")

    def wait_until_nothing_runs(self) -> None:
        """Wait until every process that it started, directly or not, has ended."""
        wait_until(
            lambda: not marked_processes(self.mark), seconds=PATIENCE_AFTER_A_KILL, what="all have ended"
        )


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a folder for temporary files, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def demos(temporary: Path) -> Iterator[list[RunningDemo]]:
    """Return a list of the demos of this test, whose processes are ended with it."""
    started: list[RunningDemo] = []
    yield started
    for demo in started:
        for process in marked_processes(demo.mark):
            process.kill()
        demo.process.communicate()


@pytest.fixture
def finished(sources: Path, temporary: Path, demos: list[RunningDemo]) -> tuple[str, str]:
    """Return what two whole demos print, one as text, one as JSON; both must succeed and leave nothing."""
    demos += [RunningDemo(sources, "--no-kill", *more, temporary=temporary) for more in ((), ("--json",))]
    outs = []
    for demo in demos:
        out, err = demo.finish()
        assert (0, "") == (demo.process.returncode, err)
        assert [] == marked_processes(demo.mark)
        outs.append(out)
    assert [] == list(temporary.glob("pyasynq-demo-*"))
    return outs[0], outs[1]


@pytest.mark.long
def test_a_piped_demo_ends_with_the_proof_in_eighty_columns(finished: tuple[str, str]) -> None:
    """As text: plain lines, the planted failures, and the proof. As JSON: nothing but the same figures."""
    text, summary = finished[0], json.loads(finished[1])
    lines = text.splitlines()
    assert "\x1b" not in text
    assert [] == [line for line in lines if len(line) > 80]
    assert 3 == sum(line.startswith("  planted/") and ": planted, 4 attempts" in line for line in lines)
    assert "nothing was lost" in text
    assert (FILES + 3, FILES, 3, 0, 0) == tuple(
        summary[name] for name in ("enqueued", "completed", "archived", "unfinished", "lost")
    )
    assert [] == summary["violations"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("sent", "moment"),
    [
        (signal.SIGINT, "are ready"),
        (signal.SIGTERM, "tasks enqueued"),
        pytest.param(signal.SIGINT, "is up", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, "tasks enqueued", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "is up", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "are ready", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_demo_leaves_no_process_and_no_file(
    moment: str, sent: signal.Signals, sources: Path, temporary: Path, demos: list[RunningDemo]
) -> None:
    """Ctrl-C ends workers and server, whenever it comes."""
    demo = RunningDemo(sources, temporary=temporary)
    demos.append(demo)
    demo.wait_for_line(moment)
    demo.process.send_signal(sent)
    _, err = demo.finish()
    assert 130 == demo.process.returncode
    assert "Traceback" not in err
    demo.wait_until_nothing_runs()
    assert [] == list(temporary.glob("pyasynq-demo-*"))


@pytest.mark.long
def test_a_killed_demo_leaves_no_process(sources: Path, temporary: Path, demos: list[RunningDemo]) -> None:
    """Workers end when their standard input does, the server when its last user is gone."""
    demo = RunningDemo(sources, temporary=temporary)
    demos.append(demo)
    demo.wait_for_line("are ready")
    demo.process.kill()
    demo.process.wait()
    demo.wait_until_nothing_runs()


def test_a_folder_that_does_not_exist_is_named(temporary: Path, demos: list[RunningDemo]) -> None:
    """A usage error, not a traceback."""
    demo = RunningDemo("/no/such/folder", temporary=temporary)
    demos.append(demo)
    _, err = demo.finish()
    assert 2 == demo.process.returncode
    assert "/no/such/folder" in err


@pytest.mark.long
@pytest.mark.parametrize("no_color", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_interrupted_live_picture_leaves_the_terminal_as_it_was(
    no_color: bool, sources: Path, temporary: Path, demos: list[RunningDemo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor is shown again; NO_COLOR keeps colours out, not the picture."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1" if no_color else "")
    ours, theirs = os.openpty()
    demo = RunningDemo(sources, temporary=temporary, stdout=theirs)
    demos.append(demo)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        shown = _read_until(terminal, b"tasks/s", seconds=PATIENCE)
        demo.process.send_signal(signal.SIGINT)
        shown += _read_until(terminal, b"\x1b[?25h", seconds=PATIENCE)
    demo.finish()
    assert 130 == demo.process.returncode
    assert no_color == (b"\x1b[32m" not in shown)
    demo.wait_until_nothing_runs()


def _read_until(terminal: RawIOBase, part: bytes, *, seconds: float) -> bytes:
    """Read what a terminal shows until it contains `part`."""
    shown = b""
    deadline = time.monotonic() + seconds
    while part not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"after {seconds:g} s the terminal has not shown {part!r}: {shown[-500:]!r}"
        shown += terminal.read(65_536) or b""
    return shown
