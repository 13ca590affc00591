"""Joining the server of a data folder, or starting it by a guardian process."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn

from pyasynq._embedded import guardian
from pyasynq._embedded.address import socket_path, unix_url
from pyasynq._embedded.binary import BINARY_VARIABLE, ServerBinary, find_server_binary
from pyasynq._embedded.errors import DataFolderError, EmbeddedServerError, ServerStartError
from pyasynq._embedded.folder import is_locked, poll_pauses, read_state

if TYPE_CHECKING:
    from pyasynq._embedded.folder import DataFolder

_GUARDIAN_SCRIPT = guardian.__file__
_ANSWER_MARGIN = 2 * guardian.SHUTDOWN_SECONDS
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')
_DAMAGED_FILE = re.compile(r"reading the append only file ([^\s:]+):")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Description of a running server, which its guardian has written."""

    url: str = field(repr=False)
    socket: str
    password: str | None = field(repr=False)
    port: int | None
    name: str
    version: str
    pid: int
    guardian_pid: int


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The user's settings for starting an embedded server."""

    port: int | None
    binary: str | os.PathLike[str] | None
    seconds: float


def join_or_start(folder: DataFolder, options: StartOptions) -> RunningServer:
    """Find the server of a folder, or start one.

    The caller holds the shared lock of the folder, so the server does not end meanwhile.

    Raises:
        ServerBinaryError: there is no server program.
        ServerStartError: the server ended, or was not ready in time.
        DataFolderError: another process holds the folder and cannot be reached.
        EmbeddedServerError: the running server listens on another port than the requested one.
    """
    for _ in poll_pauses(options.seconds):
        if not is_locked(folder.state):
            started = _start(folder, options)
            if started is not None:
                return started
        running = _running(folder)
        if running is not None:
            _check_port(folder, running, options.port)
            return running
    message = (
        f"A server holds {folder.path} and did not answer within {options.seconds:g} s. It may be loading "
        f"its data (see {folder.log}), or belong to another host or container that cannot share its socket."
    )
    raise DataFolderError(folder.path, message)


def _running(folder: DataFolder) -> RunningServer | None:
    state = read_state(folder)
    names = [each.name for each in fields(RunningServer)]
    if not state.keys() >= set(names) or not isinstance(state["socket"], str):
        return None  # the guardian has not written it yet
    running = RunningServer(**{name: state[name] for name in names})
    return running if guardian.is_ready(running.socket, running.password) else None


def _check_port(folder: DataFolder, running: RunningServer, wanted: int | None) -> None:
    if wanted is None or running.port == wanted or (wanted == 0 and running.port):
        return
    listens = f"on port {running.port}" if running.port else "on a unix socket only"
    message = (
        f"The server of {folder.path} runs already and listens {listens}, so port {wanted} is impossible. "
        "Leave out port=, or stop the other users of the folder first."
    )
    raise EmbeddedServerError(message)


def _start(folder: DataFolder, options: StartOptions) -> RunningServer | None:
    """Start a guardian, and return the server that it reports; None if another guardian runs already."""
    binary = find_server_binary(options.binary)
    port = _free_port() if options.port == 0 else options.port
    order = _order(folder, binary, port=port, seconds=options.seconds)
    answer = _run_guardian(folder, order, options.seconds + _ANSWER_MARGIN)
    if answer["outcome"] == "busy":
        return None
    if answer["outcome"] == "failed":
        _raise_start_error(folder, binary, answer)
    return RunningServer(**answer["server"])


def _order(folder: DataFolder, binary: ServerBinary, *, port: int | None, seconds: float) -> dict[str, Any]:
    socket_file = os.fspath(socket_path(folder.path))
    password = secrets.token_urlsafe(32) if port else None
    server = {
        "url": f"redis://:{password}@127.0.0.1:{port}" if port else unix_url(socket_file),
        "socket": socket_file,
        "password": password,
        "port": port,
        "name": binary.name,
        "version": binary.version,
    }
    return {
        "server": server,
        "binary": os.fspath(binary.path),
        "configuration": configuration(folder, socket_file, port=port, password=password),
        "folder": os.fspath(folder.path),
        "marker": os.fspath(folder.marker),
        "state": os.fspath(folder.state),
        "log": os.fspath(folder.log),
        "socket": socket_file,
        "in_memory": folder.in_memory,
        "seconds": seconds,
    }


