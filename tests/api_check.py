"""Hands `/api/v1` what its own OpenAPI document allows and forbids, by Schemathesis.

    python -m tests.api_check --schemathesis .schemathesis/bin/schemathesis --seconds 40 --seed 7

It fills a Redis of its own and serves the dashboard in a process of its own.
The exit code is not 0 if an answer is not as the document says, or is an error of the server.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from pyasynq.embedded import EmbeddedServer
from pyasynq.task import TaskState
from pyasynq.web.api.openapi import DOCUMENT
from pyasynq.web.auth.credentials import make_token, token_line
from tests.factories import Tasks
from tests.ports import free_port
from tests.shop import announce_schedules, announce_servers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVE: Final = """
import logging, sys, uvicorn
logging.getLogger("pyasynq").addHandler(logging.NullHandler())
from pyasynq.web import CredentialsFile, dashboard
site = dashboard(sys.argv[1], auth=CredentialsFile(sys.argv[2]), api_requests=None)
uvicorn.run(site, port=int(sys.argv[3]), log_level="error", lifespan="off", http="h11",
    h11_max_incomplete_event_size=4_000_000)
"""
_CONFIG: Final = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 413, 414, 415, 422, 429]
"""
_CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
_SLOW: Final = ("/events", "/doctor", "/doctor:repair")
"""Routes that take seconds by what they do, which are left out."""


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    # Absolute, since it runs in another folder; not resolved, since a link says which environment it is of.
    parser.add_argument("--schemathesis", required=True, type=_read_path, help="the program")
    parser.add_argument(
        "--seconds", type=int, help="how long to try; until all phases have ended unless given"
    )
    parser.add_argument("--seed", type=int, help="repeats the choices of a run")
    given = parser.parse_args()
    token = make_token()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        people = Path(folder, "people")
        people.write_text(token_line("checker", "admin", "*", date(2100, 1, 1), token), "utf-8")
        Path(folder, "schemathesis.toml").write_text(_CONFIG, "utf-8")
        _fill(server.url)
        with _serving(server.url, people) as address:
            command = [str(given.schemathesis), "run", str(DOCUMENT), "--url", f"{address}/api/v1"]
            command += ["--header", f"Authorization: Bearer {token}", "--checks", ",".join(_CHECKS)]
            command += ["--workers", "1", "--generation-database", "none", "--no-color"]
            command += [part for path in _SLOW for part in ("--exclude-path", path)]
            command += ["--max-time", str(given.seconds)] if given.seconds else []
            command += ["--seed", str(given.seed)] if given.seed is not None else []
            return subprocess.run(command, cwd=folder, check=False).returncode


def _read_path(text: str) -> Path:
    return Path(text).absolute()


def _fill(url: str) -> None:
    """Put in what the examples of the document name."""
    with redis.Redis.from_url(url) as client:
        tasks = Tasks(client, "emails")
        tasks.put(TaskState.ARCHIVED, "42", "43", error_msg="boom", last_failed_at=1, payload=b'{"n":1}')
        tasks.put(TaskState.SCHEDULED, "44")
        tasks.pending("45")
        announce_servers(url)
        announce_schedules(client)


@contextmanager
def _serving(url: str, people: Path) -> Iterator[str]:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", _SERVE, url, str(people), str(port)]) as process:
        try:
            wait_until(lambda: _answers(port), "the dashboard answers", seconds=120)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(main())
