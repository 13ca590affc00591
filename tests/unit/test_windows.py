"""On Windows clients work, and workers and embedded servers say that they do not run there.

A process of its own is made to look like one on Windows: modules, functions and constants that exist on
POSIX systems only are taken away before pyasynq is imported, and after what it imports of others.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

LIKE_WINDOWS = """
import asyncio, logging.handlers, os, shutil, signal, socket, ssl, subprocess, sys, sysconfig, tempfile
import uuid, zoneinfo
import click, google.protobuf, hiredis, redis.asyncio

sysconfig.get_config_vars()  # read once
unix, pair = socket.AF_UNIX, socket.socketpair
socket.socketpair = lambda *arguments: pair(*arguments or (unix,))
for module in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[module] = None
missing = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WEXITSTATUS WIFEXITED WNOHANG chown fchmod fork forkpty "
    "getegid geteuid getgid getloadavg getpgid getpgrp getuid killpg mkfifo nice pidfd_open pread pwrite "
    "register_at_fork sched_getaffinity setpgid setsid statvfs sysconf uname wait wait3 wait4 waitid",
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 "
    "SIGUSR2 alarm getitimer pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait",
    socket: "AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL TCP_KEEPIDLE recv_fds send_fds",
    asyncio: "open_unix_connection start_unix_server",
}
for module, names in missing.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "win32"
"""


def run(program: str, *arguments: str) -> tuple[int, str, str]:
    """Run a program that begins like Windows; return exit code, standard output and standard error."""
    command = [sys.executable, "-W", "error", "-c", LIKE_WINDOWS + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_everything_public_can_be_imported() -> None:
    """The command line too."""
    program = """
import pyasynq, pyasynq.sync, pyasynq.embedded
from pyasynq.cli import main
for name in pyasynq.__all__:
    getattr(pyasynq, name)
for name in main.list_commands(None):
    main.get_command(None, name)
print("imported")
"""
    assert (0, "imported\n", "") == run(program)


CLIENTS = """
import pyasynq, pyasynq.embedded, pyasynq.sync

async def by_asyncio(url):
    async with pyasynq.Client(url, timeout=0.2) as client:
        await client.enqueue("t")

def blocking(url):
    with pyasynq.sync.Client(url, timeout=0.2) as client:
        client.enqueue("t")

for call in sys.argv[1:]:
    try:
        exec(call)
    except pyasynq.PyasynqError as error:
        print(error)
"""


MESSAGES = {
    "redis://127.0.0.1:1": "Redis at 127.0.0.1:1 cannot be reached: nothing listens there",
    "embedded://": "not on Windows. Run Valkey in WSL or Docker",
    "unix:///run/redis.sock": "/run/redis.sock: Python knows no unix sockets on this platform",
}


def test_clients_work_except_for_what_windows_lacks() -> None:
    """A client gets as far as its connection: no server listens here."""
    calls = [
        call.format(url) for url in MESSAGES for call in ("asyncio.run(by_asyncio({!r}))", "blocking({!r})")
    ]
    code, out, err = run(CLIENTS, *calls)
    assert (0, "") == (code, err)
    lines = out.splitlines()
    assert len(calls) == len(lines)
    for index, message in enumerate(MESSAGES.values()):
        assert all(message in line for line in lines[2 * index : 2 * index + 2]), message


@pytest.mark.parametrize(
    "call",
    [
        "asyncio.run(pyasynq.Server('redis://127.0.0.1:1').start(print))",
        "pyasynq.App('redis://127.0.0.1:1').run_worker()",
        "pyasynq.embedded.EmbeddedServer().start()",
    ],
)
def test_servers_say_that_they_do_not_run_there(call: str) -> None:
    """The error says what to use instead."""
    _, out, err = run(CLIENTS, call)
    assert re.search("not .*on Windows.*WSL", out + err, re.DOTALL)
    assert "Traceback" not in err
