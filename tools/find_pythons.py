"""Find the Python interpreters of this machine, including those of version managers.

Prints version and path of the newest build of each minor version from 3.11 on, and of each free-threaded one
(`3.13t`). It says on standard error which expected version is missing; that is not a failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

OLDEST = (3, 11)
EXPECTED = ("3.11", "3.12", "3.13")
FOLDERS = (
    "{home}/.pyenv/versions/*/bin",
    "{home}/.local/share/uv/python/*/bin",
    "{home}/.local/share/mise/installs/python/*/bin",
    "{home}/.local/bin",
    "{home}/.asdf/installs/python/*/bin",
    "/opt/*/bin",
    "/opt/*/*/bin",
    "/usr/local/bin",
    "/usr/local/*/bin",
    "/usr/bin",
    "/Library/Frameworks/Python.framework/Versions/*/bin",
)
"""Glob patterns of the folders where pyenv, uv, mise, asdf, container images and systems install Python."""
ASK = (
    "import sys, sysconfig; "
    "print(*sys.version_info[:3], sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys._base_executable)"
)
NAME = re.compile(r"python3\.\d+t?")


class Python(NamedTuple):
    """A Python interpreter."""

    version: tuple[int, ...]
    is_free_threaded: bool
    path: str

    @property
    def name(self) -> str:
        """The minor version, as in `3.13` or `3.13t`."""
        return f"{self.version[0]}.{self.version[1]}{'t' if self.is_free_threaded else ''}"


def list_candidates(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the files with the name of a Python interpreter, each once, even if several links lead to it."""
    seen: set[Path] = set()
    for folder in folders:
        for path in sorted(folder.glob("python3.*")):
            if NAME.fullmatch(path.name) and (real := path.resolve()) not in seen:
                seen.add(real)
                yield path


def list_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders of PATH and those of version managers."""
    for folder in environment.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder)
    roots = [environment.get("PYENV_ROOT", ""), environment.get("UV_PYTHON_INSTALL_DIR", "")]
    patterns = [pattern.format(home=Path.home()) for pattern in FOLDERS]
    patterns += [f"{root}/{inner}" for root in roots if root for inner in ("*/bin", "versions/*/bin")]
    for pattern in patterns:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))


def ask_python(path: Path) -> Python | None:
    """Run an interpreter and return its version and kind; None if it does not run, such as an empty shim."""
    try:
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    answer = re.fullmatch(r"(\d+) (\d+) (\d+) ([01]) (.+)\n", done.stdout)
    if answer is None:
        return None
    version = (int(answer[1]), int(answer[2]), int(answer[3]))
    return Python(version, answer[4] == "1", answer[5])


def choose(found: Iterable[Python | None]) -> list[Python]:
    """Return the newest of each minor version and kind that is supported, in order."""
    best: dict[str, Python] = {}
    for python in found:
        if python is None or python.version < OLDEST:
            continue
        if python.name not in best or best[python.name].version < python.version:
            best[python.name] = python
    return sorted(best.values(), key=lambda python: (python.version[:2], python.is_free_threaded))


def main() -> None:
    """Print the interpreters that were found, and the versions that are missing."""
    pythons = choose(map(ask_python, list_candidates(list_folders(os.environ))))
    names = {python.name for python in pythons}
    for name in EXPECTED:
        if name not in names:
            print(f"This machine has no Python {name}: nothing is run on it.", file=sys.stderr)
    if not any(python.is_free_threaded for python in pythons):
        print("This machine has no free-threaded Python: nothing is run on one.", file=sys.stderr)
    for python in pythons:
        print(python.name, python.path)


if __name__ == "__main__":
    main()
