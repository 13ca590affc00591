"""Compile the Go programs of the tests once: `python -m tests.interop.build_programs`.

A first compilation may take longer than a test may, and Go keeps what it has compiled.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.interop.go_peer import build_program


def main() -> None:
    """Compile the module in each folder that has one."""
    with tempfile.TemporaryDirectory(prefix="pyasynq-go-") as folder:
        for module in sorted(Path(__file__).parent.glob("*/go.mod")):
            build_program(module.parent, Path(folder))


if __name__ == "__main__":
    main()
