"""Run the fuzzers for a while, each in a process of its own, and print a table of what they did.

    python -m tests.fuzz.run                        all of them, 10 minutes of CPU time each
    python -m tests.fuzz.run --minutes 0.5 url cron
    python -m tests.fuzz.run --seed 7 url           the same values as last time

Where Atheris is installed, half of the time is its: it looks for inputs that reach new lines. The other half
is Hypothesis', which can be repeated by its seed. A finding ends its fuzzer, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.fuzzer import FUZZERS, Fuzzer, load

_ROUND = 500
_DONE = re.compile(r"Done (\d+) runs")
_SHOWN_LINES = 60


class Row(NamedTuple):
    """What one fuzzer did: how often it was run by each engine, seconds of CPU time, and what it found."""

    name: str
    drawn: int
    guided: int
    seconds: float
    finding: str


def draw(one: Fuzzer, first_seed: int, seconds: float) -> None:
    """Run a fuzzer on what Hypothesis draws, until it has had its CPU time or found something."""
    executions = 0

    def run(value: Any) -> None:
        nonlocal executions
        executions += 1
        one.try_one(value)

    while time.process_time() < seconds:
        test = settings(
            max_examples=_ROUND,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )(given(one.values)(run))
        try:
            seed(first_seed)(test)()
        except BaseException as error:
            error.add_note(f"python -m tests.fuzz.run --seed {first_seed} {one.name}")
            raise
        finally:
            print(json.dumps({"executions": executions, "seconds": time.process_time()}), flush=True)
        first_seed += 1


def in_a_process(name: str, first_seed: int, seconds: float, *, guided: bool) -> Row:
    """Run a fuzzer with one engine in a process of its own."""
    program = "tests.fuzz.guided" if guided else "tests.fuzz.run"
    command = [sys.executable, "-m", program, name, "--seed", str(first_seed), "--minutes", str(seconds / 60)]
    command += [] if guided else ["--child"]
    told = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    finding = "" if told.returncode == 0 else "\n".join(told.stderr.splitlines()[-_SHOWN_LINES:])
    if guided:
        found = _DONE.search(told.stderr)
        return Row(name, 0, int(found[1]) if found else 0, seconds, finding)
    lines = [line for line in told.stdout.splitlines() if line.startswith('{"executions"')]
    last: dict[str, Any] = json.loads(lines[-1]) if lines else {"executions": 0, "seconds": 0.0}
    return Row(name, last["executions"], 0, last["seconds"], finding)


def fuzz(name: str, first_seed: int, minutes: float, engines: list[str]) -> Row:
    """Run a fuzzer with each engine for its share of the time."""
    share = minutes * 60 / len(engines)
    rows = [in_a_process(name, first_seed, share, guided=engine == "atheris") for engine in engines]
    return Row(
        name,
        sum(row.drawn for row in rows),
        sum(row.guided for row in rows),
        sum(row.seconds for row in rows),
        "\n".join(row.finding for row in rows if row.finding),
    )


def main() -> int:
    """Parse the command line, fuzz, print; return the exit code."""
    load()
    parser = argparse.ArgumentParser(description="Run the fuzzers.")
    parser.add_argument("names", nargs="*", choices=[[], *FUZZERS], metavar="NAME")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--engine", choices=["both", "hypothesis", "atheris"], default="both")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    first_seed = random.randrange(10**6) if options.seed is None else options.seed
    if options.child:
        draw(FUZZERS[options.names[0]], first_seed, options.minutes * 60)
        return 0
    engines = ["hypothesis", "atheris"] if options.engine == "both" else [options.engine]
    if "atheris" in engines and importlib.util.find_spec("atheris") is None:
        print("Atheris is not installed (pip install --group fuzz): Hypothesis has all the time.")
        engines = ["hypothesis"]
    print(f"{datetime.now(UTC):%Y-%m-%d}, seed {first_seed}, {', '.join(engines)}\n", flush=True)
    print("| Fuzzer | Drawn | Guided | CPU minutes | Findings |\n|---|---|---|---|---|", flush=True)
    findings = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = pool.map(
            lambda name: fuzz(name, first_seed, options.minutes, engines), options.names or list(FUZZERS)
        )
        for row in rows:
            found = 1 if row.finding else 0
            print(
                f"| {row.name} | {row.drawn:,} | {row.guided:,} | {row.seconds / 60:.1f} | {found} |",
                flush=True,
            )
            if row.finding:
                findings += 1
                print(f"\n{row.name}:\n{row.finding}\n", file=sys.stderr, flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
