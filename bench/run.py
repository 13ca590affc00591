"""Measure pyasynq and its peers on one Redis, in one interleaved run.

    python -m bench.run --only drain,enqueue --peers go,dramatiq --rounds 5 --json found.json

Tables go to standard output, progress to standard error. Only ratios within one run mean something.
Exit codes: 0 all was measured, 1 something failed, 2 wrong usage, 130 Ctrl-C (what was measured is written).
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
from typing import TYPE_CHECKING, Final

import psutil

from bench.children import Children
from bench.contestants import Length
from bench.environments import ALL_PEERS, GO_PEER, OURS, PeerMissingError, Program, prepare
from bench.measurements import MEASUREMENTS
from bench.measurements.shape import Scene
from bench.report import charts, markdown
from bench.results import Results
from bench.rounds import measure
from bench.servers import find_servers
from bench.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType
    from typing import NoReturn

    from bench.measurements.shape import Measurement
    from pyasynq.embedded import ServerBinary

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
ROUNDS: Final = 5
TASKS: Final = 50_000
SMOKE_TASKS: Final = 1_000
SMOKE_SCALE: Final = 0.1
SMOKE_PEERS: Final = (GO_PEER, "huey")


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__, allow_abbrev=False)
    found.formatter_class = argparse.RawDescriptionHelpFormatter
    measurements = ", ".join(measurement.key for measurement in MEASUREMENTS)
    peers = ", ".join(ALL_PEERS[1:])
    found.add_argument("--only", type=_names, metavar="NAME,...", help=f"these measurements: {measurements}")
    found.add_argument(
        "--peers",
        type=_names,
        metavar="NAME,...",
        help=f"peers next to pyasynq: {peers} (go means asynq), or none; by default all installed ones",
    )
    found.add_argument("--rounds", type=_positive, help=f"how often each is measured ({ROUNDS})")
    found.add_argument("--tasks", type=_positive, help=f"for the fastest contestant ({TASKS:,})")
    found.add_argument("--embedded", action="store_true", help="on the embedded server alone, not on Redis")
    length = found.add_mutually_exclusive_group()
    length.add_argument("--long", action="store_true", help="all measurements, all peers: about an hour")
    length.add_argument("--smoke", action="store_true", help="few tasks, one round: does everything work?")
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds there")
    found.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    found.add_argument("--svg", type=Path, metavar="FOLDER", help="write charts there")
    return found


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [GO_PEER if name == "go" else name for name in names]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def length_of(options: argparse.Namespace) -> Length:
    """Return the extent of the run that the options request."""
    return Length.SMOKE if options.smoke else Length.LONG if options.long else Length.DEFAULT


def chosen_measurements(options: argparse.Namespace) -> list[Measurement]:
    """Return the measurements of this run.

    Raises:
        SystemExit: for an unknown name.
    """
    if options.only is None:
        everything = length_of(options) is not Length.DEFAULT
        return [measurement for measurement in MEASUREMENTS if everything or measurement.by_default]
    known = {measurement.key: measurement for measurement in MEASUREMENTS}
    _check("--only", options.only, known)
    return [measurement for key, measurement in known.items() if key in options.only]


def chosen_peers(options: argparse.Namespace) -> list[str]:
    """Return the peers of this run, pyasynq first.

    Raises:
        SystemExit: for an unknown name.
    """
    names = options.peers
    if names is None:
        names = SMOKE_PEERS if options.smoke else ALL_PEERS
    names = [name for name in names if name not in ("none", OURS)]
    _check("--peers", names, ALL_PEERS)
    return [OURS, *names]


def _check(option: str, names: Sequence[str], known: Sequence[str] | Mapping[str, object]) -> None:
    if unknown := [name for name in names if name not in known]:
        parser().error(f"{option}: there is no {', '.join(unknown)}; there are {', '.join(known)}")


def prepared(names: Sequence[str], *, named: bool, failures: list[str]) -> dict[str, Program]:
    """Make the environments of the peers; a peer that the user did not name may be missing."""
    programs = {}
    for name in names:
        try:
            programs[name] = prepare(name, tell)
        except PeerMissingError as error:
            tell(f"without {name}: {error}")
            if named or name == OURS:
                failures.append(f"{name}: {error}")
    return programs


def facts(options: argparse.Namespace, binaries: Mapping[str, ServerBinary], rounds: int) -> dict[str, str]:
    """Return facts about the machine and the run for the report."""
    memory = psutil.virtual_memory().total / 2**30
    servers = ", ".join(f"{binary.name} {binary.version}" for binary in binaries.values())
    return {
        "machine": f"{psutil.cpu_count()} processors ({_processor()}), {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}",
        "load before the run": f"{psutil.getloadavg()[0]:.2f}",
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}, "
        f"{platform.python_compiler()}",
        "servers": f"{servers}, on the loopback, without persistence; one of them measures at a time",
        "rounds": f"{rounds}, interleaved; medians [least-most]",
        "ratios": "medians of the ratios within each round",
        "day": time.strftime("%Y-%m-%d"),
        "length": length_of(options).name.lower(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def run(options: argparse.Namespace, results: Results) -> None:
    """Run the requested measurements and store their results; end all processes in any case."""
    measurements, names = chosen_measurements(options), chosen_peers(options)
    rounds = options.rounds or (1 if options.smoke else ROUNDS)
    most = options.tasks or (SMOKE_TASKS if options.smoke else TASKS)
    binaries = find_servers(embedded_only=options.embedded)
    results.facts |= facts(options, binaries, rounds)
    programs = prepared(names, named=options.peers is not None, failures=results.failures)
    results.peers |= {name: asdict(program.description) for name, program in programs.items()}
    with tempfile.TemporaryDirectory(prefix="pyasynq-bench-") as folder, Children(Path(folder)) as children:
        scale = SMOKE_SCALE if options.smoke else 1.0
        stage = Stage(children, Path(folder), binaries, programs, most, scale)
        scene = Scene(stage, tuple(programs), tuple(binaries), length_of(options))
        for measurement in measurements:
            table = measure(measurement, scene, rounds, tell, results.failures)
            results.tables[measurement.key] = table
            # Results are written after each measurement, so that a killed run of an hour is not lost.
            write_json(results, options)


def write_json(results: Results, options: argparse.Namespace) -> None:
    """Write all figures as JSON, if a file is named."""
    if options.json is not None:
        text = json.dumps(results.as_json(), indent=1, ensure_ascii=False)
        options.json.write_text(f"{text}\n")


def write(results: Results, options: argparse.Namespace) -> None:
    """Print the tables, and write the requested files."""
    write_json(results, options)
    text = markdown(results)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text)
    if options.svg is not None:
        options.svg.mkdir(parents=True, exist_ok=True)
        for name, chart in charts(results).items():
            (options.svg / name).write_text(chart)


def _take_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    # Set INT as well: a shell starts background processes with INT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - what signal handlers take
    # A second signal must not interrupt the end of the started processes.
    _take_signals(signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = parser().parse_args(arguments)
    _take_signals(_interrupt)
    begun = time.monotonic()
    results = Results({})
    try:
        run(options, results)
    except KeyboardInterrupt:
        write(results, options)
        tell("interrupted; all that was started has been ended")
        return EXIT_INTERRUPTED
    write(results, options)
    tell(f"done in {time.monotonic() - begun:.0f} s")
    for failure in results.failures:
        tell(f"failed: {failure}")
    return EXIT_FAILED if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
