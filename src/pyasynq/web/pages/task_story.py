"""History of a task for its page: reason of its state, path through the states, and timeline. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.task import TaskState
from pyasynq.web import formats
from pyasynq.web.shown_task import STATE_LOOKS, first_line, look_of_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, tzinfo

    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.task import TaskInfo
    from pyasynq.web.page import PageRequest


@dataclass(frozen=True, slots=True)
class Why:
    """Explanation why a task is in its state: a sentence, and its evidence."""

    sentence: str
    evidence: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """Piece of evidence about the task: a text or a time."""

    label: str
    text: str
    href: str = ""
    moment: datetime | None = None
    note: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """Event in the history of the task."""

    symbol: str
    tone: str
    text: str
    moment: datetime | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A state in the state diagram, drawn as a box."""

    name: str
    x: float
    y: float
    width: float
    look: str
    """CSS class: `now` for the current state, `on` for a visited one, or empty."""
    note: str = ""

    @property
    def middle(self) -> float:
        """Horizontal position of the text in the box."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition between two states in the diagram."""

    path: str
    is_on: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """The state diagram, with the path of this task."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    retries: str
    finding: str
    tone: str


def explain_task(
    ask: PageRequest, task: TaskInfo, info: QueueInfo | None, servers: Sequence[ServerInfo]
) -> Why:
    """Return why a task is in its state."""
    explain = _EXPLAINERS.get(task.state)
    return _why_pending(info, servers) if explain is None else explain(ask, task)


def _why_pending(info: QueueInfo | None, servers: Sequence[ServerInfo]) -> Why:
    if info is not None and info.paused:
        until = " until it is resumed" if info.paused_until is None else ""
        why = Why(f"Its queue is paused{until}; no server takes tasks from it.", tone="warn")
    elif not servers:
        advice = "Start one, or let a running one serve this queue."
        why = Why("No server takes tasks from its queue.", advice, "bad")
    elif all(server.status != "active" for server in servers):
        why = Why("All servers of its queue are stopping and take no more tasks.", tone="warn")
    elif info is None:
        why = Why("It waits for a free slot.")
    else:
        why = _why_waiting(info, servers)
    return why


def _why_waiting(info: QueueInfo, servers: Sequence[ServerInfo]) -> Why:
    limit = info.limits.max_run
    if limit is not None and info.active >= limit:
        return Why(f"The limit of its queue is reached: {info.active:,} of {limit:,} run.", tone="warn")
    slots = sum(server.concurrency for server in servers)
    busy = sum(len(server.active_workers) for server in servers)
    others = counted(info.pending - 1, "other task waits", "other tasks wait")
    ahead = f"{others} in the queue." if info.pending > 1 else ""
    if busy >= slots:
        return Why(f"All {counted(slots, 'slot')} of its servers are taken.", ahead, "warn")
    return Why("It is about to be taken by a server.", ahead)


def _why_scheduled(ask: PageRequest, task: TaskInfo) -> Why:
    return Why(f"It is scheduled for {_when(ask, task.next_process_at)}.")


def _why_retry(ask: PageRequest, task: TaskInfo) -> Why:
    error = first_line(task.last_error)
    left = counted(max(task.max_retry - task.retried, 0), "retry", "retries")
    evidence = f"The error was “{error}”. {left} left." if error else f"{left} left."
    sentence = f"Its last attempt failed; it runs again {formats.relative(task.next_process_at, ask.now)}."
    return Why(sentence, evidence, "warn")


def _why_completed(ask: PageRequest, task: TaskInfo) -> Why:
    kept = f"Its result is kept {formats.span(task.retention)} after that." if task.retention else ""
    return Why(f"It succeeded {formats.relative(task.completed_at, ask.now)}.", kept, "good")


def _why_grouped(_: PageRequest, task: TaskInfo) -> Why:
    group = visible(task.group)
    return Why(f"It waits in the group “{group}” until the group is made into one task.")


def _why_active(ask: PageRequest, task: TaskInfo) -> Why:
    if task.is_orphaned:
        return Why(
            "Its server has let its lease lapse; another server will take it over within a minute.",
            tone="bad",
        )
    runs = formats.relative(task.in_state_since, ask.now).removesuffix(" ago") if task.in_state_since else ""
    deadline = f" It is stopped {formats.relative(task.deadline, ask.now)}." if task.deadline else ""
    who = "" if task.server_id else "A server in Go runs it, which does not write down which one it is."
    return Why(f"A server runs it{' since ' + runs if runs else ' now'}.{deadline}", who, "busy")


def _why_archived(_: PageRequest, task: TaskInfo) -> Why:
    error = first_line(task.last_error)
    if not task.last_error:
        return Why("It was archived by hand, without a failure.", tone="")
    attempts = task.retried + 1
    if task.retried >= task.max_retry:
        sentence = "Its only attempt failed." if attempts == 1 else f"All {attempts:,} attempts failed."
    else:
        sentence = f"Attempt {attempts:,} of {task.max_retry + 1:,} failed in a way that is not retried."
    return Why(sentence, f"The last error was “{error}”.", "bad")


_EXPLAINERS: Final[dict[TaskState, Callable[[PageRequest, TaskInfo], Why]]] = {
    TaskState.ACTIVE: _why_active,
    TaskState.SCHEDULED: _why_scheduled,
    TaskState.RETRY: _why_retry,
    TaskState.ARCHIVED: _why_archived,
    TaskState.COMPLETED: _why_completed,
    TaskState.AGGREGATING: _why_grouped,
}


def _when(ask: PageRequest, moment: datetime | None) -> str:
    if moment is None:
        return "an unknown time"
    return f"{formats.exact(moment, ask.preferences.time_zone)}, {formats.relative(moment, ask.now)}"


def build_steps(task: TaskInfo) -> tuple[StoryEvent, ...]:
    """Return the known history of a task, newest first."""
    look = STATE_LOOKS[task.state]
    current = {
        TaskState.COMPLETED: task.completed_at,
        TaskState.SCHEDULED: None,
        TaskState.RETRY: task.last_failed_at,
    }.get(task.state, task.in_state_since)
    steps = [StoryEvent(task.state.value, look.tone, look.word, current, _due_note(task))]
    for attempt in reversed(task.attempts):
        ran = f"after {formats.span(attempt.ended_at - attempt.started_at)}" if attempt.started_at else ""
        error = first_line(attempt.error)
        ended = look_of_outcome(attempt)
        note = ", ".join(one for one in (ran, error) if one)
        steps.append(StoryEvent(ended.symbol, ended.tone, ended.word, attempt.ended_at, note))
    return tuple(steps)


def _due_note(task: TaskInfo) -> str:
    if task.state is TaskState.RETRY:
        return f"retry {task.retried + 1:,} of {task.max_retry:,} comes next"
    return ""


_PLACES: Final = {
    TaskState.SCHEDULED: (18.0, 20.0, 84.0, "scheduled"),
    TaskState.AGGREGATING: (132.0, 20.0, 84.0, "grouped"),
    TaskState.COMPLETED: (258.0, 20.0, 88.0, "completed"),
    TaskState.PENDING: (18.0, 86.0, 84.0, "pending"),
    TaskState.ACTIVE: (137.0, 86.0, 90.0, "active"),
    TaskState.ARCHIVED: (258.0, 86.0, 88.0, "archived"),
    TaskState.RETRY: (148.0, 150.0, 84.0, "retry"),
}
_ARROWS: Final = (
    (TaskState.SCHEDULED, TaskState.PENDING, "M60 46v40"),
    (TaskState.AGGREGATING, TaskState.PENDING, "M156 46 84 86"),
    (TaskState.PENDING, TaskState.ACTIVE, "M102 99h34"),
    (TaskState.ACTIVE, TaskState.RETRY, "M180 112v38"),
    (TaskState.RETRY, TaskState.ACTIVE, "M200 150v-38"),
    (TaskState.ACTIVE, TaskState.ARCHIVED, "M228 99h30"),
    (TaskState.ACTIVE, TaskState.COMPLETED, "M222 86l44-40"),
)


def build_machine(task: TaskInfo, zone: tzinfo) -> Machine:
    """Return the state diagram for a task."""
    visited = _find_visited_states(task)
    notes = {task.state: _note_time(task, zone)}
    if task.state is not TaskState.RETRY and (last := _find_last_retry(task)):
        notes[TaskState.RETRY] = f"last {formats.clock(last, zone)}"
    boxes = tuple(
        Box(
            name,
            x,
            y,
            width,
            "now" if state is task.state else "on" if state in visited else "",
            notes.get(state, ""),
        )
        for state, (x, y, width, name) in _PLACES.items()
    )
    arrows = tuple(Arrow(path, source in visited and goal in visited) for source, goal, path in _ARROWS)
    words = ", ".join(_PLACES[state][3] for state in visited)
    retries = counted(task.retried, "time") if task.retried else ""
    return Machine(boxes, arrows, retries, f"Known states, in order: {words}.", STATE_LOOKS[task.state].tone)


def _find_last_retry(task: TaskInfo) -> datetime | None:
    """Return when the task last failed and was to be retried; None if that is not known."""
    known = [attempt.ended_at for attempt in task.attempts if attempt.outcome == "retried"]
    if known:
        return known[-1]
    # The last failure of an archived task is the one that archived it.
    return task.last_failed_at if task.retried and task.state is not TaskState.ARCHIVED else None


def _find_visited_states(task: TaskInfo) -> list[TaskState]:
    """Return the states in which the task is known to have been, in order."""
    if task.state in {TaskState.SCHEDULED, TaskState.AGGREGATING}:
        return [task.state]
    ran = (
        task.retried
        or task.state in {TaskState.ACTIVE, TaskState.RETRY, TaskState.COMPLETED}
        or task.last_error
    )
    found = [TaskState.AGGREGATING] if task.group else []
    found.append(TaskState.PENDING)
    if ran:
        found.append(TaskState.ACTIVE)
    if task.retried or task.state is TaskState.RETRY:
        found.append(TaskState.RETRY)
    return found if task.state in found else [*found, task.state]


def _note_time(task: TaskInfo, zone: tzinfo) -> str:
    moment = task.completed_at or task.in_state_since
    if task.state in {TaskState.SCHEDULED, TaskState.RETRY}:
        return f"due {formats.clock(task.next_process_at, zone)}" if task.next_process_at else ""
    return formats.clock(moment, zone) if moment else ""
