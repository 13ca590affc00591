"""The real Asynq, driven through a pipe: builds the program in `peer/` and speaks its JSON lines."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = Path(__file__).parent / "peer"
GO = "PYASYNQ_GO"
"""The environment variable that names the Go command, where it is not on PATH."""


class GoMissingError(Exception):
    """There is no Go command."""


class GoError(Exception):
    """What Asynq answered instead of a result.

    Attributes:
        kind: one of the errors that callers tell apart, or `other`.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def find_go() -> str:
    """Return the Go command.

    Raises:
        GoMissingError: when there is none.
    """
    found = os.environ.get(GO) or shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if found is None:
        raise GoMissingError(f"Go is missing: install Go 1.21 or later, or name its command in {GO}")
    return found


def build_program(source: Path, folder: Path) -> Path:
    """Compile one of the Go modules here into a folder, and return the program.

    Processes that name the same folder build once.
    """
    program = folder / source.name
    # Asynq may ask for a newer Go than this one; then it fetches that as it fetches modules.
    environment = {**os.environ, "GOTOOLCHAIN": "auto", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    with (folder / f"{source.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            done = subprocess.run(
                [find_go(), "build", "-o", str(program), "."],
                cwd=source,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{source} does not build:\n{done.stderr}"
    return program


class GoPeer:
    """A running peer. Calls are made one at a time, by one thread.

    A method that is not written here is a call of that name with the keyword arguments: `peer.run_task(
    queue="default", id="a")`. Bytes are sent as base64; what comes back as base64 the caller decodes with
    `bytes_of`.
    """

    def __init__(self, program: Path, redis_url: str) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.connect(redis_url)

    def connect(self, redis_url: str) -> None:
        """Stop all that runs, and go on with another Redis."""
        url = urlsplit(redis_url)
        if url.scheme == "unix":
            self.call(
                "connect",
                network="unix",
                address=url.path,
                database=int(parse_qs(url.query).get("db", ["0"])[0]),
            )
        else:
            address = f"{url.hostname}:{url.port or 6379}"
            self.call("connect", network="tcp", address=address, database=int(url.path.strip("/") or 0))

    def call(self, name: str, **arguments: Any) -> Any:
        """Make one call and return its result.

        Raises:
            GoError: what Asynq answered.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"call": name, "arguments": arguments}, default=_encode)
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline() or b'{"error": {"kind": "gone", "text": "gone"}}')
        if error := reply.get("error"):
            assert error["kind"] not in {"request", "gone"}, f"{name}: {error['text']}"
            raise GoError(error["kind"], error["text"])
        return reply["result"]

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            return self.call(name, **arguments)

        return call

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Let it shut down what runs, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def task(task_type: str, payload: bytes | None = None, **options: Any) -> Mapping[str, Any]:
    """Return a task in the form in which the peer takes it; `headers` are the task's own."""
    headers = options.pop("headers", None)
    return {"type": task_type, "payload": payload, "headers": headers, "options": options}


def bytes_of(text: str | None) -> bytes | None:
    """Decode base64 that came from the peer; None is Go's nil."""
    return None if text is None else base64.b64decode(text)


def _encode(value: object) -> str:
    assert isinstance(value, bytes), value
    return base64.b64encode(value).decode()
