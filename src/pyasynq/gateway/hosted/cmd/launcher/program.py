"""The launcher program: forks a keeper for each socket that the service sends; ends after the service."""

from __future__ import annotations

import gc
import os
import socket
import sys
from pathlib import Path
from typing import Final

from . import kernel
from .attempt_folder import remove_folder
from .keeper import ignore_signals, keep
from .process_tree import Bell, kill_descendants, list_descendants

_NEW: Final = b"N"


def main() -> None:
    """Run the launcher. Arguments: the descriptor of its socket, and the folder of all attempts."""
    control = socket.socket(fileno=int(sys.argv[1]))
    folder = Path(sys.argv[2])
    ignore_signals()
    kernel.become_subreaper()
    # Forked processes then share the memory of all objects that exist now.
    gc.collect()
    gc.freeze()
    launcher = _Launcher(control, Bell())
    launcher.serve()
    launcher.end()
    remove_folder(folder)


class _Launcher:
    """Parent of the keepers, and of the processes that a killed keeper leaves behind."""

    def __init__(self, control: socket.socket, bell: Bell) -> None:
        self._control = control
        self._bell = bell
        self._keepers: set[int] = set()

    def serve(self) -> None:
        """Fork keepers until the service is gone."""
        while True:
            ready = self._bell.wait((self._control.fileno(),))
            kill_descendants(self._reap, self._bell, self._keepers)
            if self._control.fileno() not in ready:
                continue
            try:
                message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
            except ConnectionError:
                return
            if message != _NEW or not descriptors:
                return
            self._fork(descriptors[0])

    def end(self) -> None:
        """Wait for the keepers, which end together with the service, and kill their remaining processes."""
        self._control.close()
        while self._keepers:
            self._bell.wait()
            kill_descendants(self._reap, self._bell, self._keepers)

    def _reap(self) -> bool:
        """Reap the ended processes; return whether an ended keeper has left processes behind."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._keepers.clear()
                return False
            if not pid:
                return bool(list_descendants(os.getpid(), self._keepers))
            self._keepers.discard(pid)

    def _fork(self, descriptor: int) -> None:
        launcher = os.getpid()
        pid = os.fork()
        if pid:
            os.close(descriptor)
            self._keepers.add(pid)
            return
        code = 1
        try:
            self._control.close()
            keep(socket.socket(fileno=descriptor), launcher)
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)
