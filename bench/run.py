"""Measure pyasynq beside its peers on one Redis, in one interleaved run.

    python -m bench.run --only drain --peers celery,asynq --rounds 5 --json found.json

Tables go to standard output, progress to standard error. Only ratios within one run mean something.
Exit codes: 0 all was measured, 1 something failed, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from bench.children import Children
from bench.environments import ALL_PEERS, OURS, PeerMissingError, Program, prepare
from bench.measurements import MEASUREMENTS
from bench.measurements.shape import Scene
from bench.report import markdown
from bench.results import Results
from bench.rounds import measure
from bench.servers import find_servers
from bench.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from bench.measurements.shape import Measurement
    from pyasynq.embedded import ServerBinary

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
TASKS: Final = 50_000
SMOKE_TASKS: Final = 1_000
SMOKE_PEERS: Final = ("asynq", "huey")


def tell(line: str) -> None:
    """Write a line of progress."""
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(prog="make bench BENCH_ARGS=...", description=__doc__, allow_abbrev=False)
    found.formatter_class = argparse.RawDescriptionHelpFormatter
    names = ", ".join(measurement.key for measurement in MEASUREMENTS)
    found.add_argument("--only", type=_names, metavar="NAME,...", help=f"these measurements: {names}")
    found.add_argument(
        "--peers",
        type=_names,
        metavar="NAME,...",
        help=f"beside pyasynq these peers, or none: {', '.join(ALL_PEERS[1:])} (go means asynq)",
    )
    found.add_argument("--rounds", type=_positive, help="how often each is measured (5)")
    found.add_argument("--tasks", type=_positive, help=f"for the fastest contestant of a drain ({TASKS:,})")
    found.add_argument("--long", action="store_true", help="everything, in most of an hour")
    found.add_argument(
        "--smoke", action="store_true", help="few tasks, one round: does everything still work?"
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds there")
    found.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    return found


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def chosen_measurements(options: argparse.Namespace) -> list[Measurement]:
    """Return the measurements of this run.

    Raises:
        SystemExit: for a name that is none.
    """
    known = {measurement.key: measurement for measurement in MEASUREMENTS}
    if options.only is None:
        everything = options.long or options.smoke
        return [measurement for measurement in MEASUREMENTS if everything or measurement.by_default]
    if unknown := [name for name in options.only if name not in known]:
        parser().error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in options.only]


def chosen_peers(options: argparse.Namespace) -> list[str]:
    """Return the peers of this run, pyasynq first.

    Raises:
        SystemExit: for a name that is none.
    """
    names = options.peers
    if names is None:
        names = SMOKE_PEERS if options.smoke else ALL_PEERS
    names = ["asynq" if name == "go" else name for name in names if name not in ("none", OURS)]
    if unknown := [name for name in names if name not in ALL_PEERS]:
        parser().error(f"--peers: there is no {', '.join(unknown)}; there are {', '.join(ALL_PEERS)}")
    return [OURS, *names]


def prepared(names: Sequence[str], *, named: bool, failures: list[str]) -> dict[str, Program]:
    """Make the environments of the peers; a peer that nobody asked for by name may be missing."""
    programs = {}
    for name in names:
        try:
            programs[name] = prepare(name, tell)
        except PeerMissingError as error:
            tell(f"without {name}: {error}")
            if named or name == OURS:
                failures.append(f"{name}: {error}")
    return programs


def facts(options: argparse.Namespace, binaries: dict[str, ServerBinary], rounds: int) -> dict[str, str]:
    """Return what the reader must know of the machine and the run."""
    return {
        "machine": f"{psutil.cpu_count()} processors ({_processor()}), "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()} {platform.release()}",
        "load before the run": f"{psutil.getloadavg()[0]:.2f}",
        "servers": ", ".join(f"{binary.name} {binary.version}" for binary in binaries.values())
        + ", on the loopback, without persistence",
        "rounds": f"{rounds}, interleaved; medians [least-most]",
        "when": time.strftime("%Y-%m-%d"),
        "length": "smoke" if options.smoke else "long" if options.long else "default",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def run(options: argparse.Namespace) -> Results:
    """Measure all that was asked for; a run that is interrupted leaves no process behind."""
    measurements, names = chosen_measurements(options), chosen_peers(options)
    rounds = options.rounds or (1 if options.smoke else 5)
    most = options.tasks or (SMOKE_TASKS if options.smoke else TASKS)
    failures: list[str] = []
    programs = prepared(names, named=options.peers is not None, failures=failures)
    binaries = find_servers()
    results = Results(facts(options, binaries, rounds), failures=failures)
    results.peers = {name: asdict(program.description) for name, program in programs.items()}
    with tempfile.TemporaryDirectory(prefix="pyasynq-bench-") as folder, Children(Path(folder)) as children:
        stage = Stage(children, Path(folder), binaries, programs, most, 0.1 if options.smoke else 1.0)
        scene = Scene(stage, tuple(programs), tuple(binaries), options.long)
        for measurement in measurements:
            results.tables[measurement.key] = measure(measurement, scene, rounds, tell, failures)
    return results


def write(results: Results, options: argparse.Namespace) -> None:
    """Print the tables, and write the files that were asked for."""
    text = markdown(results)
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(text)


def _interrupt(number: int, frame: FrameType | None) -> Any:  # noqa: ARG001 - what signal handlers take
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and return the exit code."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    begun = time.monotonic()
    try:
        results = run(options)
    except KeyboardInterrupt:
        tell("interrupted; all that was started has been ended")
        return EXIT_INTERRUPTED
    write(results, options)
    tell(f"done in {time.monotonic() - begun:.0f} s")
    for failure in results.failures:
        tell(f"failed: {failure}")
    return EXIT_FAILED if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
