"""`--reload`: a parent that watches Python files and restarts the worker when one changes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARENT: Final = "--parent"
_LOOK_AT_CHILD_EVERY_MS = 500
_END_MARGIN: Final = 3.0
"""Extra seconds beyond a worker's own timeouts before it is killed; only a hanging worker takes longer."""
_ASK_AGAIN_SECONDS: Final = 0.5
_log = logging.getLogger("pyasynq")


def run_with_reload(arguments: Sequence[str], timeouts: float = 9.0) -> int:
    """Run `pyasynq worker` in a child process; restart it when a Python file below this folder changes.

    The child is stopped gracefully: running tasks may finish. A child that ends by itself, such as
    one whose module has a syntax error, is started again with the next change.

    The child holds a socket whose other end is in this process, so it ends with this process for any reason.

    Args:
        arguments: arguments of the command, without `--reload`.
        timeouts: seconds for the worker's shutdown; it is killed three seconds after them.

    Returns:
        the exit code of the last child.

    Raises:
        ClickException: if watchfiles is not installed; the message has the command that installs it.
    """
    changes, stop = _import_changes(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    ours, theirs = socket.socketpair()
    child = _start(arguments, theirs)
    _log.info("watching the Python files in %s", Path.cwd())
    waiting = False
    for changed in changes(stop):
        if not changed:
            if child.poll() is not None and not waiting:
                waiting = True
                _log.warning("the worker ended with code %d: waiting for a change", child.returncode)
            continue
        waiting = False
        _log.info("%s changed: restarting the worker", ", ".join(changed))
        _end(child, timeouts)
        child = _start(arguments, theirs)
    code = _end(child, timeouts)
    ours.close()
    theirs.close()
    return code


def end_with_parent(descriptor: int) -> None:
    """Shut this process down as soon as its parent has ended, for any reason.

    Args:
        descriptor: file descriptor of a socket whose other end only the parent has.
    """
    os.set_inheritable(descriptor, False)
    parent = socket.socket(fileno=descriptor)
    threading.Thread(target=_wait_for_parent, args=(parent,), name="pyasynq-parent", daemon=True).start()


def _wait_for_parent(parent: socket.socket) -> None:
    # A broken socket also means that the parent has ended.
    with contextlib.suppress(OSError):
        parent.recv(1)
    # A worker that is just starting may miss the first signal.
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ASK_AGAIN_SECONDS)


def _import_changes() -> Any:
    try:
        import watchfiles  # noqa: PLC0415 - an extra
    except ImportError:
        raise click.ClickException(
            "--reload needs the package watchfiles: type  pip install 'pyasynq[cli]'",
        ) from None

    def changes(stop: threading.Event) -> Iterator[list[str]]:
        folder = Path.cwd()
        for found in watchfiles.watch(
            folder,
            watch_filter=watchfiles.PythonFilter(),
            stop_event=stop,
            raise_interrupt=False,
            yield_on_timeout=True,
            rust_timeout=_LOOK_AT_CHILD_EVERY_MS,
        ):
            yield sorted({_show_path(Path(path), folder) for _, path in found})

    return changes


def _show_path(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _start(arguments: Sequence[str], parent: socket.socket) -> subprocess.Popen[bytes]:
    # In a process group of its own: Ctrl-C reaches only us, and the child gets one signal instead of two,
    # of which the second would abort it.
    return subprocess.Popen(
        [sys.executable, "-m", "pyasynq.cli", "worker", f"{PARENT}={parent.fileno()}", *arguments],
        process_group=0,
        pass_fds=(parent.fileno(),),
    )


def _end(child: subprocess.Popen[bytes], timeouts: float) -> int:
    if child.poll() is None:
        child.terminate()
    try:
        return child.wait(timeouts + _END_MARGIN)
    except subprocess.TimeoutExpired:
        _log.error("the worker (pid %d) did not end within %g s of TERM: it is killed", child.pid, timeouts)
        child.kill()
        return child.wait()
