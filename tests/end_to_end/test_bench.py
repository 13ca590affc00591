from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.processes import MARK, marked_processes
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.long
def test_ctrl_c_ends_a_benchmark_with_all_that_it_started(tmp_path: Path) -> None:
    """Server, producer and worker; what was measured until then is written, and the exit code is 130."""
    mark = uuid.uuid4().hex
    found = tmp_path / "found.json"
    arguments = ["--only", "enqueue,drain", "--peers", "none", "--tasks", "500", "--rounds", "1000"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-m", "bench.run", *arguments, "--json", str(found)],
        cwd=ROOT,
        env={**os.environ, MARK: mark, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as harness:
        try:
            assert harness.stderr is not None
            assert harness.stderr.readline().startswith("drain 1/1000 pyasynq: ")
            assert len(marked_processes(mark)) > 1
            harness.send_signal(signal.SIGINT)
            said = harness.stderr.read()
        finally:
            harness.kill()

    assert 130 == harness.returncode
    assert said.endswith("interrupted; all that was started has been ended\n")
    wait_until(lambda: not marked_processes(mark), seconds=10, what="nothing is left")
    assert [] == json.loads(found.read_text())["failures"]
