"""Child process of a supervisor: its process, and the socket between them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyasynq._engine.executor.marks import FAMILY, new_family
from pyasynq._engine.supervisor.child_facts import ChildFacts
from pyasynq._engine.supervisor.link import WORKER_VARIABLE
from pyasynq._engine.supervisor.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyasynq._engine.supervisor.fleet import Member

_CHUNK: Final = 65_536


class Child:
    """One worker process.

    It leads its own process group, so Ctrl-C at a terminal reaches only the supervisor.

    Args:
        member: its entry in the fleet.
        command: returns the program and its arguments, given the number of the inherited socket.
    """

    def __init__(self, member: Member, command: Callable[[int], list[str]]) -> None:
        self.member = member
        self.facts: ChildFacts | None = None
        self.recycles = True
        """Whether the child is recycled for its memory; False if it already starts above the limit."""
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._unread = b""
        self.family = new_family()
        """Value of the variable `FAMILY`: finds all processes that the child's executors have started."""
        self.is_over = False
        """Whether the child has closed its end of the socket."""
        with theirs:
            theirs.set_inheritable(True)
            arguments = command(theirs.fileno())
            # Spawns a new program: this process has threads, so a fork would not be safe.
            self.pid = os.posix_spawn(
                arguments[0],
                arguments,
                {**os.environ, FAMILY: self.family, WORKER_VARIABLE: str(member.worker)},
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGHUP, signal.SIGPIPE),
            )
        self.vitals = Vitals(member.worker, self.pid)

    def fileno(self) -> int:
        """Return the descriptor of the socket, so that a selector can wait for this child."""
        return self._socket.fileno()

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the unread messages of the child; nothing after its end."""
        while not self.is_over:
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.is_over = True
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def take_facts(self, fields: dict[str, Any]) -> None:
        """Store the facts needed to recover the child's tasks after its death."""
        self.facts = ChildFacts.from_fields(fields)

    def note_queue(self, queue: str, *, has_tasks: bool) -> None:
        """Record that the child may have tasks of another queue, or has none of this queue any more."""
        if self.facts is not None:
            self.facts = self.facts.with_queue(queue, has_tasks=has_tasks)

    def note_vitals(self, fields: dict[str, Any], monotonic: float) -> None:
        """Record a sign of life, or a report of which queues Redis answered for."""
        if "beat" in fields:
            self.vitals.beat_at = monotonic
        else:
            self.vitals.note_queues(fields["queues"], fields["unreachable"])

    def say(self, word: bytes) -> None:
        """Send the child a command, which is dropped if the child has died or does not read."""
        try:
            self._socket.send(word + b"\n")
        except OSError:
            return

    def send(self, number: signal.Signals) -> None:
        """Send a signal. The child has not been reaped, so no other process has its PID."""
        os.kill(self.pid, number)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory in bytes; 0 if unknown."""
    try:
        memory = Path(f"/proc/{pid}/statm")
        if memory.exists():
            return int(memory.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S607
        return int(told.stdout or 0) * 1024
    except (OSError, ValueError):
        return 0
