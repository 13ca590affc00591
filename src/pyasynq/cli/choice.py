"""Choice of the tasks that a command acts on, by ids or by a query, and its options."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq.cli.actions import reason_option, yes_option
from pyasynq.cli.completion import complete_queues, complete_where
from pyasynq.cli.output.progress import StatusLine
from pyasynq.errors import QueueNotFoundError, TaskNotFoundError
from pyasynq.operations import MAX_FOUND, STATES_OF_ACT, Act, Targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyasynq.cli.operator_command import Session
    from pyasynq.operations import Budget
    from pyasynq.task import TaskInfo

_IDS_AT_ONCE: Final = 1_000
_SAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The tasks that the user means, and how to act on them.

    Attributes:
        ids: ids of the tasks; empty with a query.
        where: a query; empty with ids.
        queue: the only queue that is meant; None is all.
        limit: maximum number of tasks, if a query finds more.
        reason: why, for the audit.
        rate: tasks a second at most; None is as fast as Redis allows.
        yes: whether the command skips the confirmation.
        dry_run: whether the tasks are only counted.
    """

    ids: tuple[str, ...] = ()
    where: str = ""
    queue: str | None = None
    limit: int = MAX_FOUND
    reason: str = ""
    rate: float | None = None
    yes: bool = False
    dry_run: bool = False

    def query(self, act: Act) -> str:
        """Return the query, limited to the chosen queue, and to the states in which the action is possible.

        A query with a condition on the state is not limited to states.

        Raises:
            QueryError: for a query that cannot be read.
        """
        from pyasynq.operations.query import parse_query  # noqa: PLC0415 - help and completion need no query

        parsed = parse_query(self.where)
        text = within_queues(self.where, [self.queue] if self.queue else [])
        states = [state.value for state in parsed.states if state in STATES_OF_ACT[act]]
        is_narrowed = "state" in parsed.fields or len(states) in {0, len(parsed.states)}
        return text if is_narrowed else f"({text}) state:{','.join(states)}"


@dataclass(slots=True)
class FoundTasks:
    """Search results for a command: the tasks that it can act on, and the number of tasks that it cannot."""

    ids: dict[str, dict[str, None]] = field(default_factory=dict)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    samples: list[TaskInfo] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    looked_at: int = 0
    is_all: bool = True

    @property
    def total(self) -> int:
        """Number of found tasks."""
        return self.counts.total()

    def add(self, act: Act | None, tasks: Iterable[TaskInfo]) -> None:
        """Add tasks whose state allows the action (None allows all); skip tasks already added."""
        for task in tasks:
            if act is not None and task.state not in STATES_OF_ACT[act]:
                self.left_out[task.state.value] += 1
                continue
            ids = self.ids.setdefault(task.queue, {})
            if task.id in ids:
                continue
            ids[task.id] = None
            self.counts[task.queue, task.type, task.state.value] += 1
            if len(self.samples) < _SAMPLES:
                self.samples.append(task)

    def targets(self, query: str = "") -> Targets:
        """Return the found tasks as targets of an operation; `query` is the query that found them, if any."""
        return Targets({queue: tuple(ids) for queue, ids in self.ids.items()}, query)


def whole_budget() -> Budget:
    """Return a search budget without a practical limit, for a search for all matches.

    The user sees the progress of the search, and may interrupt it.
    """
    from pyasynq.operations import Budget  # noqa: PLC0415 - help and completion search nothing

    return Budget(positions=1_000_000_000, seconds=86_400.0)


