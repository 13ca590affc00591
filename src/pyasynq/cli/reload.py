"""`--reload`: a parent that watches Python files and restarts the worker when one changes."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOOK_AT_CHILD_EVERY_MS = 500
_log = logging.getLogger("pyasynq")


def run_with_reload(arguments: Sequence[str]) -> int:
    """Run `pyasynq worker` with these arguments in a child, and again whenever a Python file here changes.

    The child is asked to stop as by a deployment: what runs may finish. A child that ends by itself, such as
    one whose module has a syntax error, is started again with the next change.

    Returns:
        the exit code of the last child.

    Raises:
        ClickException: when watchfiles is not installed; it names the command to type.
    """
    changes, stop = _changes(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    child = _start(arguments)
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
        _end(child)
        child = _start(arguments)
    return _end(child)


def _changes() -> Any:
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
            yield sorted({_shown(Path(path), folder) for _, path in found})

    return changes


def _shown(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    # In a process group of its own: Ctrl-C reaches only us, and the child gets one signal instead of two,
    # of which the second would abort it.
    return subprocess.Popen([sys.executable, "-m", "pyasynq.cli", "worker", *arguments], process_group=0)


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.terminate()
    # No time limit: the worker has one of its own, and a second Ctrl-C cannot help it.
    return child.wait()
