"""Commands of one instance, for the dashboard: the running ones, and the last ones that ended."""

from __future__ import annotations

import secrets
import socket
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq.control import Archive, Retry, Snooze
from pyasynq.operations import REPORTED_OUTPUT, CommandReport, HostedCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.hosted.outcome import HostedOutcome
    from pyasynq.gateway.service_metrics import ServiceMetrics

    from .command_run import CommandRun
    from .exit_outcomes import CommandEnd

_PLACES: Final = 100
"""Maximum number of reported commands of an instance; a new command replaces the one that ended first."""
_AGAIN_SECONDS: Final = 60.0
"""Seconds after which a running command without new output is reported again."""
_ID_BYTES: Final = 8


class CommandEntry:
    """A command in the table. Written by the table.

    Attributes:
        place: index of its report; None if running commands use all indexes, so that it is not reported.
        command: state that is reported.
        run: the run whose output is read; None when it has ended.
        reported_at: Unix time of the last report.
    """

    def __init__(self, place: int | None, command: HostedCommand, run: CommandRun) -> None:
        self.place = place
        self.command = command
        self.run: CommandRun | None = run
        self.reported_at = 0.0
        self.is_changed = True

    def read_output(self) -> bool:
        """Copy the last bytes of the output into the report; return whether the output has grown."""
        if self.run is None:
            return False
        out, err = self.run.out.kept, self.run.err.kept
        if (out.total, err.total) == (self.command.out_bytes, self.command.err_bytes):
            return False
        self.command = replace(
            self.command,
            out=out.read_end(REPORTED_OUTPUT),
            out_bytes=out.total,
            err=err.read_end(REPORTED_OUTPUT),
            err_bytes=err.total,
        )
        return True


class CommandTable:
    """Commands of an instance that run or have ended. Belongs to one event loop.

    Args:
        metrics: counts the commands that have ended.
        clock: returns Unix time.
        places: maximum number of commands that are reported.
    """

    def __init__(
        self,
        metrics: ServiceMetrics | None = None,
        *,
        clock: Callable[[], float] = time.time,
        places: int = _PLACES,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._host = socket.gethostname()
        self._entries: dict[int, CommandEntry] = {}
        """Entries by their indexes (places)."""
        self._free = deque(range(places))
        """Indexes (places) without a running command; the index whose command ended first is at the front."""
        self._running = 0

    @property
    def running(self) -> int:
        """Number of commands that run now."""
        return self._running

    def begin(self, attempt: Attempt, program: str, run: CommandRun) -> CommandEntry:
        """Add a command that starts now; return its entry."""
        self._running += 1
        command = HostedCommand(
            secrets.token_hex(_ID_BYTES),
            attempt.queue,
            attempt.id,
            attempt.retried + 1,
            program,
            self._host,
            "running",
            datetime.fromtimestamp(self._clock(), UTC),
        )
        entry = CommandEntry(self._find_place(), command, run)
        if entry.place is not None:
            self._entries[entry.place] = entry
        return entry

    def end(
        self,
        entry: CommandEntry,
        outcome: HostedOutcome,
        said: str = "",
        end: CommandEnd | None = None,
        limit: str = "",
    ) -> None:
        """Record that a command has ended.

        Args:
            entry: entry of the command.
            outcome: outcome of its attempt.
            said: how its program has ended, such as `exit code 3`.
            end: resources that it has used; None if they are not known.
            limit: limit at which it was killed, such as `memory` or `time`; empty if it was not.
        """
        state, reason = "done", ""
        if isinstance(outcome, Snooze):
            state = "snoozed"
        elif isinstance(outcome, (Archive, Retry)):
            state, reason = "archived" if isinstance(outcome, Archive) else "retried", outcome.reason
        if self._metrics is not None and limit and entry.run is not None:
            self._metrics.note_killed_command(entry.command.queue, limit)
        self._end(entry, state, reason, said, end)

    def stop(self, entry: CommandEntry) -> None:
        """Record that a command was stopped: its task was cancelled, or the instance shuts down."""
        self._end(entry, "stopped", "", "", None)

    def _end(self, entry: CommandEntry, state: str, reason: str, said: str, end: CommandEnd | None) -> None:
        if entry.run is None:
            return
        entry.read_output()
        entry.run = None
        entry.is_changed = True
        self._running -= 1
        now = datetime.fromtimestamp(self._clock(), UTC)
        entry.command = replace(
            entry.command,
            state=state,
            ended=now,
            end=said,
            reason=reason,
            cpu=None if end is None else round(end.cpu, 3),
            memory=None if end is None else end.memory,
        )
        if entry.place is not None:
            self._free.append(entry.place)
        if self._metrics is not None:
            seconds = (now - entry.command.started).total_seconds()
            cpu = 0.0 if end is None else end.cpu
            self._metrics.note_command(entry.command.queue, state, seconds, cpu)

    def take_changed(self) -> list[CommandReport]:
        """Return reports that have changed since the last call, and unchanged reports that are due again."""
        now = self._clock()
        changed = []
        for place, entry in self._entries.items():
            is_old = entry.run is not None and entry.reported_at < now - _AGAIN_SECONDS
            if entry.read_output() or entry.is_changed or is_old:
                entry.is_changed, entry.reported_at = False, now
                changed.append(CommandReport(place, entry.command))
        return changed

    def put_back(self, reports: Iterable[CommandReport]) -> None:
        """Add reports that could not be stored to the next result of `take_changed`."""
        for report in reports:
            self._entries[report.place].is_changed = True

    def _find_place(self) -> int | None:
        """Remove and return the free index whose command ended first; None if all commands still run."""
        return self._free.popleft() if self._free else None
