"""The commands `pyasynq task export` and `pyasynq task import`: tasks as lines of JSON, and back."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_FAILED, EXIT_PARTLY
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, confirm_change, reason_option, yes_option
from pyasynq.cli.bulk import print_counts
from pyasynq.cli.choice import FoundTasks, within_queues
from pyasynq.cli.completion import complete_queues, complete_where
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.progress import ProgressBar, StatusLine
from pyasynq.cli.task.noun import task
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from pyasynq.cli.operator_command import Session
    from pyasynq.task import Task

_LONGEST_LINE: Final = 64 * 1024 * 1024
"""Maximum length of a line in bytes, so that a file without line breaks does not fill the memory."""
_TASKS_AT_ONCE: Final = 500
_MOST_ERRORS: Final = 10
"""Maximum number of errors that are printed one by one."""


@task.command(
    "export",
    examples=(
        "pyasynq task export --where 'state:archived type:email:*' > failed.jsonl",
        "pyasynq task export -q mail --limit 100",
    ),
)
@click.option("--where", metavar="QUERY", default="", shell_complete=complete_where, help="Which tasks.")
@click.option("-q", "--queue", metavar="NAME", shell_complete=complete_queues, help="Only this queue.")
@click.option("--limit", type=click.IntRange(min=1), metavar="NUMBER", help="At most this many.")
@operator_command
async def export_tasks(session: Session, where: str, queue: str | None, limit: int | None) -> None:
    """Export tasks with all their data as JSON lines, one task a line.

    Secrets are masked. The audit log records how many tasks were exported.
    """
    if not where.strip() and queue is None:
        raise click.UsageError("which tasks? Give --where QUERY, or -q NAME for all of a queue")
    number = 0
    with StatusLine() as status:
        query = within_queues(where, [queue]) if where.strip() and queue else where
        queues = None if queue is None else [queue]
        async for line in session.operator.export(query, queues, limit=limit):
            click.echo(line)
            number += 1
            if not sys.stdout.isatty():
                status.show(f"Exporting: {counted(number, 'task')}")
    click.echo(f"{counted(number, 'task')} exported.", err=True)


@task.command(
    "import",
    examples=(
        "pyasynq task import failed.jsonl --dry-run",
        'pyasynq task import failed.jsonl --reason "provider is back"',
        "pyasynq task export -q mail | pyasynq task import - --redis staging --yes",
    ),
)
@click.argument("file", metavar="FILE")
@click.option(
    "-q", "--queue", metavar="NAME", shell_complete=complete_queues, help="Put all into this queue."
)
@click.option(
    "--once-for",
    type=DURATION,
    default="1d",
    show_default=True,
    help="For how long an id is imported only once, also if its task is deleted.",
)
@reason_option
@click.option("--dry-run", is_flag=True, help="Read and count the lines, and change nothing.")
@yes_option
@operator_command
async def import_tasks(
    session: Session, file: str, queue: str | None, once_for: float, reason: str, *, dry_run: bool, yes: bool
) -> int:
    """Import tasks: enqueue them from a file that `task export` wrote, or from stdin (-).

    All lines are read first: if one is invalid, nothing is changed. Tasks keep ids, payloads and times,
    but not their failures. A second run, as after Ctrl-C, enqueues no task twice.
    """
    with _open(file) as lines:
        found = _check_lines(lines, queue)
        if found is None:
            click.echo("Nothing was changed.", err=True)
            return EXIT_FAILED
        if dry_run:
            print_counts(session, found)
            return EXIT_CLEAN
        if not found.total:
            click.echo("No tasks.", err=True)
            return EXIT_CLEAN
        what = f"Enqueue {counted(found.total, 'task')}"
        confirm_change(session, what, number=found.total, yes=yes)
        lines.seek(0)
        return await _Import(session, found.total, once_for, reason).run(lines, queue)


@contextlib.contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    """Open a file so that it can be read twice; stdin is copied to a temporary file.

    Raises:
        click.UsageError: if it cannot be read.
    """
    import tempfile  # noqa: PLC0415 - help needs no file

    with contextlib.ExitStack() as stack:
        if file == "-":
            lines: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(sys.stdin.buffer, lines)
            lines.seek(0)
        else:
            try:
                lines = stack.enter_context(Path(file).open("rb"))
            except OSError as error:
                raise click.UsageError(f"{visible(file)} cannot be read: {error.strerror}") from error
        yield lines


def _read_lines(lines: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers (from 1) and lines of a file; a line above `_LONGEST_LINE` bytes is cut."""
    number = 0
    while line := lines.readline(_LONGEST_LINE):
        number += 1
        yield number, line
        while line and not line.endswith(b"\n"):
            line = lines.readline(_LONGEST_LINE)


