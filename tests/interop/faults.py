"""Does the differential test see what it should? Plants one fault at a time in our scripts, and looks.

Run by `make interop-faults`. Each fault is one line of a script, made wrong in a copy of the package; the
differential test has to fail because of it within SEQUENCES sequences.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pyasynq"
SCRIPTS = Path("_broker", "lua")
SEQUENCES = 500
_TEST = "tests/interop/test_differential.py::test_a_sequence_leaves_the_same_redis"
_FOUND = re.compile(r"leaves another Redis than Asynq.*?in sequence (\d+)", re.DOTALL)


class Fault(NamedTuple):
    """One line of a script, right and wrong."""

    script: str
    right: str
    wrong: str
    meaning: str


FAULTS = (
    Fault(
        "task/enqueue",
        "redis.pcall('LPUSH', pending, unpack(added))",
        "redis.pcall('RPUSH', pending, unpack(added))",
        "a new task overtakes all others",
    ),
    Fault(
        "task/forward",
        "'state', 'pending', 'pending_since', pending_since",
        "'state', 'pending'",
        "a task that is due does not say since when it waits",
    ),
    Fault(
        "task/requeue",
        "redis.pcall('RPUSH', pending, unpack(added))",
        "redis.pcall('LPUSH', pending, unpack(added))",
        "a task that is put back goes to the end",
    ),
    Fault(
        "task/done",
        "if unique_key ~= '' and owns_lock(task_prefix .. ARGV[at], ARGV[at], unique_key) then",
        "if unique_key == 'none' then",
        "a task that is done keeps its lock",
    ),
    Fault(
        "task/complete",
        "redis.call('HSET', task, 'msg', message, 'state', 'completed')",
        "redis.call('HSET', task, 'state', 'completed')",
        "a completed task does not say when it was",
    ),
    Fault(
        "task/retry",
        "failures = failures + is_failure",
        "failures = failures + 1",
        "an error that is not a failure is counted",
    ),
    Fault(
        "task/delete_expired",
        "redis.call('DEL', unpack(doomed))",
        "redis.call('EXISTS', unpack(doomed))",
        "what the janitor takes away stays as an orphan",
    ),
    Fault(
        "shared/join_group",
        "redis.pcall('SADD', groups, group)",
        "redis.pcall('SCARD', groups)",
        "a group is not named",
    ),
    Fault(
        "group/check",
        "if max_size > 0 and size >= max_size then",
        "if max_size > 0 and size > max_size then",
        "a group that has just become full waits",
    ),
    Fault(
        "inspect/delete",
        "doomed[#doomed + 1] = lock",
        "doomed[#doomed + 1] = id",
        "a task that is deleted keeps its lock",
    ),
)


def plant(fault: Fault, package: Path) -> None:
    """Make a line wrong in a copy of the package."""
    path = package / SCRIPTS / f"{fault.script}.lua"
    source = path.read_text(encoding="utf-8")
    assert source.count(fault.right) == 1, f"{fault.script} does not have this line once: {fault.right}"
    path.write_text(source.replace(fault.right, fault.wrong), encoding="utf-8")


def sequences_until_found(fault: Fault, seed: int) -> int:
    """Run the differential test on a broken copy; return which sequence failed, 0 for none."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        copy = Path(folder, PACKAGE.name)
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        plant(fault, copy)
        environment = {**os.environ, "PYTHONPATH": folder, "SEED": str(seed), "SEQUENCES": str(SEQUENCES)}
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", _TEST]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**environment, "SHRINK": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    found = _FOUND.search(done.stdout)
    if found is None and " sequences, " not in done.stdout:
        raise SystemExit(f"the test did not run:\n{done.stdout[-4_000:]}{done.stderr[-2_000:]}")
    return int(found[1]) if found else 0


def main() -> int:
    """Try every fault; return how many were not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="faults in this script")
    arguments = parser.parse_args()
    missed = 0
    for fault in FAULTS:
        if arguments.only not in fault.script:
            continue
        number = sequences_until_found(fault, arguments.seed)
        missed += not number
        verdict = f"found in sequence {number}" if number else "NOT FOUND"
        print(f"{fault.script:22} {fault.meaning:50} {verdict}", flush=True)  # noqa: T201 - the report
    return missed


if __name__ == "__main__":
    sys.exit(main())
