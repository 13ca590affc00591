"""Environments of the peers: a virtual environment each, and a compiled Go program; made when missing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyasynq
from bench.peers.counters import COUNTERS_VARIABLE
from bench.peers.shape import URL_VARIABLE, Description

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parent
PEERS: Final = FOLDER / "peers"
ENVIRONMENTS: Final = FOLDER / ".environments"
PYTHON_PEERS: Final = tuple(sorted(path.stem for path in PEERS.glob("*.txt")))
GO_PEER: Final = "asynq"
OURS: Final = "pyasynq"
ALL_PEERS: Final = (OURS, GO_PEER, *PYTHON_PEERS)
_SOURCES: Final = Path(pyasynq.__file__).parent.parent


class PeerMissingError(Exception):
    """Error: a peer cannot be installed here; the message says why."""


@dataclass(frozen=True)
class Program:
    """Command and environment that start a peer.

    Attributes:
        command: interpreter or program; the peer's arguments follow it.
    """

    name: str
    command: tuple[str, ...]
    description: Description

    def arguments(self, command: str, settings: Mapping[str, Any] | None = None) -> list[str]:
        """Return the full command line."""
        return [*self.command, command, *([] if settings is None else [json.dumps(settings)])]

    def environment(self, url: str, counters: Path) -> dict[str, str]:
        """Return the environment variables of the process."""
        return _environment(self.name) | {URL_VARIABLE: url, COUNTERS_VARIABLE: str(counters)}


def prepare(name: str, tell: Callable[[str], None]) -> Program:
    """Make a peer's environment unless it is up to date, and run the peer's `describe`.

    Raises:
        PeerMissingError: the peer is unknown, Go is missing, or packages cannot be installed.
    """
    if name == OURS:
        command: tuple[str, ...] = (sys.executable, "-m", "bench.peers", name)
    elif name == GO_PEER:
        command = (str(_build(tell)),)
    elif name in PYTHON_PEERS:
        command = (str(_install(name, tell)), "-m", "bench.peers", name)
    else:
        raise PeerMissingError(f"there is no peer {name!r}; there are {', '.join(ALL_PEERS)}")
    environment = _environment(name) | {URL_VARIABLE: "redis://127.0.0.1:1/0", COUNTERS_VARIABLE: os.devnull}
    answer = _run([*command, "describe"], environment)
    return Program(name, command, Description(**json.loads(answer)))


def _environment(name: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    paths = [str(ROOT), str(_SOURCES)] if name == OURS else [str(ROOT)]
    # Unset variables are the same for all peers; the first run of each writes its bytecode cache.
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _install(name: str, tell: Callable[[str], None]) -> Path:
    """Return the Python of a peer's virtual environment."""
    pins = PEERS / f"{name}.txt"
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    stamp = folder / "made-from"
    wanted = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    tell(f"installing {name} from {pins.relative_to(ROOT)}, once")
    venv.create(folder, clear=True, with_pip=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    _run([str(python), "-m", "pip", "install", *quiet, "--requirement", str(pins)], dict(os.environ))
    stamp.write_text(wanted)
    return python


def _build(tell: Callable[[str], None]) -> Path:
    """Compile the Go peer from the local sources, and return its program."""
    source = PEERS / GO_PEER
    go = _run([str(ROOT / "tools" / "go.sh")], dict(os.environ)).strip()
    ENVIRONMENTS.mkdir(exist_ok=True)
    program = ENVIRONMENTS / GO_PEER
    tell("building the peer in Go")
    # Asynq may require a newer Go, which the Go command then downloads like a module.
    flags = {"GOTOOLCHAIN": "auto", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    _run([go, "build", "-o", str(program), "."], dict(os.environ) | flags, folder=source)
    return program


def _run(command: list[str], environment: dict[str, str], folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerMissingError(f"{' '.join(command[:4])} ... failed: {done.stderr.strip()[-600:]}")
    return done.stdout
