"""Break the Lua scripts one statement at a time and see whether the contract tests notice.

    python -m tools.mutants [--sample N] [--seed S] [--script NAME] [--records FOLDER]

Every mutant (see tools/lua_mutator.py) must be killed, that is, make a test fail. A survivor must be
listed in tests/mutants.toml with the reason why no test can see it:

    [[survivor]]
    script = "lease/dequeue"
    line = "if count > limit then"      # the changed line, as it is in the script
    kind = "boundary"
    reason = "..."

Exit code 1, in one of three cases: fewer of the mutants that are not listed are killed than 95 % less what
chance explains; no mutant needs an entry of the list; a run of all mutants has a survivor that is not listed.
Exit code 2: the tests could not be run.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.lua_mutator import Mutant, mutants_of
from tools.mutant_runner import (
    PACKAGE,
    ROOT,
    SCRIPTS,
    Job,
    Recorded,
    RunError,
    read_records,
    record_tests,
    run_jobs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

TESTS = "tests/contract"
EXCUSES = ROOT / "tests" / "mutants.toml"
LOWEST_SCORE = 95.0

_DOUBT = 0.05
"""Probability below which a low score of a sample is not explained by chance."""

_USES = re.compile(r"^-- Uses: (.+)$", re.MULTILINE)
_PLAIN_LINE_EVERY = 25


class Place(NamedTuple):
    """Key of a mutant in tests/mutants.toml. Equal lines of one script share an entry."""

    script: str
    line: str
    kind: str


class Candidate(NamedTuple):
    """A mutant of a script."""

    script: str
    mutant: Mutant

    @property
    def place(self) -> Place:
        """Key of this mutant in tests/mutants.toml."""
        return Place(self.script, self.mutant.text, self.mutant.kind)

    def __str__(self) -> str:
        """Return file, line, kind and the line's text."""
        return f"{self.script}.lua:{self.mutant.line} {self.mutant.kind}: {self.mutant.text}"


class Verdict(NamedTuple):
    """Result of a mutation run."""

    survivors: list[Candidate]
    unlisted: list[Candidate]
    stale: list[Place]

    def score(self, tried: int) -> float:
        """Return the percentage killed of the `tried` mutants, without the listed survivors."""
        mortal = tried - len(self.survivors) + len(self.unlisted)
        return 100 * (mortal - len(self.unlisted)) / mortal if mortal else 100.0

    def is_too_low(self, tried: int) -> bool:
        """Return whether so few were killed that a true score of `LOWEST_SCORE` or more is unlikely.

        It is a one-sided binomial test: of all samples with exactly that share, less than one in twenty has
        as many survivors.
        """
        mortal, share = tried - len(self.survivors) + len(self.unlisted), 1 - LOWEST_SCORE / 100
        fewer = sum(
            math.comb(mortal, number) * share**number * (1 - share) ** (mortal - number)
            for number in range(len(self.unlisted))
        )
        return self.score(tried) < LOWEST_SCORE and 1 - fewer < _DOUBT


def main() -> int:
    """Run the command line; return the exit code."""
    options = _options()
    sources = {
        str(path.relative_to(PACKAGE / SCRIPTS).with_suffix("")): path.read_text(encoding="utf-8")
        for path in sorted((PACKAGE / SCRIPTS).rglob("*.lua"))
    }
    everything = [
        Candidate(script, mutant) for script, source in sources.items() for mutant in mutants_of(source)
    ]
    chosen = [candidate for candidate in everything if _is_named(candidate.script, options.script)]
    if not chosen:
        print(f"no mutants: there is no script {options.script or ''} with anything to break in {SCRIPTS}")
        return 2
    if options.sample:
        order = random.Random(options.seed)  # noqa: S311 - a sample that can be drawn again
        chosen = order.sample(chosen, min(options.sample, len(chosen)))
        print(f"{len(chosen)} of {len(everything)} mutants, drawn with --seed {options.seed}")
    started = time.monotonic()
    try:
        excuses = read_excuses(EXCUSES)
        records = _records(options.records, processes=options.processes)
        killed = _try_all(chosen, sources, records, processes=options.processes)
    except (RunError, ExcuseError) as error:
        print(error, file=sys.stderr)
        return 2
    verdict = judge(everything, dict(zip(chosen, killed, strict=True)), excuses)
    return _report(verdict, killed, excuses, whole=len(chosen) == len(everything), started=started)


class ExcuseError(Exception):
    """Error: tests/mutants.toml is invalid."""


def read_excuses(path: Path) -> dict[Place, str]:
    """Return the reason of each listed survivor. Raises ExcuseError."""
    if not path.exists():
        return {}
    excuses = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", []):
        if entry.keys() != {"script", "line", "kind", "reason"} or not entry["reason"].strip():
            message = f"{path.name}: an entry needs script, line, kind and a reason, and no more: {entry}"
            raise ExcuseError(message)
        excuses[Place(entry["script"], entry["line"], entry["kind"])] = entry["reason"]
    return excuses


