"""The final report of the demo: results from the files, fate of the tasks, and next commands to try."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq.cli.demo.text import INDENT, WIDTH, cut_line, shorten, table
from pyasynq.cli.output.progress import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyasynq.cli.demo.summary import Failure, Module, Summary, WorkerKill

_ROWS = 5
_FAILURES = 10
_LINE = WIDTH - len(INDENT)

_NEXT_STEPS = """\
Put this into hello.py:

    from pyasynq import App

    app = App("embedded://./data")  # or redis://localhost:6379/0

    @app.task("hello")
    def hello(name: str) -> None:
        print(f"Hello, {{name}}!")

    if __name__ == "__main__":
        hello.enqueue_sync("world")

Enqueue a task, and run a worker:

    {python} hello.py
    {pyasynq} worker hello:app

The same as here with your own files:

    {pyasynq} demo ~/my/project"""


def report(summary: Summary) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the sections of the report, each a heading and its lines of at most 80 columns."""
    if summary.modules:
        yield "Largest modules", largest_modules(summary.modules)
        yield "Longest functions", longest_functions(summary.modules)
        yield "Most imported modules", most_imported(summary.modules)
    yield "Failures, as the archive tells them", failures(summary.failures)
    yield "Proof, read from Redis", proof(summary)
    yield "What to type next", next_steps()


def next_steps() -> list[str]:
    """Return suggestions for after the demo; the commands need no activated environment."""
    return _NEXT_STEPS.format(
        python=_shorten_command("python"), pyasynq=_shorten_command("pyasynq")
    ).splitlines()


def _shorten_command(command: str) -> str:
    folder = Path(sys.executable).parent
    found = shutil.which(command)
    if (found and Path(found).parent == folder) or not (folder / command).exists():
        return command
    return str(
        (folder / command).relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder / command
    )


def largest_modules(modules: Sequence[Module]) -> list[str]:
    """Return the table of the files with the most lines."""
    rows = sorted(modules, key=lambda module: (-module.facts.lines, module.name))[:_ROWS]
    return table(
        ("module", "lines", "functions", "classes"),
        [(module.name, module.facts.lines, module.facts.functions, module.facts.classes) for module in rows],
    )


def longest_functions(modules: Sequence[Module]) -> list[str]:
    """Return the table of the longest functions, at most one a file."""
    rows = sorted(modules, key=lambda module: (-module.facts.longest_function_lines, module.name))[:_ROWS]
    return table(
        ("function", "module", "lines"),
        [(row.facts.longest_function or "-", row.name, row.facts.longest_function_lines) for row in rows],
    )


def most_imported(modules: Sequence[Module]) -> list[str]:
    """Return the table of the modules that most files import."""
    counts = Counter(name for module in modules for name in module.facts.imports)
    rows = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_ROWS]
    return table(("module", "imported by files"), rows) if rows else ["no file imports anything"]


def failures(found: Sequence[Failure]) -> list[str]:
    """Return lines about the archived tasks and their errors, the deliberately broken files first."""
    lines = []
    for failure in found[:_FAILURES]:
        what = f"{failure.name}: {'planted, ' if failure.is_planted else ''}{failure.attempts} attempts"
        lines += [shorten(what, _LINE), f"{INDENT}{cut_line(failure.error, _LINE - len(INDENT))}"]
    if len(found) > _FAILURES:
        lines.append(f"and {len(found) - _FAILURES:,} more")
    return lines or ["none"]


def proof(summary: Summary) -> list[str]:
    """Return lines that say whether each task ended exactly once, and how the killed worker's tasks ended."""
    queue = summary.queue
    states = ("pending", "active", "scheduled", "retry", "aggregating")
    attempts = queue.processed_total
    failed = sum(failure.attempts for failure in summary.failures)
    lines = [
        f"{len(summary.enqueued):>7,} tasks enqueued, the last one ended {summary.seconds:.1f} s later",
        f"{queue.completed:>7,} completed",
        f"{queue.archived:>7,} archived",
        f"{queue.unfinished:>7,} left: " + ", ".join(f"{state} {getattr(queue, state)}" for state in states),
        f"{summary.lost:>7,} lost",
        f"{attempts:>7,} attempts: {attempts - failed:,} that succeeded, {failed:,} of the archived tasks",
        *_kill_lines(summary.kill, len(summary.run_again)),
    ]
    violations = summary.violations()
    if violations:
        return [*lines, *(f"VIOLATED: {violation}" for violation in violations)]
    return [*lines, "The sums agree: nothing was lost and no outcome was written twice."]


def _kill_lines(kill: WorkerKill | None, run_again: int) -> Iterator[str]:
    if kill is None:
        yield "        No worker was killed."
        return
    killed = f"{kill.worker} (pid {kill.pid}) was killed with SIGKILL when {percent(kill.at_share)} was done"
    yield f"{run_again:>7,} run twice: what {kill.worker} held at its death"
    yield f"        {killed}."
    if kill.first_back is not None and kill.last_back is not None:
        first, last = round(kill.first_back), round(kill.last_back)
        when = f"{first} s" if first == last else f"{first} to {last} s"
        yield f"        Its tasks were pending again {when} later, and then finished."
