"""Keeper: runs one command at a time, and kills every process that a command leaves behind.

The service sends one letter for each request. `R` runs a command. Four file descriptors come with it: a file
with the order (the command as JSON), and the three standard streams. `T` sends SIGTERM to the command, and
`K` kills it. The keeper answers with a line of JSON when the command has ended, or could not start. Then `D`
removes the folder of the attempt, or keeps an untouched one for reuse. When the socket is closed, also by the
death of the service, the keeper kills the command and ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from . import kernel
from .attempt_folder import AttemptFolder, remove_folder
from .control_group import ControlGroup
from .process_tree import Bell, ProcessTree
from .sandbox import StartError, can_spawn, prepare_keeper, spawn_command, start_command

_STREAMS: Final = 4
_RUN: Final = b"R"
_TERMINATE: Final = b"T"
_KILL: Final = b"K"


class _GoneError(Exception):
    """Error: the service has ended or closed the connection."""


def keep(link: socket.socket, launcher: int) -> None:
    """Run commands until the socket is closed, or until one of them could not be killed.

    Args:
        link: socket to the service.
        launcher: process id of the parent, which kills the processes that this process leaves behind.
    """
    kernel.become_subreaper()
    prepare_keeper()
    keeper = _Keeper(link, Bell(), launcher)
    with suppress(_GoneError, ConnectionError):
        while not keeper.take_order():
            pass
    keeper.close()


class _Keeper:
    """Runs the commands that the service sends over one socket, one at a time."""

    def __init__(self, link: socket.socket, bell: Bell, launcher: int) -> None:
        self._link = link
        self._bell = bell
        self._launcher = launcher
        self._groups: dict[str, ControlGroup] = {}
        """Control groups of former commands, by their folders; kept because making one takes long."""
        self._folder: AttemptFolder | None = None
        """Folder of the last command, if the command left it untouched."""

    def close(self) -> None:
        """Remove the control groups of all commands, and the last folder."""
        for group in self._groups.values():
            group.remove()
        if self._folder is not None:
            remove_folder(self._folder.path)

    def take_order(self) -> int:
        """Wait for an order and run it; return how many of its processes could not be killed.

        Raises:
            _GoneError: the service is gone; all processes of the command were killed.
        """
        message, descriptors, _, _ = socket.recv_fds(self._link, 1, _STREAMS)
        for one in descriptors:
            os.set_inheritable(one, False)
        if message != _RUN or len(descriptors) != _STREAMS:
            raise _GoneError
        try:
            order = json.loads(os.read(descriptors[0], os.fstat(descriptors[0]).st_size))
        finally:
            os.close(descriptors[0])
        name = order.get("cgroup")
        group = self._groups.setdefault(name, ControlGroup(Path(name))) if name else None
        return self._run(order, descriptors[1:], group)

    def _run(self, order: dict[str, Any], streams: list[int], group: ControlGroup | None) -> int:
        """Run a command in its working folder; return how many of its processes could not be killed."""
        path = Path(order["folder"])
        left = 0
        try:
            try:
                tree = self._start(order, streams, path, group)
            except StartError as error:
                _answer(self._link, {"stage": error.stage, "errno": error.number})
            else:
                left = _watch(tree, group, self._link, self._bell)
            if not self._link.recv(1):
                raise _GoneError
        finally:
            if self._folder is None or not self._folder.is_untouched():
                self._folder = None
                remove_folder(path)
        return left

    def _start(
        self, order: dict[str, Any], streams: list[int], path: Path, group: ControlGroup | None
    ) -> ProcessTree:
        stage = "folder"
        try:
            owner = (os.geteuid(), os.getegid()) if order.get("user") is None else tuple(order["user"][:2])
            if self._folder is None or not self._folder.move(path, owner):
                self._folder = AttemptFolder(path, owner)
            stage = "cgroup"
            if group is not None:
                group.make(memory=order["limits"].get("memory"), processes=order["limits"].get("processes"))
            start = spawn_command if can_spawn(order, self._launcher) else start_command
            return ProcessTree(start(order, streams, group), self._bell, group)
        except OSError as error:
            raise StartError(stage, error.errno or 0) from None
        finally:
            for one in streams:
                os.close(one)


def _watch(tree: ProcessTree, group: ControlGroup | None, link: socket.socket, bell: Bell) -> int:
    """Wait for the end of a command, and report it; return how many processes could not be killed."""
    counted = (0, 0) if group is None else (group.count_memory_kills(), group.count_refused_forks())
    is_gone = _wait(tree, link, bell)
    lives = tree.reap()
    left = tree.kill() if lives else 0
    if is_gone:
        raise _GoneError
    ended = {"status": tree.status, "cpu": tree.cpu, "memory": tree.memory, "left": left}
    if group is not None:
        ended["memory_kills"] = group.count_memory_kills() - counted[0]
        ended["refused_forks"] = group.count_refused_forks() - counted[1]
    _answer(link, ended)
    return left


def _wait(tree: ProcessTree, link: socket.socket, bell: Bell) -> bool:
    """Wait until a command has ended or is to be killed; return whether the service is gone.

    A command ends with its main process. After SIGTERM, it ends with the last of its processes.
    """
    is_ending = False
    while True:
        lives = tree.reap()
        if tree.status is not None and not (lives and is_ending):
            return False
        if link.fileno() not in bell.wait((link.fileno(),)):
            continue
        try:
            message = link.recv(1)
        except ConnectionError:
            return True
        if not message or message == _KILL:
            return not message
        if message == _TERMINATE:
            is_ending = True
            tree.terminate()


def _answer(link: socket.socket, content: dict[str, Any]) -> None:
    link.sendall(json.dumps(content).encode() + b"\n")


def ignore_signals() -> None:
    """Ignore the signals that end the service: launcher and keepers end when their sockets are closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
