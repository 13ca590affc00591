"""Run one fuzzer on what Atheris makes up: `python -m tests.fuzz.guided NAME --minutes 5 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import tempfile

import atheris
from hypothesis import given

from tests.fuzz.fuzzer import load


def main() -> None:
    """Fuzz; Atheris ends the process."""
    parser = argparse.ArgumentParser(description="Run one fuzzer under Atheris.")
    parser.add_argument("name")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with atheris.instrument_imports(include=["pyasynq"]):
        one = load()[options.name]
    make = one.from_bytes
    if make is None:
        run = given(one.values)(one.try_one).hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    else:

        def run(data: bytes) -> None:
            one.try_one(make(data))

    with tempfile.TemporaryDirectory() as folder:
        seconds = max(1, int(options.minutes * 60))
        limits = [f"-max_total_time={seconds}", f"-seed={options.seed % 2**32}", "-max_len=4096"]
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/"], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
