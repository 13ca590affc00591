"""What the tests must not depend on: the caller's signals, and how fast the machine is (D40)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

CALLER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
SHOW = """
import signal, tests.conftest
print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGHUP).name,
      signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_d40_tests_run_with_the_usual_signals_whatever_their_caller_ignores_or_blocks() -> None:
    """A shell starts what runs in the background with SIGINT ignored, nohup ignores SIGHUP."""
    shown = subprocess.run(
        [sys.executable, "-c", CALLER, SHOW], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout

    assert "default_int_handler SIG_DFL set()\n" == shown