def _parse(line: bytes, queue: str | None) -> tuple[str, Task] | None:
    """Return queue and task of a line; None for a blank line.

    Raises:
        InvalidOptionError: for an invalid field; the message names it without its value.
    """
    from pyasynq.operations import parse_task_line  # noqa: PLC0415 - help needs no tasks

    if not line.strip():
        return None
    if len(line) >= _LONGEST_LINE:
        raise InvalidOptionError("line", bytes, "is too long")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise InvalidOptionError("line", bytes, "is not UTF-8") from None
    named, one = parse_task_line(text)
    return queue or named, one


def _check_lines(lines: IO[bytes], queue: str | None) -> FoundTasks | None:
    """Count the tasks of all lines; if a line is invalid, print the first errors and return None."""
    found = FoundTasks()
    wrong = 0
    for number, line in _read_lines(lines):
        try:
            parsed = _parse(line, queue)
        except InvalidOptionError as error:
            wrong += 1
            if wrong <= _MOST_ERRORS:
                click.echo(f"Error: line {number:,}: {visible(error)}", err=True)
            continue
        if parsed is not None:
            name, one = parsed
            state = "scheduled" if "process_at" in one.options else "pending"
            state = "aggregating" if "group" in one.options else state
            found.ids.setdefault(name, {})
            found.counts[name, one.type, state] += 1
    if wrong > _MOST_ERRORS:
        click.echo(f"… and {counted(wrong - _MOST_ERRORS, 'more line')} that cannot be read", err=True)
    return None if wrong else found


class _Import:
    """A running import of tasks.

    Args:
        session: session of the command.
        total: number of tasks in the file.
        once_for: seconds for which an id is imported only once, even if its task is deleted.
        reason: why the tasks are imported, for the audit log.
    """

    def __init__(self, session: Session, total: int, once_for: float, reason: str) -> None:
        self._session = session
        self._once_for = once_for
        self._reason = reason
        self._progress = ProgressBar("Enqueueing", total)
        self._enqueued = self._existing = self._refused = 0

    async def run(self, lines: IO[bytes], queue: str | None) -> int:
        """Enqueue the tasks of all lines, print the result, and return the exit code."""
        waiting: dict[str, list[tuple[int, Task]]] = {}
        try:
            with self._progress:
                for number, line in _read_lines(lines):
                    parsed = _parse(line, queue)
                    if parsed is None:
                        continue
                    name, one = parsed
                    waiting.setdefault(name, []).append((number, one))
                    if sum(map(len, waiting.values())) >= _TASKS_AT_ONCE:
                        await self._send(waiting)
                await self._send(waiting)
        except BaseException:
            self._tell()
            click.echo("The import is not finished. Give the same command again to go on.", err=True)
            raise
        self._tell()
        if not self._refused:
            return EXIT_CLEAN
        return EXIT_PARTLY if self._enqueued or self._existing else EXIT_FAILED

    async def _send(self, waiting: dict[str, list[tuple[int, Task]]]) -> None:
        for name, numbered in waiting.items():
            report = await self._session.operator.import_tasks(
                name, [one for _, one in numbered], once_for=self._once_for, reason=self._reason
            )
            self._enqueued += report.enqueued
            self._existing += report.existing
            for at, error in report.errors.items():
                self._refused += 1
                if self._refused <= _MOST_ERRORS:
                    self._progress.clear()
                    click.echo(f"Error: line {numbered[at][0]:,}: {visible(error)}", err=True)
        waiting.clear()
        self._progress.update(self._enqueued + self._existing + self._refused)

    def _tell(self) -> None:
        parts = [f"{counted(self._enqueued, 'task')} {'is' if self._enqueued == 1 else 'are'} enqueued"]
        if self._existing:
            parts.append(f"{self._existing:,} had been there before")
        if self._refused:
            parts.append(f"{self._refused:,} {'was' if self._refused == 1 else 'were'} refused")
        click.echo(f"{', '.join(parts)}.", err=True)
