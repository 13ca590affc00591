"""Supervisor of several workers: starts and replaces them, and recovers the tasks of dead workers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyasynq._engine.executor.marks import kill_marked
from pyasynq._engine.supervisor.child import Child, resident_bytes
from pyasynq._engine.supervisor.death_notes import encode_death
from pyasynq._engine.supervisor.fleet import (
    KILL_MARGIN,
    MOST_DEATHS,
    PATIENCE,
    Fate,
    Fleet,
    Kill,
    Limits,
    MemberPhase,
    Stage,
    Start,
)
from pyasynq._engine.supervisor.health import Health, HealthSettings
from pyasynq._engine.supervisor.known_death import recover_known_death
from pyasynq._engine.supervisor.link import MEASURE, RETIRE, STOP
from pyasynq._exit_codes import EXIT_ABORTED, EXIT_START_FAILED
from pyasynq._human_text import counted
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._engine.supervisor.death_notes import DeathEvent
    from pyasynq._engine.supervisor.fleet import Member
    from pyasynq._engine.supervisor.link import MetricRow
    from pyasynq._engine.supervisor.vitals import Vitals

_log = logging.getLogger("pyasynq")
_ACTIVE: Final = "active"
_LOOK_SECONDS: Final = 1.0
"""Longest interval in seconds between checks of the children: memory, time limits and metrics."""
_PAUSE_SECONDS: Final = 5.0
"""Seconds between two checks from which this process was probably stopped, or the host suspended."""
_INIT: Final = 1
_MOST_DEATHS_TOLD: Final = 1_000
"""Maximum number of reports of dead workers' tasks that wait for a living child to call the hooks."""
_LONGEST_RECOVERY: Final = 5.0
"""Seconds that the supervisor's exit waits for tasks to be recovered; then their leases must lapse."""
_LEAST_RECOVERY: Final = 0.4
"""Minimum seconds for recovering tasks at the exit, even if children had to be killed after TERM."""


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """Settings of a supervisor.

    Attributes:
        processes: number of workers.
        burst: whether a worker that ends by itself is not restarted (burst mode).
        max_memory: bytes of resident memory above which a child is recycled; None for no limit.
        health: port and file of probes.
        beat_timeout: seconds without a sign of life after which a child is killed and replaced, because it
            holds the interpreter's lock or was stopped; 0 for no limit.
        start_timeout: seconds that the new child of a reload may take until it takes tasks; then the reload
            is cancelled; 0 for no limit.
        end_timeout: seconds that a child may take to end after TERM, if it has not reported its own timeouts;
            KILL follows `KILL_MARGIN` later.
    """

    processes: int
    burst: bool = False
    max_memory: int | None = None
    beat_timeout: float = 30.0
    start_timeout: float = 60.0
    end_timeout: float = PATIENCE
    health: HealthSettings = field(default_factory=HealthSettings)


