"""Program of a child process, without a worker: its end when the worker has ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.executor import frames
from pyasynq._engine.executor.carried_log import log_levels
from pyasynq._engine.executor.frames import Unpacker, pack_frame

if TYPE_CHECKING:
    from collections.abc import Iterator


class Started:
    """The program, and the ends of a worker."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        their_pipe, self.pipe = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyasynq._engine.executor.program", str(theirs.fileno()), str(their_pipe)],
            pass_fds=(theirs.fileno(), their_pipe),
            start_new_session=True,
        )
        theirs.close()
        os.close(their_pipe)
        self._unpacker = Unpacker()
        start = {"path": sys.path, "log_levels": log_levels(), "uvloop": False}
        self.socket.sendall(pack_frame(frames.START, start))

    def prepare(self, reference: str) -> frames.MessageFrame:
        """Let it find a handler, and return what it says."""
        self.socket.sendall(pack_frame(frames.PREPARE, {"order": 7, "reference": reference, "settings": {}}))
        while True:
            for frame in self._unpacker.feed(self.socket.recv(65_536)):
                if frame.kind != frames.LOG:
                    return frame


@pytest.fixture
def program() -> Iterator[Started]:
    """The program, which is killed at the end."""
    started = Started()
    with started.process, started.socket:
        yield started
        started.process.kill()
    os.close(started.pipe)


def test_it_ends_at_the_end_of_its_socket_although_its_pipe_is_open(program: Started) -> None:
    """As where the kernel cannot kill it; a copy of the worker may hold the pipe."""
    assert frames.READY == program.prepare("os:getpid").kind
    program.socket.close()

    assert -signal.SIGKILL == program.process.wait(30)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills by a pipe")
def test_it_ends_at_the_end_of_its_pipe_although_its_socket_is_open(program: Started) -> None:
    """A child whose pipe has ended is killed by SIGKILL, even while its interpreter is busy."""
    assert frames.READY == program.prepare("os:getpid").kind
    os.close(program.pipe)
    program.pipe = os.open(os.devnull, os.O_RDONLY)

    assert -signal.SIGKILL == program.process.wait(30)


def test_it_ends_by_itself_when_it_is_told_that_there_is_nothing_more_to_do(program: Started) -> None:
    """The exit code is 0."""
    program.socket.sendall(pack_frame(frames.LEAVE))

    assert 0 == program.process.wait(30)


def test_what_keeps_it_from_its_handler_is_told(program: Started) -> None:
    """The program goes on."""
    answer = program.prepare("no.such:handler")

    assert (frames.RAISED, "ModuleNotFoundError") == (answer.kind, answer.fields["error"]["name"])
    assert (7, program.process.pid) == (answer.fields["order"], answer.fields["pid"])
    assert frames.READY == program.prepare("os:getpid").kind
