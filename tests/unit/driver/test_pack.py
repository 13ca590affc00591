"""How commands become bytes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyasynq._redis.plan import PackedCommand
from pyasynq._redis.redis_py import pack_command

INTERRUPTED = """
import signal
from pyasynq._redis.redis_py import pack_command

command = tuple(range(3_000))
strikes = 0


def on_alarm(*_):
    global strikes
    strikes += 1
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, on_alarm)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])


def pack_until_interrupted():
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while True:
        pack_command([command])


# A call, because a handler may run between the last line of a block and what catches its exceptions.
while strikes < 100:
    try:
        pack_until_interrupted()
    except KeyboardInterrupt:
        pass
print(strikes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="only on POSIX")
def test_a_signal_handler_that_raises_while_a_command_is_packed_crashes_nothing() -> None:
    """In C, hiredis runs signal handlers for each number and does not look whether one raised. (D51)"""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "100\n") == (ended.returncode, ended.stdout), ended.stderr


def test_numbers_are_packed_as_text() -> None:
    """This holds next to a name that is not UTF-8, too."""
    assert b"*2\r\n$3\r\nGET\r\n$2\r\n-7\r\n" == pack_command([("GET", -7)])
    assert b"*2\r\n$1\r\n\xff\r\n$1\r\n7\r\n" == pack_command([("\udcff", 7)])
    assert b"*2\r\n$1\r\n7\r\n$1\r\n\xff\r\n" == pack_command([(7, "\udcff")])


def test_a_command_that_is_sent_many_times_is_packed_once() -> None:
    """Its bytes are those of any other command, names that are not text included."""
    for words in (("EXISTS", "a", 7), ("EXISTS", "\udcff")):
        command = PackedCommand(words)
        assert pack_command([words]) == pack_command([command]) == command.packed
        command.packed = b"kept"
        assert b"kept" == pack_command([command])