class MetricSink(Protocol):
    """Sum of the metrics of all children. Written by the supervisor's loop, read by the thread of probes."""

    def add(self, source: str, rows: Iterable[MetricRow]) -> None:
        """Add changes that a child has reported."""

    def drop(self, source: str) -> None:
        """Drop the gauges of a child that has ended; its counters stay."""

    def note_processes(self, states: Iterable[str], *, died: bool = False) -> None:
        """Record the states of all children, and whether one of them has just died."""

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return content type and body of `/metrics` for a header `Accept`."""


class Supervisor:
    """Keeps a number of workers running until it is told to stop.

    Args:
        command: returns the program and the arguments of a child, given the number of the socket that it
            inherits; the child makes its `SupervisorLink` from this number.
        settings: number of workers and limits.
        metrics: the store of the children's metrics, which answers `/metrics`; None for no metrics.
    """

    def __init__(
        self,
        command: Callable[[int], list[str]],
        settings: SupervisorSettings,
        metrics: MetricSink | None = None,
    ) -> None:
        self._command = command
        self._metrics = metrics
        self._asked_at = 0.0
        """Monotonic time at which the children were last asked for their metrics."""
        self._settings = settings
        never = float("inf")
        limits = Limits(settings.beat_timeout or never, settings.start_timeout or never, settings.end_timeout)
        self._fleet = Fleet(settings.processes, burst=settings.burst, limits=limits)
        self._children: dict[int, Child] = {}
        self._recoveries: set[asyncio.Task[None]] = set()
        self._deaths: deque[bytes] = deque(maxlen=_MOST_DEATHS_TOLD)
        """Reports of tasks of dead children, for the next child that listens."""
        self._interrupts = 0
        self._looked_at = time.monotonic()
        self._end_by = float("inf")
        self._has_terminal = os.isatty(0)

    def run(self) -> int:
        """Run as the main program of this process, and return its exit code.

        0: all done; 2: wrong usage; 3, 4: the highest code of the children; 5: they keep dying; 130: a second
        SIGINT.

        Raises:
            ConfigurationError: on Windows, and if probes cannot be answered.
        """
        if sys.platform == "win32":
            raise ConfigurationError("workers do not run on Windows; clients do. Use WSL or a container")
        render = None if self._metrics is None else self._metrics.render
        with Health(self._settings.health, self._vitals, render):
            return asyncio.run(self._run())

    def _vitals(self) -> list[Vitals]:
        # Called from the thread of the probes: the copy is one step of the interpreter.
        return [child.vitals for child in list(self._children.values())]

    async def _run(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        for number, handler in (
            (signal.SIGCHLD, self._reap),
            (signal.SIGTERM, self._terminate),
            (signal.SIGINT, self._interrupt),
            (signal.SIGTSTP, self._stop),
            (signal.SIGHUP, self._reload),
        ):
            self._loop.add_signal_handler(number, handler)
        _log.info("supervisor (pid %d) starts %s", os.getpid(), counted(self._settings.processes, "worker"))
        while not self._fleet.is_over:
            self._news.clear()
            self._act()
            await self._wait_for_news()
            self._check_memory()
            self._ask_for_metrics()
        if self._recoveries:
            until_end = max(_LEAST_RECOVERY, self._end_by - time.monotonic())
            await asyncio.wait(self._recoveries, timeout=min(_LONGEST_RECOVERY, until_end))
        return self._fleet.exit_code

    def _act(self) -> None:
        self._notice_pause()
        for action in self._fleet.actions(time.monotonic()):
            if isinstance(action, Start):
                self._start(action.member)
            elif isinstance(action, Kill):
                self._kill(action)
            else:
                self._find_child(action.member).send(signal.SIGTERM)

    def _notice_pause(self) -> None:
        """Read the children's messages, so that a pause of this process does not count as their silence."""
        for child in self._children.values():
            self._hear(child)
        now = time.monotonic()
        if now - self._looked_at > _PAUSE_SECONDS:
            self._fleet.resumed(now)
        self._looked_at = now

    def _kill(self, action: Kill) -> None:
        child = self._find_child(action.member)
        _log.error("worker %d (pid %d) %s; killing it", action.member.worker, child.pid, action.reason)
        child.send(signal.SIGKILL)

    async def _wait_for_news(self) -> None:
        until = min(self._fleet.wake_at() - time.monotonic(), _LOOK_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, until)):
                await self._news.wait()
        except TimeoutError:
            return

    def _start(self, member: Member) -> None:
        try:
            child = Child(member, self._command)
        except OSError as error:
            now = time.monotonic()
            fate = self._fleet.died(member, EXIT_START_FAILED, now)
            self._report(member.worker, f"could not be started: {error}", fate, now)
            self._news.set()
            return
        self._children[child.pid] = child
        self._loop.add_reader(child, self._hear, child)
        _log.info("worker %d (pid %d) started", member.worker, child.pid)

    def _find_child(self, member: Member) -> Child:
        return next(child for child in self._children.values() if child.member is member)

    # Messages of children.

    def _hear(self, child: Child) -> None:
        for message in child.messages():
            self._fleet.heard(time.monotonic(), [child.member])
            self._take_message(child, message)
        if child.is_over:
            self._loop.remove_reader(child)

    def _take_message(self, child: Child, message: dict[str, Any]) -> None:
        match message:
            case {"patience": seconds}:
                child.member.patience = seconds + KILL_MARGIN
            case {"facts": facts}:
                child.take_facts(facts)
                self._report_deaths()
            case {"queue": queue}:
                child.note_queue(queue, has_tasks=message["has_tasks"])
            case {"beat": _} | {"queues": _}:
                child.note_vitals(message, time.monotonic())
            case {"metrics": rows}:
                self._add_metrics(child, rows)
            case {"stop": _}:
                self._stop_for_operator(child)
            case {"leaving": _}:
                self._leave(child, "has run as many tasks as it may")
            case {"state": state}:
                self._process_state(child, state)

    def _stop_for_operator(self, child: Child) -> None:
        if self._fleet.stage is not Stage.CLOSING:
            text = "an operator asks worker %d (pid %d) to stop: all workers end"
            _log.warning(text, child.member.worker, child.pid)
            self._terminate()

    def _process_state(self, child: Child, state: str) -> None:
        member = child.member
        child.vitals.state = state
        if state == "active" and member.phase is MemberPhase.STARTING:
            self._fleet.ready(member)
            _log.info("worker %d (pid %d) takes tasks", member.worker, child.pid)
            limit, used = self._settings.max_memory, resident_bytes(child.pid)
            if limit is not None and used > limit:
                child.recycles = False
                text = "worker %d (pid %d) starts with %s, more than the limit of %s: it is not recycled"
                _log.error(text, member.worker, child.pid, _mib(used), _mib(limit))
            self._news.set()

    def _leave(self, child: Child, why: str) -> None:
        if child.member.phase is MemberPhase.LEAVING:
            return
        _log.info(
            "worker %d (pid %d) %s: it ends when its running tasks have ended, and is replaced",
            child.member.worker,
            child.pid,
            why,
        )
        self._fleet.leaving(child.member, time.monotonic())
        self._news.set()

    def _check_memory(self) -> None:
        limit = self._settings.max_memory
        if limit is None or self._fleet.stage is not Stage.RUNNING:
            return
        for child in list(self._children.values()):
            if child.member.phase is not MemberPhase.READY or not child.recycles:
                continue
            used = resident_bytes(child.pid)
            if used > limit:
                child.say(RETIRE)
                self._leave(child, f"uses {_mib(used)} of memory, more than {_mib(limit)}")

    # Metrics.

    def _ask_for_metrics(self) -> None:
        now = time.monotonic()
        if self._metrics is None or now - self._asked_at < _LOOK_SECONDS:
            return
        self._asked_at = now
        for child in self._children.values():
            if child.facts is not None or child.vitals.state == _ACTIVE:
                child.say(MEASURE)
        self._note_processes()

    def _add_metrics(self, child: Child, rows: Iterable[MetricRow]) -> None:
        if self._metrics is not None:
            self._metrics.add(str(child.pid), rows)

    def _note_processes(self, *, died: bool = False) -> None:
        if self._metrics is not None:
            self._metrics.note_processes([child.vitals.state for child in self._children.values()], died=died)

    # Ends of children.

    def _reap(self) -> None:
        for pid in list(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._bury(pid, os.waitstatus_to_exitcode(status))
        if os.getpid() == _INIT:
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Reap orphaned processes, if this process is PID 1 of a container."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._children:
                self._bury(pid, os.waitstatus_to_exitcode(status))

    def _bury(self, pid: int, code: int) -> None:
        child = self._children[pid]
        now = time.monotonic()
        # Read the last messages of the ended child.
        self._hear(child)
        self._loop.remove_reader(child)
        child.close()
        del self._children[pid]
        if self._metrics is not None:
            self._metrics.drop(str(pid))
            self._note_processes(died=code != 0)
        fate = self._fleet.died(child.member, code, now)
        self._report(child.member.worker, f"(pid {pid}) {_describe_end(code)}", fate, now)
        # A worker that was killed cannot end the processes that its child processes started.
        kill_marked(child.family)
        if code and child.facts is not None:
            recovery = self._loop.create_task(self._recover(child, now))
            self._recoveries.add(recovery)
            recovery.add_done_callback(self._recoveries.discard)
        self._news.set()

    def _report(self, worker: int, end: str, fate: Fate, now: float) -> None:
        line = f"worker {worker} {end}"
        if fate in (Fate.EXPECTED, Fate.FINISHED):
            _log.info("%s", line)
        elif fate is Fate.RELOAD_FAILED:
            _log.error(
                "%s before it was ready: the reload is cancelled, and the other workers continue", line
            )
        elif fate is Fate.RESTARTED:
            _log.warning("%s; restarting in %.0f s", line, self._fleet.start_at(worker) - now)
        else:
            _log.error(
                "%s; workers keep dying (at least %d deaths within a minute, and none lives "
                "longer, or wrong usage): the supervisor ends with code %d",
                line,
                MOST_DEATHS,
                self._fleet.exit_code,
            )

    async def _recover(self, child: Child, died_at: float) -> None:
        assert child.facts is not None  # noqa: S101 - the caller has looked
        tasks = await recover_known_death(child.facts, child.pid, died_at, self._report_death)
        if tasks:
            recovered = counted(tasks, "task was", "tasks were")
            _log.warning("%s recovered from worker %d (pid %d)", recovered, child.member.worker, child.pid)

    def _report_death(self, event: DeathEvent) -> None:
        """Have a living child call the hooks for a dead child's task: this process has not loaded the app."""
        self._deaths.append(encode_death(event))
        self._report_deaths()

    def _report_deaths(self) -> None:
        listening = next((one for one in self._children.values() if one.facts is not None), None)
        while listening is not None and self._deaths:
            listening.say(self._deaths.popleft())

    # Signals.

    def _terminate(self) -> None:
        self._fleet.close()
        patience = max((member.patience for member in self._fleet.members), default=0.0)
        self._end_by = min(self._end_by, time.monotonic() + patience + _LEAST_RECOVERY)
        self._news.set()

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._terminate()
            return
        for child in self._children.values():
            child.send(signal.SIGKILL)
        os._exit(EXIT_ABORTED)

    def _stop(self) -> None:
        for member in self._fleet.stop():
            self._find_child(member).say(STOP)
        self._news.set()

    def _reload(self) -> None:
        if self._has_terminal and not os.isatty(0):
            # The terminal was closed, so this is not a request to reload.
            self._terminate()
            return
        if self._fleet.stage is not Stage.RUNNING:
            return
        _log.info("reloading: workers are replaced one after the other")
        self._fleet.reload(time.monotonic())
        self._news.set()


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    # Real-time signals have no names.
    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