def rank_tests(
    sources: Mapping[str, str], records: Mapping[str, Recorded]
) -> dict[str, list[tuple[str, float]]]:
    """Return the tests that run each script, with their seconds; the most effective and quickest first.

    A fragment of `lua/shared` is run by the tests of every script that uses it, also through another one.
    """
    users: defaultdict[str, set[str]] = defaultdict(set)
    for script in sources:
        waiting = [script]
        while waiting:
            part = waiting.pop()
            if script not in users[part]:
                users[part].add(script)
                for line in _USES.findall(sources.get(part, "")):
                    waiting += [f"shared/{fragment.strip()}" for fragment in line.split(",")]
    ordered = sorted(records.items(), key=lambda item: (len(item[1].scripts), item[1].seconds))
    return {
        script: [(test, record.seconds) for test, record in ordered if record.scripts & users[script]]
        for script in sources
    }


def judge(
    everything: Iterable[Candidate], killed: Mapping[Candidate, bool], excuses: Mapping[Place, str]
) -> Verdict:
    """Compare the survivors with the listed ones. An entry is stale if it excuses no surviving mutant."""
    survivors = [candidate for candidate, is_killed in killed.items() if not is_killed]
    needed = {candidate.place for candidate in everything if not killed.get(candidate, False)}
    return Verdict(
        survivors,
        [candidate for candidate in survivors if candidate.place not in excuses],
        [place for place in excuses if place not in needed],
    )


def _records(folder: Path | None, *, processes: int) -> dict[str, Recorded]:
    if folder is not None:
        return read_records(folder, TESTS)
    print(f"running {TESTS} once, unbroken, to learn which test runs which script", flush=True)
    return record_tests(TESTS, processes=processes)


def _try_all(
    chosen: list[Candidate],
    sources: Mapping[str, str],
    records: Mapping[str, Recorded],
    *,
    processes: int,
) -> list[bool]:
    tests = rank_tests(sources, records)
    jobs = []
    for number, (script, mutant) in enumerate(chosen):
        names = tuple(test for test, _ in tests[script])
        if names:
            jobs.append(
                Job(number, script, mutant.source, names, sum(seconds for _, seconds in tests[script]))
            )
    # A mutant that no test runs cannot be killed.
    if untested := sorted({script for script, _ in chosen if not tests[script]}):
        print(f"no test runs: {', '.join(untested)}")
    killed = [False] * len(chosen)
    for number, is_killed in _with_progress(run_jobs(jobs, processes=processes), len(jobs)):
        killed[number] = is_killed
        if not is_killed:
            print(f"survived: {chosen[number]}", flush=True)
    return killed


def _with_progress(results: Iterator[tuple[int, bool]], total: int) -> Iterator[tuple[int, bool]]:
    if not sys.stdout.isatty():
        for done, result in enumerate(results, 1):
            yield result
            if done % _PLAIN_LINE_EVERY == 0 or done == total:
                print(f"{done} of {total} mutants tried", flush=True)
        return
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Refreshed by hand: the thread of the display would be forked while it works.
    with Progress(*columns, console=Console(), auto_refresh=False) as progress:
        task = progress.add_task("", total=total)
        for result in results:
            yield result
            progress.update(task, advance=1, refresh=True)


def _report(
    verdict: Verdict, killed: list[bool], excuses: Mapping[Place, str], *, whole: bool, started: float
) -> int:
    for candidate in verdict.survivors:
        print(f"  {candidate}\n      {excuses.get(candidate.place, 'NOT LISTED in tests/mutants.toml')}")
    for place in verdict.stale:
        print(f"  tests/mutants.toml excuses what does not survive: {' | '.join(place)}")
    seconds = time.monotonic() - started
    listed = len(verdict.survivors) - len(verdict.unlisted)
    print(
        f"killed {sum(killed)} of {len(killed)} mutants, in {seconds:.0f} s; {listed} survivors are listed, "
        f"{verdict.score(len(killed)):.1f} % of the others were killed"
    )
    too_low = verdict.is_too_low(len(killed))
    if too_low:
        print(f"at least {LOWEST_SCORE:.0f} % must be killed")
    # A mutant whose effect depends on one millisecond is only killed now and then.
    return 1 if (whole and (verdict.unlisted or verdict.stale)) or too_low else 0


def _is_named(script: str, name: str | None) -> bool:
    return name is None or script == name or (name.endswith("/") and script.startswith(name))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Break the Lua scripts; the contract tests must notice.")
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants drawn at random")
    parser.add_argument(
        "--seed", type=int, metavar="S", default=random.SystemRandom().randrange(10**6), help="of the sample"
    )
    parser.add_argument(
        "--script",
        metavar="NAME",
        help="only mutants of this script, or of a folder's: lease/dequeue, group/",
    )
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="what tools/record_scripts.py wrote of a run of these tests; without it they are run first",
    )
    parser.add_argument("--processes", type=int, metavar="N", default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