def quote_in_query(text: str) -> str:
    """Quote a string as a query value that matches exactly this string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def within_queues(query: str, queues: Sequence[str]) -> str:
    """Return a query limited to these queues; without queues, return it unchanged."""
    return f"({query}) queue:{','.join(map(quote_in_query, queues))}" if queues else query


async def find_by_query(session: Session, act: Act | None, query: str, limit: int) -> FoundTasks:
    """Return the tasks that match a query, the newest first; print the progress of the search on stderr."""
    found = FoundTasks()
    with StatusLine() as status:
        async for page in session.operator.search(query, limit=limit, budget=whole_budget()):
            found.add(act, page.tasks)
            found.looked_at = page.looked_at
            found.is_all = not page.cursor
            most = max(page.total, page.looked_at)
            status.show(f"Searching: {found.total:,} found in {page.looked_at:,} of {most:,} looked at")
    return found


async def find_by_ids(
    session: Session, ids: Sequence[str], queue: str | None
) -> tuple[list[TaskInfo], list[TaskNotFoundError]]:
    """Return the tasks with these ids, in one queue or in all, and an error for each id without a task.

    Raises:
        QueueNotFoundError: if there is no such queue.
    """
    if queue is not None and queue not in await session.operator.queues():
        raise QueueNotFoundError(queue)
    queues = None if queue is None else [queue]
    found: list[TaskInfo] = []
    for first in range(0, len(ids), _IDS_AT_ONCE):
        found += await session.operator.find_tasks(ids[first : first + _IDS_AT_ONCE], queues)
    order = {task_id: number for number, task_id in enumerate(ids)}
    known = {task.id for task in found}
    missing = [TaskNotFoundError(queue or "", task_id) for task_id in ids if task_id not in known]
    return sorted(found, key=lambda task: order[task.id]), missing


def require_ids(ids: Sequence[str], more_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the task ids from the arguments and the option `--id`; `-` reads ids from stdin, one per line.

    Raises:
        click.UsageError: without ids.
    """
    named = [*ids, *more_ids]
    if named == ["-"]:
        named = [line.strip() for line in sys.stdin if line.strip()]
    if not named:
        raise click.UsageError("which tasks? Give ids, - to read ids from stdin, or --where QUERY")
    return tuple(dict.fromkeys(named))


ids_argument: Final = click.argument("ids", metavar="[ID]...", nargs=-1)
id_option: Final = click.option("-i", "--id", "more_ids", metavar="ID", multiple=True, hidden=True)
queue_option: Final = click.option(
    "-q",
    "--queue",
    metavar="NAME",
    shell_complete=complete_queues,
    help="Their queue; all are searched unless given.",
)


def choose_tasks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the arguments and options that choose tasks; it gets them as `choice`."""

    @ids_argument
    @id_option
    @queue_option
    @click.option(
        "--where",
        metavar="QUERY",
        shell_complete=complete_where,
        help="All tasks that match, as in 'state:archived error:timeout'; see query.md.",
    )
    @click.option(
        "--limit",
        type=click.IntRange(1, MAX_FOUND),
        default=MAX_FOUND,
        metavar="NUMBER",
        help=f"With --where: act on this many at most, the newest first.  [default: {MAX_FOUND:,}]",
    )
    @click.option("--rate", metavar="NUMBER/s", type=Rate(), help="Act on this many a second at most.")
    @reason_option
    @click.option("--dry-run", is_flag=True, help="Count the tasks, and change nothing.")
    @yes_option
    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in _OPTIONS}
        return command(*args, choice=read_choice(given), **kwargs)

    return wrapped


_OPTIONS: Final = ("ids", "more_ids", "where", "queue", "limit", "rate", "reason", "dry_run", "yes")


def read_choice(given: Mapping[str, Any]) -> TaskChoice:
    """Build the choice of tasks from the arguments and options of a command.

    Raises:
        click.UsageError: for both ids and a query, for neither, and for an empty query.
    """
    where = given["where"]
    ids: tuple[str, ...] = ()
    if where is None:
        ids = require_ids(given["ids"], given["more_ids"])
    elif given["ids"] or given["more_ids"]:
        raise click.UsageError("give ids or --where, not both")
    elif not where.strip():
        raise click.UsageError("an empty query finds every task; name a state at least: --where state:retry")
    named = {name: given[name] for name in ("queue", "limit", "rate", "reason", "dry_run", "yes")}
    return TaskChoice(ids, where or "", **named)


class Rate(click.ParamType[float]):
    """Parameter type for a number of tasks a second: `500` or `500/s`; `30/m` is 30 a minute."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a rate into tasks a second."""
        number, _, unit = str(value).partition("/")
        seconds = {"": 1, "s": 1, "m": 60, "h": 3_600}.get(unit)
        try:
            rate = float(number) / (seconds or 1)
        except ValueError:
            rate = 0.0
        if seconds is None or not 0 < rate < 1e9:
            self.fail(f"{value!r} is not a rate; write it as 500/s, or as 30/m", param, ctx)
        return rate