def configuration(folder: DataFolder, socket_file: str, *, port: int | None, password: str | None) -> str:
    """Build the server's configuration file."""
    directives = {
        "port": str(port or 0),
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "unixsocket": socket_file,
        "unixsocketperm": "700",
        "dir": os.fspath(folder.path),
        "appendonly": "no" if folder.in_memory else "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "databases": "16",
        "daemonize": "no",
        "supervised": "no",
        "logfile": "",
        "save": "",
    }
    if password:
        directives["requirepass"] = password
    return "".join(f"{name} {quote_setting(value)}\n" for name, value in directives.items())


def quote_setting(value: str) -> str:
    """Quote a value for redis.conf; bytes that are not plain ASCII become hexadecimal escapes."""
    return (
        '"' + "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in os.fsencode(value)) + '"'
    )


def _run_guardian(folder: DataFolder, order: dict[str, Any], seconds: float) -> dict[str, Any]:
    if getattr(sys, "frozen", False) or not sys.executable:
        message = (
            "The embedded server needs a Python interpreter to run its guardian; a frozen program has none."
        )
        raise EmbeddedServerError(message)
    try:
        run = subprocess.run(
            [sys.executable, "-I", "-S", _GUARDIAN_SCRIPT],
            input=json.dumps(order).encode(),
            capture_output=True,
            timeout=seconds,
            cwd="/",
            start_new_session=True,
            check=False,
        )
        answer = json.loads(run.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"The guardian of the embedded server of {folder.path} did not start or answer: {error}."
        raise EmbeddedServerError(message) from error
    except ValueError as error:
        words = run.stderr.decode(errors="replace").strip()[-1000:]
        message = f"The guardian of the embedded server of {folder.path} failed in {sys.executable}: {words}"
        raise EmbeddedServerError(message) from error
    if not isinstance(answer, dict):
        message = f"{sys.executable} is not a Python interpreter: it answered {answer!r}."
        raise EmbeddedServerError(message)
    return answer


def _raise_start_error(folder: DataFolder, binary: ServerBinary, answer: dict[str, Any]) -> NoReturn:
    log = answer["log"]
    lines = [f"The embedded server for {folder.path} did not start: {binary} {answer['reason']}."]
    if log:
        lines += ["It wrote:", *(f"    {line}" for line in log.splitlines())]
    lines += _remedies(folder, binary, answer)
    raise ServerStartError("\n".join(lines), folder=folder.path, binary=binary.path, log=log)


def _remedies(folder: DataFolder, binary: ServerBinary, answer: dict[str, Any]) -> list[str]:
    remedies = []
    if "-check-aof" in answer["log"]:
        command = repair_command(folder, binary, answer["log"])
        remedies.append(f"Its append-only file is damaged. Copy the folder, then type: {command}")
    last_server, this_server = answer["last_server"], f"{binary.name} {binary.version}"
    if last_server and last_server != this_server:
        remedies.append(
            f"The folder was last used by {last_server}, and this is {this_server}, which may be unable to "
            f"read it. Name the other program in {BINARY_VARIABLE}."
        )
    return remedies


def repair_command(folder: DataFolder, binary: ServerBinary, log: str) -> str:
    """Build the command that truncates a damaged append-only file after its last whole entry.

    The checker is the server program itself under another name, so it exists even where only the server does.
    It gets the damaged part, not the manifest: the checker of Valkey 9.1 takes a sound base file for damaged.
    """
    named = _DAMAGED_FILE.search(log)
    damaged = folder.path / ("appendonlydir" if named else "") / (named[1] if named else "appendonly.aof")
    checker = f'exec -a {binary.name.lower()}-check-aof "$0" --fix "$1"'
    return shlex.join(["bash", "-c", checker, os.fspath(binary.path), os.fspath(damaged)])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
