"""End of the process when its worker has died, as `panic(err)` does in Go."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from typing import Final

from pyasynq._exit_codes import EXIT_START_FAILED
from pyasynq._visible_text import visible

_log = logging.getLogger("pyasynq.sdk")

_GRACE_SECONDS: Final = 15.0
"""Grace period in seconds for the program's own shutdown; common web servers wait less for open requests."""
_has_died = threading.Event()
"""Whether the worker has died: set before the signal is sent, read when the interpreter ends."""


def end_program(error: BaseException) -> None:
    """Log the reason, ask this process to stop with SIGTERM, and end it if that takes too long.

    At SIGTERM, a web server answers its open requests and ends its ASGI lifespan. The exit code is not 0,
    even if the shutdown succeeds.
    """
    _log.critical("the worker has died, and this process ends with it: %s", visible(error))
    _has_died.set()
    threading.Timer(_GRACE_SECONDS, _leave).start()
    os.kill(os.getpid(), signal.SIGTERM)


def _leave() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(EXIT_START_FAILED)


def _fail_the_exit() -> None:
    if _has_died.is_set():
        logging.shutdown()
        _leave()


# `atexit` runs functions in reverse order: registered at import, this one runs after those of the program.
atexit.register(_fail_the_exit)
