"""Break everything that can be broken while tasks run, and look whether a promise was broken too.

    python -m tests.chaos.run [--profile long|short] [--seed 7] [--lanes 3] [SCENARIO]...

Each scenario has servers of Redis, workers and a load of its own; some run at the same time. What was done,
and to whom, depends on the seed, so the same seed repeats it as far as a machine can. Exit code 1 if a task
was lost or anything else is wrong, 2 for wrong usage, 130 after Ctrl-C. A scenario for which the machine
lacks something is left out, which is an error in CI and for one that was asked for by name.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos import (
    failovers,
    handlers,
    hangs,
    kills,
    many_queues,
    network,
    outage,
    redis_harmed,
    rights,
    schedulers_harmed,
)
from tests.chaos.checker import Verdict
from tests.chaos.scenario import PROFILES, Result, run_scenario

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from tests.chaos.scenario import Scenario

# The longest first, so that none is left over at the end.
_MODULES: Final = (
    outage,
    failovers,
    handlers,
    hangs,
    kills,
    many_queues,
    network,
    redis_harmed,
    rights,
    schedulers_harmed,
)
SCENARIOS: Final[Mapping[str, type[Scenario]]] = {
    scenario.name: scenario for module in _MODULES for scenario in module.SCENARIOS
}
_SHOWN: Final = 20
_REFRESH_SECONDS: Final = 0.2


def run_one(name: str, seed: int, profile: str, progress: Any) -> Result:
    """Run a scenario in this process; whatever goes wrong is part of the result."""
    started = time.monotonic()

    def tell(done: int, tasks: int) -> None:
        progress[name] = done, tasks

    try:
        return run_scenario(SCENARIOS[name](), seed, PROFILES[profile], tell)
    except Exception:  # noqa: BLE001 - the other scenarios go on
        problem = f"the scenario failed: {traceback.format_exc()}"
        return Result(name, Verdict(problems=[problem]), time.monotonic() - started)


def run_all(names: Sequence[str], seed: int, profile: str, lanes: int) -> Iterator[Result]:
    """Run scenarios in this many processes, show how far they are, and yield results as they come."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    context = multiprocessing.get_context("spawn")
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(lanes, mp_context=context) as pool,
        Progress(*columns, console=console, transient=True) as bars,
    ):
        told = manager.dict()
        waiting = {pool.submit(run_one, name, seed, profile, told): name for name in names}
        shown: dict[str, TaskID] = {}
        try:
            while waiting:
                for future in _ended(waiting):
                    name = waiting.pop(future)
                    if name in shown:
                        bars.remove_task(shown.pop(name))
                    yield future.result()
                for name, (done, tasks) in told.copy().items():
                    if name in waiting.values():
                        if name not in shown:
                            shown[name] = bars.add_task(name, total=tasks)
                        bars.update(shown[name], completed=done)
        finally:
            # After Ctrl-C, which reaches all of them, each still puts away what it has started.
            pool.shutdown(cancel_futures=True)


def _ended(waiting: Mapping[Future[Result], str]) -> list[Future[Result]]:
    try:
        return [next(as_completed(waiting, timeout=_REFRESH_SECONDS))]
    except TimeoutError:
        return []


def table_of(results: Sequence[Result]) -> Table:
    """Return a line for each scenario, and one for all of them."""
    table = Table(box=box.MARKDOWN)
    for heading in ("scenario", "tasks", "faults", "run again, by cause", "recovery s", "lost", "wrong", "s"):
        table.add_column(heading, justify="left" if "again" in heading or heading == "scenario" else "right")
    for result in results:
        verdict = result.verdict
        table.add_row(
            result.name,
            f"{verdict.acknowledged:,}",
            f"{verdict.faults.total():,}",
            _again(verdict.again, verdict.twice),
            f"{verdict.longest_recovery:.1f}" if verdict.longest_recovery else "",
            f"{len(verdict.lost):,}",
            f"{len(verdict.problems):,}",
            f"{result.seconds:.0f}",
        )
    verdicts = [result.verdict for result in results]
    table.add_row(
        "all",
        f"{sum(one.acknowledged for one in verdicts):,}",
        f"{sum(one.faults.total() for one in verdicts):,}",
        f"{sum(one.again.total() for one in verdicts):,}",
        f"{max((one.longest_recovery for one in verdicts), default=0.0):.1f}",
        f"{sum(len(one.lost) for one in verdicts):,}",
        f"{sum(len(one.problems) for one in verdicts):,}",
        "",
    )
    return table


def _again(again: Counter[str], twice: Counter[str]) -> str:
    return ", ".join(
        f"{number:,} by {cause}" + (f" ({twice[cause]:,} had ended)" if twice[cause] else "")
        for cause, number in sorted(again.items())
    )


def _tell(result: Result) -> None:
    """Print what is wrong with a scenario; the sentences come last, since the end of an output is read."""
    if result.log:
        print(f"{result.name}: the workers wrote at last:\n{result.log}")
    for sentence in [*result.verdict.lost[:_SHOWN], *result.verdict.problems[:_SHOWN]]:
        print(f"{result.name}: {sentence}")


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--profile", choices=PROFILES, default="long")
    parser.add_argument("--seed", type=int, help="of all random choices")
    parser.add_argument("--lanes", type=int, default=3, help="how many scenarios run at a time (3)")
    parser.add_argument("--table", type=Path, help="a file for the table, as Markdown")
    parser.add_argument("--third", type=int, choices=range(3), help="every third scenario, from this one on")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenarios) - SCENARIOS.keys():
        parser.error(f"there is no scenario {min(unknown)!r}; there are {', '.join(SCENARIOS)}")
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, profile {arguments.profile}", flush=True)
    names = arguments.scenarios or list(SCENARIOS)
    if arguments.third is not None:
        names = names[arguments.third :: 3]
    lacking = {name: lacks for name in names if (lacks := SCENARIOS[name].lacks())}
    for name, lacks in lacking.items():
        print(f"{name} is left out: this machine has no {lacks}", file=sys.stderr)
    # A named scenario is wanted, and in CI everything runs.
    if lacking and (arguments.scenarios or os.environ.get("CI")):
        return 1
    names = [name for name in names if name not in lacking]
    started = time.monotonic()
    results = list(run_all(names, seed, arguments.profile, arguments.lanes))
    results.sort(key=lambda result: names.index(result.name))
    table = table_of(results)
    Console(width=150).print(table)
    if arguments.table is not None:
        with arguments.table.open("w") as file:
            Console(file=file, width=150).print(table)
    for result in results:
        _tell(result)
    lost = sum(len(result.verdict.lost) for result in results)
    print(f"lost: {lost}; seed {seed}; {time.monotonic() - started:.0f} s")
    return 0 if all(result.is_well for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
