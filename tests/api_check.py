"""Fuzz test of `/api/v1` and `/v1` with Schemathesis: requests that their OpenAPI documents allow or forbid.

    python -m tests.api_check --schemathesis .schemathesis/bin/schemathesis --seconds 40 --seed 7

It validates the documents, fills a Redis of its own, and serves the dashboard and the task service in
processes of their own. The exit code is not 0 if an answer contradicts the document, or is a server error.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import redis

from pyasynq.embedded import EmbeddedServer
from pyasynq.gateway.api.openapi import SERVICE_DOCUMENT
from pyasynq.operations import User
from pyasynq.operations.sync import Operator
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
_SERVE_TASKS: Final = """
import asyncio, logging, sys, uvicorn
logging.getLogger("pyasynq").addHandler(logging.NullHandler())
from pyasynq import Consumer, ConsumerConfig
from pyasynq.gateway.api import task_service
from pyasynq.gateway.configurations import parse_service_file

async def work(url):
    # Ends what is enqueued, so that requests that wait for it are answered.
    async with Consumer(url, ConsumerConfig(queues={"resize": 1})) as consumer:
        while True:
            async with consumer.take("resize", limit=10) as attempts:
                for attempt in attempts:
                    await attempt.done("fine")

async def main():
    url, port = sys.argv[1], int(sys.argv[2])
    types = {"resize": {"retention": "1h", "managed": "api"}, "deliver": {}}
    site = task_service(parse_service_file({"service": {"redis": url}, "tasks": types}), secret="s" * 32)
    await site.start()
    working = asyncio.create_task(work(url))
    config = uvicorn.Config(site, port=port, log_level="error", lifespan="off", http="h11",
        h11_max_incomplete_event_size=4_000_000)
    await uvicorn.Server(config).serve()
    working.cancel()

asyncio.run(main())
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
"""Routes that are left out, because their work takes seconds."""


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    # The path is absolute, because the program runs in another folder, and keeps links, which select the
    # environment.
    parser.add_argument("--schemathesis", required=True, type=_read_path, help="the program")
    parser.add_argument(
        "--seconds", type=int, help="how long to try each; until all phases have ended unless given"
    )
    parser.add_argument("--seed", type=int, help="repeats the choices of a run")
    parser.add_argument("--only", choices=("dashboard", "service"), help="check one of the two")
    given = parser.parse_args()
    checks = {"dashboard": _check_dashboard, "service": _check_service}
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        Path(folder, "schemathesis.toml").write_text(_CONFIG, "utf-8")
        _fill(server.url)
        chosen = [check for name, check in checks.items() if given.only in {None, name}]
        return max([check(given, folder, server.url) for check in chosen])


def _check_dashboard(given: argparse.Namespace, folder: str, url: str) -> int:
    token = make_token()
    people = Path(folder, "people")
    people.write_text(token_line("checker", "admin", "*", date(2100, 1, 1), token), "utf-8")
    with _serving(_SERVE, url, str(people)) as address:
        return _check(given, folder, DOCUMENT, f"{address}/api/v1", token, _SLOW)


def _check_service(given: argparse.Namespace, folder: str, url: str) -> int:
    with Operator(url, User.with_role("checker", "admin")) as operator:
        key = operator.make_api_key("checker", ["admin"]).text
    with _serving(_SERVE_TASKS, url) as address:
        names = f'[parameters]\ntoken = "{_lease(address, key)}"\n'
        Path(folder, "schemathesis.toml").write_text(names + _CONFIG, "utf-8")
        return _check(
            given, folder, SERVICE_DOCUMENT, f"{address}/v1", key, ("/tasks/{queue}/{task}/events",)
        )


def _lease(address: str, key: str) -> str:
    """Return the token of a leased task."""
    sent = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{address}/v1", headers=sent) as client:
        client.post("/tasks", json={"type": "deliver"}).raise_for_status()
        answer = client.post("/leases", json={"queues": ["deliver"], "lease": 3_600}).raise_for_status()
    return str(answer.json()["tasks"][0]["token"])


def _check(
    given: argparse.Namespace, folder: str, document: Path, address: str, token: str, slow: tuple[str, ...]
) -> int:
    """Validate a document, and check what answers at an address against it; return the exit code."""
    validator = given.schemathesis.with_name("openapi-spec-validator")
    if code := subprocess.run([str(validator), str(document)], check=False).returncode:
        return code
    command = [str(given.schemathesis), "run", str(document), "--url", address]
    command += ["--header", f"Authorization: Bearer {token}", "--checks", ",".join(_CHECKS)]
    command += ["--workers", "1", "--generation-database", "none", "--no-color"]
    command += [part for path in slow for part in ("--exclude-path", path)]
    command += ["--max-time", str(given.seconds)] if given.seconds else []
    command += ["--seed", str(given.seed)] if given.seed is not None else []
    return subprocess.run(command, cwd=folder, check=False).returncode


def _read_path(text: str) -> Path:
    return Path(text).absolute()


def _fill(url: str) -> None:
    """Create the objects that the examples of the document name."""
    with redis.Redis.from_url(url) as client:
        tasks = Tasks(client, "emails")
        tasks.put(TaskState.ARCHIVED, "42", "43", error_msg="boom", last_failed_at=1, payload=b'{"n":1}')
        tasks.put(TaskState.SCHEDULED, "44")
        tasks.pending("45")
        now = int(time.time())
        kept: Any = {"retention": 3_600, "completed_at": now, "score": now + 3_600}
        Tasks(client, "resize").put(TaskState.COMPLETED, "42", **kept)
        announce_servers(url)
        announce_schedules(client)


@contextmanager
def _serving(program: str, url: str, *arguments: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-c", program, url, *arguments, str(port)]
    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: _answers(port), "the program answers", seconds=120)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(main())
